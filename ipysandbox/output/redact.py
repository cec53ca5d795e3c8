"""Replaces the host's secrets in what leaves a sandbox by ``•••NAME•••``, in the forms that they are often printed in.

Forms that change a value as a whole are looked for as they are. Those that escape single signs are too many: there the
escapes are taken out of the text (``escapes``), near what no escape changes, so that most text costs no more for it.
Known values are looked for, not formats: nothing else in the output is touched. ``KnownSecrets`` is the supervisor's
and holds the values, in its memory only; a ``Redactor`` is one sandbox's and remembers where its streams were cut.
"""

from __future__ import annotations

import base64
import html
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

from .escapes import LEADS, WIDEST, Escapes, landmarks, needles, regions, whole

#: Of a longer secret, pieces of this length are looked for, which overlap so that no base64 digit between them is left.
_PIECE, _OVERLAP = 256, 8
#: Text that stops after this many bytes of a form (half of it, if it is short) is taken for the secret.
_TELLING = 8
_WORD = 8
_MOST_STEPS = 8
#: What one search for a text costs, against looking at every word (measured: 4 and 40 ms for 10 MB).
_SEARCH_COST = 0.1
_TAG = re.compile("<[^<>]*>")
_MARKUP = re.compile(b"[<>\"']")
_MOST_SECRETS = 1000

#: Words of a form that are met without it, in one text.
_MOST_FAILED = 256

#: Of a secret without escapes and backslashes, fewer bytes are not looked for.
_LEAST_PLAIN = 6
#: Bytes in which a text is searched for in the time in which one escape is taken out.
_ESCAPE_COST = 2500

_Text = TypeVar("_Text", str, bytes)
Span = tuple[int, int, str]
#: By eight bytes as a number: the forms that hold them, and where.
_Anchors = dict[int, list[tuple[bytes, int]]]


def forms(secret: str, *, escapes: bool = True) -> set[str]:
    """The ways in which ``secret`` is looked for: itself, reversed, base64, hex, every byte escaped.

    With ``escapes`` those too in which only some of its signs are escaped.
    """
    data = secret.encode("utf-8", "surrogatepass")
    found = {secret, secret[::-1]}
    if escapes:
        found |= {repr(secret)[1:-1], quote_plus(secret, errors="replace")}
        found |= {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
        found |= {html.escape(secret, quote=False), html.escape(secret).replace("&#x27;", "'"), html.escape(secret)}
        found |= {quote(secret, safe=safe, errors="replace") for safe in ("", "/", "/:@", "~()*!'")}
    for separator in ("", " ", ":", "-"):
        found |= {data.hex(separator).lower(), data.hex(separator).upper()} if separator else {data.hex()}
    found.add(data.hex().upper())
    for lead in ("%", "\\x"):
        found |= {lead + data.hex(" ").replace(" ", lead), lead + data.hex(" ").upper().replace(" ", lead)}
    found |= {re.sub("%..", lambda match: match[0].lower(), form) for form in found if "%" in form}
    found |= set(_base64(data))
    return found | {json.dumps(form, ensure_ascii=False)[1:-1] for form in found}


def _base64(data: bytes) -> Iterator[str]:
    """What stands for ``data`` wherever it begins in what was encoded; digits that hold a neighbour's bits left out."""
    for before in range(3):
        text = base64.b64encode(bytes(before) + data).decode()
        digits = text[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        yield digits
        yield digits.translate(str.maketrans("+/", "-_"))


class _Index:
    """Finds secrets in their forms, and among escapes of any kind."""

    def __init__(self, secrets: Iterable[tuple[str, str]]) -> None:
        exact: dict[bytes, str] = {}
        escaped: dict[bytes, str] = {}
        known = [(name, secret, needles(secret)) for name, secret in secrets]
        self._escapes = Escapes(sign for _, secret, found in known if found for sign in secret)
        self._landmarks: dict[bytes, set[bytes]] | None = {}
        for name, secret, found in known:
            # What is nothing but backslashes and escapes itself is known by its forms alone.
            plain = [needle for needle in map(self._escapes.plain, found) if len(needle) >= _LEAST_PLAIN]
            for part in (part for needle in plain for part in _pieces(needle)):
                escaped.setdefault(part, name)
            if plain:
                self._mark(secret)
            # Escaped ones are found by what they are without escapes. Those of controls may be letters ("\\t").
            escapes = not plain or not secret.isprintable()
            for form in (form for piece in _pieces(secret) for form in forms(piece, escapes=escapes)):
                exact.setdefault(form.encode("utf-8", "surrogatepass"), name)
        self._exact, self._plain = _Finder(exact), _Finder(escaped)
        self._wide = WIDEST * self._plain.longest
        self.known = bool(exact)
        self.longest = max(self._exact.longest, self._wide)

    def _mark(self, secret: str) -> None:
        marks = landmarks(secret)
        if marks is None or self._landmarks is None:
            self._landmarks = None
            return
        for run, some in marks.items():
            self._landmarks.setdefault(run, set()).update(some)

    def find(self, data: bytes) -> list[Span]:
        """Where ``data`` holds a secret: (begin, end, name), in order, without overlaps."""
        found = list(self._exact.find(data))
        if self._plain.names and _has_escapes(data):
            found += self._find_escaped(data)
        return _merged(found) if found else found

    def _find_escaped(self, data: bytes) -> Iterator[Span]:
        for begin, end in self._regions(data):
            region = data[begin:end]
            spans = list(self._plain.find(self._escapes.plain(region)))
            if spans:
                places = self._escapes.places(region, [span[:2] for span in spans])
                for (a, b), (_, _, name) in zip(places, spans, strict=True):
                    yield *whole(data, begin + a, begin + b), name

    def _regions(self, data: bytes) -> Iterable[tuple[int, int]]:
        """Where to take escapes out: around landmarks if these are sooner found, or else around all escapes."""
        escapes = sum(map(data.count, LEADS))
        if self._landmarks is None or len(self._landmarks) * len(data) > _ESCAPE_COST * escapes:
            return self._escapes.regions(data, self._plain.longest)
        return regions(sorted(self._marked(data, self._landmarks)), 2 * self._wide, len(data))

    def _marked(self, data: bytes, landmarks: dict[bytes, set[bytes]]) -> Iterator[int]:
        """Where landmarks are; not all those that lie close together."""
        for run, marks in landmarks.items():
            for mark in marks if run in data else ():
                at = data.find(mark)
                while at >= 0:
                    yield at
                    at = data.find(mark, at + self._wide)

    def unfinished(self, data: bytes) -> tuple[int, str] | None:
        """Where the telling beginning of a secret starts that ``data`` ends with, and the name."""
        found = self._exact.unfinished(data)
        if not self._plain.names:
            return found
        tail = data[-self._wide + 1 :]
        if not _has_escapes(tail):
            return found
        plain = self._escapes.plain(tail, cut=True)
        escaped = self._plain.unfinished(plain)
        if escaped is None:
            return found
        [(begin, _)] = self._escapes.places(tail, [(escaped[0], len(plain))], cut=True)
        begun = whole(data, len(data) - len(tail) + begin, len(data))[0], escaped[1]
        return min(found, begun) if found else begun


def _has_escapes(data: bytes) -> bool:
    return any(lead in data for lead in LEADS)


class _Finder:
    """Finds many texts at once. Every ``_WORD`` bytes of what is searched are one number, looked up in a set.

    No pattern is tried at each position: the cost does not grow with the number of secrets, and hostile output can't
    raise it. A form of 8 * (steps + 1) - 1 bytes covers a word that is looked at, wherever it lies, if every
    ``steps``-th is; shorter ones are searched for one by one.
    """

    def __init__(self, names: dict[bytes, str]) -> None:
        #: Each text, a form of a secret, with the name of the secret.
        self.names = names
        #: Into how many steps each form would fit.
        fits = {data: (len(data) + 1) // _WORD - 1 for data in self.names}

        def cost(steps: int) -> float:
            return 1 / steps + _SEARCH_COST * sum(fit < steps for fit in fits.values())

        self._steps = min(range(1, _MOST_STEPS + 1), key=cost)
        self._short = [data for data, fit in fits.items() if fit < self._steps]
        long = [data for data, fit in fits.items() if fit >= self._steps]
        self.longest = max(map(len, self.names), default=0)
        self._anchors: _Anchors = {}
        for data in long:
            for word, at in self._words_of(data):
                self._anchors.setdefault(word, []).append((data, at))
        self._words = frozenset(self._anchors)
        self._all = b"\0".join(self.names)
        self._heads: dict[bytes, list[bytes]] = {}
        for data in self.names:
            self._heads.setdefault(data[: _telling(data)], []).append(data)
        self._head_sizes = sorted({len(head) for head in self._heads})

    def find(self, data: bytes) -> Iterator[Span]:
        """Where ``data`` holds a form: (begin, end, name)."""
        yield from self._find_long(data)
        for form in self._short:
            yield from self._each(data, form)

    def _find_long(self, data: bytes) -> Iterator[Span]:
        words = memoryview(data)[: len(data) // _WORD * _WORD].cast("Q")[:: self._steps]
        if self._words.isdisjoint(words):
            return
        anchors, failed = self._anchors, dict[bytes, int]()
        for number, word in enumerate(words):
            for form, at in anchors.get(word, ()):
                begin = number * self._steps * _WORD - at
                if begin >= 0 and data.startswith(form, begin):
                    yield begin, begin + len(form), self.names[form]
                    continue
                failed[form] = failed.get(form, 0) + 1
                if failed[form] == _MOST_FAILED:
                    # One search for all of it takes less from here on than each word that could begin it.
                    anchors = self._without(anchors, form)
                    yield from self._each(data, form)

    def _words_of(self, form: bytes) -> list[tuple[int, int]]:
        """Words to meet ``form`` by, and where in it they are: from its end, since tokens begin alike."""
        begins = range(len(form) - _WORD, len(form) - _WORD - self._steps * _WORD, -1)
        return [(int.from_bytes(form[at : at + _WORD], sys.byteorder), at) for at in begins]

    def _without(self, anchors: _Anchors, form: bytes) -> _Anchors:
        fewer = dict(anchors) if anchors is self._anchors else anchors
        for word, _ in self._words_of(form):
            fewer[word] = [entry for entry in fewer.get(word, ()) if entry[0] != form]
        return fewer

    def _each(self, data: bytes, form: bytes) -> Iterator[Span]:
        at = data.find(form)
        while at >= 0:
            yield at, at + len(form), self.names[form]
            at = data.find(form, at + 1)

    def unfinished(self, data: bytes) -> tuple[int, str] | None:
        """Where the telling beginning of a form starts that ``data`` ends with, and the name."""
        least = self._head_sizes[0] if self._head_sizes else len(data) + 1
        if len(data) < least or data[-least:] not in self._all:  # most text
            return None
        for begin in range(max(0, len(data) - self.longest + 1), len(data) - least + 1):
            for size in self._head_sizes:
                for form in self._heads.get(data[begin : begin + size], ()):
                    if len(form) > len(data) - begin >= size and form.startswith(data[begin:]):
                        return begin, self.names[form]
        return None


def _pieces(secret: _Text) -> list[_Text]:
    if len(secret) <= _PIECE:
        return [secret]
    begins = [*range(0, len(secret) - _PIECE, _PIECE - _OVERLAP), len(secret) - _PIECE]
    return [secret[begin : begin + _PIECE] for begin in begins]


def _telling(form: bytes) -> int:
    return min(_TELLING, len(form) // 2)


def _merged(spans: list[Span]) -> list[Span]:
    spans.sort(key=lambda span: (span[0], -span[1]))
    merged = [spans[0]]
    for begin, end, name in spans[1:]:
        last_begin, last_end, last_name = merged[-1]
        if begin < last_end or (begin == last_end and name == last_name):
            merged[-1] = last_begin, max(end, last_end), last_name
        else:
            merged.append((begin, end, name))
    return merged


class KnownSecrets:
    """The secrets of one host process; nothing here tells a value."""

    def __init__(self, values: Mapping[str, Iterable[str]] | None = None) -> None:
        self._values: dict[str, str] = {}
        self.index = _Index(())
        self.learn(values or {})

    def __repr__(self) -> str:
        return f"<{len(self._values)} secrets>"

    def learn(self, values: Mapping[str, Iterable[str]]) -> None:
        """Look for these too, under their names; what was known stays known, since it may still be about."""
        known = len(self._values)
        for name, parts in values.items():
            for part in parts:
                if len(self._values) < _MOST_SECRETS:
                    self._values.setdefault(part, re.sub(r"[^\w.-]", "_", name)[:80])
        if len(self._values) > known:
            self.index = _Index((name, value) for value, name in self._values.items())


class Redactor:
    """Redacts one sandbox's output, in the order in which it leaves."""

    def __init__(self, secrets: KnownSecrets | None = None) -> None:
        self._secrets = secrets or KnownSecrets()
        #: The last bytes of each stream, and of all text together, as they were before they were redacted.
        self._ends: dict[str, bytes] = {}
        #: By stream: the secret that its text ends with the beginning of, and how many bytes of it are held back.
        self._held: dict[str, tuple[str, int]] = {}

    # -- texts that are whole

    def text(self, text: str) -> str:
        """``text`` without secrets."""
        index = self._secrets.index
        if not index.known:
            return text
        data = text.encode("utf-8", "surrogatepass")
        spans = index.find(data)
        return _replaced(data, spans) if spans else text

    def holds(self, text: str) -> str | None:
        """The name of a secret in ``text``, if there is one."""
        spans = self._secrets.index.find(text.encode("utf-8", "surrogatepass")) if self._secrets.index.known else []
        return spans[0][2] if spans else None

    def holds_in(self, data: bytes) -> str | None:
        """The same for what is no text."""
        spans = self._secrets.index.find(data) if self._secrets.index.known else []
        return spans[0][2] if spans else None

    def markup(self, text: str) -> str | None:
        """HTML or SVG without secrets; None where one is spread over several elements, or is itself part markup."""
        data = text.encode("utf-8", "surrogatepass")
        spans = self._secrets.index.find(data) if self._secrets.index.known else []
        if any(_MARKUP.search(data, begin, end) for begin, end, _ in spans):
            return None
        redacted = _replaced(data, spans) if spans else text
        return None if self.holds(html.unescape(_TAG.sub("", redacted))) else redacted

    def value(self, node: Any) -> Any:
        """JSON-like data, redacted in every string, keys too; itself where it holds no secret."""
        if not self._secrets.index.known:
            return node
        # One look at all of it, since most data holds none and may have many parts.
        if not isinstance(node, str) and not self.holds(json.dumps(node, ensure_ascii=False, default=str)):
            return node
        return self._rebuilt(node)

    def _rebuilt(self, node: Any) -> Any:
        if isinstance(node, str):
            return self.text(node)
        if isinstance(node, Mapping):
            return {self._rebuilt(key): self._rebuilt(item) for key, item in node.items()}
        if isinstance(node, (list, tuple)):
            return [self._rebuilt(item) for item in node]
        return node

    # -- text in pieces

    def stream(self, name: str, text: str) -> str:
        """What may be shown now. Text that ends in the beginning of a secret is held back for what comes next."""
        return self._piece(name, text, hold=True)

    def output(self, text: str) -> str:
        """The text of an output between the streams, which may go on with what a stream or an output began."""
        return self._piece("", text, hold=False)

    def release(self, *, but: str = "") -> list[tuple[str, str]]:
        """What stands for the text that streams, save ``but``, hold back: nothing follows that belongs to it."""
        return [(name, mark(self._held.pop(name)[0])) for name in list(self._held) if name != but]

    def _piece(self, name: str, text: str, *, hold: bool) -> str:
        index = self._secrets.index
        if not index.known or not text:
            return text
        new = text.encode("utf-8", "surrogatepass")
        before = self._ends.get(name, b"")
        data = before + new
        begin = len(before) - self._held.pop(name, ("", 0))[1]
        spans, tail = self._look(index, before, new)
        end, which = max(tail[0], begin), tail[1]
        if end < len(data) and not hold:
            spans.append((end, len(data), which))
        spans = [(max(a, begin), b, named) for a, b, named in spans if b > begin]
        if spans:
            last = max(b for _, b, _ in spans)
            # What begins before a secret that it holds is not shown either.
            spans = _merged([*spans, (end, last, which)] if end < last else spans)
            end = max(end, last)
        if end < len(data):
            self._held[name] = which, len(data) - end
        self._remember(index, name, before, new)
        if not spans and (begin, end) == (len(before), len(data)):
            return text
        return _replaced(data[begin:end], [(a - begin, b - begin, named) for a, b, named in spans])

    def _look(self, index: _Index, before: bytes, new: bytes) -> tuple[list[Span], tuple[int, str]]:
        """Secrets in ``before + new``, and where the beginning of one starts that it ends with (its end if none does).

        Those count too that began in what came last, from wherever, and that ``new`` goes on with.
        """
        data, everything = before + new, self._ends.get(_ALL, b"")
        nothing = len(data), ""
        spans, tail = index.find(data), index.unfinished(data) or nothing
        if everything != before:
            joined, shift = everything + new[: index.longest], len(everything) - len(before)
            spans += [(max(len(before), a - shift), b - shift, name) for a, b, name in index.find(joined)]
            spans = [span for span in spans if span[1] > span[0]]
            unfinished = index.unfinished(joined) if len(new) < index.longest else None
            if unfinished is not None:
                tail = min(tail, (unfinished[0] - shift, unfinished[1]))
        return spans, tail

    def _remember(self, index: _Index, name: str, before: bytes, new: bytes) -> None:
        for key, known in ((name, before), (_ALL, self._ends.get(_ALL, b""))):
            if key:
                end = known + new[-index.longest :]
                self._ends[key] = end[max(0, len(end) - index.longest + 1) :]


_ALL = "*"


def _replaced(data: bytes, spans: list[Span]) -> str:
    parts: list[str] = []
    at = 0
    for begin, end, name in spans:
        parts += (data[at:begin].decode("utf-8", "surrogatepass"), mark(name))
        at = end
    return "".join((*parts, data[at:].decode("utf-8", "surrogatepass")))


def mark(name: str) -> str:
    return f"•••{name}•••"
