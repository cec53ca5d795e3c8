"""A host process without namespaces that starts sandboxes and speaks JSON lines with a test.

    python tests/pod.py python tests/confined/host.py [STATEMENTS THAT CHANGE THE BACKEND]

Each line in is {"do": NAME, …}, each line out the answer; the end of its input ends it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ipysandbox import Sandbox, SandboxError

_boxes: dict[str, Sandbox] = {}


def _start(name: str, **options: Any) -> dict[str, Any]:
    box = Sandbox(**{"name": name, "validate": False, **options})
    try:
        box.start()
    except SandboxError as exc:
        return {"refused": str(exc)}
    _boxes[name] = box
    state = box.status()
    return {"pid": state["pid"], "supervisor": _supervisor(), "weaker": state["weaker"]}


def _supervisor() -> int:
    from ipysandbox.supervisor.spawn import Supervisor

    return Supervisor.current().pid


def _run(name: str, code: str, **options: Any) -> dict[str, Any]:
    try:
        result = _boxes[name].run(code, **options)
    except SandboxError as exc:
        return {"refused": str(exc)}
    error = result.error
    return {
        "status": result.status,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "error": f"{error.ename}: {error.evalue}" if error else None,
        "traceback": list(error.traceback) if error else [],
        "limit": result.limit.name if result.limit else None,
        "usage": dict(result.usage),
        "outputs": [row["output_type"] for row in result.outputs],
        "state_kept": result.state_kept,
        "notices": list(result.notices),
    }


def _close(name: str) -> dict[str, Any]:
    _boxes.pop(name).close()
    return {}


def main() -> None:
    if len(sys.argv) > 1:
        exec(sys.argv[1], {})
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"start": _start, "run": _run, "close": _close}[request.pop("do")](**request)
        print(json.dumps(answer), flush=True)
    for box in _boxes.values():
        box.close()


if __name__ == "__main__":
    main()
