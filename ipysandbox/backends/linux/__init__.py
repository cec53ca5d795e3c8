"""The Linux backend: namespaces, mounts, Landlock, seccomp and limits, applied by a process forked from a zygote."""
