"""What went wrong in the user's code: its file and line, and the message alone.

AutoGraph and Keras wrap an error in tracebacks and remarks of their own, once per layer
that the call went through. The innermost message is the one that helps.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path

_QUOTED_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in .*\n.*\n', re.MULTILINE)
_LAYER_REMARK = re.compile(r"Exception encountered when calling [^\n]*\n+")
_ARGUMENTS_REMARK = re.compile(r"\n\s*Call arguments received by [\s\S]*")


def explain(error: BaseException, folder: str) -> str:
    """`FILE:LINE: Type: message` of an error that code in `folder` ran into.

    The line is the innermost one of the user's own; without one the text starts with
    the error's type.
    """
    text = str(error).rsplit("in user code:", 1)[-1]
    text = _QUOTED_FRAME.sub("", text)
    text = _ARGUMENTS_REMARK.sub("", _LAYER_REMARK.sub("", text)).strip()
    kind = type(error).__name__
    if not text.startswith(f"{kind}: "):
        text = f"{kind}: {text}" if text else kind
    text = "\n".join(line.strip() for line in text.splitlines())
    where = location(error, folder)
    return f"{where}: {text}" if where else text


def location(error: BaseException, folder: str) -> str | None:
    """`FILE:LINE` of the innermost frame of `error` that lies in `folder`, if any."""
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    frames += _QUOTED_FRAME.findall(str(error))  # compiled by AutoGraph: only told of
    own = [frame for frame in frames if _is_own(frame[0], folder)]
    return f"{own[-1][0]}:{own[-1][1]}" if own else None


def _is_own(filename: str, folder: str) -> bool:
    path = Path(filename).resolve()
    if not path.is_relative_to(Path(folder).resolve()):
        return False
    return not {".venv", "site-packages"} & set(path.parts)
