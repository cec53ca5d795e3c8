"""The only code of ours that runs inside a sandbox; it imports nothing from the rooms above."""

from __future__ import annotations

#: Channel names in the order in which their listening sockets are handed in; a channel's port is its place, from 1.
CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
