"""The API is as openapi.json says: every route, every status, every answer, also to what makes no sense."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jupyter_server.auth import Authorizer

from ipysandbox.audit import AuditLog
from ipysandbox.policy import resolve
from ipysandbox.server.handlers import DESCRIPTION, handlers

_HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[2J" + "x" * 10_000
_BOX = {"name": "main", "state": "busy", "cell": {"number": 1, "elapsed": 2}, "usage": {"cpu": 1}, "limits": {"cpu": 2}}
_BOX |= {
    "last": {"status": _HOSTILE, "limit": {"text": _HOSTILE}, "usage": {"cpu": -1}},
    "guarantees": {"network": ["x"]},
}


class Noting(Authorizer):
    asked: list[tuple[str, str]]

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        self.asked.append((resource, action))
        return True


def validator(described: dict[str, Any], schema: Any) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": described["components"]})


async def test_every_route_answers_as_described(jp_fetch, jp_serverapp, supervisor, log, study):
    described = json.loads(DESCRIPTION.read_text())
    routes = {path: set(methods) for path, methods in described["paths"].items()}
    known = [re.sub(r"\(.*?\)(?=/|$)", "{}", path) for path, _, _ in handlers("/", None)]  # type: ignore[arg-type]
    assert sorted(re.sub(r"\{\w+\}", "{}", f"/ipysandbox{path}") for path in routes) == sorted(known)

    noting = jp_serverapp.web_app.settings["authorizer"] = Noting(parent=jp_serverapp)
    owner = supervisor(sandboxes=[_BOX])
    owner.policy = resolve(cwd=study, environ={"A_TOKEN": "x" * 20}).to_json()
    for n in range(3):
        log.record(
            "cell.result", sandbox=_HOSTILE, notebook=_HOSTILE, details={"text": _HOSTILE, "n": {"a": [n, -1.5]}}
        )
    digest = "0" * 64
    box = {"supervisor": owner.folder.name, "sandbox": "main"}
    tried: list[tuple[str, str, dict[str, Any], Any]] = [
        ("GET", "state", {}, None),
        ("GET", "policy", box, None),
        ("GET", "policy", {"path": "study/a.ipynb"}, None),
        ("GET", "policy", {"path": "/study/"}, None),
        ("GET", "policy", {"path": "../../etc/"}, None),
        ("GET", "policy", {"path": "study\0/"}, None),
        ("GET", "policy", {**box, "supervisor": "nobody"}, None),
        ("GET", "policy", {}, None),
        ("POST", "policy/trust", {}, {"path": "study/a.ipynb", "digest": digest}),
        ("POST", "policy/trust", {}, {"path": "../x", "digest": digest}),
        ("POST", "policy/trust", {}, {**box, "digest": digest}),
        ("POST", "policy/trust", {}, {**box, "supervisor": "..", "digest": digest}),
        ("POST", "policy/trust", {}, ["no", "object"]),
        ("POST", "policy/trust", {}, {"digest": ""}),
        ("GET", "audit", {}, None),
        ("GET", "audit", {"size": "2", "text": "ONERROR", "severity": "info", "action": "cell.*"}, None),
        ("GET", "audit", {"size": "0"}, None),
        ("GET", "audit", {"size": "9" * 30}, None),
        ("GET", "audit", {"before": _HOSTILE}, None),
        ("GET", "audit", {"severity": "loud"}, None),
        ("GET", "audit/verify", {}, None),
        ("GET", "audit/export", {}, None),
        ("GET", "audit/export", {"format": "csv"}, None),
        ("GET", "audit/export", {"format": "exe"}, None),
        ("GET", "doctor", {}, None),
        ("GET", "openapi.json", {}, None),
        ("POST", f"sandboxes/{box['supervisor']}/main/kill", {}, None),
        ("POST", "sandboxes/nobody/main/restart", {}, None),
    ]
    statuses: set[tuple[str, int]] = set()
    for method, path, query, body in tried:
        noting.asked = []
        sent = {"body": json.dumps(body) if body is not None else ""} if method == "POST" else {}
        said = await jp_fetch("ipysandbox", *path.split("/"), method=method, params=query, raise_error=False, **sent)
        route = "/sandboxes/{supervisor}/{sandbox}/{action}" if path.startswith("sandboxes") else f"/{path}"
        operation = described["paths"][route][method.lower()]
        statuses.add((route, said.code))
        assert str(said.code) in operation["responses"], (method, path, query, said.code, said.body[:300])
        assert noting.asked[-1] == tuple(operation["x-authorized"].values())
        for kind, content in operation["responses"][str(said.code)]["content"].items():
            if kind == "application/json":
                schema = content["schema"]
                if "$ref" in schema:
                    schema = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
                validator(described, schema).validate(json.loads(said.body))
        # A browser shows none of it as a page.
        kind = said.headers["Content-Type"]
        assert kind.startswith("application/json") or said.headers["Content-Disposition"].startswith("attachment")
        assert said.headers["X-Content-Type-Options"] == "nosniff"
        assert "\u202e" not in said.body.decode()
        assert len(said.body) < 100_000
    wanted = {("/policy", 400), ("/policy", 404), ("/policy/trust", 409), ("/audit", 400), ("/doctor", 200)}
    assert wanted | {(f"/{path}", 200) for path in ("state", "policy", "audit", "audit/verify")} <= statuses


async def test_a_size_or_a_body_that_only_seems_small_is_a_bad_request(jp_fetch: Any, log: AuditLog):
    said = await jp_fetch("ipysandbox", "audit", params={"size": "0000000019999999"}, raise_error=False)
    assert said.code == 400
    for body in ("[" * 9_999, '{"a":' * 1_900):
        said = await jp_fetch("ipysandbox", "policy", "trust", method="POST", body=body, raise_error=False)
        assert said.code == 400, body[:20]


async def test_the_policy_names_file_line_and_what_waits_for_approval_and_no_value(
    jp_fetch: Any, study: Path, monkeypatch: Any
):
    monkeypatch.setenv("XDG_DATA_HOME", str(study.parent.parent / "data"))
    monkeypatch.setenv("STUDY_API_KEY", "kept-out-of-everything-4711")

    async def policy() -> dict[str, Any]:
        said = await jp_fetch("ipysandbox", "policy", params={"path": "study/a.ipynb"})
        assert b"4711" not in said.body
        shown: dict[str, Any] = json.loads(said.body)
        return shown

    def setting(shown: dict[str, Any], key: str) -> dict[str, Any]:
        return next(one for one in shown["settings"] if one["key"] == key)

    async def approve(digest: str) -> int:
        body = json.dumps({"path": "study/a.ipynb", "digest": digest})
        said = await jp_fetch("ipysandbox", "policy", "trust", method="POST", body=body, raise_error=False)
        return int(said.code)

    shown = await policy()
    place = {"file": str(study / "ipysandbox.toml"), "line": 3, "opens": "study/ipysandbox.toml"}
    cpu = setting(shown, "limits.cpu")
    assert (cpu["value"], cpu["source"]["kind"], cpu["source"]["place"]) == ("10s", "project", place)
    assert setting(shown, "limits.memory")["value"] == "4GiB"
    assert shown["file"]["wishes"] == [{"key": "limits.memory", "entries": ["4GiB → 64GiB"], "total": 1}]
    assert "STUDY_API_KEY" in shown["variables"]["withheld"]

    seen = shown["file"]["digest"]
    (study / "ipysandbox.toml").write_text('[limits]\nmemory = "6GiB"\n')
    assert await approve(seen) == 409  # it is not what was shown
    assert await approve((await policy())["file"]["digest"]) == 200
    shown = await policy()
    assert shown["file"]["trusted"] is True
    assert setting(shown, "limits.memory")["value"] == "6GiB"

    (study / "ipysandbox.toml").write_text('\n[limits]\nmemroy = "1GiB"\ncpu = "soon"\n[files]\nread = ["src"]\n')
    problem = (await policy())["problem"]
    assert problem["place"]["line"] == 3
    assert [other["place"]["line"] for other in problem["others"]] == [4, 6]
    assert "\ufffd" not in json.dumps(problem, ensure_ascii=False)
    assert "memory" in problem["hint"]
    assert "ipysandbox.toml" not in problem["message"]


@pytest.mark.parametrize(
    ("entries", "whole"),
    [
        ([f"part-{number:03}" for number in range(40)], True),
        ([f"part-{number:03}" for number in range(501)], False),
        (["a" * 200 + "/" + "b" * 200 + "/../.." * 120], False),
    ],
    ids=["many", "too many", "too long"],
)
async def test_a_policy_is_approved_in_the_panel_only_if_all_of_it_is_shown(
    jp_fetch: Any, study: Path, tmp_path: Path, monkeypatch: Any, entries: list[str], whole: bool
):
    monkeypatch.setenv("XDG_DATA_HOME", str(study.parent.parent / "data"))
    wanted = [str(tmp_path / "more" / entry) for entry in entries]
    if whole:
        for entry in wanted:
            Path(entry).mkdir(parents=True)
    (study / "ipysandbox.toml").write_text(f"[files]\nread = {json.dumps(wanted)}\n")
    file = json.loads((await jp_fetch("ipysandbox", "policy", params={"path": "study/a.ipynb"})).body)["file"]
    [wish] = file["wishes"]
    assert wish["total"] == len(wanted)
    assert (wish["entries"] == wanted) is whole
    body = json.dumps({"path": "study/a.ipynb", "digest": file["digest"]})
    said = await jp_fetch("ipysandbox", "policy", "trust", method="POST", body=body, raise_error=False)
    if whole:
        assert (file["refused"], said.code) == (None, 200)
    else:
        assert "ipysandbox policy trust" in file["refused"]["hint"]
        assert (said.code, "ipysandbox policy trust" in json.loads(said.body)["message"]) == (409, True)


async def test_a_list_that_is_cut_says_how_long_it_is(jp_fetch: Any, study: Path):
    hide = [f"secret-{number}" for number in range(300)]
    (study / "ipysandbox.toml").write_text(f"[files]\nhide = {json.dumps(hide)}\n")
    shown = json.loads((await jp_fetch("ipysandbox", "policy", params={"path": "study/a.ipynb"})).body)
    assert len(shown["hidden"]) == 200
    assert shown["totals"]["hidden"] == len(resolve(cwd=study, environ={}).hidden) > 300


async def test_a_policy_file_that_came_to_the_folder_of_a_running_sandbox_is_looked_at(jp_fetch, supervisor, study):
    (study / "ipysandbox.toml").unlink()
    (study.parent / "ipysandbox.toml").write_text('[limits]\ncpu = "10s"\n')
    owner = supervisor(sandboxes=[_BOX])
    owner.policy = resolve(cwd=study, environ={}).to_json()
    assert owner.policy["project"] == str(study.parent)
    (study / "ipysandbox.toml").write_text('[limits]\nmemroy = "1GiB"\n')
    box = {"supervisor": owner.folder.name, "sandbox": "main"}
    shown = json.loads((await jp_fetch("ipysandbox", "policy", params=box)).body)
    assert shown["problem"]["place"]["file"] == str(study / "ipysandbox.toml")


async def test_a_running_sandbox_shows_its_policy_and_what_is_wrong_with_the_file_since(jp_fetch, supervisor, study):
    owner = supervisor(sandboxes=[_BOX])
    owner.policy = resolve(cwd=study, environ={}).to_json()
    box = {"supervisor": owner.folder.name, "sandbox": "main"}

    async def policy() -> dict[str, Any]:
        shown: dict[str, Any] = json.loads((await jp_fetch("ipysandbox", "policy", params=box)).body)
        return shown

    assert (await policy())["problem"] is None
    (study / "ipysandbox.toml").write_text('\n[limits]\nmemroy = "1GiB"\n')
    shown = await policy()
    assert shown["problem"]["place"] == {
        "file": str(study / "ipysandbox.toml"),
        "line": 3,
        "opens": "study/ipysandbox.toml",
    }
    assert "memory" in shown["problem"]["hint"]
    assert next(one for one in shown["settings"] if one["key"] == "limits.cpu")["value"] == "10s"


async def test_an_export_is_all_that_fits_whole_and_as_a_download(jp_fetch, log):
    for n in range(450):
        log.record("cell.result", sandbox=f"s{n % 2}", details={"text": _HOSTILE[:100]})
    said = await jp_fetch("ipysandbox", "audit", "export", params={"sandbox": "s1"})
    assert said.headers["Content-Type"] == "application/jsonl"
    assert said.headers["Content-Disposition"].startswith("attachment")
    assert [json.loads(line)["seq"] for line in said.body.splitlines()] == list(range(2, 451, 2))
