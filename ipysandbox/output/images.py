"""Checks that an image is what its type says and not too large to show."""

from __future__ import annotations

import base64
import binascii
import re
import struct

from .pictures import MOST_PARTS, TooManyParts, only_picture

MAX_BYTES = 32 << 20
MAX_PIXELS = 64_000_000  # a quarter of a gigabyte once a browser has unpacked it
MAX_SIDE = 65_535
RASTER = ("image/png", "image/jpeg", "image/gif", "image/webp")

_SPACE = re.compile(r"\s+")
_DATA_URL = re.compile(r"data:(image/[a-z]+);base64,([A-Za-z0-9+/=\s]*)", re.I | re.A)


class BadImage(ValueError):
    """The data is not an image of the type it claims, or too large; the message says which."""


def check_image(mime: str, encoded: str) -> str:
    """The base64 text of a PNG, JPEG, GIF or WebP, reduced to what is seen, or of a PDF; raises BadImage for others."""
    if len(encoded) > MAX_BYTES * 4 // 3 + MAX_BYTES // 32:
        raise BadImage(f"larger than {MAX_BYTES >> 20} MiB")
    compact = _SPACE.sub("", encoded)
    try:
        data = base64.b64decode(compact, validate=True)
    except (binascii.Error, ValueError):
        raise BadImage("not base64") from None
    if mime == "application/pdf":
        if not data.startswith(b"%PDF-"):
            raise BadImage("not a PDF file")
        return compact
    size = _READERS[mime](data)
    if size is None:
        raise BadImage(f"not {mime}")
    width, height = size
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE and width * height <= MAX_PIXELS):
        raise BadImage(f"{width}×{height} pixels")
    try:
        return base64.b64encode(only_picture(mime, data)).decode()
    except TooManyParts as exc:
        raise BadImage(str(exc)) from None


def check_data_url(url: str) -> str:
    """A ``data:`` URL of a raster image written anew; raises BadImage for any other URL."""
    match = _DATA_URL.fullmatch(url.strip())
    mime = match[1].lower().replace("image/jpg", "image/jpeg") if match else ""
    if match is None or mime not in RASTER:
        raise BadImage("not an embedded picture")
    return f"data:{mime};base64,{check_image(mime, match[2])}"


def _png(data: bytes) -> tuple[int, int] | None:
    if data[:8] != b"\x89PNG\r\n\x1a\n" or data[12:16] != b"IHDR" or len(data) < 33:
        return None
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def _gif(data: bytes) -> tuple[int, int] | None:
    if data[:6] not in (b"GIF87a", b"GIF89a") or len(data) < 13:
        return None
    width, height = struct.unpack("<HH", data[6:10])
    return width, height


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """Walks the segments to the frame header (ITU T.81, B.1.1.3 and B.2.2)."""
    if data[:3] != b"\xff\xd8\xff":
        return None
    at = 2
    for _ in range(MOST_PARTS):
        if at + 9 >= len(data) or data[at] != 0xFF:
            break
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if length < 2:
            return None
        at += 2 + length
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < 30:
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


_READERS = {"image/png": _png, "image/gif": _gif, "image/jpeg": _jpeg, "image/webp": _webp}
