"""Graphics cards for a sandbox: which files of /dev it gets, what it finds in its environment, what it holds of them.

Only the cards that the policy names exist inside. The memory that a sandbox's processes hold on them is read from
outside, by NVIDIA's management library, since no limit of the kernel covers it.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ipysandbox.errors import StartError

from .nvml import Card, Nvml, NvmlError, library_folder
from .plan import Bind, Plan

#: For the driver to wake up: some seconds where nothing keeps it loaded.
_FIND_SECONDS = 20.0
#: Between two readings; each takes about a millisecond.
_READ_SECONDS = 0.1
#: Without a reading for so long nobody knows what the sandbox holds: it is ended.
_BLIND_SECONDS = 5.0
#: What CUDA opens besides the cards' own files; the first two it can't do without.
_COMMON = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_NEEDED = _COMMON[:2]


@dataclass(frozen=True)
class Cards:
    """The cards of one sandbox, and the share of each one's memory that it may hold."""

    nvml: Nvml
    cards: tuple[Card, ...]
    fraction: float

    def allowed(self, card: Card) -> int:
        return int(card.total * self.fraction)

    def program(self) -> dict[str, object]:
        """What the guest needs to have libraries keep to the share by themselves."""
        return {"fraction": self.fraction, "bytes": [self.allowed(card) for card in self.cards]}

    def extend(self, plan: Plan) -> Plan:
        """The plan with the cards' files in it."""
        folder = library_folder()
        binds = (*plan.binds, Bind(folder)) if folder else plan.binds
        nodes = (*(card.node for card in self.cards), *(path for path in _COMMON if os.path.exists(path)))
        return replace(plan, devices=nodes, binds=binds, environment={**plan.environment, **self._environment(folder)})

    def _environment(self, folder: str | None) -> dict[str, str]:
        environment = {
            # By identifier: numbers are counted anew where only some cards exist.
            "CUDA_VISIBLE_DEVICES": ",".join(card.uuid for card in self.cards),
            # JAX reads its share here (the second name since 0.5); TensorFlow is told at import, and must not take all.
            "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{self.fraction:.4f}",
            "XLA_CLIENT_MEM_FRACTION": f"{self.fraction:.4f}",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        }
        return {**environment, "LD_LIBRARY_PATH": folder} if folder else environment


async def find(devices: Sequence[str], fraction: float) -> Cards:
    """The cards that a policy names. Raises StartError for one that is not there, or that can't be watched."""
    loop = asyncio.get_running_loop()
    try:
        return await asyncio.wait_for(loop.run_in_executor(None, _find, tuple(devices), fraction), _FIND_SECONDS)
    except asyncio.TimeoutError:
        raise _silent() from None


def needs_namespaces() -> StartError:
    return StartError(
        "limits.gpu.devices: a graphics card can be given only to a sandbox with namespaces",
        hint="`ipysandbox doctor` says what would bring them here; or take gpu out of the policy.",
    )


def why_not(devices: Sequence[str]) -> StartError | None:
    """Why these cards can't be given on this machine, for whoever asks without starting anything; None if they can."""
    answers: list[StartError | None] = []

    def look() -> None:
        try:
            _find(tuple(devices), 1.0)
        except StartError as exc:
            answers.append(exc)
        else:
            answers.append(None)

    # A call into a driver that hangs can't be ended: it is left behind.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_FIND_SECONDS)
    return answers[0] if answers else _silent()


def _silent() -> StartError:
    return StartError(
        f"limits.gpu.devices: NVIDIA's driver did not answer within {_FIND_SECONDS:.0f} s",
        hint="See whether nvidia-smi answers.",
    )


def _find(devices: tuple[str, ...], fraction: float) -> Cards:
    nvml = _driver()
    found = []
    for name in devices:
        try:
            found.append(nvml.card(name))
        except NvmlError as exc:
            hint = "nvidia-smi -L lists the numbers and identifiers."
            raise StartError(f"limits.gpu.devices: there is no card {name} here ({exc})", hint=hint) from None
    for path in (*(card.node for card in found), *_NEEDED):
        if not _is_device(path):
            raise StartError(
                f"limits.gpu.devices: {path} is not there",
                hint="Load the driver's modules (sudo nvidia-modprobe -u -c0); a container is to be started with them.",
            )
    return Cards(nvml, tuple(found), fraction)


def _driver() -> Nvml:
    try:
        return Nvml()
    except NvmlError as exc:
        raise StartError(f"limits.gpu.devices: NVIDIA's driver does not work ({exc})", hint="Try nvidia-smi.") from None


def _is_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False


class Meter:
    """Reads in the background what every process holds on a sandbox's cards."""

    def __init__(self, cards: Cards) -> None:
        self._cards = cards
        self._latest: Mapping[Card, Mapping[int, int]] = {}
        self._read_at = time.monotonic()
        self._task = asyncio.ensure_future(self._run())

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._latest = await loop.run_in_executor(None, self._read)
            self._read_at = time.monotonic()
            await asyncio.sleep(_READ_SECONDS)

    def _read(self) -> dict[Card, dict[int, int]]:
        return {card: self._cards.nvml.used(card) for card in self._cards.cards}

    def used(self, pids: Sequence[int]) -> tuple[int, int]:
        """(bytes held, bytes allowed) by ``pids`` together, on the card where that is nearest to the limit.

        Raises RuntimeError when the driver no longer tells: nobody would notice then.
        """
        if self._task.done() and not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise RuntimeError(f"the graphics card can't be read: {error}")
        if time.monotonic() - self._read_at > _BLIND_SECONDS:
            raise RuntimeError(f"the graphics card's driver has not answered for {_BLIND_SECONDS:.0f} s")
        rows = [
            (sum(held.get(pid, 0) for pid in pids), self._cards.allowed(card)) for card, held in self._latest.items()
        ]
        return max(rows, key=lambda row: row[0] / max(1, row[1]), default=(0, 0))
