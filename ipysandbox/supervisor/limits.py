"""Compares what a sandbox uses with what its policy allows, and words the verdict."""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from ipysandbox.backends.base import Uncountable, Usage
from ipysandbox.policy.model import Limits
from ipysandbox.policy.units import format_duration, format_size


@dataclass(frozen=True)
class LimitHit:
    """A limit that ended a cell: its key in the policy, its value, and what was seen (seconds, bytes or a count)."""

    name: str
    value: float
    observed: float | None
    text: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


#: Whose words advice is in: options of a cell or command, arguments of ``Sandbox`` and its ``run``, or of an executor.
Words = Literal["options", "python", "task"]
#: How to give more, by limit: the option of the magic where there is one.
OPTIONS = {"wall": "--timeout", "cpu": "--cpu", "memory": "--memory"}
#: The same in Python.
_ARGUMENTS = {
    "wall": "timeout={}",
    "cpu": "cpu={}",
    "memory": 'overrides={{"limits.memory": {}}}',
}
#: From this share of the memory that code can have on, little is left for the next cell; and none for this one.
_MOSTLY, _ALL = 0.8, 0.95
#: Variables of less than this share of the limit are not worth deleting.
_VARIABLES = 0.2
_WORDS = {
    "wall": "time: the cell ran for {observed}, its limit on wall time is {value}",
    "cpu": "cpu time: the cell used {observed} of processor time, its limit is {value}",
    "memory": "memory: the sandbox held {observed}, its limit is {value}",
    "disk": "disk space: the sandbox wrote {observed}, its limit on disk is {value}",
    "files": "disk: the sandbox made {observed} files, its limit is {value}",
    "output": "output: the cell produced {observed}, its limit on output size is {value}",
    "processes": "processes: the sandbox may run {value} processes and threads at a time",
    "gpu": "graphics memory: the sandbox held {observed} of a card's, its share is {value}",
    "open_files": "open files: a process in the sandbox may hold {value} files open",
}
#: Where the kernel refused a request, and nobody saw how much it was for.
_ASKED = {
    "memory": "memory: the code asked for more than the {value} that the sandbox may hold",
    "disk": "disk space: the code asked for more than the {value}, or the {files} files, that the sandbox may write",
}
#: What code meets when the kernel refuses it more, by exception; the sandbox's word, used for wording only. The
#: module of its class is known of tasks.
_MEMORY = {"MemoryError": "builtins", "_ArrayMemoryError": "numpy"}
#: Python's own that carry a number of the kernel's.
_OS_ERRORS = {name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, OSError)}
_ERRNO_LIMITS = {28: "disk", 27: "disk", 122: "disk", 24: "open_files", 11: "processes", 12: "memory"}


def seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"


def size(value: float, limit: float = 0) -> str:
    """Bytes for people. ``limit``: one that they are compared with, in whose kind of unit they are shown: MB where that
    was written in MB."""
    decimal = limit >= 10**6 and limit % 10**6 == 0 and limit % 2**20 != 0
    step, units = (1000, ("B", "kB", "MB", "GB")) if decimal else (1024, ("B", "KiB", "MiB", "GiB"))
    for unit in units:
        if value < step or unit == units[-1]:
            return f"{value:.0f} {unit}" if unit in units[:2] else f"{value:.1f} {unit}"
        value /= step
    return ""


def show(name: str, value: float | None, limit: float = 0) -> str:
    """What was measured for a limit, or the limit itself, in its unit."""
    if value is None:
        return "more"
    if name in ("wall", "cpu"):
        return seconds(value)
    if name in ("memory", "disk", "output", "gpu"):
        return size(value, limit)
    return f"{value:.0f}"


def hit(name: str, value: float, observed: float | None) -> LimitHit:
    words = (_WORDS[name] if observed is not None else _ASKED.get(name, _WORDS[name])).format(
        value=show(name, value, value), observed=show(name, observed, value), files=f"{_files(value):,.0f}"
    )
    advice = _advice(name, value, observed)
    return LimitHit(name, value, observed, f"limit on {words}. To allow more: {advice} in the policy.")


def _advice(name: str, value: float, observed: float | None, words: Words = "options") -> str:
    """What to change: the option of a cell, or the argument in Python, where there is one."""
    if name == "gpu":
        return "memory_fraction under [limits.gpu]"
    key, more = "disk" if name == "files" else name, _more(name, value, observed)
    if words == "options":
        return f"{OPTIONS[name]} {more} or {key} under [limits]" if name in OPTIONS else f"{key} under [limits]"
    more = more if more.isdigit() else f'"{more}"'
    if words == "python":
        return (
            f"{_ARGUMENTS[name].format(more)} or {key} under [limits]" if name in OPTIONS else f"{key} under [limits]"
        )
    argument = f"timeout={more}" if name == "wall" else f'limits={{"{key}": {more}}}'
    return f"{argument}, or {key} under [limits]"


def in_words_of_a_task(hit: LimitHit) -> LimitHit:
    """The sentences are a cell's, with its options."""
    known = hit.name, hit.value, hit.observed
    text = hit.text.replace(": the cell ", ": the task ").replace(_advice(*known), _advice(*known, "task"))
    return replace(hit, text=text)


def in_words(hit: LimitHit, words: Words) -> LimitHit:
    """The same sentence with the advice of a cell's options, or of Python's arguments."""
    known = hit.name, hit.value, hit.observed
    return replace(hit, text=hit.text.replace(_advice(*known), _advice(*known, words)))


def _attainable(limit: float) -> float:
    """What code can hold before the kernel refuses it more (bytes), which a bound on data does below the limit: it
    counts what stacks and libraries reserve as well, of a kernel about 170 MiB. At least so much that what is compared
    with it is above half of the limit: below that, memory is measured as a bound only."""
    return max(limit / 2 / _MOSTLY, 0.95 * limit - (170 << 20))


def memory_cause(limits: Limits, held: float) -> str:
    """The words that memory, of which the sandbox held so much when its cell was ended, is what it lacked; empty where
    enough was left. Libraries wait for memory, or end their process, where Python would have raised MemoryError."""
    if held < _ALL * _attainable(limits.memory):
        return ""
    most = size(limits.memory, limits.memory)
    return f"It held {size(held, limits.memory)} of its {most} of memory: code that needs more waits for it, or ends."


def for_want_of_memory(hit: LimitHit, limits: Limits, cause: str, words: Words) -> LimitHit:
    """A limit on time, of which more would not have helped, if so."""
    known = hit.name, hit.value, hit.observed
    text = hit.text.replace(_advice(*known), _advice(*known, words)) + f" {cause} {_more_memory(limits, words)}"
    return replace(hit, text=text)


def _more_memory(limits: Limits, words: Words) -> str:
    return f"Let it hold less, or allow more: {_advice('memory', limits.memory, None, words)}"


def died_for_want_of_memory(limits: Limits, cause: str, words: Words) -> str:
    return f"{cause} {_more_memory(limits, words)} in the policy."


def memory_left(limits: Limits, held: float, before: float, name: str, words: Words) -> str:
    """What to do about variables that leave little for the next cell of the sandbox ``name``; else empty. ``before``:
    what it held when it began, of which nothing can be deleted."""
    if held < _MOSTLY * _attainable(limits.memory) or held - before < _VARIABLES * limits.memory:
        return ""
    restart = "box.restart()" if words == "python" else f"`%sandbox restart{'' if name == 'main' else f' {name}'}`"
    most = size(limits.memory, limits.memory)
    return (
        f"It still holds {size(held, limits.memory)} of its {most} of memory, which leaves little for what comes next: "
        f"delete variables (del), or start anew with {restart}."
    )


def uncountable(found: Uncountable) -> LimitHit:
    """There are more files than can be watched, whatever the policy allows."""
    return LimitHit(
        "files",
        found.most,
        None,
        f"limit on disk: {found.folder} holds more than {found.most:,} files, or folders nested too deep, and what is "
        "written there can't be watched any more. Write fewer and larger files, or move some out of it.",
    )


def _more(name: str, value: float, observed: float | None) -> str:
    """The next limit worth a try: twice this one, until what was seen fits; written as in a policy."""
    more = 2 * value
    while more < (observed or 0):
        more *= 2
    if name == "files":
        return format_size(int(more) << _FILES_SHIFT)
    if name in ("memory", "disk", "output"):
        return format_size(int(more))
    return format_duration(round(more, 3)) if name in ("wall", "cpu") else f"{more:.0f}"


#: Whoever makes a process is refused one too many; only where that fails, the sandbox is ended. It may make some more
#: than one of them at the very moment when they are counted.
_TASKS_MORE = 16


_FILES_SHIFT = 14


def _files(disk: float) -> int:
    return max(1024, int(disk) >> _FILES_SHIFT)


def files_allowed(limits: Limits) -> int:
    """Entries on disk go with bytes: one per 16 KiB, the density of an ordinary file system's table, at least 1024."""
    return _files(limits.disk)


def exceeded(limits: Limits, usage: Usage, *, cpu: float, wall: float | None) -> LimitHit | None:
    """The first limit that the sandbox is over, if any. ``wall`` is the running cell's (None: no cell), ``cpu`` its own
    or what was used since the last one."""
    if usage.memory > limits.memory:
        return hit("memory", limits.memory, usage.memory)
    if usage.disk > limits.disk:
        return hit("disk", limits.disk, usage.disk)
    if usage.gpu > usage.gpu_allowed:
        return hit("gpu", usage.gpu_allowed, usage.gpu)
    if usage.files > files_allowed(limits):
        return hit("files", files_allowed(limits), usage.files)
    if usage.processes > limits.processes + max(_TASKS_MORE, limits.processes // 8):
        return hit("processes", limits.processes, usage.processes)
    if wall is not None and wall > limits.wall:
        return hit("wall", limits.wall, wall)
    if cpu > limits.cpu:
        return hit("cpu", limits.cpu, cpu)
    return None


def enforced(limits: Limits, found: Mapping[str, int]) -> LimitHit | None:
    """The limit for which the kernel ended something by itself, by what ``Instance.enforced`` found."""
    return hit("memory", limits.memory, found["memory"]) if "memory" in found else None


def from_error(limits: Limits, ename: str, evalue: str, module: str = "") -> LimitHit | None:
    """The limit behind an error that the code met and did not catch (a MemoryError, "no space left on device").

    ``module``: of its class; empty where that isn't known."""
    if ename in _MEMORY and module.partition(".")[0] in ("", _MEMORY[ename]):
        return hit("memory", limits.memory, None)
    if module not in ("", "builtins"):
        return None
    if ename == "RuntimeError" and "can't start new thread" in evalue:
        return hit("processes", limits.processes, None)
    number = re.match(r"\[Errno (\d+)\]", evalue) if ename in _OS_ERRORS else None
    name = _ERRNO_LIMITS.get(int(number[1])) if number and len(number[1]) < 4 else None
    if name == "processes" and ename != "BlockingIOError":
        return None
    if name is None:
        return None
    value = {
        "disk": limits.disk,
        "open_files": limits.open_files,
        "processes": limits.processes,
        "memory": limits.memory,
    }
    return hit(name, value[name], None)
