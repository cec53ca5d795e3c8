"""Folders of the host that somebody moves about: what is done in one is done in that one, and in no other."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ipysandbox.backends.linux import emulate, landlock, libc
from ipysandbox.backends.linux.folders import FilesChanged, HeldFolder, held_by, make_folder, remove_empty, require
from ipysandbox.backends.linux.writable import WritableFolder, by_path
from ipysandbox.policy.names import DEFAULT_HIDE, PROTECTED
from ipysandbox.supervisor.held_folders import HeldFolders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "results/run").mkdir(parents=True)
    return tmp_path / "results/run"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Of the user, with what a sweep would disarm and narrower than the other."""
    (tmp_path / "private/run").mkdir(parents=True, mode=0o700)
    (tmp_path / "private/run/conftest.py").write_text("the user's")
    return tmp_path / "private"


def swap(folder: Path, other: Path) -> Path:
    """Where it is now."""
    moved = folder.with_name(folder.name + "_")
    folder.rename(moved)
    folder.symlink_to(other)
    return moved


def watched(path: Path) -> WritableFolder:
    return WritableFolder(path, by_path(PROTECTED, copies=False), by_path(DEFAULT_HIDE, copies=True))


@pytest.mark.parametrize("above", [False, True])
def test_a_folder_that_has_another_path_by_now_is_the_one_that_is_swept_and_measured(
    folder: Path, other: Path, above: bool
) -> None:
    folder.chmod(0o750)
    watching = watched(folder)
    moved = swap(folder.parent, other) / "run" if above else swap(folder, other / "run")
    (moved / "conftest.py").write_text("evil")
    moved.chmod(0o777)
    mode = (other / "run").stat().st_mode
    watching._next = 0.0
    assert watching.measure(1)[1] == 1
    assert watching.sweep() == ["conftest.py renamed to conftest.py.untrusted (programs act on that name)"]
    assert moved.stat().st_mode & 0o7777 == 0o750
    assert watching.place == moved
    assert (other / "run/conftest.py").read_text() == "the user's"
    assert (other / "run").stat().st_mode == mode


@pytest.mark.parametrize("above", [False, True])
def test_a_link_in_the_way_is_not_followed(folder: Path, other: Path, above: bool) -> None:
    swap(folder.parent, other) if above else swap(folder, other / "run")
    with pytest.raises(OSError, match="openat2") as refused:
        HeldFolder(folder)
    assert refused.value.errno in (errno.ELOOP, errno.ENOTDIR)
    with pytest.raises(FilesChanged, match=r"files\.write: .*run is gone, or a link has taken its place"):
        watched(folder)
    with pytest.raises(OSError, match="openat2"):
        make_folder(folder / "deeper")
    assert not (other / "run/deeper").exists()


def test_missing_folders_are_made_and_an_empty_one_is_removed(tmp_path: Path) -> None:
    make_folder(tmp_path / "a/b/c")
    make_folder(tmp_path / "a/b/c")
    held = HeldFolder(tmp_path / "a/b/c")
    remove_empty(tmp_path / "a/b/c", held.identity)
    assert not (tmp_path / "a/b/c").exists()
    (tmp_path / "a/b/c").write_text("a file")
    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / "a/b/c")


@pytest.mark.parametrize("above", [False, True])
def test_an_empty_folder_of_the_users_is_not_removed_for_one_that_was_made(
    tmp_path: Path, other: Path, above: bool
) -> None:
    path = tmp_path / "results/new"
    held = HeldFolders([path])
    held.hold()
    (other / "new").mkdir()
    if above:
        swap(path.parent, other)
    else:
        path.rmdir()
        (other / "new").rename(path)
    held.close()
    assert path.is_dir()


def test_a_mode_that_forbids_to_look_keeps_nobody_from_it(folder: Path) -> None:
    watching = watched(folder)
    (folder / "conftest.py").touch()
    folder.chmod(0)
    assert len(watching.sweep()) == 1
    assert folder.stat().st_mode & 0o777 == 0o755


def test_another_folder_is_not_shown_in_the_place_of_the_one_that_is_watched(folder: Path) -> None:
    held = held_by({"held": [[str(folder), *HeldFolder(folder).identity]]})
    rules = [landlock.Rule(str(folder), landlock.WRITE)]
    fd = libc.open_path_strict(str(folder))
    require(fd, str(folder), held)
    require(fd, "elsewhere", held)
    os.close(fd)
    folder.rename(folder.with_name("moved"))
    folder.mkdir()
    fd = libc.open_path_strict(str(folder))
    with pytest.raises(OSError, match="another folder has taken its place"):
        require(fd, str(folder), held)
    os.close(fd)
    with pytest.raises(OSError, match="another folder has taken its place"):
        landlock.restrict(rules, landlock.abi(), held=held)


def test_where_a_link_leads_is_not_where_files_may_be_changed(folder: Path, other: Path) -> None:
    """Without namespaces the monitor changes modes and lengths itself, by where a file lies."""
    swap(folder, other / "run")
    files = emulate.Files([str(folder)])
    fd = os.open(folder / "conftest.py", os.O_PATH)
    with pytest.raises(PermissionError, match="not in a writable folder"), files._checked(fd):
        pass


def test_to_hold_a_folder_changes_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "results"
    path.mkdir()
    path.chmod(0o300)
    held = HeldFolders([path])
    held.hold()
    held.close()
    assert path.stat().st_mode & 0o777 == 0o300
    path.chmod(0o700)


def test_what_an_earlier_sandbox_left_is_swept_without_a_descriptor_more(folder: Path) -> None:
    before = watched(folder).before()
    open_files = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        WritableFolder(folder, lambda _: False, lambda _: False, before).sweep()
    assert len(os.listdir("/proc/self/fd")) == open_files
