"""JSON documents are read as JSON lines with the same rows."""

from __future__ import annotations

import json
import random

import pytest

from strategos.components.predict.piped import on_disk

SPACES = ("", " ", "\n", "\r\n\t ", " \n\n")
VALUES = (1, -0.1, 2**63, 1e300, None, True, "]},{[", 'q"u\\', "a\nb", "Köln\u2028", [])


def written(draw: random.Random, value: object) -> str:
    """JSON with spaces wherever they may stand."""
    space = draw.choice(SPACES)
    if isinstance(value, dict):
        pairs = [
            f"{space}{json.dumps(k)}{space}:{space}{written(draw, v)}"
            for k, v in value.items()
        ]
        return f"{{{f'{space},'.join(pairs)}{space}}}"
    if isinstance(value, list):
        return f"[{space}{f',{space}'.join(written(draw, x) for x in value)}{space}]"
    return json.dumps(value, ensure_ascii=draw.random() < 0.5)


@pytest.mark.parametrize("seed", range(40))
def test_each_row_is_a_line(tmp_path, seed):
    draw = random.Random(seed)
    rows = [
        {name: draw.choice([*VALUES, {"of": [1, {}]}]) for name in "ab"}
        for _ in range(draw.randrange(5))
    ]
    document = rows[0] if seed % 3 == 0 and rows else rows
    text = draw.choice(SPACES) + written(draw, document) + draw.choice(SPACES)
    path = tmp_path / "rows.json"
    encoding = draw.choice(["utf-8", "utf-8-sig"])
    path.write_bytes(text.encode(encoding))
    with on_disk(str(path)) as file, open(file.path, encoding=encoding) as opened:
        lines = opened.read().split("\n")[:-1] if file.has_document else [text]
    wanted = rows if document is rows else rows[:1]
    assert [json.loads(line) for line in lines] == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"hour": 3, "hour": 4}', "the key `hour` occurs twice"),
        ('{"hour": 3, "temp": 1e400}', "a number beyond double"),
        (r'{"hour": 3, "carrier": "\ud800"}', r"has half a character, `\ud800`"),
        ("null", "is null, not an object"),
    ],
)
def test_a_row_is_rejected_as_in_json_lines(predict, tmp_path, capsys, text, message):
    (tmp_path / "rows.json").write_text(f'[{{"carrier": "AA", "hour": 3}},\n{text}]')
    assert predict("rows.json") == 2
    said = capsys.readouterr().err
    assert "rows.json: row 2: " in said and message in said
