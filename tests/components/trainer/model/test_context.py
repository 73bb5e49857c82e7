"""The context that users' functions receive, and its tables in the docs."""

from __future__ import annotations

import functools
import inspect
import json
import pickle
import re
from pathlib import Path

import pytest

from strategos.components.trainer.loop.custom_loop import LoopContext
from strategos.components.trainer.model.context import Hyperparameters, TrainingContext

DOCS = Path(__file__).parents[4] / "docs"
ROW = re.compile(r"\| `context\.(\w+)(?:\((.*?)\))?` \| (?:`([^|]+?)` \| )?[^|]+ \|")


def members(of):
    """The public members that a class declares: (parameters, type) by name."""
    found = {name: ("", kind) for name, kind in of.__annotations__.items()}
    for name, member in vars(of).items():
        if name[0] == "_":
            continue
        if isinstance(member, property):
            found[name] = "", member.fget.__annotations__["return"]
        elif isinstance(member, functools.cached_property):
            found[name] = "", member.func.__annotations__["return"]
        elif inspect.isfunction(member):
            _, *parameters = inspect.signature(member).parameters
            found[name] = ", ".join(parameters), member.__annotations__["return"]
    return found


def documented(page, heading):
    """The rows of the tables below a heading of a page, as `members` gives them."""
    text = (DOCS / page).read_text()
    section = text.partition(f"# {heading}\n")[2].partition("\n## ")[0]
    return {name: (words, kind) for name, words, kind in ROW.findall(section)}


def test_the_docs_name_each_member_of_the_context_with_its_type():
    found = members(TrainingContext)
    found["feature_spec"] = "", "Mapping[str, Any]"  # `FeatureSpec`
    assert documented("custom_training.md", "The context") == found


def test_hyperparameters_are_a_dict_that_names_what_it_lacks():
    found = Hyperparameters({"units": 3})
    assert found == {"units": 3} == json.loads(json.dumps(found))
    assert found.get("rate") is None and pickle.loads(pickle.dumps(found)) == found
    with pytest.raises(KeyError) as raised:
        found["rate"]
    assert str(raised.value).startswith("`rate` is not in trainer.hyperparameters: un")


@pytest.mark.parametrize("name", sorted(members(LoopContext)))
def test_the_docs_name_what_a_custom_loop_gets_besides(name):
    assert name in documented("custom_training/loop.md", "A custom loop")
