"""Which parts of the host's environment are secrets that must not be shown: values, where credentials.py judges names.

Whoever redacts a value wherever it occurs must be sure of it: a region, a path or the word "postgres" would take honest
output with it. So a value counts only by the rules below, and never below ``MIN_LENGTH``.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from .credentials import ASSIGNED, AUTHORIZATION, KNOWN_FORMAT, MAX_VALUE, SECRET_NAMES, is_random

#: Characters that a secret has at least, and how many different ones.
MIN_LENGTH, MIN_DIFFERENT = 8, 5
#: Letters of one kind, in words or one word ("client_secret_basic"), are taken for a setting below this length.
MIN_WORDS = 20
#: So are digits alone (dates, sizes, ports) below this one.
MIN_DIGITS = 12

_SECRET_NAME = re.compile("|".join(map(fnmatch.translate, SECRET_NAMES)))
#: Random, and public: hashes of commits and downloads, identifiers of runs and keys.
_PUBLIC_NAME = re.compile(r".*(SHA\d*|HASH|DIGEST|COMMIT|CHECKSUM|FINGERPRINT|_ID|UUID|PUBLIC_KEY)|GPG_KEY")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://(?:([^/\s?#@:]*):([^/\s?#]*)@([^/\s?#:,]*))?")
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----(.*?)(?:-----END|\Z)", re.S)
_PEM_LINE = re.compile(r"[A-Za-z0-9+/=]{16,}")
_WORDS = re.compile(r"[^\s,;:=\"'&?@()<>|]+")


def secret_values(environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The parts of each variable's value that must not be shown, by the variable's name; none for most."""
    common = {environ.get(name, "") for name in ("USER", "LOGNAME", "HOSTNAME", "HOME")}
    found = {name: _parts(name.upper(), value.strip()) for name, value in environ.items() if len(value) <= MAX_VALUE}
    return {name: tuple(sorted(parts - common)) for name, parts in found.items() if parts - common}


def counts(value: str) -> bool:
    """Whether a value that is said to be secret is long and unusual enough to be one."""
    if len(value) < MIN_LENGTH or len(set(value)) < MIN_DIFFERENT:
        return False
    if value.startswith(("/", "~/", "./", "../")):  # a path, unless it is base64
        return is_random(value.lstrip("/")) and value.count("/") < 3
    letters = re.sub(r"[\s_.-]", "", value)
    if letters.isalpha() and (letters.islower() or letters.isupper() or letters.istitle()):
        return len(value) >= MIN_WORDS
    return not value.isdigit() or len(value) >= MIN_DIGITS


def _parts(name: str, value: str) -> set[str]:
    found = set(_of_any_name(name, value))
    # An address is public but for the parts found above, and a key of several lines is known by its lines.
    if _SECRET_NAME.match(name) and not _URL.match(value) and "\n" not in value and counts(value):
        found.add(value)
    return found


def _of_any_name(name: str, value: str) -> Iterator[str]:
    for body in _PEM.findall(value):
        yield from _PEM_LINE.findall(body.replace("\\n", "\n"))
    for user, password, host in _URL.findall(value):
        if password and counts(password):
            yield from (password, unquote(password))
        elif password:  # too common by itself
            yield f"{user}:{password}@{host}"
    yield from (match[1] for match in ASSIGNED.finditer(value) if counts(match[1]))
    yield from (match[1] for match in AUTHORIZATION.finditer(value) if counts(match[1]))
    for word in _WORDS.findall(value):
        known = KNOWN_FORMAT.search(word)
        token = word[known.start() :].partition("/")[0] if known else ""
        if counts(token) and re.search("[0-9]", token):  # "sk-learn-pipeline" is no token
            yield token
        elif not _PUBLIC_NAME.fullmatch(name):
            yield from _random(word)


def _random(word: str) -> Iterator[str]:
    if word.startswith("//"):  # what a separator left of an address: web hooks end in their key
        yield from (part for part in word.split("/") if is_random(part))
    elif word[0] not in "/.~" and is_random(word):  # names in a path are honest output's
        yield word
