"""`ipysandbox run FILE`."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def file(study: Path) -> Callable[[str | bytes], str]:
    def write(code: str | bytes) -> str:
        path = study / "cell.py"
        path.write_bytes(code if isinstance(code, bytes) else code.encode())
        return "cell.py"

    return write


def _start(study: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ipysandbox", "run", *arguments],
        cwd=study,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell without job control starts what runs in the background with SIGINT ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_output_that_can_not_be_written_is_one_sentence(study: Path, file: Callable[..., str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ipysandbox", "run", file("print('out')")],
            cwd=study, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (done.stderr, done.returncode) == ("ipysandbox: the output can't be written: No space left on device\n", 120)


def test_streams_and_the_last_value_go_where_they_belong(cli: Cli, file: Callable[..., str]) -> None:
    done = cli("run", file("import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7"))
    assert done.stdout == "out\n42\n"
    assert done.stderr == "err\n"
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("code", "options", "exit_status", "last_line"),
    [
        ("1 / 0", [], 1, "ZeroDivisionError: division by zero"),
        ("x = (", [], 3, "refused"),
        ("x = (", ["--no-validate"], 1, "SyntaxError"),
        ("import os; os.system('true')", [], 3, "refused"),
        ("import os; os.system('true')", ["--no-validate"], 0, ""),
        ("while True: pass", ["--timeout", "1"], 4, "limit on time"),
        ("while True: pass", ["--cpu", "1s"], 4, "limit on cpu time"),
        ("x = bytearray(10**9)", ["--memory", "300MiB"], 4, "limit on memory"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", [], 5, ""),
        ("1", ["--policy", "nope"], 2, ""),
        ("1", ["--timeout", "soon"], 2, ""),
        ("1", ["--backend", "docker"], 2, ""),
        ("input()", [], 1, "EOFError: EOF when reading a line"),
        ("import sys\nsys.exit(0)", [], 0, ""),
        ("exit()\n1 / 0", [], 0, ""),
        ("import sys\nsys.exit(3)", [], 1, "SystemExit: 3"),
    ],
)
def test_the_exit_status_tells_what_happened(
    cli: Cli, file: Callable[..., str], code: str, options: list[str], exit_status: int, last_line: str
) -> None:
    done = cli("run", *options, file(code))
    assert done.returncode == exit_status, done.stderr
    lines = done.stderr.strip().split("\n")
    assert last_line in lines[-1]
    assert "Traceback (most recent call last)" not in done.stderr or exit_status in (1, 4)


def test_what_follows_the_file_is_the_scripts_own(cli: Cli, file: Callable[..., str], study: Path) -> None:
    path = file("import sys\nprint(sys.argv)\nprint(__file__, __name__)")
    words = ["--timeout", "-q", "--", "{1 + 1}", "$HOME", "caf\u00e9"]
    done = cli("run", "--timeout", "60", path, *words)
    assert done.stdout == f"{[path, *words]!r}\n{study / path} __main__\n"


def test_a_script_from_elsewhere_learns_no_path_of_the_host(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "apart.py").write_text("import sys\nprint(sys.argv, __file__)\n1 / 0")
    done = cli("run", str(tmp_path / "apart.py"), "x")
    assert done.stdout == "['apart.py', 'x'] apart.py\n"
    assert "File apart.py, line 3" in done.stderr
    assert str(tmp_path) not in done.stderr


def test_code_from_standard_input_has_arguments_and_no_file(cli: Cli) -> None:
    done = cli("run", "-", "a", stdin="import sys\nprint(sys.argv)\n__file__")
    assert done.stdout == "['<stdin>', 'a']\n"
    assert "File <stdin>, line 3" in done.stderr
    assert "NameError" in done.stderr


def test_errors_and_findings_name_the_file(cli: Cli, file: Callable[..., str], study: Path) -> None:
    path = file("def f():\n    1 / 0\n\nf()")
    assert f"File {study / path}:2, in f()" in cli("run", path).stderr
    assert "cell.py:2:1: refused [call.os-system]" in cli("run", file("import os\nos.system('ls')")).stderr
    assert "cell.py" in cli("run", "--no-validate", file("x = (")).stderr


@pytest.mark.parametrize("code", ["import os; os.system('ls')", "x = ("])
def test_what_the_check_refuses_needs_no_sandbox(cli: Cli, file: Callable[..., str], tmp_path: Path, code: str) -> None:
    done = cli("run", "--json", file(code), XDG_STATE_HOME=str(tmp_path))
    result = json.loads(done.stdout)
    assert (done.returncode, result["status"], result["error"]["ename"]) == (3, "refused", "CheckRefused")
    assert result["findings"]
    assert [output["output_type"] for output in result["outputs"]] == ["error"]
    query = cli("audit", "query", "--json", XDG_STATE_HOME=str(tmp_path)).stdout
    records = {record["action"]: record for record in map(json.loads, query.splitlines())}
    assert set(records) == {"cell.submitted", "check.verdict", "cell.result"}
    assert records["check.verdict"]["details"]["verdict"] == "refused"
    assert all(record["sandbox"] == "run" for record in records.values())


def test_no_rule_can_allow_what_is_not_python(cli: Cli, file: Callable[..., str]) -> None:
    assert "[code] allow" not in cli("run", file("x = (")).stderr
    assert "[code] allow" in cli("run", file("import os; os.system('ls')")).stderr


def test_input_is_answered_from_standard_input(cli: Cli, file: Callable[..., str]) -> None:
    done = cli("run", file("print('hello', input('who? '))\nprint([input(), input()])"), stdin="Bob\r\n\nlast")
    assert done.stdout == "who? hello Bob\n['', 'last']\n"
    assert done.returncode == 0


def test_a_script_reads_standard_input_as_it_comes(cli: Cli, file: Callable[..., str]) -> None:
    code = "import sys\nprint(input())\nfor line in sys.stdin: print(repr(line))"
    assert cli("run", file(code), stdin="1\nä\n\nlast").stdout == "1\n'ä\\n'\n'\\n'\n'last\\n'\n"
    code = "import json, sys\nprint(sys.stdin.readline(), [input()], json.load(sys.stdin), [sys.stdin.read()])"
    assert cli("run", file(code), stdin='a\nb\n{"c":\n1}\n').stdout == "a\n ['b'] {'c': 1} ['']\n"
    code = "import sys\nprint(sys.stdin.isatty(), len(sys.stdin.buffer.read()))\nsys.stdin.fileno()"
    done = cli("run", file(code), stdin="x" * 300_000)
    assert done.stdout == "False 300001\n"
    assert "UnsupportedOperation" in done.stderr


def test_standard_input_is_empty_where_there_is_none_and_an_error_where_the_policy_refuses_it(
    cli: Cli, file: Callable[..., str], study: Path, tmp_path: Path
) -> None:
    script = file("import sys\nprint([sys.stdin.read()])")
    process = _start(study, script)
    assert process.communicate(timeout=60) == ("['']\n", "")
    policy = tmp_path / "off.toml"
    policy.write_text('[output]\nstdin = "off"\n')
    done = cli("run", "--policy", str(policy), script, stdin="a\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the policy refuses every question" in done.stderr


def test_the_end_of_input_is_what_python_makes_of_it(cli: Cli, file: Callable[..., str]) -> None:
    done = cli("run", file("while True: print(input())"), stdin="a\nb\n")
    assert done.stdout == "a\nb\n"
    assert done.stderr.endswith("EOFError: EOF when reading a line\n")
    assert "raw_input" not in done.stderr


def test_without_an_input_to_read_one_sentence_says_so(file: Callable[..., str], study: Path) -> None:
    process = _start(study, file("input()"))
    _, errors = process.communicate(timeout=60)
    assert errors.count("\n") == 1
    assert "nobody can answer" in errors
    assert process.returncode == 1


def test_a_password_is_not_passed_on(cli: Cli, file: Callable[..., str]) -> None:
    done = cli("run", file("import getpass\nprint(getpass.getpass())"), stdin="hunter2\n")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "asked for a password" in done.stderr


def test_a_limit_ends_code_that_waits_for_an_answer(file: Callable[..., str], study: Path) -> None:
    arguments = [sys.executable, "-m", "ipysandbox", "run", "--timeout", "1", file("input()")]
    with subprocess.Popen(arguments, cwd=study, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.wait(timeout=60) == 4
        assert process.stderr is not None
        assert "limit on time" in process.stderr.read()


def test_a_traceback_has_no_colours_in_a_pipe(cli: Cli, file: Callable[..., str]) -> None:
    assert "\x1b" not in cli("run", file("1 / 0")).stderr


def test_code_can_come_from_standard_input(cli: Cli) -> None:
    assert cli("run", "-", stdin="print('from a pipe')").stdout == "from a pipe\n"


@pytest.mark.parametrize(
    ("data", "printed"),
    [
        (b"\xef\xbb\xbfprint('bom')", "bom\n"),
        ("# coding: latin-1\nprint('caf\xe9')".encode("latin-1"), "caf\xe9\n"),
        (b"print('windows')\r\nprint('lines')\r\n", "windows\nlines\n"),
        (b"", ""),
    ],
    ids=["bom", "latin-1", "crlf", "empty"],
)
def test_any_python_source_is_read_as_python_would(
    cli: Cli, file: Callable[..., str], data: bytes, printed: str
) -> None:
    done = cli("run", file(data))
    assert done.stdout == printed
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("data", [b"\x7fELF\x02\x01\x00\xff\xfe", b"x = 1\x00\n", b"# coding: klingon\n"])
def test_what_is_not_python_is_refused(cli: Cli, file: Callable[..., str], data: bytes) -> None:
    done = cli("run", file(data))
    assert done.returncode == 3
    assert "refused" in done.stderr


@pytest.mark.parametrize("path", ["missing.py", "data", "note.ipynb", "a\nb.py"])
def test_a_file_that_can_not_be_read_is_a_usage_error(cli: Cli, study: Path, path: str) -> None:
    (study / "note.ipynb").write_text("{}")
    done = cli("run", path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_changes_are_told_at_the_end_unless_quiet(cli: Cli, file: Callable[..., str], study: Path) -> None:
    code = "open('elsewhere.txt', 'w').write('x')\nopen('results/kept.txt', 'w').write('y')"
    done = cli("run", file(code))
    assert "1 file of the project differs in the sandbox (dropped at its end): elsewhere.txt" in done.stderr
    assert "ipysandbox: written: results/kept.txt\n" in done.stderr
    assert (study / "results" / "kept.txt").read_text() == "y"
    assert not (study / "elsewhere.txt").exists()
    assert cli("run", "--quiet", file(code)).stderr == ""


def test_results_that_a_policy_does_not_keep_are_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ipysandbox.toml").write_text("[files]\nwrite = []\n")
    done = cli("run", "-", stdin="import os\nos.mkdir('results')\nopen('results/q', 'w').write('1')", cwd=tmp_path)
    assert "dropped at its end): results/, results/q; results/ is not in files.write" in done.stderr


def test_a_limit_shows_the_line_it_was_met_at(cli: Cli, file: Callable[..., str]) -> None:
    done = cli("run", "--timeout", "1", file("x = 1\nwhile True: pass"))
    assert "cell.py, line 2" in done.stderr or "cell.py:2" in done.stderr
    assert "limit on time" in done.stderr.splitlines()[-1]
    assert "--timeout 2s" in done.stderr.splitlines()[-1]


def test_what_stays_is_listed_however_it_was_written(cli: Cli, file: Callable[..., str], study: Path) -> None:
    results = study / "results"
    results.mkdir(exist_ok=True)
    for name in ("old.txt", "grown.txt", "moved.txt"):
        (results / name).write_text("x")
    code = (
        "import os\nos.chdir('results')\nopen('grown.txt', 'a').write('y')\nos.rename('moved.txt', 'here.txt')\n"
        "os.makedirs('deep/er')\nopen('deep/er/new.txt', 'w').close()\nos.utime('grown.txt', (0, 0))\n"
        "[open(f'{n:03}.bin', 'w').close() for n in range(300)]"
    )
    result = json.loads(cli("run", "--json", file(code)).stdout)
    assert result["written_total"] == 303
    assert len(result["written"]) == 200
    shown = cli("run", file("import os\nopen('results/a\\nb.txt', 'w').close()\nos.mkdir('made')"))
    assert "ipysandbox: written: results/a\\nb.txt\n" in shown.stderr
    assert "1 folder of the project differs in the sandbox (dropped at its end): made/" in shown.stderr


def test_json_is_one_object(cli: Cli, file: Callable[..., str]) -> None:
    done = cli("run", "--json", file("print('x')\n1 / 0"))
    result = json.loads(done.stdout)
    assert (result["status"], result["exit_status"], result["stdout"]) == ("error", 1, "x\n")
    assert result["error"]["ename"] == "ZeroDivisionError"
    assert result["usage"]["wall"] > 0


def test_ctrl_c_interrupts_the_code(file: Callable[..., str], study: Path) -> None:
    process = _start(study, file("print('running', flush=True)\nwhile True: pass"))
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "KeyboardInterrupt" in errors


def test_sigterm_ends_it_and_the_sandbox(file: Callable[..., str], study: Path, cli: Cli) -> None:
    process = _start(study, file("import time\nprint('running', flush=True)\ntime.sleep(600)"))
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    running = [box for state in json.loads(cli("ps", "--json").stdout) for box in state["sandboxes"]]
    [box] = [box for box in running if box["notebook"] == str(study / "cell.py")]
    ended = os.pidfd_open(box["pid"])
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert select.select([ended], [], [], 60)[0] == [ended]
    os.close(ended)


def test_a_reader_that_goes_away_ends_it_quietly(file: Callable[..., str], study: Path) -> None:
    # Slowly: a flood would end at the limit of output, and rightly say that instead.
    process = _start(study, file("import time\nwhile True: print('y', flush=True); time.sleep(0.01)"))
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


def test_a_script_has_an_event_loop_of_its_own(cli: Cli, file: Callable[..., str]) -> None:
    work = "import asyncio\nasync def work():\n    await asyncio.sleep(0)\n    return {}\n"
    done = cli("run", file(work.format(6) + "print(asyncio.run(work()) * 7)\nprint(asyncio.run(work()))"))
    assert (done.stdout, done.returncode) == ("42\n6\n", 0)
    assert cli("run", file(work.format(8) + "print(await work())")).stdout == "8\n"


@pytest.mark.parametrize(
    ("code", "how"), [("os._exit(7)", "ended itself with status 7"), ("os.abort()", "was ended by SIGABRT")]
)
def test_how_a_sandbox_died_is_said(code: str, how: str, cli: Cli, file: Callable[..., str]) -> None:
    done = cli("run", "--no-validate", file(f"import os\n{code}"))
    assert done.returncode == 5
    assert f"its process {how}; its variables are lost" in done.stderr


def test_a_picture_is_not_lost_in_silence(cli: Cli, file: Callable[..., str]) -> None:
    done = cli("run", file("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"))
    assert "a picture can't be shown in a terminal; save it" in done.stderr


def test_what_was_written_is_said_after_the_traceback(cli: Cli, file: Callable[..., str]) -> None:
    done = cli("run", file("for name in 'cab':\n    open(f'results/{name}', 'w').close()\n1 / 0"))
    trace, _, rest = done.stderr.partition("ZeroDivisionError: division by zero\n")
    assert trace
    assert "written: results/a, results/b, results/c" in rest


@pytest.mark.parametrize("code", ["%%sandbox\n1", "x = 1\n%sandbox status"])
def test_a_notebooks_line_in_a_script_is_named(cli: Cli, file: Callable[..., str], code: str) -> None:
    done = cli("run", file(code))
    assert done.returncode == 1
    assert "leave that line out" in done.stderr.splitlines()[-1]


def test_what_a_failure_has_to_do_with_the_sandbox_is_said_last(cli: Cli, file: Callable[..., str]) -> None:
    done = cli("run", file("open('results/a', 'w').close()\nopen('/data.csv', 'w')"))
    assert "written: results/a" in done.stderr
    assert done.stderr.count("can't write /data.csv") == 1
    assert "can't write /data.csv" in done.stderr.rstrip().split("\n")[-1]


def test_a_policy_that_came_with_the_code_reads_nothing_before_it_is_approved(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    canary = tmp_path / "private/canary"
    canary.write_text("canary")
    folder = tmp_path / "repo/nb"
    (tmp_path / "repo/.git").mkdir(parents=True)
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    (folder / "a.py").write_text(f"print(open({str(canary)!r}).read())")
    evil = tmp_path / "repo/evil.toml"
    evil.write_text(f'[files]\nread = [".", "{canary.parent}"]\n')
    command = ("run", "--no-validate", "--policy", "../evil.toml", "a.py")
    done = cli(*command, cwd=folder)
    assert done.returncode == 1
    assert "canary\n" not in done.stdout
    assert f"ipysandbox policy trust {evil}" in done.stderr
    asked = cli("policy", "trust", "../evil.toml", stdin="y\n", cwd=folder)
    assert f"files.read + {canary.parent}" in asked.stdout
    done = cli(*command, cwd=folder)
    assert (done.returncode, done.stdout) == (0, "canary\n"), done.stderr
    assert "not granted" not in done.stderr
