"""What a kernel does otherwise where its sandbox has no file systems of its own: no terminals, no /dev/shm.

Conveniences, not walls: code that goes around them meets the kernel's refusal.
"""

from __future__ import annotations

import codecs
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import semaphores

#: In the sandbox's own folder; the one stands for /dev/shm, Pythons that are started inside load the other's module.
_SHARED, _START = "shm", "python"
#: Read before the sandbox is one: this package need not be among what it may read.
_SOURCE = Path(semaphores.__file__).read_text(encoding="utf-8")


def prepare(scratch: str) -> None:
    """Give multiprocessing's locks and shared memory a place in ``scratch``, here and in every Python started inside.
    Before either is used."""
    folder = os.path.join(scratch, _SHARED)
    semaphores.use(folder)
    semaphores.ask_for_proc()
    start = os.path.join(scratch, _START)
    os.makedirs(start, exist_ok=True)
    with open(os.path.join(start, "sitecustomize.py"), "w", encoding="utf-8") as file:
        file.write(_SOURCE)
    os.environ[semaphores.VARIABLE] = folder
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [start, os.environ.get("PYTHONPATH", "")]))
    # This interpreter was started isolated; those that multiprocessing starts would be too, and not hear of the above.
    ours = subprocess._args_from_interpreter_flags  # type: ignore[attr-defined]
    heard = lambda: [flag for flag in ours() if flag not in ("-I", "-E", "-s", "-P")]  # noqa: E731
    subprocess._args_from_interpreter_flags = heard  # type: ignore[attr-defined]


def use_pipes(shell: Any) -> None:
    """Have ``!command`` go through a pipe: a new terminal would be the host's."""

    def system(command: str) -> None:
        text = shell.var_expand(command, depth=1)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with subprocess.Popen(
            text, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            assert process.stdout is not None
            while data := process.stdout.read1(65536):  # type: ignore[attr-defined]
                sys.stdout.write(decoder.decode(data))
                sys.stdout.flush()
        status = process.returncode
        shell.user_ns["_exit_code"] = status if status >= 0 else 128 - status

    shell.system = system
