"""A sandboxed kernel behind the relay, reached as any client of the Jupyter protocol reaches one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient

from ipysandbox import Sandbox
from ipysandbox.supervisor.spawn import Supervisor

_CHANNELS = ("shell", "iopub", "stdin", "control", "hb")


class SandboxedKernel:
    """What jupyter_kernel_test asks of a KernelManager, with a sandbox in place of the process.

    jupyter_client numbers the sockets of the ipc transport as IP-PORT: links give the relay's sockets such names.
    """

    def __init__(self) -> None:
        # Short: unix(7) allows a path of 107 bytes.
        self._folder = tempfile.TemporaryDirectory(prefix="conform-", dir="/tmp")
        root = Path(self._folder.name)
        (root / "project").mkdir()
        self.box = Sandbox(project=root / "project")
        self.box.start()
        info = Supervisor.current().request("POST", "/sandboxes", {**self.box._request, "fresh": False})
        self._info: dict[str, Any] = {
            "transport": "ipc",
            "ip": str(root / "k"),
            "key": info["key"].encode(),
            "signature_scheme": "hmac-sha256",
        }
        for port, channel in enumerate(_CHANNELS, start=1):
            (root / f"k-{port}").symlink_to(info["endpoints"][channel])
            self._info[f"{channel}_port"] = port

    def client(self) -> BlockingKernelClient:
        client = BlockingKernelClient()
        client.load_connection_info(self._info)
        return client

    def shutdown_kernel(self) -> None:
        self.box.close()
        self._folder.cleanup()
