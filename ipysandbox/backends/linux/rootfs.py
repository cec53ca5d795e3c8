"""Builds the sandbox's file system inside a new mount namespace, from a Plan.

Every source is opened as a detached mount before anything is covered, so no later step depends on a path that an
earlier one has hidden. Sources that lie in a folder only the host's root may enter are reached the same way.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import PurePosixPath

from . import folders, libc
from .plan import Bind, Overlay, Plan

#: Where the new root is put together; its old content is covered in this mount namespace only.
_STAGE = "/tmp"
_SCRATCH = _STAGE + "/.scratch"
#: A file that everything but Landlock would let be read: no rule opens it. The self-test tries to.
CLOSED = "/.closed"
_DEVICES = ("null", "zero", "full", "random", "urandom")
#: Files of /proc that tell about, or act on, the whole machine.
PROC_EMPTY = (
    "kcore",
    "keys",
    "key-users",
    "kmsg",
    "kallsyms",
    "timer_list",
    "sched_debug",
    "sysrq-trigger",
    "latency_stats",
)
_PROC_HIDDEN = ("acpi", "asound", "scsi", "driver")
_PROC_READONLY = ("sys", "bus", "fs", "irq")
#: What the kernel counts for the user, in all of that user's namespaces together, and lets each namespace have less of
#: (Documentation/admin-guide/sysctl/user.rst). The user has 128 instances by default.
_SHARES = {"max_inotify_instances": 16, "max_inotify_watches": 4096}


def open_sources(plan: Plan, idmap_fd: int | None, held: folders.Identities) -> dict[str, int]:
    """Detached copies of everything the plan shows, by where it goes; read-only where nothing may be written.

    :param held: the writable folders that the supervisor watches; no others may be shown in their places.
    """
    trees: dict[str, int] = {}
    try:
        _open_sources(plan, idmap_fd, held, trees)
    except BaseException:
        for fd in trees.values():
            os.close(fd)
        raise
    return trees


def _open_sources(plan: Plan, idmap_fd: int | None, held: folders.Identities, trees: dict[str, int]) -> None:
    items: list[Bind | Overlay] = [*plan.binds, *plan.overlays]
    for item in items:
        if not item.source:
            continue
        try:
            # What the policy names lies in folders that other sandboxes may be changing right now.
            from_policy = isinstance(item, Overlay) or item.from_policy
            # An overlay doesn't show what is mounted below, and not all of that can be mapped to other owners.
            alone = isinstance(item, Overlay) and idmap_fd is not None
            fd = libc.open_tree_strict(item.source, alone=alone) if from_policy else libc.open_tree(item.source)
        except OSError as exc:
            if isinstance(item, Bind) and item.optional and exc.errno in (errno.ENOENT, errno.EACCES):
                continue
            raise
        trees[item.where] = fd
        folders.require(fd, item.source, held)
        attributes = libc.MOUNT_ATTR_NOSUID | libc.MOUNT_ATTR_NODEV
        if isinstance(item, Overlay) or not item.writable:
            attributes |= libc.MOUNT_ATTR_RDONLY
        if idmap_fd is not None and from_policy:
            try:
                libc.mount_setattr(fd, "", libc.MOUNT_ATTR_IDMAP, userns=idmap_fd)
            except OSError as exc:
                raise OSError(
                    exc.errno,
                    f"{item.source}: this file system can't show root's files as the sandbox user's own "
                    f"(ID-mapped mount: {os.strerror(exc.errno or 0)}); run as an ordinary user, "
                    "or keep the project on ext4, xfs or btrfs",
                ) from None
        libc.mount_setattr(fd, "", attributes)
    for path in (*(f"/dev/{name}" for name in _DEVICES), *plan.devices):
        trees[path] = libc.open_tree(path)


def build(plan: Plan, trees: dict[str, int]) -> int:
    """Assemble the new root and move into it; a descriptor of the scratch space, for measuring and listing it."""
    # Nothing that is mounted from here on is seen outside, nor the other way round.
    libc.mount(None, "/", None, libc.MS_REC | libc.MS_PRIVATE)
    libc.mount("root", _STAGE, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "mode=755,size=16m,nr_inodes=16k")
    os.mkdir(_SCRATCH, 0o700)
    libc.mount(
        "scratch",
        _SCRATCH,
        "tmpfs",
        libc.MS_NOSUID | libc.MS_NODEV,
        f"mode=700,size={plan.scratch_bytes},nr_inodes={plan.scratch_inodes}",
    )
    scratch = os.open(_SCRATCH, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    # One sized file system behind every private folder: their sum is bounded by the kernel itself.
    private = {
        "/tmp": ("tmp", 0o1777),
        "/var/tmp": ("vartmp", 0o1777),
        "/dev/shm": ("shm", 0o1777),
        "/run": ("run", 0o755),
        plan.home: ("home", 0o700),
    }
    for name, mode in private.values():
        os.mkdir(f"{_SCRATCH}/{name}")
        os.chmod(f"{_SCRATCH}/{name}", mode)
    for link, target in plan.links.items():
        os.makedirs(os.path.dirname(_STAGE + link), exist_ok=True)
        os.symlink(target, _STAGE + link)
    for path, text in plan.texts.items():
        _make_file(_STAGE + path)
        with open(_STAGE + path, "w") as file:
            file.write(text)
    _make_file(_STAGE + CLOSED)
    _devices(trees, plan.devices)
    for path, (name, _) in private.items():
        os.makedirs(_STAGE + path, exist_ok=True)
        libc.mount(f"{_SCRATCH}/{name}", _STAGE + path, None, libc.MS_BIND)
    for number, step in enumerate(ordered(plan)):
        if isinstance(step, Overlay):
            _overlay(step, trees, number)
        elif step.where in trees:
            _attach(trees[step.where], _STAGE + step.where)
    _cover(plan.covered)
    _proc(cards=bool(plan.devices))
    libc.umount(_SCRATCH)
    os.rmdir(_SCRATCH)
    libc.mount(None, _STAGE, None, libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY | libc.MS_NOSUID | libc.MS_NODEV)
    _enter()
    for fd in trees.values():
        os.close(fd)
    return scratch


def ordered(plan: Plan) -> list[Bind | Overlay]:
    """Outer paths before those inside them; at one path a bind covers an overlay. An overlay's place here numbers its
    layer."""
    steps: list[Bind | Overlay] = [*plan.overlays, *plan.binds]
    return sorted(steps, key=lambda step: (len(PurePosixPath(step.where).parts), isinstance(step, Bind)))


def _make_file(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o644))


def _attach(tree: int, where: str) -> None:
    if not os.path.lexists(where):
        if stat.S_ISDIR(os.fstat(tree).st_mode):
            os.makedirs(where)
        else:
            _make_file(where)
    libc.move_mount(tree, where)


def _overlay(item: Overlay, trees: dict[str, int], number: int) -> None:
    base = f"{_SCRATCH}/layer{number}"
    for name in ("lower", "mask", "upper", "work"):
        os.makedirs(f"{base}/{name}")
    # The root of the merged folder shows the upper folder's mode.
    os.chmod(f"{base}/upper", 0o755)
    for relative in item.folders:
        os.makedirs(f"{base}/mask/{relative}", exist_ok=True)
    for relative in item.files:
        _make_file(f"{base}/mask/{relative}")
    for relative in item.hidden:
        whiteout = f"{base}/mask/{relative}"
        os.makedirs(os.path.dirname(whiteout), exist_ok=True)
        # A whiteout needs no privilege (kernel 5.8): the name does not exist in the merged folder.
        os.mknod(whiteout, stat.S_IFCHR | 0o600, os.makedev(0, 0))
    lower = f"{base}/mask"
    if item.source:
        libc.move_mount(trees[item.where], f"{base}/lower")
        lower += f":{base}/lower"
    else:
        lower += f":{base}/lower"  # an empty folder: overlayfs wants two lowers where there is no upper
    options = f"lowerdir={lower},userxattr"
    if item.writable:
        options = f"{options},upperdir={base}/upper,workdir={base}/work"
    target = _STAGE + item.target
    os.makedirs(target, exist_ok=True)
    libc.mount("overlay", target, "overlay", libc.MS_NOSUID | libc.MS_NODEV, options)
    if item.source:
        # The overlay holds its own private copy of the mount.
        libc.umount(f"{base}/lower")


#: Of a name that is removed and made again all the time: how often it is tried to be met.
_COVER_TRIES = 10


def cover_now(path: str) -> bool:
    """Put something empty over ``path`` of a running sandbox; False if that failed. What is not there needs no cover.

    The code may have put a link anywhere in the path, to have something else covered: then its own view is different,
    and what the host has at that path is not in it.
    """
    for _ in range(_COVER_TRIES):
        try:
            target = libc.open_path_strict(path)
        except OSError as exc:
            return exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
        try:
            _cover_open(target)
            return True
        except OSError as exc:
            if exc.errno != errno.ENOENT:  # else it was removed in between; another may be there now
                return False
        finally:
            os.close(target)
    return False


def _cover_open(target: int) -> None:
    """By descriptors only: the caller is in no process namespace that the /proc in here knows."""
    is_folder = stat.S_ISDIR(os.fstat(target).st_mode)
    cover = libc.empty_mount() if is_folder else libc.open_tree("/dev/null")
    try:
        libc.move_mount_onto(cover, target)
    finally:
        os.close(cover)


def _cover(paths: tuple[str, ...]) -> None:
    """Put something empty and read-only over each path."""
    empty_file, empty_dir = f"{_SCRATCH}/run/.none", f"{_SCRATCH}/run/.nothing"
    if paths:
        _make_file(empty_file)
        os.mkdir(empty_dir)
    for path in paths:
        where = _STAGE + path
        source = empty_dir if os.path.isdir(where) else empty_file
        libc.mount(source, where, None, libc.MS_BIND)
        libc.mount(None, where, None, libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY | libc.MS_NOSUID | libc.MS_NODEV)


def _devices(trees: dict[str, int], more: tuple[str, ...]) -> None:
    os.makedirs(_STAGE + "/dev", exist_ok=True)
    for path in (*(f"/dev/{name}" for name in _DEVICES), *more):
        _make_file(_STAGE + path)
        libc.move_mount(trees[path], _STAGE + path)
    for name, target in (
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
        ("ptmx", "pts/ptmx"),
    ):
        os.symlink(target, f"{_STAGE}/dev/{name}")
    os.mkdir(_STAGE + "/dev/pts")
    # A new instance: the host's terminals do not exist in it. IPython's `!command` needs a pseudo-terminal.
    libc.mount(
        "devpts",
        _STAGE + "/dev/pts",
        "devpts",
        libc.MS_NOSUID | libc.MS_NOEXEC,
        "newinstance,ptmxmode=0666,mode=620,max=64",
    )


def _proc(*, cards: bool) -> None:
    where = _STAGE + "/proc"
    os.makedirs(where, exist_ok=True)
    libc.mount("proc", where, "proc", libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC)
    for name, most in _SHARES.items():
        with contextlib.suppress(FileNotFoundError):  # a kernel without inotify
            _write(f"{where}/sys/user/{name}", str(most))
    for name in _PROC_READONLY:
        path = f"{where}/{name}"
        if os.path.exists(path):
            libc.mount(path, path, None, libc.MS_BIND | libc.MS_REC)
            flags = libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC
            libc.mount(None, path, None, libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY | flags)
    for name in PROC_EMPTY:
        if os.path.exists(f"{where}/{name}"):
            libc.mount(f"{_STAGE}/dev/null", f"{where}/{name}", None, libc.MS_BIND)
    # CUDA reads the driver's parameters.
    driver = libc.open_tree(f"{where}/driver/nvidia") if cards and os.path.isdir(f"{where}/driver/nvidia") else -1
    for name in _PROC_HIDDEN:
        if os.path.isdir(f"{where}/{name}"):
            libc.mount(
                "none", f"{where}/{name}", "tmpfs", libc.MS_RDONLY | libc.MS_NOSUID | libc.MS_NODEV, "size=4k,mode=555"
            )
    if driver >= 0:
        _show_driver(driver, f"{where}/driver")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _show_driver(tree: int, where: str) -> None:
    """Of /proc/driver only NVIDIA's own part, read-only."""
    flags = libc.MS_NOSUID | libc.MS_NODEV
    libc.mount("none", where, "tmpfs", flags, "size=4k,mode=555")
    os.mkdir(f"{where}/nvidia")
    libc.mount_setattr(tree, "", libc.MOUNT_ATTR_RDONLY | libc.MOUNT_ATTR_NOSUID | libc.MOUNT_ATTR_NODEV)
    libc.move_mount(tree, f"{where}/nvidia")
    os.close(tree)
    libc.mount(None, where, None, libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY | flags)


def _enter() -> None:
    """Make the stage the root and let go of everything outside it; see pivot_root(2), "pivot_root(".", ".")"."""
    os.chdir(_STAGE)
    libc.pivot_root(".", ".")
    libc.umount(".")
    os.chdir("/")
