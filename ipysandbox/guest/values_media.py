"""The part of the value transfer for pictures: Pillow's images as their pixels, matplotlib's figures as PNG."""

from __future__ import annotations

import importlib
import io
import struct
import sys
from collections.abc import Sequence
from typing import Any

from .values_arrow import ArrowDecoder, ArrowEncoder
from .values_plain import Buffer, Node, ints, text

#: Pillow's modes, with the bits of a pixel as ``Image.tobytes`` gives them; rows of mode "1" start at whole bytes.
_MODES = {"1": 1, "L": 8, "P": 8, "LA": 16, "RGB": 24, "RGBA": 32, "CMYK": 32, "YCbCr": 24, "LAB": 24, "HSV": 24,
          "I": 32, "F": 32, "I;16": 16}  # fmt: skip
_MAX_SIDE = 1 << 20
_MAX_PIXELS = 64_000_000  # of a PNG, as output/images.py has it
_PNG = b"\x89PNG\r\n\x1a\n"


class ValueEncoder(ArrowEncoder):
    """All that can cross."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._pil: Any = sys.modules.get("PIL.Image")
        figure: Any = sys.modules.get("matplotlib.figure")
        if figure is not None:
            self.makers[figure.Figure] = self._figure

    def make(self, obj: Any) -> Node:
        # Each file format has a class of its own.
        if self._pil is not None and isinstance(obj, self._pil.Image):
            return self._image(obj)
        return super().make(obj)

    def _image(self, image: Any) -> Node:
        if image.mode not in _MODES:
            raise self.refusal(image, hint=f' in the mode {str(image.mode)[:20]!r}; convert it: .convert("RGB")')
        palette = self.buffer(bytes(image.getpalette("RGB") or ())) if image.mode == "P" else None
        return {"t": "image", "m": image.mode, "s": list(image.size), "b": self.buffer(image.tobytes()), "p": palette}

    def _figure(self, figure: Any) -> Node:
        file = io.BytesIO()
        figure.savefig(file, format="png")
        return {"t": "figure", "b": self.buffer(file.getvalue())}


class ValueDecoder(ArrowDecoder):
    """All that can cross, from hostile nodes. No image file is read: pixels need no decoder."""

    def __init__(self, buffers: Sequence[Buffer], limit: int) -> None:
        super().__init__(buffers, limit)
        self.makers |= {"image": self._image, "figure": self._figure}

    def _image(self, node: dict[str, Any]) -> Any:
        mode, (width, height), data = text(node["m"]), ints(node["s"], 2), bytes(self.buffer(node["b"]))
        if mode not in _MODES or not (0 < width < _MAX_SIDE and 0 < height < _MAX_SIDE):
            raise ValueError("a picture of a kind that can't cross")
        self.spend(width * height)  # of which "1" sends an eighth
        if len(data) != (width * _MODES[mode] + 7) // 8 * height:
            raise ValueError("a picture whose size and pixels disagree")
        image = importlib.import_module("PIL.Image").frombytes(mode, (width, height), data)
        if mode == "P":
            palette = bytes(self.buffer(node["p"]))
            if len(palette) > 768 or len(palette) % 3:
                raise ValueError("a picture with a malformed palette")
            image.putpalette(palette, "RGB")
        return image

    def _figure(self, node: dict[str, Any]) -> Any:
        """As IPython shows a picture; a browser decodes it."""
        data = bytes(self.buffer(node["b"]))
        sides = struct.unpack(">II", data[16:24]) if len(data) > 32 else (0, 0)
        if data[:8] != _PNG or data[12:16] != b"IHDR" or not 0 < sides[0] * sides[1] <= _MAX_PIXELS:
            raise ValueError("a figure that is no PNG")
        return importlib.import_module("IPython.display").Image(data=data, format="png", embed=True)
