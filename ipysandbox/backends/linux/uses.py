"""What a zygote is for, which decides what it has loaded."""

from __future__ import annotations

#: Sandboxes with a kernel, and those that run a task each.
KERNELS, TASKS = "kernels", "tasks"
#: Loaded for the tasks of every executor. Each of them is three forks, which take twice as long from a process that has
#: pandas, IPython and pyplot loaded too (100 MB).
TASK_PRELOAD = ("numpy", "numpy.random")
