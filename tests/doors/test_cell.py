"""%%sandbox in a notebook's kernel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from .conftest import SECONDS, Notebook


def test_variables_stay_in_the_sandbox_and_out_of_the_notebook(notebook: Notebook) -> None:
    notebook.run("%%sandbox vars\nsecret_plan = 6 * 7").ok()
    assert "42" in notebook.run("%%sandbox vars\nsecret_plan").ok().displays[0]["text/plain"]
    assert notebook.run("secret_plan").ename == "NameError"


def test_two_names_are_two_sandboxes(notebook: Notebook) -> None:
    notebook.run("%%sandbox vars\nhere = 1").ok()
    assert "NameError" in notebook.run("%%sandbox other\nhere").error


def test_a_table_and_a_figure_appear_as_from_a_normal_cell(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%sandbox show\nimport pandas as pd, matplotlib.pyplot as plt\n"
        "plt.plot([1, 2]); plt.show()\npd.DataFrame({'a': [1]})"
    ).ok()
    figure, table = ran.displays
    assert figure["image/png"].startswith("iVBOR")
    assert "<table" in table["text/html"]
    assert "a" in table["text/plain"]


def test_prints_appear_while_the_cell_still_runs(notebook: Notebook) -> None:
    seen: list[str] = []

    def answer(question: dict[str, Any]) -> str:
        # They come by two sockets, and the client looks at this one first: the print has to be on its way by now.
        while "before\n" not in "".join(seen):
            message = notebook.client.get_iopub_msg(timeout=SECONDS)
            note(message["msg_type"], message["content"])
        assert question["prompt"] == "[sandbox talk] go on? "
        return "yes"

    def note(kind: str, content: dict[str, Any]) -> None:
        seen.append(content.get("text", "") if kind == "stream" else "")

    ran = notebook.run(
        "%%sandbox talk\nprint('before')\nprint('answer:', input('go on? '))", on_message=note, on_input=answer
    ).ok()
    assert "answer: yes" in ran.stdout


def test_a_question_is_flagged_by_what_was_printed_before_it(notebook: Notebook) -> None:
    asked = []

    def answer(question: dict[str, Any]) -> str:
        asked.append(question["prompt"])
        return "yes"

    notebook.run("%%sandbox talk\nprint('Password: ', end='', flush=True)\ninput()", on_input=answer).ok()
    notebook.run("%%sandbox talk\nprint('no password needed')\ninput('go on? ')", on_input=answer).ok()
    assert asked[0].startswith("ipysandbox: this reads like a question for a password")
    assert asked[1:] == ["[sandbox talk] go on? "]


def test_a_password_prompt_gets_no_answer_and_the_code_is_told_why(notebook: Notebook) -> None:
    asked: list[str] = []

    def answer(question: dict[str, Any]) -> str:
        asked.append(question["prompt"])
        return "hunter2"

    ran = notebook.run("%%sandbox talk\nimport getpass\np = getpass.getpass()", on_input=answer)
    assert ran.error.startswith("StdinNotImplementedError: the code asked for a password (getpass): none is passed")
    assert "%%sandbox -i NAME" in ran.error
    assert "\n" not in ran.error
    caught = "try:\n    getpass.getpass()\nexcept Exception as exc:\n    print(type(exc).__name__, 'and on')"
    assert "and on" in notebook.run(f"%%sandbox talk\nimport getpass\n{caught}", on_input=answer).ok().stdout
    assert asked == []


def test_a_question_that_reads_like_one_for_a_password_comes_with_a_warning(notebook: Notebook) -> None:
    asked: list[dict[str, Any]] = []

    def answer(question: dict[str, Any]) -> str:
        asked.append(question)
        return "x"

    code = "%%sandbox talk\nfor q in ('Contraseña: ', 'name? ', 'one\\nsudo pаssword: '): input(q)"
    notebook.run(code, on_input=answer).ok()
    first = (
        "ipysandbox: this reads like a question for a password or key. What you type goes to the code, and is shown."
    )
    assert [question["prompt"] for question in asked] == [
        f"{first}\n[sandbox talk] Contraseña: ",
        "[sandbox talk] name? ",
        f"{first}\n[sandbox talk] one\n[sandbox talk] sudo pаssword: ",
    ]
    assert [question["password"] for question in asked] == [False] * 3


def test_questions_can_be_turned_off_by_the_policy(notebook: Notebook, study: Path) -> None:
    asked: list[dict[str, Any]] = []

    def answer(question: dict[str, Any]) -> str:
        asked.append(question)
        return "x"

    (study / "quiet.toml").write_text('[output]\nstdin = "off"\n')
    for question in ("input('name? ')", "__import__('getpass').getpass()"):
        ran = notebook.run(f"%%sandbox quiet --policy quiet.toml\n{question}", on_input=answer)
        assert ran.error.startswith("StdinNotImplementedError: the code asks for input, and the policy refuses every")
        assert '(stdin = "off" under [output])' in ran.error
    assert asked == []


def test_in_a_notebook_that_is_executed_without_anybody_a_question_is_a_clear_error(study: Path) -> None:
    book = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    book.cells = [nbformat.v4.new_code_cell(text) for text in ("%load_ext ipysandbox", "%%sandbox\ninput('name? ')")]
    with pytest.raises(CellExecutionError, match="the code asks for input, and nobody can answer here"):
        NotebookClient(book, resources={"metadata": {"path": str(study)}}).execute()


def test_input_fails_where_the_front_end_can_not_ask(notebook: Notebook) -> None:
    error = notebook.run("%%sandbox talk\ninput()").error
    assert error.startswith("StdinNotImplementedError: the code asks for input, and nobody can answer here")
    assert "\n" not in error


def test_outputs_can_be_updated_and_cleared(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%sandbox show\nfrom IPython.display import display, clear_output\n"
        "h = display('one', display_id=True)\nh.update('two')\nclear_output(wait=True)\nprint('last')"
    ).ok()
    kinds = [kind for kind, _ in ran.messages]
    assert kinds.index("display_data") < kinds.index("update_display_data") < kinds.index("clear_output")
    updated = next(content for kind, content in ran.messages if kind == "update_display_data")
    first = next(content for kind, content in ran.messages if kind == "display_data")
    assert updated["transient"]["display_id"] == first["transient"]["display_id"] != ""


def test_ipython_syntax_works_inside(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%sandbox syntax\nimport asyncio\nawait asyncio.sleep(0)\n!echo from a shell\n%timeit -n1 -r1 pass\nlen?"
    ).ok()
    assert "from a shell" in ran.stdout
    assert "per loop" in ran.stdout
    assert "number of items" in ran.stdout


def test_a_cell_that_raises_shows_the_sandboxs_traceback_and_nothing_of_ours(notebook: Notebook) -> None:
    ran = notebook.run("%%sandbox err\ndef f():\n    return 1 / 0\nf()")
    assert ran.ename == "SandboxError"
    assert "return 1 / 0" in ran.error
    assert ran.error.rstrip().endswith("ZeroDivisionError: division by zero")
    assert "ipysandbox/" not in ran.error


def test_what_a_failure_has_to_do_with_the_sandbox_is_the_last_line_that_is_shown(notebook: Notebook) -> None:
    code = "import urllib.request\nurllib.request.urlopen('http://example.org/')"
    ran = notebook.run(f"%%sandbox err\n{code}")
    assert ran.messages[-1][0] == "status"
    assert ran.messages[-2][0] == "error"
    assert ran.error.endswith("\nipysandbox: There is no network in the sandbox.")
    assert ran.notes == []
    shown = notebook.run(f"%%sandbox err --allow-error\n{code}").ok()
    assert shown.stderr.endswith("\nipysandbox: There is no network in the sandbox.\n")
    printed = notebook.run("%%sandbox err\n!echo could not resolve host").ok()
    assert printed.notes == ["ipysandbox: There is no network in the sandbox."]


def test_code_that_calls_exit_is_said_to_have_and_the_sandbox_goes_on(notebook: Notebook) -> None:
    ran = notebook.run("%%sandbox err\nkept = 1\nexit()")
    assert ran.error == "SandboxError: SystemExit (the code called exit())\nThe sandbox goes on, with its variables."
    assert "1" in notebook.run("%%sandbox err\nprint(kept)").ok().stdout
    assert "SystemExit: 3 (the code" in notebook.run("%%sandbox err\nimport sys; sys.exit(3)").error


def test_run_all_stops_at_a_cell_that_raised(notebook: Notebook) -> None:
    first = notebook.client.execute("%%sandbox err\nraise ValueError('no')")
    second = notebook.client.execute("never = 1")
    replies: dict[str, str] = {}
    while len(replies) < 2:
        reply = notebook.client.get_shell_msg(timeout=60)
        replies[reply["parent_header"]["msg_id"]] = reply["content"]["status"]
    assert replies[first] == "error"
    assert replies[second] == "aborted"
    assert notebook.run("never").ename == "NameError"


def test_allow_error_shows_it_and_goes_on(notebook: Notebook) -> None:
    ran = notebook.run("%%sandbox err --allow-error\n1 / 0").ok()
    assert "ZeroDivisionError: division by zero" in ran.stderr


def test_an_interrupt_stops_the_cell_and_keeps_its_variables(notebook: Notebook) -> None:
    def interrupt(kind: str, _content: dict[str, Any]) -> None:
        if kind == "stream":
            notebook.manager.interrupt_kernel()

    notebook.run("%%sandbox stoppable\nkept = 'still here'").ok()
    ran = notebook.run("%%sandbox stoppable\nprint('running')\nwhile True: pass", on_message=interrupt)
    assert ran.ename == "SandboxInterrupted"
    assert "kept its variables" in ran.error
    assert "still here" in notebook.run("%%sandbox stoppable\nprint(kept)").ok().stdout


def test_a_limit_is_one_clear_sentence_and_the_next_cell_works(notebook: Notebook) -> None:
    notebook.run("%%sandbox limited\nkept = 'still here'").ok()
    ran = notebook.run("%%sandbox limited --timeout 1s\nwhile True: pass")
    assert ran.ename == "LimitExceeded"
    assert "limit on time" in ran.error
    assert "--timeout" in ran.error
    assert "'limited' kept its variables" in ran.error
    assert "still here" in notebook.run("%%sandbox limited\nprint(kept)").ok().stdout


def test_a_full_sandbox_says_so_with_what_to_do(notebook: Notebook) -> None:
    ran = notebook.run("%%sandbox full --memory 600MiB\ndata = []\nwhile True:\n    data.append(bytearray(8 << 20))")
    assert "'full' kept its variables. It still holds " in ran.error
    assert "`%sandbox restart full`" in ran.error
    assert "still holds" not in str(ran.notes)  # said once
    notebook.run("%sandbox stop full").ok()


def test_a_sandbox_that_dies_says_so_and_the_next_cell_gets_a_new_one(notebook: Notebook) -> None:
    notebook.run("%%sandbox mortal\nx = 1").ok()
    ran = notebook.run("%%sandbox mortal\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert ran.ename == "SandboxDied"
    assert "The next cell of 'mortal' starts a new sandbox, without the variables of this one" in ran.error
    again = notebook.run("%%sandbox mortal\nprint('x' in globals())").ok()
    assert "False" in again.stdout
    assert any("new sandbox" in note for note in again.notes)


def test_refused_code_does_not_run_and_the_reason_is_shown(notebook: Notebook) -> None:
    ran = notebook.run("%%sandbox refused\nprint('ran')\nimport os\nos.system('ls')")
    assert ran.ename == "CheckRefused"
    assert "cell:3:1: refused [call.os-system]" in ran.error
    assert ran.stdout == ""


def test_check_only_runs_nothing(notebook: Notebook) -> None:
    ran = notebook.run("%%sandbox refused --check-only\nprint('ran')").ok()
    assert ran.stdout == "cell: ok\n"
    assert notebook.run("%%sandbox refused --check-only\nimport os; os.system('ls')").ename == "CheckRefused"


def test_an_empty_cell_is_told_apart(notebook: Notebook) -> None:
    ran = notebook.run("%%sandbox empty\n   \n")
    assert ran.ename == "UsageError"
    assert "the cell is empty" in ran.stderr + ran.error


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("%%sandbox --tiemout 3s\n1", "did you mean --timeout?"),
        ("%sandbox stauts", "did you mean status?"),
        (
            "%sandbox commmit",
            "choose from status, restart, stop, interrupt, policy, check, diff, audit, doctor, dashboard)",
        ),
        ("%%sandbox -i df , L\n1", "without spaces, as in -i a,b"),
    ],
)
def test_a_slip_of_the_pen_is_answered_with_what_was_meant(notebook: Notebook, line: str, answer: str) -> None:
    ran = notebook.run(line)
    assert ran.ename == "UsageError"
    assert answer in ran.stderr + ran.error


def test_an_odd_name_is_refused(notebook: Notebook) -> None:
    assert "is no name for a sandbox" in notebook.run("%%sandbox ../up\n1").error


def test_braces_on_the_first_line_run_nothing_in_the_notebook(notebook: Notebook) -> None:
    """Whoever wrote the cell may have written its first line too."""
    notebook.run("%%sandbox {open('planted','w').write('x')}\n1")
    notebook.run("%%sandbox $HOME --policy {open('planted','w').write('x')}\n1")
    notebook.run("%sandbox status {open('planted','w').write('x')}")
    assert not (notebook.folder / "planted").exists()


def test_a_variable_taken_for_a_name_is_said(notebook: Notebook) -> None:
    notebook.run("left, right = 1, 2").ok()
    ran = notebook.run("%%sandbox -i left right\nleft").ok()
    assert any("-i left,right" in str(shown) for shown in ran.displays)
    assert not any("-i left" in str(shown) for shown in notebook.run("%%sandbox -i left,right right\nleft").displays)


@pytest.mark.parametrize("line", ["%sandbox", "# a note\n%sandbox", "%sandbox study --timeout 3s", "% sandbox main"])
def test_code_below_a_single_percent_sign_runs_nowhere(notebook: Notebook, line: str) -> None:
    ran = notebook.run(f"{line}\nleaked = 1")
    assert ran.ename == "SyntaxError"
    assert "Write %%sandbox to run it in a sandbox" in ran.error
    assert notebook.run("leaked").ename == "NameError"
    notebook.run("%sandbox").ok()
    notebook.run("%sandbox status\nbelow = 1").ok()
    notebook.run("below").ok()


@pytest.mark.parametrize(
    "cell",
    [
        "leaked = 1\n%%sandbox\nx = 1",
        "\n# a note\nleaked = 1\n\n  %%sandbox vars --timeout 5s\nx = 1",
        "if True:\n    leaked = 1\n%%sandbox\n",
        "leaked = 'a' \\\n'b'\n%%sandbox\nx = 1",
        "!true\nleaked = 1\n%%sandbox\nx = 1",
        "%%time\nleaked = 1\n%%sandbox\nx = 1",
        "leaked = 1\n%%sandbox",
        # Behind prompts, which IPython strips or leaves.
        ">>> leaked = 1\n>>> %%sandbox\n>>> x = 1",
        "In [1]: leaked = 1\n   ...: %%sandbox\n   ...: x = 1",
        "leaked = 1\nx = 1\nIn [1]: %%sandbox?",
        # What looks like another magic's cell, or like a text, and is none.
        "%%time?\nleaked = 1\n%%sandbox\nx = 1",
        "!true '''\nleaked = 1\n%%sandbox\nx = 1",
        "!true (\nleaked = 1\n%%sandbox\nx = 1",
        "leaked = 1\n!true \\\n%%sandbox\nx = 1",
        "text = '\\n%%sandbox'\nleaked = 1\n%%sandbox main?",
        # What IPython takes for something else.
        "!%%sandbox\nleaked = 1",
        "\u200b%%sandbox?\nleaked = 1",
        "\\\n%%sandbox?\nleaked = 1",
        "leaked = 1\n%%SANDBOX\nx = 1",
        "leaked = 1\n%%%sandbox\nx = 1",
    ],
)
def test_code_above_the_line_runs_nowhere(notebook: Notebook, cell: str) -> None:
    ran = notebook.run(cell)
    assert ran.ename == "SyntaxError"
    assert "has to be the first line of its cell: nothing of this cell was run" in ran.error
    assert notebook.run("leaked").ename == "NameError"


@pytest.mark.parametrize(
    "cell",
    [
        "%%sandbox?\nleaked = 1",
        "%%sandbox??\n\nleaked = 1",
        "# a note\n\n  %%sandbox?\nleaked = 1",
        "In [1]: %%sandbox?\nleaked = 1",
        ">>> %%sandbox?\n>>> leaked = 1",
        "\f%%sandbox?\nleaked = 1",
        "\ufeff%%sandbox?\nleaked = 1",
        "?%%sandbox\nleaked = 1",
        "%%sandbox?\n%%sandbox\nleaked = 1",
        "%%time\n%%sandbox?\nleaked = 1",
    ],
)
def test_code_around_a_question_for_the_lines_help_runs_nowhere(notebook: Notebook, cell: str) -> None:
    ran = notebook.run(cell)
    assert ran.ename == "SyntaxError"
    assert "with a question mark shows its help and sends no code to a sandbox: nothing of this cell" in ran.error
    assert notebook.run("leaked").ename == "NameError"


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("%%sandbox?", "%%sandbox [NAME] [options]"),
        ("# a note\n%%sandbox?\n\n# more\n", "%%sandbox [NAME] [options]"),
        ("?%%sandbox", "%%sandbox [NAME] [options]"),
        ("%%sandbox??", "def run_cell"),
    ],
)
def test_a_question_alone_shows_the_help(notebook: Notebook, cell: str, shown: str) -> None:
    [page] = notebook.run(cell).ok().reply["payload"]
    assert shown in re.sub(r"\x1b\[[0-9;]*m", "", page["data"]["text/plain"])


@pytest.mark.parametrize(
    "cell",
    [
        "  %%sandbox vars\nwithin = 1",
        "\ufeff%%sandbox vars\nwithin = 1",
        ">>> %%sandbox vars\n>>> within = 1",
        "# a note\n>>> %%sandbox vars\n>>> within = 1",
        "In [1]: %%sandbox vars\n   ...: within = 1",
    ],
)
def test_a_line_on_top_holds_however_it_was_pasted(notebook: Notebook, cell: str) -> None:
    notebook.run("%%sandbox vars\nwithin = 0").ok()
    notebook.run(cell).ok()
    assert notebook.run("within").ename == "NameError"
    assert notebook.run("%%sandbox vars\nwithin").ok().displays[0]["text/plain"] == "1"


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("%%sandbox vars\n%%sandbox vars --timeout 5s\nx = 1", 2),
        ("# the shield's\n%%sandbox vars\n\n# pasted\n  %%sandbox vars\nx = 1", 5),
        ("%%sandbox vars\ndef f():\n    pass\n\n%%sandbox vars\nx = 1", 5),
        ("%%sandbox vars\n%%sandbox vars\n%%bash\necho", 2),
    ],
)
def test_a_line_that_stands_twice_is_named(notebook: Notebook, cell: str, line: int) -> None:
    ran = notebook.run(cell)
    assert ran.ename == "UsageError"
    assert f"stands once more on line {line} of this cell, so nothing was run. Keep one" in str(ran.messages)


def test_in_another_magics_text_the_line_is_none(notebook: Notebook) -> None:
    ran = notebook.run("%%sandbox vars\n%%writefile results/cell.txt\n%%sandbox\nx = 1").ok()
    assert "Writing results/cell.txt" in ran.stdout
    (notebook.folder / "results" / "cell.txt").unlink()


def test_comments_above_the_line_belong_to_the_cell(notebook: Notebook) -> None:
    notebook.run("# what an agent wrote\n\n  # more\n%%sandbox vars\nfrom_above = 1").ok()
    assert notebook.run("from_above").ename == "NameError"
    assert notebook.run("%%sandbox vars\nfrom_above").ok().displays[0]["text/plain"] == "1"
    notebook.run("%%time\n# note\n%%sandbox vars\nfrom_above += 1").ok()
    assert notebook.run("%%sandbox vars\nfrom_above").ok().displays[0]["text/plain"] == "2"


@pytest.mark.parametrize(
    "cell",
    [
        "text = '''\n%%sandbox\nx = 1\n'''\nlen(text)",
        "!true \"'\"\ntext = f'''{''}\n%%sandbox\nx = {1}\n'''\nlen(text)",
        "%%sandbox vars\ntext = '''\n%%sandbox\nx = 1\n'''\nlen(text)",
    ],
)
def test_the_line_may_stand_in_a_text(notebook: Notebook, cell: str) -> None:
    ran = notebook.run(cell).ok()
    shown = [c["data"]["text/plain"] for kind, c in ran.messages if kind in ("execute_result", "display_data")]
    assert shown == ["17"]


def test_a_cell_has_the_notebooks_number_everywhere(notebook: Notebook) -> None:
    notebook.run("%%sandbox counted\n1").ok()
    for _ in range(3):
        notebook.run("1").ok()
    ran = notebook.run("%%sandbox counted\n1 / 0")
    number = ran.reply["execution_count"]
    assert f"Cell In[{number}], line 1" in ran.error
    after = notebook.run(f"%%sandbox counted\nprint(In[{number}], len(In) - 1)\nOut.keys()").ok()
    assert after.stdout == f"1 / 0 {after.reply['execution_count']}\n"
    notebook.run("%%sandbox counted\nimport os; os.system('x')")  # refused: it has its number all the same
    last = notebook.run("%%sandbox counted\n[][0]")
    assert f"Cell In[{last.reply['execution_count']}], line 1" in last.error
