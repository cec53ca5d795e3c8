"""Leaves of a picture's file only what is seen: no comments, texts, places or previews, nothing after its end."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

#: Honest files have parts of hundreds of bytes; each costs the same, however small.
MOST_PARTS = 500_000

#: Chunks of a PNG that say how it looks (PNG, third edition, 11; APNG's are among them).
_PNG = frozenset(b"IHDR PLTE IDAT IEND tRNS cHRM gAMA sBIT sRGB cICP mDCV cLLI bKGD hIST pHYs acTL fcTL fdAT".split())
#: Chunks of a WebP file (RFC 9649, 2.7), and of one of its frames.
_WEBP = frozenset((b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF", b"ICCP"))
_EXIF_AND_XMP = 0x08 | 0x04
#: Segments of a JPEG that decoders need: frames, tables, scans, intervals (ITU T.81, B.1.1.3).
_JPEG = frozenset((*range(0xC0, 0xD0), 0xDA, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF)) - {0xC8}
_SCAN, _END = 0xDA, 0xD9
#: What ends the data of a scan: a marker that is no restart; 0xFF itself is written as FF 00.
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.S)
_LOOP = (b"NETSCAPE2.0", b"ANIMEXTS1.0")


class TooManyParts(ValueError):
    """The file is made of more parts than it takes to show it."""


def only_picture(mime: str, data: bytes) -> bytes:
    """``data`` without what isn't seen; a file that breaks off is kept as far as it goes. Raises TooManyParts."""
    return b"".join(_PARTS[mime](data)) if mime in _PARTS else data


def _counted(parts: int) -> int:
    if parts > MOST_PARTS:
        raise TooManyParts("made of too many parts")
    return parts + 1


def _png(data: bytes) -> Iterator[bytes]:
    yield data[:8]
    at, parts = 8, 0
    while at + 12 <= len(data):
        parts = _counted(parts)
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        kind = data[at + 4 : at + 8]
        if kind in _PNG:
            yield data[at:end]
        at = end if kind != b"IEND" else len(data)


def _jpeg(data: bytes) -> Iterator[bytes]:
    yield data[:2]
    at, parts = 2, 0
    while at + 4 <= len(data) and data[at] == 0xFF:
        parts = _counted(parts)
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if marker == _END:
            break
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == _SCAN:
            following = _MARKER.search(data, end)
            end = following.start() if following else len(data)
        yield data[at:end] if marker in _JPEG else _jpeg_application(marker, data[at + 4 : end])
        at = end
    yield b"\xff\xd9"


def _jpeg_application(marker: int, text: bytes) -> bytes:
    """Of the segments of programs: density, colours, and which side is up."""
    if marker == 0xE0 and text[:5] == b"JFIF\0" and len(text) >= 14:
        text = text[:12] + b"\0\0"  # no preview
    elif marker == 0xEE and text[:5] == b"Adobe" and len(text) >= 12:
        text = text[:12]
    elif marker == 0xE1 and text[:6] == b"Exif\0\0":
        side = _orientation(text[6:])
        if side is None:
            return b""
        text = b"Exif\0\0" + struct.pack(">2sHIHHHIHHI", b"MM", 42, 8, 1, 0x112, 3, 1, side, 0, 0)
    elif not (marker == 0xE2 and text[:12] == b"ICC_PROFILE\0"):
        return b""
    return struct.pack(">BBH", 0xFF, marker, len(text) + 2) + text


def _orientation(tiff: bytes) -> int | None:
    """Of Exif's first directory (Exif 2.32, 4.6.4); None where it says nothing, or nothing special."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None or len(tiff) < 10:
        return None
    (begin,) = struct.unpack_from(order + "I", tiff, 4)
    entries = tiff[begin : begin + 2 + 12 * 64]
    for at in range(2, len(entries) - 11, 12):
        tag, kind, count, value = struct.unpack_from(order + "HHIH", entries, at)
        if (tag, kind, count) == (0x112, 3, 1):
            return value if 2 <= value <= 8 else None
    return None


def _gif(data: bytes) -> Iterator[bytes]:
    """CompuServe's GIF89a: blocks of data come in parts of up to 255 bytes."""
    at = 13 + _colours(data[10])
    yield data[:at]
    parts = 0
    while at + 2 < len(data) and data[at] in (0x21, 0x2C):
        begin, kind = at, data[at : at + 2]
        at += 2 if kind[0] == 0x21 else 11 + _colours(data[at + 9] if at + 9 < len(data) else 0)
        while at < len(data) and data[at]:
            parts = _counted(parts)
            at += 1 + data[at]
        at += 1
        if kind[0] == 0x2C or kind == b"\x21\xf9":
            yield data[begin:at]
        elif kind == b"\x21\xff" and data[begin + 3 : begin + 14] in _LOOP and data[begin + 14 : begin + 16] == b"\3\1":
            yield data[begin : begin + 18] + b"\0"
    yield b"\x3b"


def _colours(flags: int) -> int:
    """Bytes of the table that follows."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _webp(data: bytes) -> Iterator[bytes]:
    chunks = b"".join(_webp_chunks(data[12:]))
    yield b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WEBP" + chunks


def _webp_chunks(data: bytes, *, frame: bool = False) -> Iterator[bytes]:
    at, parts = 0, 0
    while at + 8 <= len(data):
        parts = _counted(parts)
        kind, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        text = data[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
        if kind not in _WEBP:
            continue
        if kind == b"VP8X" and text:
            text = bytes((text[0] & ~_EXIF_AND_XMP,)) + text[1:]
        elif kind == b"ANMF" and not frame:
            text = text[:16] + b"".join(_webp_chunks(text[16:], frame=True))
        yield kind + struct.pack("<I", len(text)) + text + b"\0" * (len(text) % 2)


_PARTS = {"image/png": _png, "image/jpeg": _jpeg, "image/gif": _gif, "image/webp": _webp}
