"""Follows symbolic links inside a folder without ever looking at what lies outside."""

from __future__ import annotations

import os
import stat

from .units import BadValue, quoted

_MAX_LINKS = 40  # as many as the kernel follows (path_resolution(7))


def within(path: str, folder: str) -> bool:
    """Is the absolute path the folder or below it? Text only: nothing is looked up."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def follow(place: str, top: str, written: str, *, links_ok: bool = True) -> str:
    """The path below ``top`` that ``place`` comes to; the last parts need not exist.

    BadValue, naming link and target, where a link leads out of ``top``, or anywhere if links aren't ok. It stops
    before the first step outside: os.path.realpath would look there, which a hostile link can point at a hanging mount.
    """
    todo, current, links = _parts(place, top), top, 0
    while todo:
        current = os.path.join(current, todo.pop(0))
        try:
            mode = os.lstat(current).st_mode
        except FileNotFoundError:
            return os.path.join(current, *todo)
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise BadValue(f"{quoted(written)} can't be looked at: {why}", "check the folder's rights") from None
        if not stat.S_ISLNK(mode):
            continue
        target = os.readlink(current)
        goal = os.path.normpath(os.path.join(os.path.dirname(current), target))
        link = quoted(os.path.relpath(current, top))
        if not within(goal, top):
            raise BadValue(
                f"{quoted(written)} leaves {quoted(top)}: {link} is a link to {quoted(target)}",
                "name the target itself in your own policy file, or replace the link by what it points to",
            )
        if not links_ok:
            raise BadValue(
                f"{quoted(written)} is written through a link: {link} points to {quoted(target)}",
                f"name {quoted(os.path.relpath(goal, top))} in files.write, or replace the link",
            )
        links += 1
        if links > _MAX_LINKS:
            raise BadValue(f"{quoted(written)} goes in circles: {link} is part of a loop of links", "remove the link")
        todo, current = _parts(goal, top) + todo, top
    return current


def _parts(place: str, top: str) -> list[str]:
    relative = os.path.relpath(place, top)
    return [] if relative == "." else relative.split("/")
