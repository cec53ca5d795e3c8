"""Tells whether a policy file that lies where the user's own policies do can be anybody else's."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from .source import Document


def others_wrote(document: Document) -> str:
    """Why another than the user and root could have written this file; empty if nobody could."""
    if sys.platform == "win32":
        return ""
    folders = {os.path.realpath(document.path.parent), os.path.dirname(os.path.realpath(document.path))}
    try:
        statuses = [document.status, *map(os.stat, folders)]
    except OSError as error:
        return f"its folder can't be looked at: {os.strerror(error.errno or 0)}"
    if any(status.st_uid not in (os.geteuid(), 0) for status in statuses):
        return "it or its folder belongs to another user"
    if any(_others_write(status) for status in statuses):
        return "others may write to it or its folder, see chmod go-w"
    return ""


def _others_write(status: os.stat_result) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_private(status.st_gid)


def _is_private(group: int) -> bool:
    """Is the group the user's alone? Many systems give each user one, and let new files be written by it."""
    if group == 0 == os.geteuid():
        return True
    if sys.platform == "win32":
        return False
    import grp
    import pwd

    try:
        found, user = grp.getgrgid(group), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return user.pw_gid == group and found.gr_name == user.pw_name and set(found.gr_mem) <= {user.pw_name}


def within_one(path: Path, folders: set[str]) -> bool:
    """Does the file lie in one of these real folders, by its name and, links followed, in fact?"""
    return {os.path.realpath(path.parent), os.path.dirname(os.path.realpath(path))} <= folders
