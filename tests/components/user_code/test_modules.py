from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from strategos.components.errors import UserError
from strategos.components.user_code import modules as user_modules


@pytest.fixture
def workload(tmp_path):
    def write(name: str, **modules: str):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        for module, source in modules.items():
            (folder / f"{module}.py").write_text(source)
        return str(folder)

    return write


def test_two_workloads_with_a_module_of_one_name_each_get_their_own(workload):
    one = workload("one", model="import layers\nNAME = layers.NAME", layers="NAME='1'")
    two = workload("two", model="import layers\nNAME = layers.NAME", layers="NAME='2'")
    assert user_modules.load(one, "model").NAME == "1"
    assert user_modules.load(two, "model").NAME == "2"
    assert user_modules.load(one, "model").NAME == "1"


@pytest.mark.long
def test_threads_that_import_a_module_at_the_same_time_get_the_same(workload):
    source = "import time\ntime.sleep(0.002)\nNAME = __file__"
    with ThreadPoolExecutor(8) as threads:
        for number in range(30):
            folder = workload(f"w{number}", model=source, other="")
            begin = threading.Barrier(8)

            def load(_, folder=folder, begin=begin):
                begin.wait()
                return user_modules.load(folder, "model")

            found = list(threads.map(load, range(8)))
            assert {each.NAME for each in found} == {f"{folder}/model.py"}
            assert len({*map(id, found)}) == 1


def test_missing_function_names_those_that_are_there(workload):
    folder = workload("w", preprocessing="def preprocess(inputs):\n    return inputs\n")
    with pytest.raises(UserError) as error:
        user_modules.function(folder, "preprocessing", "preprocessing_fn")
    assert "preprocessing.py: has no function `preprocessing_fn`" in str(error.value)
    assert "preprocess" in str(error.value).split("found:")[1]


def test_module_that_raises_is_named_with_its_error(workload):
    folder = workload("w", broken="1 / 0\n")
    with pytest.raises(UserError, match=r"broken\.py.*ZeroDivisionError"):
        user_modules.load(folder, "broken")
