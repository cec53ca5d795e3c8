"""Gives a cell what a script has: arguments, input, ``__file__``, its name in tracebacks, no event loop that runs."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from . import standard_input


def prepare(shell: Any, code: str, script: object) -> None:
    """Take ``code``, the cell that comes next, for the script that ``script`` describes.

    ``script``: {"name": shown in tracebacks, "argv": sys.argv, "file": ``__file__`` or None}. It is text that is put
    in its place; nothing of it is looked up or evaluated.
    """
    if not isinstance(script, dict):
        return
    name, argv, file = script.get("name"), script.get("argv"), script.get("file")
    sys.stdin = standard_input.text(shell.kernel.line_of_input)
    if isinstance(argv, list):
        sys.argv = [str(word) for word in argv]
    if isinstance(file, str):
        shell.user_ns["__file__"] = file
    if isinstance(name, str):
        _name_code(shell.compile, code, name)
    _run_outside_the_loop(shell, code)


def _name_code(compiler: Any, code: str, name: str) -> None:
    """Compile this text under ``name``; other cells keep IPython's names."""
    code_name, format_name = compiler.get_code_name, compiler.format_code_name

    def get_code_name(raw_code: str, transformed_code: str, number: int) -> str:
        return name if raw_code == code else str(code_name(raw_code, transformed_code, number))

    def format_code_name(known: str) -> Any:
        return ("File", name) if known == name else format_name(known)

    compiler.get_code_name, compiler.format_code_name = get_code_name, format_code_name


def _run_outside_the_loop(shell: Any, code: str) -> None:
    """Run this text as if the kernel's event loop were not running, so that ``asyncio.run`` works as in any script.

    Only code that awaits nothing itself comes by here: the rest IPython runs as a task of that loop.
    """
    run_cell = shell.run_cell

    def run(raw_cell: str, *arguments: Any, **options: Any) -> Any:
        loop = asyncio._get_running_loop()
        if raw_cell != code or loop is None:
            return run_cell(raw_cell, *arguments, **options)
        task = asyncio.current_task(loop)
        if task is not None:
            asyncio.tasks._leave_task(loop, task)
        asyncio._set_running_loop(None)
        try:
            return run_cell(raw_cell, *arguments, **options)
        finally:
            asyncio._set_running_loop(loop)
            asyncio.set_event_loop(loop)
            if task is not None:
                asyncio.tasks._enter_task(loop, task)

    shell.run_cell = run
