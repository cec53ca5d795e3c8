"""Widgets of a sandbox in a notebook: shown, moved, kept apart, and gone with their sandbox."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from ipysandbox import Sandbox

from .conftest import SECONDS, Notebook, Ran

VIEW = "application/vnd.jupyter.widget-view+json"
SLIDER = """
import ipywidgets as w
from IPython.display import display
slider, label, moves = w.IntSlider(2, description="n"), w.Label("still"), []
def moved(change):
    moves.append(change.new)
    label.value = f"now {change.new}"
    open("results/moved", "w").write(str(change.new))
slider.observe(moved, "value")
display(slider, label)
"""


@pytest.fixture(scope="module")
def page(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """A notebook of somebody whose own policy lets widgets pass."""
    one = with_widgets(study, tmp_path_factory.mktemp("config"))
    yield one
    one.close()


@pytest.fixture
def new_page(study: Path, tmp_path: Path) -> Iterator[Notebook]:
    one = with_widgets(study, tmp_path)
    yield one
    one.close()


def with_widgets(study: Path, config: Path) -> Notebook:
    (config / "ipysandbox.toml").write_text("[output]\nwidgets = true\n")
    return Notebook(study, JUPYTER_CONFIG_DIR=str(config))


def shown(ran: Ran) -> list[str]:
    """The ids of the widgets that a cell displays."""
    return [data[VIEW]["model_id"] for data in ran.displays if VIEW in data]


def states(ran: Ran) -> dict[str, dict[str, Any]]:
    """The widgets' states after a cell, as a page would have them."""
    found: dict[str, dict[str, Any]] = {}
    for kind, content in ran.messages:
        if kind == "comm_open":
            found[content["comm_id"]] = dict(content["data"]["state"])
        elif kind == "comm_msg":
            found[content["comm_id"]].update(content["data"]["state"])
    return found


def tell(page: Notebook, kind: str, content: dict[str, Any], **header: Any) -> str:
    message = page.client.session.msg(kind, content)
    message["header"].update(header)
    page.client.shell_channel.send(message)
    return str(message["header"]["msg_id"])


def move(page: Notebook, model_id: str, value: Any, **header: Any) -> str:
    data = {"method": "update", "state": {"value": value}, "buffer_paths": []}
    return tell(page, "comm_msg", {"comm_id": model_id, "data": data}, **header)


def heard(page: Notebook, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The next message on iopub that is wanted."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        message: dict[str, Any] = page.client.get_iopub_msg(timeout=SECONDS)
        if wanted(message):
            return message
    raise AssertionError("it never came")


def changed(model_id: str, key: str, value: Any) -> Callable[[dict[str, Any]], bool]:
    def wanted(message: dict[str, Any]) -> bool:
        content = message["content"]
        about = message["msg_type"] == "comm_msg" and content["comm_id"] == model_id
        return about and content["data"]["state"].get(key) == value

    return wanted


def live(page: Notebook) -> set[str]:
    page.client.comm_info("jupyter.widget")
    reply = page.client.get_shell_msg(timeout=SECONDS)
    while reply["msg_type"] != "comm_info_reply":
        reply = page.client.get_shell_msg(timeout=SECONDS)
    return set(reply["content"]["comms"])


def subshell(page: Notebook) -> str:
    request = page.client.session.msg("create_subshell_request", {})
    page.client.control_channel.send(request)
    reply = page.client.get_control_msg(timeout=SECONDS)
    return str(reply["content"]["subshell_id"])


def test_a_slider_is_there_before_it_is_shown_and_answers_what_the_page_does(page: Notebook) -> None:
    ran = page.run("%%sandbox talk\n" + SLIDER).ok()
    slider, label = shown(ran)
    kinds = [kind for kind, _ in ran.messages]
    assert kinds.index("comm_open") < kinds.index("display_data")
    assert (states(ran)[slider]["value"], states(ran)[label]["value"]) == (2, "still")
    asked = move(page, slider, 7)
    echo = heard(page, changed(slider, "value", 7))
    # By its parent the page tells its own change from somebody else's.
    assert (echo["content"]["data"]["method"], echo["parent_header"]["msg_id"]) == ("echo_update", asked)
    heard(page, changed(label, "value", "now 7"))
    assert "7 [7]" in page.run("%%sandbox talk\nprint(slider.value, moves)").ok().stdout


def test_what_the_page_does_gets_through_while_the_notebook_is_busy(page: Notebook, study: Path) -> None:
    (slider, _label) = shown(page.run("%%sandbox busy\n" + SLIDER).ok())
    (study / "results" / "moved").unlink(missing_ok=True)
    other = subshell(page)
    # It ends only when the sandbox has heard of the change.
    cell = page.client.execute(
        f"import pathlib, time\nend = time.monotonic() + {SECONDS}\n"
        "while not pathlib.Path('results/moved').exists() and time.monotonic() < end: time.sleep(0.02)\n"
        "assert time.monotonic() < end"
    )
    heard(page, lambda m: m["msg_type"] == "execute_input" and m["parent_header"]["msg_id"] == cell)
    move(page, slider, 9, subshell_id=other)
    reply = page.client.get_shell_msg(timeout=SECONDS)
    while reply["parent_header"]["msg_id"] != cell:
        reply = page.client.get_shell_msg(timeout=SECONDS)
    assert reply["content"]["status"] == "ok"
    assert (study / "results" / "moved").read_text() == "9"


def test_each_sandbox_hears_of_its_own_widgets_alone(page: Notebook) -> None:
    first, _ = shown(page.run("%%sandbox one\n" + SLIDER).ok())
    second, _ = shown(page.run("%%sandbox two\n" + SLIDER).ok())
    move(page, first, 5)
    heard(page, changed(first, "value", 5))
    move(page, second, 6)
    heard(page, changed(second, "value", 6))
    move(page, "not-a-widget", 8)
    assert "[5]" in page.run("%%sandbox one\nprint(moves)").ok().stdout
    assert "[6]" in page.run("%%sandbox two\nprint(moves)").ok().stdout


FORGED = """
kernel = get_ipython().kernel
def send(kind, **content):
    kernel.session.send(kernel.iopub_socket, kind, content, parent=kernel.get_parent(), ident=kind.encode())
send("display_data", data={VIEW: {"model_id": OWN, "version_major": 2}, "text/plain": "text"}, metadata={})
send("comm_open", comm_id=OWN, target_name="jupyter.widget", data={"state": {"_model_name": "HTMLModel"}})
send("comm_msg", comm_id=OWN, data={"method": "update", "state": {"value": 77}})
send("comm_close", comm_id=OWN, data={})
"""


def test_a_sandbox_speaks_for_no_widget_of_the_notebook(page: Notebook) -> None:
    (own,) = shown(page.run("import ipywidgets\nmine = ipywidgets.IntSlider(1)\ndisplay(mine)").ok())
    ran = page.run(f"%%sandbox forger\nOWN, VIEW = {own!r}, {VIEW!r}\n{FORGED}").ok()
    assert shown(ran) == []
    assert [content for kind, content in ran.messages if kind.startswith("comm_")] == []
    assert own in live(page)


@pytest.mark.parametrize("imported", ["before", "after"])
def test_a_page_that_is_loaded_again_gets_all_widgets_at_once(new_page: Notebook, imported: str) -> None:
    """Whether the notebook has imported ipywidgets, which answers for its own, before there was a sandbox, or since."""
    page, own_slider = new_page, "import ipywidgets\nkept = ipywidgets.IntSlider(1)"
    if imported == "before":
        page.run(own_slider).ok()
    slider, _ = shown(page.run("%%sandbox again\n" + SLIDER).ok())
    if imported == "after":
        page.run(own_slider).ok()
    move(page, slider, 4)
    heard(page, changed(slider, "value", 4))
    own = page.run("print(kept.model_id)").stdout.strip()
    for _ in range(2):
        control = "control-" + str(time.monotonic_ns())
        opening = page.client.session.msg(
            "comm_open", {"comm_id": control, "target_name": "jupyter.widget.control", "data": {}}
        )
        opening["metadata"] = {"version": "1.0.0"}
        page.client.shell_channel.send(opening)
        tell(page, "comm_msg", {"comm_id": control, "data": {"method": "request_states"}})
        told = heard(page, lambda m: m["msg_type"] == "comm_msg" and m["content"]["comm_id"] == control)  # noqa: B023
        found = told["content"]["data"]["states"]
        assert found[own]["state"]["value"] == 1
        assert found[slider]["state"]["value"] == 4
        assert found[slider]["model_name"] == "IntSliderModel"


def test_a_widgets_state_is_told_even_while_its_sandbox_is_busy(page: Notebook) -> None:
    slider, _ = shown(page.run("%%sandbox state\n" + SLIDER).ok())
    asked = tell(page, "comm_msg", {"comm_id": slider, "data": {"method": "request_state"}})
    told = heard(page, lambda m: m["msg_type"] == "comm_msg" and m["parent_header"].get("msg_id") == asked)
    assert told["content"]["data"]["method"] == "update"
    assert told["content"]["data"]["state"]["value"] == 2


def test_a_restarted_or_stopped_sandbox_has_no_widgets_left(page: Notebook) -> None:
    before = live(page)
    slider, label = shown(page.run("%%sandbox ends\n" + SLIDER).ok())
    assert {slider, label} <= live(page)
    restarted = [page.run("%sandbox restart ends").ok(), page.run("%%sandbox ends\nprint(1)").ok()]
    assert live(page) == before
    # A page would take what it shows away.
    assert "comm_close" not in [kind for ran in restarted for kind, _ in ran.messages]
    page.run("%%sandbox ends\n" + SLIDER).ok()
    assert page.run("%%sandbox ends\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)").ename == "SandboxDied"
    assert live(page) == before
    page.run("%%sandbox ends\n" + SLIDER).ok()
    page.run("%sandbox stop ends").ok()
    assert live(page) == before


def test_a_notebook_with_widgets_ends_at_once(study: Path, tmp_path: Path) -> None:
    (tmp_path / "ipysandbox.toml").write_text("[output]\nwidgets = true\n")
    one = Notebook(study, JUPYTER_CONFIG_DIR=str(tmp_path))
    try:
        one.run("%%sandbox\n" + SLIDER).ok()
        one.client.shutdown()
        one.client.get_control_msg(timeout=SECONDS)
        one.manager.provisioner.process.wait(10)
    finally:
        one.close()


@pytest.mark.parametrize("source", ["tqdm.notebook", "tqdm.auto"])
def test_a_progress_bar_is_a_widget_where_widgets_pass(page: Notebook, source: str) -> None:
    ran = page.run(f"%%sandbox bar\nfrom {source} import tqdm\nfor _ in tqdm(range(5), desc='reading'): pass").ok()
    (container,) = shown(ran)
    found = states(ran)
    left, bar, right = (found[name.removeprefix("IPY_MODEL_")] for name in found[container]["children"])
    texts = [text["value"].replace("\u2007", " ") for text in (left, right)]  # a space as wide as a digit
    assert texts[0] == "reading: 100%"
    assert texts[1].startswith(" 5/5 [00:00")
    assert (bar["_model_name"], bar["value"], bar["bar_style"]) == ("FloatProgressModel", 5, "success")
    assert "reading" in ran.displays[0]["text/plain"]


@pytest.mark.parametrize("source", ["tqdm.notebook", "tqdm.auto"])
def test_a_progress_bar_is_text_where_they_do_not(notebook: Notebook, source: str) -> None:
    ran = notebook.run(f"%%sandbox bar\nfrom {source} import tqdm\nfor _ in tqdm(range(5), desc='reading'): pass").ok()
    assert "reading: 100%" in ran.stderr
    assert not any(kind.startswith("comm_") for kind, _ in ran.messages)


def test_a_widget_is_text_and_one_note_where_they_do_not_pass(notebook: Notebook) -> None:
    ran = notebook.run("%%sandbox off\nimport ipywidgets\nipywidgets.IntSlider(3)").ok()
    assert [data for data in ran.displays if VIEW in data] == []
    assert ran.displays[0]["text/plain"] == "IntSlider(value=3)"
    (note,) = ran.notes
    assert "[output] widgets = true" in note
    assert not any(kind.startswith("comm_") for kind, _ in ran.messages)


def test_a_notebook_that_nbclient_runs_keeps_its_widgets(study: Path) -> None:
    book = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    own = Path(os.environ["JUPYTER_CONFIG_DIR"], "widgets.toml")
    own.write_text("[output]\nwidgets = true\n")
    code = f"%%sandbox --policy {own}\n" + SLIDER + "slider.value = 8"
    book.cells = [nbformat.v4.new_code_cell(text) for text in ("%load_ext ipysandbox", code)]
    NotebookClient(book, timeout=SECONDS, resources={"metadata": {"path": str(study)}}).execute()
    view = book.cells[1].outputs[0]["data"]
    kept = book.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    assert kept[view[VIEW]["model_id"]]["state"]["value"] == 8
    assert view["text/plain"].startswith("IntSlider(")


def test_outside_a_kernel_a_widget_shows_its_text(study: Path) -> None:
    with Sandbox({"output": {"widgets": True}}, project=study) as box:
        result = box.run("import ipywidgets\nipywidgets.IntSlider(3)")
        bar = box.run("from tqdm.notebook import tqdm\nfor _ in tqdm(range(5), desc='reading'): pass")
    assert result.status == "ok", result.error
    (output,) = result.outputs
    assert output["data"]["text/plain"] == "IntSlider(value=3)"
    assert result.notices == ()
    assert "reading: 100%" in bar.stderr
