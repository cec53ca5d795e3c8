"""What a policy can say to the check: off, more names, fewer rules, other folders; and what a report holds."""

from __future__ import annotations

import dataclasses
import json

import pytest

from ipysandbox.check import Report, check
from ipysandbox.check.engine import RULES
from ipysandbox.policy.names import CHECK_RULES


@pytest.mark.parametrize("cell", ["os.system('x')", "not python", "\0", "x" * 5_000_000, "%%bash\nls"])
def test_profile_off_accepts_anything(cell: str) -> None:
    assert check(cell, profile="off") == Report("ok")


@pytest.mark.parametrize(
    ("denied", "cell"),
    [
        ("requests", "import requests"),
        ("requests", "import requests.adapters as a"),
        ("requests", "from requests import get"),
        ("requests", "from requests.adapters import *"),
        ("requests", "__import__('requests')"),
        ("requests", "import importlib\nimportlib.import_module('requests.api')"),
        ("requests", "requests.get('x')"),
        ("requests.get", "import requests as r\nr.get('x')"),
        ("requests.get", "from requests import get as g"),
        ("requests.get", "import requests\nf = requests.get\nf('x')"),
        ("requests.get", "import requests\ngetattr(requests, 'get')('x')"),
        ("open", "open('x')"),
        ("open", "import builtins\nbuiltins.open('x')"),
        ("socket.socket", "import socket as s\ns.socket()"),
        ("requests", "%%time\nimport requests"),
        ("requests", "exec('import requests')"),
    ],
)
def test_denied_names_are_refused_in_every_spelling(denied: str, cell: str) -> None:
    report = check(cell, deny=[denied])
    assert report.verdict == "refused"
    assert "denied" in {finding.rule for finding in report.findings}
    assert "denied" not in {finding.rule for finding in check(cell).findings}


@pytest.mark.parametrize("cell", ["import requests_cache", "x.requests", "import requests\nrequests.post('x')"])
def test_other_names_stay_allowed(cell: str) -> None:
    assert check(cell, deny=["requests.get"]).verdict == "ok"


@pytest.mark.parametrize(
    ("allowed", "cell"),
    [
        ("call.os-system", "import os\nos.system('x')"),
        ("os.system", "import os\nos.system('x')"),
        ("ctypes", "import ctypes.util\nfrom ctypes import CDLL"),
        ("import.ctypes", "import ctypes"),
        ("call.eval", "eval(x)"),
        ("eval", "eval(x)"),
        ("subprocess.run", "import subprocess\nsubprocess.run(x, shell=True)"),
        ("shutil.rmtree", "import shutil\nshutil.rmtree(x)"),
        ("syntax", "no python"),
        ("magic.shell", "%%bash\nls"),
    ],
)
def test_allowed_rules_and_names_are_left_alone(allowed: str, cell: str) -> None:
    assert check(cell, allow=[allowed]).findings == ()
    assert check(cell).findings != ()


def test_allowing_one_name_leaves_the_others_refused() -> None:
    assert check("os.system('x'); os.popen('y')", allow=["os.system"]).verdict == "refused"


def test_denied_wins_over_allowed() -> None:
    assert check("os.system('x')", deny=["os.system"], allow=["os.system", "call.os-system"]).verdict == "refused"


def test_rmtree_follows_the_folders_the_policy_lets_write() -> None:
    cell = "import shutil\nshutil.rmtree('out/cache')"
    assert check(cell).verdict == "refused"
    assert check(cell, writable=["out"]).verdict == "ok"
    assert check("import shutil\nshutil.rmtree('results/a')", writable=["out"]).verdict == "refused"
    assert check("import shutil\nshutil.rmtree('/data/out/a')", writable=["/data/out"]).verdict == "ok"
    assert check("import shutil\nshutil.rmtree('outside')", writable=["out"]).verdict == "refused"


def test_findings_come_in_the_order_of_the_cell() -> None:
    report = check("eval(x)\nos.system('a'); import ctypes\nimport pickle; pickle.load(f)")
    assert [finding.rule for finding in report.findings] == [
        "call.eval",
        "call.os-system",
        "import.ctypes",
        "call.pickle",
    ]


def test_report_is_frozen_and_json() -> None:
    report = check("os.system('a')")
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.verdict = "ok"  # type: ignore[misc]
    data = json.loads(json.dumps(report.to_json()))
    assert data["verdict"] == "refused"
    assert {"rule", "severity", "line", "column", "name", "message", "hint"} <= data["findings"][0].keys()
    assert data["findings"][0]["name"] == "os.system"


def test_every_refusal_says_why_and_what_to_do() -> None:
    for rule in RULES.values():
        assert rule.reason, rule.id
        assert rule.hint or rule.severity == "note", rule.id


def test_a_policy_knows_the_rules_by_name() -> None:
    assert sorted(CHECK_RULES) == sorted(RULES)


def test_a_refusal_says_what_to_write_and_where_to_have_it_run_all_the_same() -> None:
    code = "import os, subprocess\nos.system('ls')\nos.system('ls')\nsubprocess.run('ls', shell=True)"
    advice = '[code] allow = ["call.os-system", "call.shell"]'
    assert str(check(code)).endswith(f", or write in ~/.jupyter/ipysandbox.toml: {advice}.")
    rules = ("call.os-system", "call.shell")
    assert check(code, allow=rules).verdict == "ok"
    assert "allow =" not in str(check("open('x')", deny=("open",)))
