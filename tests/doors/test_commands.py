"""The other commands of `ipysandbox`."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ipysandbox import Sandbox

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def test_check_names_file_line_and_rule(cli: Cli, study: Path) -> None:
    (study / "good.py").write_text("x = 1\n")
    (study / "bad.py").write_text("import os\nos.system('ls')\n")
    done = cli("check", "good.py", "bad.py")
    assert done.returncode == 3
    assert "good.py: ok" in done.stdout
    assert "bad.py:2:1: refused [call.os-system]" in done.stdout
    reports = json.loads(cli("check", "--json", "good.py", "bad.py").stdout)
    assert [report["verdict"] for report in reports] == ["ok", "refused"]
    assert cli("check", "good.py").returncode == 0
    assert cli("check", "missing.py").returncode == 2
    assert cli("check", ".").stderr == "ipysandbox: . is a folder: name a file in it\n"


def test_doctor_lists_guarantees(cli: Cli) -> None:
    done = cli("doctor")
    assert done.returncode == 0
    assert "network namespace" in done.stdout
    report = json.loads(cli("doctor", "--json").stdout)
    assert report["ok"]
    assert "files.write" in report["guarantees"]


def test_ps_lists_and_kill_ends_a_sandbox(cli: Cli, study: Path) -> None:
    with Sandbox(name="listed", project=study) as box:
        assert "/listed" in cli("ps").stdout
        assert cli("kill", "listed").returncode == 0
        while box.status()["pid"] is not None:
            pass
        [row] = [line.split() for line in cli("ps").stdout.splitlines() if "/listed " in line]
        assert row[1:3] == ["dead", "-"]
        result = box.run("print('new')")
        assert result.stdout == "new\n"
        assert any("new sandbox" in notice for notice in result.notices)
        told = "The sandbox before this one was ended by `ipysandbox kill`, between two cells."
        assert told in result.notices
        stops = cli("audit", "query", "--action", "sandbox.stop", "--sandbox", "listed", "--since", "5min", "--json")
        [stop] = [json.loads(line)["details"] for line in stops.stdout.splitlines()]
        assert (stop["reason"], stop["by"]) == ("killed", "`ipysandbox kill`")
        # What ends the next one is told by itself.
        assert box.run("while True: pass", timeout="1s").status == "limit"
        box.run("import os; os.kill(os.getpid(), 9)")
        stops = cli("audit", "query", "--action", "sandbox.stop", "--sandbox", "listed", "--since", "5min", "--json")
        reasons = [json.loads(line)["details"]["reason"] for line in stops.stdout.splitlines()]
        assert reasons.count("killed") == 1
        assert len(reasons) == 2


def test_a_run_that_is_killed_says_by_whom(cli: Cli, study: Path) -> None:
    code = "import time\nprint('running', flush=True)\ntime.sleep(600)"
    command = [sys.executable, "-m", "ipysandbox", "run", "-"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=study, text=True, **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(code)
        process.stdin.close()
        assert process.stdout.readline() == "running\n"
        running = [state for state in json.loads(cli("ps", "--json").stdout) if state["host_pid"] == process.pid]
        assert cli("kill", f"{running[0]['id']}/run").returncode == 0
        assert "ended by `ipysandbox kill`" in process.stderr.read()
        assert process.wait(60) == 5


def test_kill_asks_which_where_two_have_the_name(cli: Cli, study: Path) -> None:
    done = cli("kill", "nobody")
    assert done.returncode == 2
    assert "no sandbox named 'nobody'" in done.stderr


def test_the_trail_can_be_read_and_filtered(cli: Cli, study: Path) -> None:
    cli("run", "-", stdin="1")
    newest = json.loads(cli("audit", "tail", "-n", "1", "--json").stdout)
    assert newest["action"] == "sandbox.stop"
    lines = cli("audit", "query", "--action", "cell.*", "--since", "5min", "--sandbox", "run").stdout.splitlines()
    assert any("cell.submitted" in line for line in lines)
    assert not any("sandbox.start" in line for line in lines)
    assert cli("audit", "query", "--since", "yesterday-ish").returncode == 2


@pytest.mark.parametrize(
    ("action", "told"),
    [("network.refusd", "did you mean network.refused?"), ("nonsense.thing", "there are cell.result"), ("x*", "cell.")],
)
def test_an_action_that_is_never_recorded_is_a_usage_error(cli: Cli, action: str, told: str) -> None:
    done = cli("audit", "tail", "--action", action)
    assert done.returncode == 2
    assert told in done.stderr


def test_an_action_that_was_not_recorded_yet_is_none(cli: Cli) -> None:
    done = cli("audit", "tail", "--action", "policy.tr*", "--sandbox", "nobody")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_records_are_shown_with_the_beginning_of_a_hash(cli: Cli) -> None:
    cli("run", "-", stdin="1")
    shown = cli("audit", "tail", "-n", "1", "--action", "cell.submitted").stdout
    [record] = json.loads(f"[{cli('audit', 'tail', '-n', '1', '--action', 'cell.submitted', '--json').stdout}]")
    assert f"sha256={record['details']['sha256'][:12]} " in shown


def test_a_policy_is_approved_by_content(cli: Cli, tmp_path: Path) -> None:
    policy = tmp_path / "ipysandbox.toml"
    policy.write_text('[limits]\nmemory = "5GiB"\n')
    refused = cli("policy", "trust", "ipysandbox.toml", stdin="n\n", cwd=tmp_path)
    assert "limits.memory" in refused.stdout
    assert refused.returncode == 2
    assert "not granted" in cli("policy", "show", cwd=tmp_path).stdout
    assert cli("policy", "trust", "ipysandbox.toml", stdin="y\n", cwd=tmp_path).returncode == 0
    shown = json.loads(cli("policy", "show", "--json", cwd=tmp_path).stdout)
    assert shown["policy"]["limits"]["memory"] == "5GiB"
    assert shown["notices"] == []
    policy.write_text('[limits]\nmemory = "6GiB"\n')
    assert "it changed since you approved it" in cli("policy", "show", cwd=tmp_path).stdout
    assert cli("policy", "untrust", "ipysandbox.toml", cwd=tmp_path).returncode == 0
    assert cli("policy", "untrust", "ipysandbox.toml", cwd=tmp_path).returncode == 2


def test_all_of_what_is_approved_is_seen_before(cli: Cli, tmp_path: Path) -> None:
    names = [f"data-{n:03}-{'x' * 60}" for n in range(40)]
    for name in (*names, "private"):
        (tmp_path / "other" / name).mkdir(parents=True)
    project = tmp_path / "project"
    project.mkdir()
    read = [str(tmp_path / "other" / name) for name in (*names, "private")]
    (project / "ipysandbox.toml").write_text(f"[files]\nread = {json.dumps(read)}\n")
    asked = cli("policy", "trust", stdin="n\n", cwd=project)
    before = asked.stdout.partition("Approve this?")[0]
    assert [line.strip() for line in before.splitlines() if "/other/" in line] == read
    for told in (cli("policy", "lint", cwd=project).stdout, cli("policy", "show", cwd=project).stdout):
        assert read[-1] in told
    assert read[-1] in cli("run", "-", stdin="1", cwd=project).stderr


def test_what_nothing_could_run_with_is_not_approved(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ipysandbox.toml").write_text('[files]\nread = ["~"]\n[environment]\nallow = ["HF_TOKEN"]\n')
    ran = cli("run", "-", stdin="print('ran')", cwd=tmp_path)
    assert ran.stdout == "ran\n"
    assert "can't be approved as it is" in ran.stderr
    assert "policy trust" not in ran.stderr
    done = cli("policy", "trust", "--yes", cwd=tmp_path)
    assert done.returncode == 2
    assert "ipysandbox.toml:2" in done.stderr
    assert "HF_TOKEN" in done.stderr
    assert "Not approved" in done.stderr
    assert cli("run", "-", stdin="print('ran')", cwd=tmp_path).stdout == "ran\n"


def test_policy_commands_take_the_projects_file_by_default(cli: Cli, tmp_path: Path) -> None:
    no_own = {"JUPYTER_NO_CONFIG": "1"}
    assert "no policy file speaks about this folder" in cli("policy", "lint", cwd=tmp_path, **no_own).stderr
    (tmp_path / "ipysandbox.toml").write_text('[limits]\nmemory = "5GiB"\n')
    (tmp_path / "src").mkdir()
    linted = cli("policy", "lint", cwd=tmp_path / "src")
    assert linted.returncode == 0
    assert "No problem found" in linted.stdout
    assert "limits.memory 4GiB → 5GiB" in linted.stdout
    assert "policy trust" in linted.stdout
    assert cli("policy", "trust", "--yes", cwd=tmp_path / "src").returncode == 0
    policy = tmp_path / "ipysandbox.toml"
    assert cli("policy", "lint", cwd=tmp_path, **no_own).stdout == f"No problem found in {policy}.\n"
    assert cli("policy", "lint", str(policy), cwd=tmp_path).stdout == "No problem found.\n"
    assert cli("policy", "untrust", cwd=tmp_path).returncode == 0


def test_lint_takes_the_users_own_file_as_well(cli: Cli, tmp_path: Path) -> None:
    own, project = tmp_path / "config" / "ipysandbox.toml", tmp_path / "project"
    (project / "data").mkdir(parents=True)
    own.parent.mkdir()
    own.write_text('[files]\nread = ["data"]\n')
    environ = {"JUPYTER_CONFIG_DIR": str(own.parent)}
    assert cli("policy", "lint", cwd=project, **environ).stdout == f"No problem found in {own}.\n"
    own.write_text("[limits]\nmemory = 2GiB\n")
    wrong = cli("policy", "lint", cwd=project, **environ)
    assert wrong.returncode == 2
    assert 'ipysandbox.toml:2: 2GiB is a text, and has to be in quotes\n  write memory = "2GiB"' in wrong.stderr
    (project / "ipysandbox.toml").write_text("[code]\nallow = ['call.shel']\n")
    assert 'did you mean "call.shell"?' in cli("policy", "lint", cwd=project, **environ).stderr


def test_lint_and_trust_tell_what_may_not_be_meant_or_not_work_here(cli: Cli, tmp_path: Path) -> None:
    """Neither is refused: a folder may be new, and a policy for another machine."""
    (tmp_path / "ipysandbox.toml").write_text('[files]\nwrite = ["reslts"]\n[limits.gpu]\ndevices = ["99"]\n')
    linted = cli("policy", "lint", cwd=tmp_path)
    trusted = cli("policy", "trust", stdin="n\n", cwd=tmp_path)
    assert (linted.returncode, trusted.returncode) == (0, 2)
    for told in (linted.stdout, trusted.stdout):
        assert 'ipysandbox.toml:2: files.write: "reslts" does not exist yet and will be made' in told
        assert '(did you mean "results"?)' in told
        assert "on this machine nothing would run" in told
        assert "limits.gpu.devices + card 99" in told
    assert trusted.stdout.index("nothing would run") < trusted.stdout.index("Approve this?")
    assert cli("policy", "trust", "--yes", cwd=tmp_path).returncode == 0


def test_who_approves_a_policy_or_takes_that_back_is_in_the_trail(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "ipysandbox.toml"
    path.write_text('[limits]\nmemory = "6GiB"\n')
    assert cli("policy", "trust", "--yes", cwd=tmp_path).returncode == 0
    assert cli("policy", "untrust", cwd=tmp_path).returncode == 0
    newest = cli("audit", "tail", "-n", "2", "--action", "policy.trusted", "--json").stdout.splitlines()
    given, taken = sorted((json.loads(line)["details"] for line in newest), key=lambda row: not row["trusted"])
    assert (given["path"], given["trusted"], taken["path"], taken["trusted"]) == (str(path), True, str(path), False)
    assert given["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_lint_finds_everything_at_once(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ipysandbox.toml").write_text('[limits]\nmemroy = "5GiB"\ncpu = "3"\n')
    done = cli("policy", "lint", "ipysandbox.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "ipysandbox.toml:2" in done.stderr
    assert "ipysandbox.toml:3" in done.stderr
    assert "memory" in done.stderr


@pytest.mark.parametrize("command", [("kernelspec",), ("kernelspec", "install")])
def test_what_this_version_lacks_says_so(cli: Cli, command: tuple[str, ...]) -> None:
    done = cli(*command)
    assert done.returncode == 2
    assert "not available in this version" in done.stderr
    assert "%%sandbox" in done.stderr


def test_without_a_command_all_are_named(cli: Cli) -> None:
    done = cli()
    assert (done.returncode, done.stdout) == (2, "")
    for command in ("run", "check", "doctor", "ps", "kill", "audit", "policy"):
        assert f"\n    {command} " in done.stderr


def test_a_bad_policy_is_an_error_with_file_and_line_and_nothing_runs(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ipysandbox.toml").write_text('[limits]\nmemroy = "5GiB"\n')
    done = cli("run", "-", stdin="print('ran')", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "ipysandbox.toml:2" in done.stderr
    assert 'did you mean "memory"' in done.stderr


def test_help_and_usage_errors_are_plain(cli: Cli) -> None:
    assert "exit status" in cli("run", "--help").stdout
    assert cli("--version").stdout.startswith("ipysandbox ")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("rnu",), "invalid choice: 'rnu' (did you mean run?)"),
        (("kernelspc",), "(choose from run, check, doctor, ps, kill, audit, policy)"),
        (("audit", "verfy"), "(did you mean verify?)"),
        (("policy", "lnt"), "(did you mean lint?)"),
        (("run", "--n", "3", "cell.py"), "unrecognized arguments: --n (options of the script come after FILE)"),
        (("run",), "the following arguments are required: FILE"),
        (("run", "--tiemout", "3", "cell.py"), "unrecognized arguments: --tiemout (did you mean --timeout?)"),
    ],
)
def test_a_slip_of_the_pen_is_answered_with_what_was_meant(cli: Cli, words: tuple[str, ...], answer: str) -> None:
    done = cli(*words)
    assert done.returncode == 2
    assert done.stderr.endswith(f"{answer}\n")


def test_output_survives_a_terminal_without_unicode(cli: Cli) -> None:
    done = cli("run", "-", stdin="print('caf\\u00e9 \\u2603')", LANG="C", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout == "caf\\xe9 \\u2603\n"


def test_running_outside_a_writable_folder_works(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "readonly"
    folder.mkdir()
    os.chmod(folder, 0o500)
    assert cli("run", "-", stdin="print('ran')", cwd=folder).stdout == "ran\n"


def _in_a_shell(words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """``ipysandbox`` in ``words`` is the command."""
    command = shlex.join([sys.executable, "-m", "ipysandbox"])
    script = words.replace("ipysandbox ", f"{command} ")
    return subprocess.run(["sh", "-c", script], cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("words", "exit_status"),
    [
        ("echo 'print(1)' | ipysandbox run - >&-", 0),
        ("echo 'print(1)' | ipysandbox run - 2>&-", 0),
        ("echo '1 / 0' | ipysandbox run - >&- 2>&-", 1),
        ("ipysandbox run - <&-", 0),
        ("ipysandbox ps >&-", 0),
        ("ipysandbox ps 2>&-", 0),
        ("ipysandbox kill nobody 2>&-", 2),
        ("ipysandbox nonsense >&- 2>&-", 2),
    ],
)
def test_a_closed_stream_is_one_that_nobody_reads(study: Path, words: str, exit_status: int) -> None:
    done = _in_a_shell(words, study)
    assert (done.returncode, "Traceback" in done.stderr) == (exit_status, False), done.stderr


def test_a_current_folder_that_was_deleted_is_told(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    (tmp_path / "a.py").write_text("import os\nprint('ran', 'new' in os.listdir())")
    delete = "rmdir ../gone && "
    for words in (f"run {tmp_path}/a.py", "run - </dev/null", "policy show", "policy lint", "doctor"):
        gone.mkdir(exist_ok=True)
        done = _in_a_shell(f"{delete} ipysandbox {words}", gone)
        assert done.returncode == 2, done.stderr
        assert f"ipysandbox: the current folder, {gone}, does not exist any more" in done.stderr
    gone.mkdir()
    assert _in_a_shell(delete + "ipysandbox ps", gone).returncode == 0
    gone.mkdir()
    done = _in_a_shell(f"{delete} mkdir {gone} && touch {gone}/new && ipysandbox run {tmp_path}/a.py", gone)
    assert (done.returncode, done.stdout) == (0, "ran True\n"), done.stderr
