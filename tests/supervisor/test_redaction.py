"""A secret of the host that code finds in a file doesn't leave the sandbox in what is shown, told or recorded."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipysandbox import Sandbox, ValueRefused
from ipysandbox.audit import default_path, iter_records

TOKEN = "ghp_" + secrets.token_hex(18)
MARK = "•••GITHUB_TOKEN•••"
READ = "s = open('data/notes.txt').read()\n"


@pytest.fixture(autouse=True)
def _known_and_readable(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "data/notes.txt").write_text(TOKEN)
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)


def everything(box: Sandbox, code: str) -> str:
    """All that a cell gives to the host: what arrives while it runs, one after the other too, and its result."""
    seen: list[object] = []
    flow: list[str] = []

    def on_output(kind: str, content: dict[str, Any]) -> None:
        seen.append((kind, content))
        flow.extend((content.get("text", ""), content.get("data", {}).get("text/plain", "")))

    result = box.run(READ + code, on_output=on_output)
    assert result.status != "died", result.error
    seen += [result.stdout, result.stderr, result.outputs, result.error, result.notices, result.findings]
    seen += [result.changes, result.written, box.diff()]
    try:
        seen.append(result.value)
    except ValueRefused as refusal:
        seen.append(refusal)
    text = "\n".join((*map(str, seen), "".join(flow)))
    return text + re.sub("<[^>]*>", "", text)  # as a page shows it


@pytest.mark.parametrize(
    "code",
    [
        "print(s)",
        "print(s[::-1])",
        "import base64\nfor n in range(3): print(base64.b64encode(b'x' * n + s.encode() + b'yz'))",
        "print(s.encode().hex(), s.encode().hex().upper(), s.encode().hex(':'))",
        "print(''.join(f'%{b:02x}' for b in s.encode()))",
        "import os\nfor c in s: os.write(1, c.encode())",
        "import subprocess\nsubprocess.run(['cat', 'data/notes.txt'])",
        "import sys\nfor c in s:\n    print(c, end='', flush=True)",
        "import sys\nprint(s[:15], end='', flush=True)\nprint(s[15:], end='', file=sys.stderr, flush=True)",
        "import sys\nprint(s[:15], end='', flush=True)\nprint('!', file=sys.stderr, flush=True)\nprint(s[15:])",
        "print(s[:20], end='')\ndisplay({'text/plain': s[20:]}, raw=True)",
        "raise ValueError(s)",
        "class E(Exception): pass\nE.__name__ = s\nraise E('x')",
        "exec(compile(f'1/0 # {s}', s, 'exec'))",
        "from IPython.display import *\nfor kind in (HTML, Markdown, Latex, Pretty): display(kind(s))\nJSON({s: [s]})",
        "from IPython.display import HTML\nHTML(''.join(f'<i>{c}</i>' for c in s))",
        "open(f'results/{s}.txt', 'w').close()\nopen(f'data/{s}.txt', 'w').close()",
        "import os\nos.mkdir('results/' + s)\nos.symlink('/etc', f'results/{s}/{s}')",
        "s",
        "{s: [s, (s, 1)]}",
        "import pathlib\npathlib.Path(s)",
        "get_ipython().set_next_input(s)\nprint(input.__doc__, s)",
    ],
)
def test_no_way_of_showing_it_shows_it(make_box: Callable[..., Sandbox], code: str) -> None:
    shown = everything(make_box(), code)
    assert TOKEN not in shown
    data = TOKEN.encode()
    coded = [base64.b64encode(b"x" * n + data).decode()[4:-4] for n in range(3)]
    for trace in (TOKEN[::-1], data.hex(), data.hex().upper(), data.hex(":"), data.hex("%"), *coded):
        assert trace not in shown


def test_what_is_printed_says_whose_secret_it_was_and_the_rest_stays(box: Sandbox) -> None:
    result = box.run(READ + "print('before', s, 'after')\nprint('the end')\nf'is {s}'")
    assert (result.stdout, result.value) == (f"before {MARK} after\nthe end\n", f"is {MARK}")
    assert box.get("s") == MARK
    assert box.run("len(s)").value == len(TOKEN)  # the code itself has what is in the file


def test_the_beginning_of_one_at_the_end_of_a_cell_is_shown_as_the_secret(box: Sandbox) -> None:
    assert box.run(READ + "print(s[:30], end='')").stdout == MARK
    assert box.run("print('and on')").stdout == "and on\n"


def test_a_prompt_appears_at_once_also_after_a_secret(box: Sandbox) -> None:
    asked: list[str] = []

    def answer(prompt: str, _password: bool) -> str:
        asked.append(prompt)
        return "y"

    result = box.run(READ + "print(s[:30], end='', flush=True)\ninput(f'use {s}? ')", on_input=answer)
    assert asked == [f"use {MARK}? "]
    assert (result.stdout, result.value) == (MARK, "y")


def test_the_audit_trail_does_not_hold_it(box: Sandbox) -> None:
    code = "import os, socket\nos.mkdir('results/' + s)\nos.symlink('/etc', f'results/{s}/{s}')\n"
    code += "socket.AF_UNIX and socket.socket(socket.AF_UNIX).connect(f'/tmp/{s}')"
    box.run(READ + code)
    box.close()
    told = [record for record in iter_records(default_path()) if record["sandbox"] == box.name]
    swept = [record for record in told if record["action"] == "files.swept"]
    assert TOKEN not in json.dumps(told)
    assert MARK in json.dumps(swept, ensure_ascii=False)


def test_what_the_process_held_when_it_started_the_supervisor_is_known_from_the_first(
    project: Path, tmp_path: Path
) -> None:
    secret = "Pa55-" + secrets.token_hex(8)
    (project / "data/notes.txt").write_text(secret)
    code = (
        "import sys\nfrom ipysandbox import Sandbox\n"
        "with Sandbox(project=sys.argv[1], validate=False) as box:\n"
        "    print(box.run(\"print(open('data/notes.txt').read())\").stdout)"
    )
    environment = {**os.environ, "DATABASE_URL": f"postgres://me:{secret}@db.lab/x", "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code, str(project)], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "•••DATABASE_URL•••", done.stderr


def test_no_process_inside_holds_it(box: Sandbox) -> None:
    result = box.run("""
import glob, os, re
own = open("data/notes.txt").read()
found = []
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try: found.append(own in open(path, errors="replace").read())
    except OSError: pass
(any(found), own in str(dict(os.environ)))
""")
    assert result.value == (False, False), result.error


@pytest.mark.parametrize(
    "value",
    [TOKEN, {"a": [b"x" + TOKEN.encode()]}, base64.b64encode(TOKEN.encode()).decode(), lambda held=TOKEN: held],
    ids=["text", "bytes inside", "base64", "a function"],
)
def test_a_value_that_holds_a_secret_goes_in_only_when_that_is_said(box: Sandbox, value: object) -> None:
    with pytest.raises(
        ValueRefused, match="x: the value holds the secret of the environment variable GITHUB_TOKEN"
    ) as refusal:
        box.put("x", value)
    assert TOKEN not in str(refusal.value)
    assert box.run("'x' in globals()").value is False
    box.put("x", value, allow_secrets=True)
    assert box.run("x is not None").value is True


def test_what_an_earlier_cells_output_left_open_is_not_shown_as_a_later_cells(box: Sandbox) -> None:
    box.run(READ + "kernel = get_ipython().kernel\nearlier = kernel.get_parent()")  # as a thread of that cell has it
    late = "kernel.session.send(kernel.iopub_socket, 'stream', {'name': 'stdout', 'text': s[:30]}, parent=earlier)"
    assert box.run(f"{late}\nprint('next')").stdout == "next\n"
