"""Two hosts of network namespaces: one has the caller, the scheduler and a worker, the other two more workers, of which
one lacks a folder that the policy names, and the other is killed while tasks run. Needs root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

_NEAR, _FAR, _BITS = "10.231.77.1", "10.231.77.2", "30"


def main(project: str, shared: str) -> None:
    _unshare()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with _far_host() as far:
        _connect(far)
        from distributed import Client, LocalCluster

        cluster = LocalCluster(n_workers=1, threads_per_worker=1, host=_NEAR, dashboard_address=None, silence_logs=50)
        with cluster, Client(cluster) as client:
            address = cluster.scheduler_address
            with _worker(far, address, "far"), _worker(far, address, "lacking", hidden=shared):
                client.wait_for_workers(3, timeout=150)
                _use(client, project, shared)


def _unshare() -> None:
    """os.unshare came with Python 3.12."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x40000000):  # CLONE_NEWNET
        raise OSError(ctypes.get_errno(), "unshare")


def _use(client, project: str, shared: str) -> None:  # type: ignore[no-untyped-def]
    from ipysandbox import SandboxExecutor

    def host(number: int) -> tuple[int, str]:
        import time

        open(f"results/{number}", "w").close()
        time.sleep(0.1)
        return number, open(f"{shared}/x.csv").read().strip()

    overrides = {"files.read": [".", shared]}
    with SandboxExecutor(client=client, project=project, overrides=overrides) as pool:
        assert pool.submit(int, "1").result(150) == 1
        runner = pool._running()
        used = {worker.name for worker in runner._workers.values()}
        assert len(used) == 2, used
        assert any(name.startswith("far ") for name in used), used
        reason = next(text for name, text in runner._refused.items() if name.startswith("lacking "))
        assert "files.read" in reason, reason  # with as much of the path as a line takes
        assert "does not exist" in reason, reason
        futures = [pool.submit(host, number) for number in range(40)]
        far = next(address for address, worker in runner._workers.items() if worker.name.startswith("far "))
        while not runner._workers[far].tasks or futures[3].done() is False:
            threading.Event().wait(0.02)
        pid = client.run(os.getpid, workers=[far])[far]
        os.kill(pid, signal.SIGKILL)
        assert [future.result(150) for future in futures] == [(number, "1") for number in range(40)]
        print("every task done")


@contextlib.contextmanager
def _far_host() -> Iterator[int]:
    """The process whose network namespace is the other host's."""
    with subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE) as process:
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


def _connect(far: int) -> None:
    inside = ["nsenter", f"--net=/proc/{far}/ns/net"]
    while os.readlink(f"/proc/{far}/ns/net") == os.readlink("/proc/self/ns/net"):
        os.sched_yield()
    for command in (
        ["ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(far)],
        ["ip", "address", "add", f"{_NEAR}/{_BITS}", "dev", "near"],
        ["ip", "link", "set", "near", "up"],
        [*inside, "ip", "link", "set", "lo", "up"],
        [*inside, "ip", "address", "add", f"{_FAR}/{_BITS}", "dev", "far"],
        [*inside, "ip", "link", "set", "far", "up"],
    ):
        subprocess.run(command, check=True)


@contextlib.contextmanager
def _worker(far: int, scheduler: str, name: str, hidden: str = "") -> Iterator[None]:
    command = [sys.executable, "-c", "from distributed.cli.dask_worker import main; main()", scheduler]
    command += ["--name", name, "--host", _FAR, "--nthreads", "1", "--no-dashboard", "--no-nanny"]
    if hidden:  # by an empty folder over the one above it, among mounts of its own
        above = os.path.dirname(hidden)
        command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', above, *command]
    command = ["nsenter", f"--net=/proc/{far}/ns/net", *command]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


if __name__ == "__main__":
    main(*sys.argv[1:])
