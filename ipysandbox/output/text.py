"""Reduces terminal text to what a notebook and a terminal may show: letters, line movement and colours."""

from __future__ import annotations

import re

# Control strings (OSC, DCS, SOS, PM, APC: ECMA-48 section 5.6) end at BEL, ST, CAN, SUB or a new escape; none that we
# know of holds a line feed, so that one ends them too and an unfinished string can't swallow the rest of the output.
_STRING_END = re.compile("[\x07\x9c\x18\x1a\n]|\x1b\\\\?")
_SPECIAL = re.compile(
    "\x1b[\\]PX^_](?P<string>[^\x07\x1b\x9c\x18\x1a\n]*)(?P<end>\x07|\x1b\\\\|\x9c|(?=\n)|\x18|\x1a|(?=\x1b.))?"
    "|(?P<csi>\x1b\\[[0-?]*[ -/]*[@-~])"
    "|\x1b\\[[0-?]*[ -/]*"
    "|\x1b(?:[ -/]*[0-~])?"
    "|[\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    "|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]",
    re.S,
)
# Colours in full; erase in line and single steps up because nested progress bars draw themselves with nothing else.
_SGR = re.compile("\x1b\\[([0-9;:]{0,48})m")
#: Of SGR, what conceals text and its opposite: what is printed and typed after it would not be seen.
_CONCEALS = frozenset((8, 28))
#: How many numbers name a colour after 38 (letters), 48 (ground) and 58 (underline), by the first of them.
_COLOUR_NUMBERS = {"2": 4, "5": 2}
_ERASE_LINE = re.compile("\x1b\\[[0-2]?K")
_UP = re.compile("\x1b\\[([0-9]{0,3})A")
_UNFINISHED = re.compile("\x1b(?:\\[[0-?]*[ -/]*|[ -/]*)?\\Z")

_CHARACTER = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_ASCII_SPECIAL = bytes(code for code in range(128) if _CHARACTER.match(chr(code)))

_PENDING_MAX = 256
_STRING_MAX = 1 << 20


class TextCleaner:
    """Cleans one stream whose text arrives in pieces, so that a sequence cut in two can't slip through.

    Between calls it keeps at most ``_PENDING_MAX`` characters and a few numbers.
    """

    def __init__(self) -> None:
        self._pending = ""
        self._swallowed: int | None = None  # characters of an open control string so far
        self._lines = 0  # line feeds shown: how far up a progress bar may go without leaving its own output

    def feed(self, text: str) -> str:
        """The part of ``text`` (and of what was kept back) that may be shown now."""
        text = self._pending + text
        self._pending = ""
        if self._swallowed is not None:
            text = self._leave_string(text)
        if not _has_special(text):  # most text: one look at each character
            self._lines += text.count("\n")
            return text
        unfinished = _UNFINISHED.search(text, max(0, len(text) - _PENDING_MAX))
        if unfinished:
            self._pending = unfinished.group()
            text = text[: unfinished.start()]
        shown: list[str] = []
        at = 0
        for match in _SPECIAL.finditer(text):
            plain = text[at : match.start()]
            at = match.end()
            self._lines += plain.count("\n")
            shown += (plain, self._replace(match, at == len(text)))
        rest = text[at:]
        self._lines += rest.count("\n")
        shown.append(rest)
        return "".join(shown)

    def flush(self) -> str:
        """Ends the stream: a sequence that was never finished is dropped, as a terminal would not have shown it."""
        self._pending, self._swallowed, self._lines = "", None, 0
        return ""

    def _leave_string(self, text: str) -> str:
        end = _STRING_END.search(text)
        if end is None:
            self._swallowed = (self._swallowed or 0) + len(text)
            if self._swallowed > _STRING_MAX:
                self._swallowed = None
            return ""
        if end.group() == "\x1b" and end.end() == len(text):
            self._pending = "\x1b"  # perhaps the first half of ST
            return ""
        self._swallowed = None
        # A line feed and a new escape end the string but are not part of it.
        return text[end.start() :] if end.group() in ("\n", "\x1b") else text[end.end() :]

    def _replace(self, match: re.Match[str], last: bool) -> str:
        if match["string"] is not None:
            if match["end"] is None and last:
                self._swallowed = len(match["string"])
            return ""
        if match["csi"] is not None:
            return self._control(match["csi"])
        return _visible(match) if len(match.group()) == 1 else ""

    def _control(self, sequence: str) -> str:
        colours = _SGR.fullmatch(sequence)
        if colours:
            return _seen(colours[1])
        if _ERASE_LINE.fullmatch(sequence):
            return sequence
        up = _UP.fullmatch(sequence)
        if up:
            rows = max(1, int(up[1] or 1))
            if rows <= self._lines:
                self._lines -= rows
                return sequence
        return ""


def _seen(numbers: str) -> str:
    """The SGR sequence of these numbers without those that conceal; nothing where it was for no other.

    What some terminals do not know as a colour they would read number by number: of 58, and of a colour that was cut
    off, all is dropped.
    """
    if "8" not in numbers:  # most colours, and both that conceal
        return f"\x1b[{numbers}m"
    given = numbers.split(";")
    kept: list[str] = []
    while given:
        number = given.pop(0)
        if number.lstrip("0") in ("38", "48", "58"):
            length = _COLOUR_NUMBERS.get(given[0].lstrip("0"), 0) if given else 0
            if 0 < length <= len(given) and number.lstrip("0") != "58":
                kept += (number, *given[:length])
            del given[:length]
        elif int(number.partition(":")[0] or 0) not in _CONCEALS:
            kept.append(number)
    return f"\x1b[{';'.join(kept)}m" if kept else ""


def clean_text(text: str) -> str:
    """``text`` with colours, ``\\n \\r \\t \\b`` and progress bars' movements kept and every other control removed.

    Overrides of the writing direction are made visible (``‹U+202E›``), lone surrogates become U+FFFD. Linear time.
    """
    return TextCleaner().feed(text)


def clean_characters(text: str) -> str:
    """The same for markup, one character at a time: nothing that stands between two controls is dropped with them."""
    return _CHARACTER.sub(_visible, text) if _has_special(text) else text


def _has_special(text: str) -> bool:
    if text.isascii():  # a table of bytes takes a seventh of the expression's time
        return len(text.encode().translate(None, _ASCII_SPECIAL)) != len(text)
    return _CHARACTER.search(text) is not None


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"‹U+{code:04X}›" if code > 0x2000 else ""


def clip(text: str, limit: int) -> str:
    """``text`` cut in the middle to about ``limit`` characters, with a mark that says how much is missing."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n… {len(text) - head - tail} characters left out …\n{text[len(text) - tail :]}"
