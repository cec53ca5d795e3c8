"""The table: what each environment is, and how much of each kind of attack was held there."""

from __future__ import annotations

from collections.abc import Mapping

from inside import SLOW_SECONDS, Told

BEGIN = "<!-- Written by `python tests/matrix --write`. -->"
END = "<!-- End of what it wrote. -->"
_NAMES = {
    "root": "root",
    "user": "plain user",
    "container": "Docker's default profile, uid 1000",
    "container-root": "Docker's default profile, root",
    "vm": "virtual machine, plain user",
    "vm-no-userns": "the same without user namespaces",
}
_FACTS = ("kernel", "Landlock", "tier", "control group")


def holds(told: Told) -> bool:
    """Whether everything was held and everything ordinary worked; nothing run is nothing held."""
    held, run = _sum(told)
    return held == run > 0 and told["benign"][0] == told["benign"][1] and not told["failed"]


def markdown(columns: Mapping[str, Told], left_out: Mapping[str, str], *, command: str) -> str:
    names = list(columns)
    lines = [_row("", *(_NAMES[name] for name in names)), _row("---", *("---" for _ in names))]
    lines += [_row(fact, *(_facts(columns[name])[fact] for name in names)) for fact in _FACTS]
    families = sorted({family for told in columns.values() for family in told["hostile"]})
    lines += [_row(family, *(_share(columns[name]["hostile"].get(family)) for name in names)) for family in families]
    lines += [
        _row("**attacks held**", *(_share(_sum(columns[name])) for name in names)),
        _row("**ordinary code that works**", *(_share(columns[name]["benign"]) for name in names)),
        _row("not run: means nothing there", *(str(columns[name]["skipped"]) for name in names)),
        "",
    ]
    lines += [f"- {_NAMES[name]}, not held: {row}" for name in names for row in columns[name]["failed"]]
    lines += [f"- {_NAMES[name]}: left out, {reason}" for name, reason in left_out.items()]
    lines += [f"- Cases: {text}" for text in dict.fromkeys(columns[name]["cases"] for name in names)]
    if any(name.startswith("vm") for name in names):
        lines.append(f"- A virtual machine may be emulated: a case has {SLOW_SECONDS} s there")
    days = ", ".join(sorted({columns[name]["day"] for name in names}))
    versions = ", ".join(sorted({columns[name]["sources"] for name in names}))
    lines.append(f"- Run: {days or 'never'}, by `{command}`; sha256 of the package's sources: {versions or 'none'}")
    return "\n".join(lines) + "\n"


def replaced(document: str, text: str) -> str:
    """The document with this table instead of the one between its markers."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"the file has no place for the table: the lines\n{BEGIN}\n{END}")
    return f"{before}{BEGIN}\n{text}{END}{after}"


def _facts(told: Told) -> dict[str, str]:
    machine = told["doctor"]["machine"]
    return {
        "kernel": machine["kernel"],
        "Landlock": machine["landlock"],
        "tier": told["doctor"]["tier"],
        "control group": machine["cgroup"],
    }


def _sum(told: Told) -> list[int]:
    counted = list(told["hostile"].values())
    return [sum(held for held, _ in counted), sum(run for _, run in counted)]


def _share(counted: list[int] | None) -> str:
    if not counted:
        return "–"
    held, run = counted
    return f"{held}/{run}" if held == run else f"**{held}/{run}**"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
