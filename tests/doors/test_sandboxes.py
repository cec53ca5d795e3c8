"""%sandbox, and what the options of %%sandbox do to the sandboxes of a notebook."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ipysandbox.policy.names import DEFAULT_HIDE

from .conftest import Notebook


def test_nothing_is_started_by_asking(notebook: Notebook) -> None:
    assert "No sandbox runs yet" in notebook.run("%sandbox").ok().stdout


def test_status_tells_use_and_limits(notebook: Notebook) -> None:
    notebook.run("%%sandbox one\nx = 1").ok()
    text = notebook.run("%sandbox status one").ok().stdout
    assert "one: idle (linux)" in text
    assert "of 4.0 GiB" in text
    assert "network namespace" in text


def test_status_of_several_names_no_layer_twice(notebook: Notebook) -> None:
    for name in ("one", "two"):
        notebook.run(f"%%sandbox {name}\n1").ok()
    text = notebook.run("%sandbox").ok().stdout
    assert "two: idle" in text
    assert "held by" not in text
    assert "%sandbox status NAME" in text


def test_an_idle_sandbox_has_nothing_to_interrupt(notebook: Notebook) -> None:
    notebook.run("%%sandbox one\n1").ok()
    assert "runs no cell" in notebook.run("%sandbox interrupt one").ok().stdout


def test_fresh_and_restart_forget_variables(notebook: Notebook) -> None:
    notebook.run("%%sandbox one\nx = 1").ok()
    assert "False" in notebook.run("%%sandbox one --fresh\nprint('x' in globals())").ok().stdout
    notebook.run("%%sandbox one\nx = 1").ok()
    notebook.run("%sandbox restart one").ok()
    assert "False" in notebook.run("%%sandbox one\nprint('x' in globals())").ok().stdout


def test_stop_ends_it(notebook: Notebook) -> None:
    notebook.run("%%sandbox gone\nx = 1").ok()
    notebook.run("%sandbox stop gone").ok()
    ran = notebook.run("%sandbox status gone")
    assert ran.ename == "SandboxError"
    assert "no sandbox named 'gone'" in ran.error


def test_options_stay_until_others_are_given(notebook: Notebook) -> None:
    """A later cell of the same name need not repeat them, and keeps its variables."""
    notebook.run("%%sandbox kept --policy strict --memory 600MiB\nx = 1").ok()
    again = notebook.run("%%sandbox kept\nprint(x)").ok()
    assert again.stdout == "1\n"
    assert again.notes == []
    assert "of 600.0 MiB" in notebook.run("%sandbox status kept").ok().stdout
    for line in ("%sandbox restart kept", "%%sandbox kept --fresh\n1", "%%sandbox kept --policy default\n1"):
        notebook.run(line).ok()
        assert "of 600.0 MiB" in notebook.run("%sandbox status kept").ok().stdout, line


def test_stop_forgets_the_options(notebook: Notebook) -> None:
    notebook.run("%%sandbox stopped --policy strict --memory 600MiB\n1").ok()
    assert "with the options that it gives" in notebook.run("%sandbox stop stopped").ok().stdout
    notebook.run("%%sandbox stopped\n1").ok()
    shown = notebook.run("%sandbox policy stopped").ok().stdout
    assert "4GiB" in shown
    assert "built-in default" in shown


def test_another_policy_is_another_sandbox_and_is_told(notebook: Notebook) -> None:
    notebook.run("%%sandbox moved\nx = 1").ok()
    ran = notebook.run("%%sandbox moved --policy strict\nprint('x' in globals())").ok()
    assert ran.stdout == "False\n"
    assert any("new sandbox 'moved'" in note for note in ran.notes)


def test_a_restart_that_was_asked_for_is_told_once(notebook: Notebook) -> None:
    notebook.run("%%sandbox anew\nx = 1").ok()
    assert "started anew" in notebook.run("%sandbox restart anew").ok().stdout
    ran = notebook.run("%%sandbox anew\nprint('x' in globals())").ok()
    assert (ran.stdout, ran.notes) == ("False\n", [])


def test_a_policy_that_can_not_be_leaves_the_sandbox_as_it_was(notebook: Notebook) -> None:
    notebook.run("%%sandbox steady\nx = 1").ok()
    ran = notebook.run("%%sandbox steady --policy nowhere.toml\n1")
    assert ran.ename == "PolicyError"
    assert "does not exist" in ran.error
    assert notebook.run("%%sandbox steady\nprint(x)").ok().stdout == "1\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--timeout soon", "is not a duration"),
        ("--memory 2G", "GiB"),
        ("--policy netwrok", 'did you mean "network"'),
        ("--backend docker", "not available in this version"),
        ("--colour red", "unrecognized arguments"),
        ("--timeout 5 minutes", "--timeout 5min"),
        ("--cpu=1.5 h", "--cpu 1.5h"),
        ("--memory 500 mb", "--memory 500MB"),
    ],
)
def test_a_wrong_option_says_what_to_write(notebook: Notebook, line: str, told: str) -> None:
    ran = notebook.run(f"%%sandbox wrong {line}\nprint('ran')")
    assert ran.reply["status"] == "error"
    assert told in ran.stderr + ran.error
    assert ran.stdout == ""


def test_the_magics_line_may_end_in_a_comment(notebook: Notebook) -> None:
    assert notebook.run("%%sandbox remarked  # don't \"use\" main\nprint('ran')").ok().stdout == "ran\n"
    assert "remarked" in notebook.run("%sandbox status remarked # how is it?").ok().stdout
    assert "no such#file.toml" in notebook.run('%%sandbox remarked --policy "./no such#file.toml"\n1').error
    assert "/b#c.toml" in notebook.run("%%sandbox remarked --policy ./b#c.toml\n1").error


def test_changes_outside_writable_folders_are_told_once(notebook: Notebook) -> None:
    first = notebook.run("%%sandbox writer\nopen('extra.txt', 'w').write('x')").ok()
    assert first.notes == ["ipysandbox: 1 file of the project differs in the sandbox (dropped at its end): extra.txt"]
    assert notebook.run("%%sandbox writer\n1").ok().notes == []
    assert "added  extra.txt" in notebook.run("%sandbox diff writer").ok().stdout
    assert not (notebook.folder / "extra.txt").exists()


def test_what_is_written_to_results_is_there_at_once(notebook: Notebook) -> None:
    notebook.run("%%sandbox writer\nopen('results/r.txt', 'w').write('x')").ok()
    assert (notebook.folder / "results" / "r.txt").read_text() == "x"


def test_policy_shows_where_each_setting_comes_from(notebook: Notebook) -> None:
    notebook.run("%%sandbox shown --policy strict --memory 600MiB\n1").ok()
    text = notebook.run("%sandbox policy shown").ok().stdout
    assert "limits.memory" in text
    assert "cell option" in text
    assert "built-in strict" in text


def test_check_and_audit_speak_of_what_was_run(notebook: Notebook) -> None:
    notebook.run("%%sandbox seen\nimport os\nos.system('ls')")
    checked = notebook.run("%sandbox check seen").ok().stdout
    assert checked.startswith("The last cell of 'seen', as the check reads it:\ncell:")
    assert "refused [call.os-system]" in checked
    trail = notebook.run("%sandbox audit seen").ok().stdout
    assert "sandbox.start" in trail
    assert "check.verdict" in trail
    notebook.run("%%sandbox seen --timeout 100ms --allow-error\nwhile True: pass").ok()
    trail = notebook.run("%sandbox audit seen").ok().stdout
    assert re.search(r"limit.hit .*limit=wall value=0\.1 s observed=0\.\d s", trail), trail
    assert re.search(r"usage=wall = \d+ ms, cpu = \d+ ms, memory_peak = [\d.]+ MiB, .*disk = \d+ \w*B", trail), trail


@pytest.mark.parametrize(("names", "where"), [(("a.ipynb", "b.ipynb"), "this notebook"), ((), "this session")])
def test_audit_shows_what_another_notebooks_sandbox_of_the_same_name_did_not(
    tmp_path: Path, names: tuple[str, ...], where: str
) -> None:
    sessions = [{"JPY_SESSION_NAME": str(tmp_path / name)} for name in names] or [{}, {}]
    one, other = (Notebook(tmp_path, **session) for session in sessions)
    try:
        one.run("%%sandbox\nx = 1").ok()
        other.run("%%sandbox\nx = 1").ok()
        other.run("%%sandbox\nx = 2").ok()
        head, *trail = one.run("%sandbox audit").ok().stdout.splitlines()
        assert head == f"The last {len(trail)} records of 'main' in {where}; of all: ipysandbox audit tail"
        assert sum(" cell.submitted " in line for line in trail) == 1, trail
        trail = other.run("%sandbox audit").ok().stdout.splitlines()
        assert sum(" cell.submitted " in line for line in trail) == 2, trail
    finally:
        one.close()
        other.close()


def test_doctor_prints_the_guarantees(notebook: Notebook) -> None:
    assert "files.write" in notebook.run("%sandbox doctor").ok().stdout


@pytest.mark.parametrize(
    ("action", "told"), [("commit", "files.write"), ("discard", "%sandbox restart drops all changes")]
)
def test_what_this_version_lacks_says_so_and_what_to_do(notebook: Notebook, action: str, told: str) -> None:
    error = notebook.run(f"%sandbox {action}").error
    assert "not available in this version" in error
    assert told in error


def test_a_projects_unapproved_policy_is_told_in_one_line_once(tmp_path: Path) -> None:
    variables = [f"OUR_VARIABLE_{n}" for n in range(100)]
    (tmp_path / "ipysandbox.toml").write_text(
        f'[limits]\nmemory = "64GiB"\nwall = "30s"\n[environment]\nallow = {json.dumps(variables)}\n'
    )
    one = Notebook(tmp_path)
    try:
        [note] = one.run("%%sandbox\nprint('ran')").ok().notes
        assert "not granted" in note
        assert "limits.memory" in note
        assert all(name in note for name in variables)  # what may be approved is not cut
        assert "ipysandbox policy trust" in note
        assert one.run("%%sandbox\n1").ok().notes == []
        assert "30s" in one.run("%sandbox policy").ok().stdout
    finally:
        one.close()


def test_the_project_stays_the_notebooks_when_the_kernel_changes_its_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    one = Notebook(tmp_path, JPY_SESSION_NAME=str(tmp_path / "study.ipynb"))
    try:
        one.run("%%sandbox\nx = 1").ok()
        one.run("%cd elsewhere").ok()
        assert one.run("%%sandbox\nprint(x)").ok().stdout == "1\n"
        assert f"project {tmp_path}\n" in one.run("%sandbox").ok().stdout
    finally:
        one.close()


@pytest.mark.parametrize("told", [True, False])
def test_where_the_notebook_is_counts_as_it_was_before_anything_ran_in_a_sandbox(tmp_path: Path, told: bool) -> None:
    """VS Code says it in a variable, after extensions of IPython's configuration are loaded."""
    for folder in ("mine", "kernels", "another"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pyproject.toml").touch()
    expected = tmp_path / ("mine" if told else "kernels")
    one = Notebook(tmp_path / "kernels")
    try:
        if told:
            one.run(f"__vsc_ipynb_file__ = {str(tmp_path / 'mine/study.ipynb')!r}").ok()
        code = "%%sandbox\nimport os; print(os.getcwd())"
        assert one.run(code).ok().stdout == f"{expected}\n"
        one.run(f"__vsc_ipynb_file__ = {str(tmp_path / 'another/x.ipynb')!r}").ok()
        assert one.run(code).ok().stdout == f"{expected}\n"
        one.run("%sandbox stop").ok()
        assert one.run(code).ok().stdout == f"{expected}\n"
    finally:
        one.close()


def test_another_folder_of_the_same_project_keeps_the_sandbox(notebook: Notebook) -> None:
    notebook.run("%%sandbox roaming\nx = 1").ok()
    notebook.run("%cd data").ok()
    ran = notebook.run("%%sandbox roaming\nprint(x)").ok()
    notebook.run("%cd ..").ok()
    assert ran.stdout == "1\n"
    assert ran.notes == []


def test_unloading_ends_the_sandboxes_and_takes_the_magics_away(tmp_path: Path) -> None:
    one = Notebook(tmp_path)
    try:
        one.run("%%sandbox\nx = 1").ok()
        one.run("%unload_ext ipysandbox").ok()
        assert one.run("%%sandbox\n1").ename == "UsageError"
        one.run("%load_ext ipysandbox").ok()
        assert one.run("%%sandbox\nprint('x' in globals())").ok().stdout == "False\n"
    finally:
        one.close()


def test_a_kept_option_that_takes_the_variables_along_is_named(notebook: Notebook) -> None:
    notebook.run("%%sandbox sticky\nx = 1").ok()
    (note,) = notebook.run("%%sandbox sticky --policy strict\n1").ok().notes
    assert "(--policy strict, for later cells too); variables of the earlier one are gone" in note
    assert notebook.run("%%sandbox sticky\n1").ok().notes == []
    assert "--policy default" in notebook.run("%%sandbox sticky -p default\n1").ok().notes[0]


def _completions(notebook: Notebook, code: str) -> list[str]:
    reply = notebook.client.complete(code, len(code), reply=True, timeout=60)
    return [str(match) for match in reply["content"]["matches"]]


def test_options_values_names_and_actions_complete(notebook: Notebook) -> None:
    notebook.run("%%sandbox finished\n1").ok()
    assert _completions(notebook, "%%sandbox --time") == ["--timeout"]
    assert {"strict", "network", "default"} <= set(_completions(notebook, "%%sandbox --policy "))
    assert "finished" in _completions(notebook, "%%sandbox fin")
    assert _completions(notebook, "%sandbox res") == ["restart"]
    assert _completions(notebook, "%sandbox stop finis") == ["finished"]
    assert "--fresh" not in _completions(notebook, "%%sandbox --fresh --")
    # Nor what Python would make of the line.
    assert _completions(notebook, "%%sandbox --mem") == ["--memory"]
    assert all(word.startswith("--") and word[2:3].islower() for word in _completions(notebook, "%%sandbox --"))
    assert "print" in _completions(notebook, "%%sandbox\npri")


def test_code_completes_by_what_the_sandbox_holds(notebook: Notebook) -> None:
    notebook.run("mine_in_the_notebook = 1").ok()
    assert "mine_in_the_notebook" in _completions(notebook, "%%sandbox unstarted\nmine_in_the")
    notebook.run(
        "%%sandbox holds\nimport numpy as np\nclass Kept:\n    attribute_of_it = 1\nkept = Kept()\n"
        "class Hostile:\n    def __dir__(self):\n        return ['good', 'x\\n!touch owned', 'a\\u202eb', 'a;b']\n"
        "hostile = Hostile()"
    ).ok()
    assert _completions(notebook, "%%sandbox holds\nx = 1\nkept.attr") == ["attribute_of_it"]
    assert "linspace" in _completions(notebook, "%%sandbox holds --timeout 5s\nnp.lins")
    found = _completions(notebook, "%%sandbox holds\nhostile.")
    assert "good" in found
    assert not [text for text in found if "\n" in text or ";" in text or "\u202e" in text]


def test_the_question_mark_shows_the_options(notebook: Notebook) -> None:
    reply = notebook.client.inspect("%%sandbox", 9, reply=True, timeout=60)
    text = reply["content"]["data"]["text/plain"]
    assert "%%sandbox [NAME] [options]" in text
    assert "::" not in text
    assert "--allow-error" in text


def test_policy_shows_what_is_hidden_beside_the_built_in_names(tmp_path: Path) -> None:
    wanted = "[limits]\nmemory = '64GiB'\n[files]\nhide = ['*.private', '!.env']\n"
    (tmp_path / "ipysandbox.toml").write_text(wanted)
    one = Notebook(tmp_path)
    try:
        lines = one.run("%sandbox policy").ok().stdout.splitlines()
    finally:
        one.close()
    assert lines[0].startswith("! ")
    assert "limits.memory 4GiB → 64GiB" in lines[0]
    [hidden] = [line for line in lines if line.startswith("files.hide ")]
    built_in = f"{len(DEFAULT_HIDE)} built-in patterns (`ipysandbox policy show --json` lists them)"
    assert hidden.endswith(f"  *.private, {built_in}")


def test_status_of_a_sandbox_that_has_done_nothing_shows_nothing_done(notebook: Notebook) -> None:
    notebook.run("%%sandbox unused\n1").ok()
    notebook.run("%sandbox restart unused").ok()
    status = notebook.run("%sandbox status unused").ok().stdout
    assert re.search(r"disk +0 B +of 1\.0 GiB +0 files", status), status
    assert re.search(r"most so far [1-9]", status), status
    notebook.run("%%sandbox unused\nopen('/tmp/x', 'wb').write(bytes(1 << 20))").ok()
    assert re.search(r"disk +1\.\d MiB", notebook.run("%sandbox status unused").ok().stdout)


def test_a_size_in_mb_is_shown_in_mb(notebook: Notebook) -> None:
    ran = notebook.run("%%sandbox decimal --memory 500MB\nbytearray(10**9)")
    assert "more than the 500.0 MB that the sandbox may hold" in ran.error
    assert "--memory 1GB or memory under" in ran.error
    assert re.search(
        r"memory +[\d.]+ MB +of 500\.0 MB +most so far [\d.]+ MB", notebook.run("%sandbox status decimal").stdout
    )


def test_an_edited_policy_says_what_of_it_made_the_sandbox_anew(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ipysandbox.limits]\nmemory = '2GiB'\n")
    notebook = Notebook(tmp_path)
    try:
        notebook.run("%%sandbox one\nx = 1").ok()
        (tmp_path / "pyproject.toml").write_text("[tool.ipysandbox.limits]\nmemory = '1GiB'\nprocesses = 100\n")
        told, again = (str(notebook.run("%%sandbox one\n1").ok().displays) for _ in range(2))
        assert "The policy has changed (limits.memory, limits.processes), so the sandbox is new" in told
        assert "The policy has changed" not in again
    finally:
        notebook.close()


def test_a_cell_begins_where_the_notebook_is(tmp_path: Path) -> None:
    folder = tmp_path / "notebooks"
    (tmp_path / ".git").mkdir()
    (tmp_path / "data").mkdir()
    folder.mkdir()
    (tmp_path / "data/far.csv").write_text("far")
    (folder / "near.csv").write_text("near")
    (folder / "helper.py").write_text("value = 'helped'\n")
    one = Notebook(folder)
    try:
        code = (
            "import os, helper\nos.makedirs('results', exist_ok=True)\nopen('results/out.txt', 'w').write('kept')\n"
            "print(os.getcwd(), open('near.csv').read(), open('../data/far.csv').read(), helper.value)"
        )
        expected = f"{folder} near far helped\n"
        assert one.run(code).ok().stdout == expected
        (folder / "results/out.txt").unlink()
        assert one.run(f"%%sandbox\n{code}").ok().stdout == expected
        assert (folder / "results/out.txt").read_text() == "kept"
        assert not (tmp_path / "results").exists()
        assert "can't see" not in "".join(one.run("%%sandbox\nopen('../data/none.csv')").notes)
        rows = [line.split() for line in one.run("%sandbox policy").ok().stdout.splitlines()]
        assert ["begins", "in", str(folder)] in rows
    finally:
        one.close()


def test_a_script_begins_in_the_folder_that_it_is_run_from(
    cli: Callable[..., subprocess.CompletedProcess[str]], study: Path
) -> None:
    code = "import os, sys\nprint(os.getcwd(), sys.argv, open('x.csv').read(1), os.path.exists(__file__))"
    (study / "data/script.py").write_text(code)
    ran = cli("run", "script.py", "a", cwd=study / "data")
    assert ran.stdout == f"{study / 'data'} ['script.py', 'a'] a True\n", ran.stderr
    ran = cli("run", "data/script.py", cwd=study)
    assert "FileNotFoundError" in ran.stderr  # as without a sandbox
    assert cli("run", "../data/script.py", cwd=study / "data").stdout.startswith(str(study / "data"))


def test_a_folder_that_was_deleted_is_told_and_can_come_back(notebook: Notebook, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    before = notebook.run("import os, shutil; before = os.getcwd()").ok()
    assert before is not None
    try:
        notebook.run(f"os.chdir({str(folder)!r})").ok()
        notebook.run("%%sandbox deleted\nx = 1").ok()
        notebook.run(f"shutil.rmtree({str(folder)!r})").ok()
        refused = notebook.run("%%sandbox deleted\nprint('ran')")
        assert refused.reply["ename"] == "PolicyError"
        assert f"the current folder, {folder}, does not exist any more" in refused.reply["evalue"]
        notebook.run(f"os.mkdir({str(folder)!r}); open({str(folder / 'new')!r}, 'w').close()").ok()
        again = notebook.run("%%sandbox deleted\nimport os; print('new' in os.listdir())").ok()
        assert again.stdout == "True\n"
        assert any("Another folder is at" in note for note in again.notes)
        assert notebook.run("%%sandbox deleted\nprint('new' in os.listdir())").ok().stdout == "True\n"  # the same one
    finally:
        notebook.run("os.chdir(before)").ok()


def test_a_sandbox_can_not_write_the_policy_of_the_next(notebook: Notebook, study: Path, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private/canary").write_text("canary")
    written = f"[files]\\nread = ['.', '{tmp_path}/private']\\n[limits]\\ncpu = '7s'"
    code = f"import os\nos.makedirs('results', exist_ok=True)\nopen('results/p.toml', 'w').write(\"{written}\")"
    notebook.run(f"%%sandbox writer\n{code}").ok()
    ran = notebook.run(f"%%sandbox reader --policy results/p.toml\nprint(open('{tmp_path}/private/canary').read())")
    assert "FileNotFoundError" in ran.error
    assert "canary" not in ran.stdout
    assert any(f"ipysandbox policy trust {study}/results/p.toml" in note for note in ran.notes)
