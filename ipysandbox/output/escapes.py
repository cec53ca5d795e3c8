"""Takes escapes out of text, so that what a secret was escaped by, and how often, need not be known.

Every sign has many ways to be escaped, and a text may be escaped again: the forms of one secret are too many to look
for. But all of them become the same when escapes are taken out, if that is done to the secret too: ``plain(written(s))
== plain(s)`` for all that ``written`` may be, JSON in a ``repr`` in HTML too. Backslashes are lost in it altogether.
"""

from __future__ import annotations

import html.entities
import re
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

#: Bytes that stand for one of what was escaped, at most, as far as beginnings are remembered ("&amp;#x0027;").
WIDEST = 12

_HEX = "[0-9A-Fa-f]"
_UNESCAPED = re.compile(r"[\w.~-]*", re.ASCII)
_LETTERS = re.compile("[A-Za-z0-9]+")
#: Of a longer secret, each part of so many letters has a landmark.
_BLOCK = 64
_LONGEST_ESCAPE = 100
LEADS = (b"\\", b"&", b"%")


class _Meanings(dict["bytes | None", bytes]):
    """What an escape without its lead stands for. What isn't known stays, with the lead that is given for it."""

    def __init__(self, lead: bytes, known: Mapping[bytes, bytes]) -> None:
        super().__init__(known.items())
        self._lead = lead
        self[None] = lead

    def __missing__(self, escape: bytes | None) -> bytes:
        return self._lead + (escape or b"")


@dataclass(frozen=True)
class _Kind:
    """One kind of escapes. No pattern goes back over more than one of them: each takes what it can, or nothing."""

    lead: bytes
    #: With one group: what stands behind the lead, however often that was escaped itself.
    pattern: re.Pattern[bytes]
    #: The beginning of one at the end of a text.
    cut: re.Pattern[bytes]
    #: Escapes that may matter: "\\n" in front of a line doesn't.
    telling: re.Pattern[bytes]


def _kind(lead: str, pattern: str, cut: str, telling: str) -> _Kind:
    return _Kind(lead.encode(), *(re.compile(text.replace("H", _HEX).encode()) for text in (pattern, cut, telling)))


#: The outermost first, as they come in honest text: an address holds no "&" that HTML gave, nor HTML backslashes.
_PERCENT = _kind("%", r"%(?=HH)(?:25)*(HH)?", r"%(?:25)*H?\Z", r"%HH")
_ENTITY = _kind(
    "&",
    r"&(?=[#A-Za-z])(?:amp;)*(#[0-9]{1,7};|#[xX]H{1,6};|[A-Za-z][A-Za-z0-9]{1,31};)?",
    r"&(?:amp;)*(?:#[xX]?H{0,7}|[A-Za-z][A-Za-z0-9]{0,31})?\Z",
    r"&(?:#|[A-Za-z][A-Za-z0-9]{1,31};)",
)
_BACKSLASH = _kind(
    "\\",
    r"\\+(xHH|uHHHH|UH{8}|u\{H{1,6}\}|N\{[A-Z0-9 -]{1,88}\}|[0-7]{3})?",
    r"(?<!\\)\\+(?:xH?|uH{0,3}|UH{0,7}|u\{H{0,6}|N(?:\{[A-Z0-9 -]{0,88})?|[0-7]{0,2})?\Z",
    r"\\(?:[^A-Za-z0-9]|[xuUN0-7])",
)


def needles(secret: str) -> set[bytes]:
    """``secret`` as bytes, to be made plain and looked for in plain text; none if it is written alike everywhere.

    A sign beyond ASCII may be one byte (Latin-1, as ``ascii`` has it) or UTF-8, one beyond 16 bits a pair (JSON).
    """
    if _UNESCAPED.fullmatch(secret):
        return set()
    pairs = secret.encode("utf-16-le", "surrogatepass")
    units = "".join(chr(int.from_bytes(pairs[at : at + 2], "little")) for at in range(0, len(pairs), 2))
    spaced = [text.replace(" ", space) for text in (secret, units) for space in " +"]
    return {_bytes(text, latin) for text in spaced for latin in (0x80, 0x100)}


def landmarks(secret: str) -> dict[bytes, set[bytes]] | None:
    """One of these is met wherever ``secret`` is written, however it is escaped: letters and digits stay as they are.

    By the letters, these with what may come next; None if a part of the secret has no letters.
    """
    found = dict[bytes, set[bytes]]()
    for begin in range(0, len(secret), _BLOCK):
        runs = [match.span() for match in _LETTERS.finditer(secret, begin, begin + _BLOCK)]
        if not runs:
            return None
        first, end = max(runs, key=lambda run: run[1] - run[0] + (run[1] < len(secret)))
        run, after = secret[first:end].encode(), secret[end : end + 1]
        if not after or _LETTERS.match(after):
            found.setdefault(run, set()).add(run)
            continue
        # What comes next is a sign: itself, or what an escape begins with.
        signs = (after.encode("utf-8", "surrogatepass")[:1], b"+" if after == " " else b"", *LEADS)
        found.setdefault(run, set()).update(run + sign for sign in signs if sign)
    return found


def _bytes(text: str, latin: int) -> bytes:
    return b"".join(bytes([ord(c)]) if ord(c) < latin else c.encode("utf-8", "surrogatepass") for c in text)


class Escapes:
    """Takes out those that stand for a byte, or for one of ``signs``."""

    def __init__(self, signs: Iterable[str]) -> None:
        percent: dict[bytes, bytes] = {}
        entities: dict[bytes, bytes] = {}
        backslash: dict[bytes, bytes] = {}
        for byte in range(256):
            backslash[f"{byte:03o}".encode()] = bytes([byte])
            for digits in _either_case(f"{byte:02x}"):
                percent[digits.encode()] = backslash[f"x{digits}".encode()] = bytes([byte])
        named = defaultdict[str, list[str]](list)
        for entity, text in html.entities.html5.items():
            named[text].append(entity)
        for sign in set(signs):
            data = sign.encode("utf-8", "surrogatepass")
            entities.update((name.encode(), data) for name in (*named[sign], *_numbered(ord(sign))))
            backslash.update((name.encode(), data) for name in _coded(sign))
            for unit in _units(sign):
                for digits in _either_case(f"{unit:04x}"):
                    backslash[f"u{digits}".encode()] = chr(unit).encode("utf-8", "surrogatepass")
        # Backslashes are taken out, however they are written. Those that other kinds stand for come before this one.
        backslash.update((escape, b"") for escape, meaning in backslash.items() if meaning == b"\\")
        self._kinds = [
            (_PERCENT, _Meanings(b"%", percent)),
            (_ENTITY, _Meanings(b"&", entities)),
            (_BACKSLASH, _Meanings(b"", backslash)),
            # JSON that is safe in HTML has "\\u0026" for "&".
            (_ENTITY, _Meanings(b"&", entities)),
        ]

    def plain(self, data: bytes, *, cut: bool = False) -> bytes:
        """``data`` without escapes; ``cut`` leaves the beginning of one at its end out."""
        for kind, meanings in self._kinds:
            if kind.lead in data:
                parts: list[bytes | None] = kind.pattern.split(_uncut(kind, data) if cut else data)
                parts[1::2] = map(meanings.__getitem__, parts[1::2])
                data = b"".join(parts)  # type: ignore[arg-type]
        return data

    def places(self, data: bytes, spans: list[tuple[int, int]], *, cut: bool = False) -> list[tuple[int, int]]:
        """Where in ``data`` that is which lies at ``spans`` of its plain text, whole escapes."""
        maps = list[_Map]()
        text = data
        for kind, meanings in self._kinds:
            if kind.lead in text:
                text = _uncut(kind, text) if cut else text
                found = [(match.span(), meanings[match[1]]) for match in kind.pattern.finditer(text)]
                maps.append(_Map(found))
                parts: list[bytes] = []
                at = 0
                for (begin, end), meaning in found:
                    parts += (text[at:begin], meaning)
                    at = end
                text = b"".join((*parts, text[at:]))
        for one in reversed(maps):
            spans = [one.place(span) for span in spans]
        return spans

    def regions(self, data: bytes, around: int) -> list[tuple[int, int]]:
        """What of ``data`` has escapes, with ``around`` bytes on both sides of each."""
        around += _LONGEST_ESCAPE
        kinds = [kind for kind in (_PERCENT, _ENTITY, _BACKSLASH) if kind.lead in data]
        if sum(data.count(kind.lead) for kind in kinds) * around > len(data):
            return [(0, len(data))]
        begins = sorted(match.start() for kind in kinds for match in kind.telling.finditer(data))
        return list(regions(begins, around, len(data)))


class _Map:
    """From places in a text without one kind of escapes to places in the text with them."""

    def __init__(self, escapes: list[tuple[tuple[int, int], bytes]]) -> None:
        #: By escape: where its meaning begins and ends, and where itself.
        self._rows = [(0, 0, 0, 0)]
        shift = 0
        for (begin, end), meaning in escapes:
            self._rows.append((begin - shift, begin - shift + len(meaning), begin, end))
            shift += end - begin - len(meaning)
        self._begins = [row[0] for row in self._rows]

    def place(self, span: tuple[int, int]) -> tuple[int, int]:
        return self._at(span[0])[0], self._at(span[1] - 1)[1]

    def _at(self, place: int) -> tuple[int, int]:
        """Where the byte at ``place`` comes from."""
        _, after, begin, end = self._rows[bisect_right(self._begins, place) - 1]
        return (begin, end) if place < after else (place - after + end, place - after + end + 1)


def _uncut(kind: _Kind, data: bytes) -> bytes:
    match = kind.cut.search(data)
    return data[: match.start()] if match else data


def whole(data: bytes, begin: int, end: int) -> tuple[int, int]:
    """Where the letters begin and end that are there: a byte of one may be taken for Latin-1."""
    first, last = begin, end
    while begin > 0 and data[begin] & 0xC0 == 0x80 and first - begin < 3:
        begin -= 1
    while end < len(data) and data[end] & 0xC0 == 0x80 and end - last < 3:
        end += 1
    return begin, end


def regions(begins: list[int], around: int, size: int) -> Iterator[tuple[int, int]]:
    """What lies within ``around`` bytes of the places, which are in order."""
    if not begins:
        return
    first = last = begins[0]
    for begin in begins:
        if begin - last > 2 * around:
            yield max(0, first - around), last + around
            first = begin
        last = begin
    yield max(0, first - around), min(size, last + around)


def _either_case(digits: str) -> set[str]:
    return {digits, digits.upper()}


def _units(sign: str) -> list[int]:
    data = sign.encode("utf-16-le", "surrogatepass")
    return [int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2)]


def _numbered(code: int) -> Iterator[str]:
    for size in (1, 2, 3, 4):
        yield f"#{code:0{size}d};"
        for digits in _either_case(f"{code:0{size}x}"):
            yield from (f"#x{digits};", f"#X{digits};")


def _coded(sign: str) -> Iterator[str]:
    for digits in _either_case(f"{ord(sign):08x}"):
        yield f"U{digits}"
    for digits in _either_case(f"{ord(sign):x}"):
        yield f"u{{{digits}}}"
    yield f"N{{{unicodedata.name(sign, '')}}}"
