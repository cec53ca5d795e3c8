"""Checks on a machine with a real NVIDIA card what the tests show with a stand-in: run it by hand, it is no test.

    python tests/gpu/check_card.py [CARD [FRACTION]]

Needs torch or cupy in this environment for the parts that compute; says what it left out. Ends with 1 if one failed.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable

from ipysandbox import Sandbox, SandboxError
from ipysandbox.backends.linux.nvml import Nvml

_SEEN = "import os; sorted(n for n in os.listdir('/dev') if n.startswith('nvidia'))"
_CUDA = """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)
"""
_COMPUTE = {
    "torch": "import torch; float((torch.ones(512, 512, device='cuda') @ torch.ones(512, 512, device='cuda')).sum())",
    "cupy": "import cupy; float((cupy.ones((512, 512)) @ cupy.ones((512, 512))).sum())",
}
#: Past the library's own allocator, as code does that wants more than its share.
_TAKE = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
code = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t({size}))
print(code, flush=True)
time.sleep(20)
"""


def main(card: str, fraction: float) -> int:
    failed = 0

    def check(name: str, act: Callable[[], object], expected: object) -> None:
        nonlocal failed
        try:
            found = act()
        except SandboxError as exc:
            found = exc
        good = found == expected or (callable(expected) and expected(found))
        failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {name}: {found}", flush=True)

    real = Nvml().card(card)
    policy = {"limits": {"gpu": {"devices": [card], "memory_fraction": fraction}, "memory": "32GiB", "disk": "8GiB"}}
    with Sandbox(policy, validate=False) as box:

        def value(code: str) -> object:
            result = box.run(code, timeout=120)
            return result.value if result.status == "ok" else (result.status, result.error, result.limit)

        own = real.node.removeprefix("/dev/")
        check("its file is in /dev", lambda: value(_SEEN), lambda found: own in found)  # type: ignore[operator]
        check("CUDA starts and finds one card", lambda: value(_CUDA), (0, 0, 1))
        check("the driver answers", lambda: value("import os; os.path.exists('/proc/driver/nvidia/params')"), True)
        for library, code in _COMPUTE.items():
            if importlib.util.find_spec(library) is None:
                print(f"left out: {library} is not installed here")
                continue
            check(f"{library} computes", lambda code=code: value(code), 512.0**3)  # type: ignore[misc]
        size = int(real.total * min(1.0, fraction + 0.2))
        limit = box.run(_TAKE.format(size=size), timeout=60).limit
        check("who takes more than the share is ended", lambda: limit and limit.name, "gpu")
    shown = subprocess.run(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"], capture_output=True)
    print("processes still on cards:", shown.stdout.decode().split() or "none")
    return int(failed > 0)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(arguments[0] if arguments else "0", float(arguments[1]) if len(arguments) > 1 else 0.5))
