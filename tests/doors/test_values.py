"""-i and -o carry values, as plain data."""

from __future__ import annotations

import unicodedata

import pytest

from .conftest import Notebook


def test_values_go_in_before_and_come_out_after_the_cell(notebook: Notebook) -> None:
    notebook.run("import numpy as np\nnumbers, factor = np.arange(3.0), 2").ok()
    notebook.run("%%sandbox v -i numbers,factor -o doubled,text\ndoubled = numbers * factor\ntext = 'done'").ok()
    assert "[0.0, 2.0, 4.0] done" in notebook.run("print(doubled.tolist(), text)").ok().stdout


def test_a_variable_that_is_missing_in_the_notebook_runs_nothing(notebook: Notebook) -> None:
    ran = notebook.run("%%sandbox v -i not_there\nprint('ran')")
    assert ran.reply["status"] == "error"
    assert "no variable of that name" in ran.stderr + ran.error
    assert "ran" not in ran.stdout.split()


def test_a_variable_that_is_missing_in_the_sandbox_is_named(notebook: Notebook) -> None:
    assert "-o not_there: the cell ran" in notebook.run("%%sandbox v -o not_there\n1").error


def test_a_value_that_can_not_cross_names_its_type_and_changes_nothing(notebook: Notebook) -> None:
    notebook.run("fine, bad = 'before', 'before'").ok()
    ran = notebook.run("%%sandbox v -o fine,bad\nfine = 1\nbad = object()")
    assert ran.ename == "ValueRefused"
    first, way, _ = ran.error.split("\n")
    assert "object" in first
    assert way.startswith("bad is still there in the sandbox. Take its arrays and numbers out")
    assert "Loading that file outside runs whatever the sandbox's code put into it" in way
    assert "before before" in notebook.run("print(fine, bad)").ok().stdout


def test_an_object_of_the_notebook_that_can_not_cross_runs_nothing(notebook: Notebook) -> None:
    notebook.run("import threading\ngate = threading.Lock()").ok()
    ran = notebook.run("%%sandbox v -i gate\nprint('ran')")
    assert ran.ename == "ValueRefused"
    first, way, rest = ran.error.split("\n")
    assert first.startswith("ValueRefused: gate: the value is of type ")
    assert first.count("can't cross") == 1
    assert way == "Make it in the sandbox instead, or fit it there, from data that can cross."
    assert rest.startswith("What can: None, bool")
    assert rest.endswith("functions and classes (with cloudpickle).")
    assert ran.stdout == ""


@pytest.mark.parametrize("names", ["a.b", "a, b", "a , b", "a ,b"])
def test_what_is_no_name_is_a_usage_error(notebook: Notebook, names: str) -> None:
    ran = notebook.run(f"%%sandbox v -i {names}\n1")
    assert ran.ename == "UsageError"


@pytest.mark.parametrize(
    "name",
    [
        *("__vsc_ipynb_file__", "__builtins__", "__name__", "_", "_i1", "_oh", "In", "Out", "get_ipython"),
        *("exit", "quit", "open", "display", "print", "ValueError", "for", "None", "ｐrint", "fine,print"),
    ],
)
def test_a_name_of_pythons_or_ipythons_own_takes_no_value(notebook: Notebook, name: str) -> None:
    ran = notebook.run(f"%%sandbox v -o {name}\nprint('ran')")
    assert ran.ename == "UsageError"
    plain = unicodedata.normalize("NFKC", name.split(",")[-1])
    assert f"the notebook keeps the name {plain!r} for Python and IPython, so nothing was run" in ran.stderr + ran.error
    assert ran.stdout == ""
    notebook.run("%%sandbox v\nprint('ran')").ok()


@pytest.mark.parametrize("made", ["import json as mine", "def mine(): ...", "class mine: ...", "mine = max"])
def test_no_value_replaces_a_module_function_or_class_of_the_notebook(notebook: Notebook, made: str) -> None:
    notebook.run(made).ok()
    ran = notebook.run("%%sandbox v -o mine\nprint('ran')\nmine = 1")
    assert ran.ename == "UsageError"
    assert "mine is a module, function or class, which a value would replace, so nothing was run" in str(ran.messages)
    assert ran.stdout == ""
    notebook.run("del mine").ok()
    for _ in range(2):
        notebook.run("%%sandbox v -o mine\nmine = 1").ok()
    assert notebook.run("print(mine)").ok().stdout == "1\n"
