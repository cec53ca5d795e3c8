"""NVIDIA's management library, as much of it as counts graphics memory by process; read through ctypes.

Source: NVML API Reference Guide (docs.nvidia.com/deploy/nvml-api), structures as of driver 510, where the third form of
the lists of processes came in. Calls may take seconds, or hang with a card that has failed: make them in a thread.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

from ipysandbox.errors import StartError

LIBRARY = "libnvidia-ml.so.1"
_NOT_SUPPORTED = 3
_UUID_BYTES = 96
#: Rows in a list of processes: far more than a card runs at a time.
_ROWS = 512
#: "not available": the driver knows the process, and doesn't tell how much it holds.
_UNKNOWN = (1 << 64) - 1


class NvmlError(Exception):
    """The driver refused a call; the text is its own."""


@dataclass(frozen=True)
class Card:
    """``node``: its file in /dev. ``total``: bytes of its memory."""

    uuid: str
    node: str
    total: int
    handle: int


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Nvml:
    """The loaded library. Raises StartError where there is none, or one that is too old."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as exc:
            raise StartError(
                f"limits.gpu.devices: NVIDIA's management library can't be loaded ({exc})",
                hint="Install the driver's libraries (libnvidia-ml.so.1), or take gpu out of the policy.",
            ) from None
        try:
            self._lists = (
                self._library.nvmlDeviceGetComputeRunningProcesses_v3,
                self._library.nvmlDeviceGetGraphicsRunningProcesses_v3,
            )
        except AttributeError:
            raise StartError(
                "limits.gpu.devices: this driver can't tell how much memory a process holds",
                hint="Use NVIDIA's driver 510 or newer.",
            ) from None
        self._call("nvmlInit_v2")

    def _call(self, name: str, *arguments: object) -> None:
        self._check(getattr(self._library, name)(*arguments), name)

    def _check(self, code: int, name: str) -> None:
        if code:
            describe = self._library.nvmlErrorString
            describe.restype = ctypes.c_char_p
            raise NvmlError(f"{name}: {(describe(code) or b'').decode('utf-8', 'replace')}")

    def card(self, wanted: str) -> Card:
        """A card by its number or UUID. Raises NvmlError if there is none, StartError if it is divided (MIG)."""
        handle = ctypes.c_void_p()
        if wanted.isdigit():
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(wanted)), ctypes.byref(handle))
        else:
            self._call("nvmlDeviceGetHandleByUUID", wanted.encode(), ctypes.byref(handle))
        uuid = ctypes.create_string_buffer(_UUID_BYTES)
        minor, memory = ctypes.c_uint(), _Memory()
        self._call("nvmlDeviceGetUUID", handle, uuid, ctypes.c_uint(_UUID_BYTES))
        self._call("nvmlDeviceGetMinorNumber", handle, ctypes.byref(minor))
        self._call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        if self._is_divided(handle):
            raise StartError(
                f"limits.gpu.devices: the card {wanted} is divided into instances (MIG), which can't be given singly",
                hint="Name a card that is whole.",
            )
        return Card(uuid.value.decode(), f"/dev/nvidia{minor.value}", memory.total, handle.value or 0)

    def _is_divided(self, handle: ctypes.c_void_p) -> bool:
        now, pending = ctypes.c_uint(), ctypes.c_uint()
        code = self._library.nvmlDeviceGetMigMode(handle, ctypes.byref(now), ctypes.byref(pending))
        if code != _NOT_SUPPORTED:
            self._check(code, "nvmlDeviceGetMigMode")
        return bool(now.value)

    def used(self, card: Card) -> dict[int, int]:
        """Bytes of the card's memory by process, all of it for a process whose share is not told."""
        found: dict[int, int] = {}
        for function in self._lists:
            rows, count = (_Process * _ROWS)(), ctypes.c_uint(_ROWS)
            code = function(ctypes.c_void_p(card.handle), ctypes.byref(count), rows)
            self._check(0 if code == _NOT_SUPPORTED else code, "the list of processes")
            for row in rows[: 0 if code else count.value]:
                # A process that computes and draws stands in both lists, with the same sum.
                held = card.total if row.used == _UNKNOWN else row.used
                found[row.pid] = max(found.get(row.pid, 0), held)
        return found


def library_folder() -> str | None:
    """Where the driver's libraries were loaded from, if not from a folder that every sandbox sees anyway."""
    with open("/proc/self/maps") as maps:
        paths = [line.split(maxsplit=5)[5].rstrip("\n") for line in maps if LIBRARY.split(".")[0] in line]
    folders = [os.path.dirname(path) for path in paths]
    return next((folder for folder in folders if not folder.startswith(("/usr/", "/lib"))), None)
