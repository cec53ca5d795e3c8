"""Pictures arrive by their pixels, figures as PNG; no decoder of the host's reads what a sandbox sent."""

from __future__ import annotations

import json

import matplotlib.figure
import numpy as np
import pytest
from IPython.display import Image as Shown
from PIL import Image

from ipysandbox.guest.values import Untransferable, decode, encode

MODES = ("1", "L", "P", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "I;16")


def cross(value):
    tree, buffers = encode(value)
    return decode(json.loads(json.dumps(tree)), [bytes(b) for b in buffers])


def picture(mode):
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 255, (5, 7, 3), dtype=np.uint8))
    if mode == "LAB":
        return Image.new("LAB", (7, 5), (1, 2, 3))
    if mode == "I;16":
        return noise.convert("L").convert("I").convert("I;16")
    return noise.convert(mode, palette=Image.Palette.ADAPTIVE, colors=9) if mode == "P" else noise.convert(mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_picture_arrives_with_its_pixels(mode):
    sent = picture(mode)
    got = cross(sent)
    assert (got.mode, got.size, got.tobytes()) == (sent.mode, sent.size, sent.tobytes())
    if mode == "P":
        assert got.convert("RGB").tobytes() == sent.convert("RGB").tobytes()


def test_a_picture_that_came_from_a_file_arrives(tmp_path):
    picture("RGB").save(tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as opened:
        assert cross(opened).tobytes() == picture("RGB").tobytes()


def test_a_mode_without_plain_pixels_is_refused_with_what_to_do():
    with pytest.raises(Untransferable, match=r'mode .RGBX.; convert it: \.convert\("RGB"\)'):
        encode(Image.new("RGBX", (1, 1)))


def test_a_figure_arrives_as_a_picture_to_show():
    figure = matplotlib.figure.Figure()
    figure.subplots().plot([1, 2])
    got = cross(figure)
    assert type(got) is Shown
    assert got.data.startswith(b"\x89PNG")
    assert set(got._repr_mimebundle_()[0]) == {"image/png"}


@pytest.mark.parametrize(
    ("node", "data"),
    [
        ({"t": "image", "m": "RGB", "s": [2**40, 1], "b": 0, "p": None}, b"abc"),
        ({"t": "image", "m": "RGB", "s": [1, 1], "b": 0, "p": None}, b"abcd"),
        ({"t": "image", "m": "RGB", "s": [-1, -1], "b": 0, "p": None}, b"abc"),
        ({"t": "image", "m": "P", "s": [1, 1], "b": 0, "p": None}, b"a"),
        ({"t": "image", "m": "P", "s": [1, 1], "b": 0, "p": 1}, b"a"),
        ({"t": "image", "m": "file", "s": [1, 1], "b": 0, "p": None}, b"a"),
        ({"t": "figure", "b": 0}, b"<script>"),
        ({"t": "figure", "b": 0}, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\xff" * 8),
        ({"t": "figure", "b": 0}, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
    ],
)
def test_a_malformed_picture_is_refused(node, data):
    with pytest.raises(ValueError, match=r"picture|figure|buffer|malformed"):
        decode({"v": 1, "value": node}, [data, b"a" * 1000])
