"""Promises about pictures: what is seen stays to the last point, and nothing else in the file does."""

from __future__ import annotations

import base64
import io
import time
from typing import Any

import pytest

from ipysandbox.output.images import BadImage, check_image

Image = pytest.importorskip("PIL.Image")
ImageCms = pytest.importorskip("PIL.ImageCms")
HIDDEN = b"736b2d70726f6a2d hidden in the file"
EXIF_SIDE = 0x0112


def cleaned(mime: str, data: bytes) -> bytes:
    return base64.b64decode(check_image(mime, base64.b64encode(data).decode()))


def picture(seed: int = 0) -> Any:
    found = Image.new("RGB", (60, 40))
    found.putdata([((x * 7 + seed) % 256, (x * 3) % 256, x % 256) for x in range(60 * 40)])
    return found


def exif(side: int = 6) -> bytes:
    found = Image.Exif()
    found[EXIF_SIDE], found[0x010E] = side, HIDDEN.decode()
    return bytes(found.tobytes())


def written(kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    picture().save(out, kind, **options)
    return out.getvalue()


def points(data: bytes) -> list[bytes]:
    """Of each picture in the file, as it is shown."""
    opened = Image.open(io.BytesIO(data))
    found = []
    for number in range(getattr(opened, "n_frames", 1)):
        opened.seek(number)
        found.append(opened.convert("RGBA").tobytes())
    return found


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"optimize": True, "quality": 95}, {"subsampling": 0}])
def test_a_jpeg_keeps_its_points_its_colours_and_which_side_is_up(options: dict[str, Any]) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    full = written("jpeg", comment=HIDDEN, exif=exif(), icc_profile=profile, dpi=(300, 300), **options)
    preview = b"\xff\xe0\x00\x2aJFXX\0\x13" + HIDDEN + b"\xff\xed\x00\x25" + HIDDEN
    full = full[:2] + preview[: 2 + 0x2A] + b"\xff\xed" + (2 + len(HIDDEN)).to_bytes(2, "big") + HIDDEN + full[2:]
    shown = cleaned("image/jpeg", full + HIDDEN)
    assert HIDDEN not in shown
    before, after = (Image.open(io.BytesIO(data)) for data in (full, shown))
    assert points(shown) == points(full)
    assert after.info["icc_profile"] == profile
    assert after.info["dpi"] == before.info["dpi"]
    assert dict(after.getexif()) == {EXIF_SIDE: 6}
    assert cleaned("image/jpeg", shown) == shown


def test_a_jpeg_of_four_colours_keeps_how_they_are_meant() -> None:
    out = io.BytesIO()
    picture().convert("CMYK").save(out, "jpeg")
    assert points(cleaned("image/jpeg", out.getvalue())) == points(out.getvalue())
    assert b"Adobe" in cleaned("image/jpeg", out.getvalue())


@pytest.mark.parametrize("frames", [1, 3])
def test_a_gif_keeps_its_frames_and_how_often_they_go_round(frames: int) -> None:
    more = [picture(n * 40) for n in range(1, frames)]
    moving = {"save_all": True, "append_images": more, "loop": 5, "duration": 70} if more else {}
    full = written("gif", comment=HIDDEN, **moving)
    xmp = b"\x21\xff\x0bXMP DataXMP" + bytes((len(HIDDEN),)) + HIDDEN + b"\0"
    at = full.index(b"\x21\xfe")
    full = full[:at] + xmp + full[at:]
    shown = cleaned("image/gif", full + HIDDEN)
    assert HIDDEN not in shown
    assert points(shown) == points(full)
    before, after = (Image.open(io.BytesIO(data)).info for data in (full, shown))
    assert [after.get(name) for name in ("loop", "duration")] == [before.get(name) for name in ("loop", "duration")]
    assert cleaned("image/gif", shown) == shown


@pytest.mark.parametrize(
    "options",
    [{}, {"lossless": True}, {"save_all": True, "append_images": [picture(9)]}],
    ids=["plain", "lossless", "moving"],
)
def test_a_webp_keeps_its_frames_and_colours(options: dict[str, Any]) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    full = written("webp", exif=exif(), xmp=HIDDEN, icc_profile=profile, **options)
    assert HIDDEN in full
    shown = cleaned("image/webp", full + HIDDEN)
    assert HIDDEN not in shown
    assert points(shown) == points(full)
    after = Image.open(io.BytesIO(shown))
    assert after.info["icc_profile"] == profile
    assert "exif" not in after.info
    assert cleaned("image/webp", shown) == shown


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "webp"])
def test_a_file_that_breaks_off_anywhere_is_no_reason_to_fail(kind: str) -> None:
    full = written(kind)
    for length in range(1, len(full), 7):
        try:
            cleaned(f"image/{kind}", full[:length])
        except BadImage:
            continue


_MANY = {
    "gif": b"GIF89a\1\0\1\0\0\0\0\x2c" + bytes(9) + b"\2" + b"\1x" * 4_000_000,
    "jpeg": b"\xff\xd8\xff\xc0" + b"\0\x08\x08\0\1\0\1\0" + b"\xff\xfe\0\2" * 2_000_000,
    "jpeg filled": b"\xff\xd8" + b"\xff" * 8_000_000,
    "jpeg scans": b"\xff\xd8\xff\xc0" + b"\0\x08\x08\0\1\0\1\0" + b"\xff\xda\0\2" * 2_000_000,
    "webp": b"RIFF\0\0\0\0WEBPVP8L\x0a\0\0\0\x2f" + bytes(9) + b"JUNK\0\0\0\0" * 1_000_000,
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\1\0\0\0\1" + bytes(9) + b"\0\0\0\0teXt\0\0\0\0" * 700_000,
}


@pytest.mark.parametrize("name", _MANY)
def test_a_file_of_very_many_parts_takes_no_longer(name: str) -> None:
    began = time.process_time()
    with pytest.raises(BadImage):
        cleaned(f"image/{name.split()[0]}", _MANY[name])
    assert time.process_time() - began < 3
