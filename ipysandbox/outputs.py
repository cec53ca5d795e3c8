"""Collects a cell's messages into nbformat outputs, exactly as a front end would show them."""

from __future__ import annotations

from typing import Any

#: Characters that are joined at once.
_PIECE = 64 << 10


class _Text:
    """A text that grows by many small parts, in the memory that it takes in the end."""

    def __init__(self) -> None:
        self._whole = ""
        self._parts: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        self._parts.append(text)
        self._size += len(text)
        if self._size > _PIECE:
            self.whole()

    def whole(self) -> str:
        # Held by one name only, a string is lengthened in place (CPython), where a join would make a second one.
        whole, self._whole = self._whole, ""
        whole += "".join(self._parts)
        self._parts, self._size, self._whole = [], 0, whole
        return whole


class OutputCollector:
    """Feed it the cleaned messages of one cell, in order."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Any]] = []
        #: Every stretch of a stream, also those that were cleared; and those that are shown, by their place.
        self._streams: list[tuple[str, _Text]] = []
        self._shown: dict[int, _Text] = {}
        self._displays: dict[str, list[dict[str, Any]]] = {}
        self._clear_next = False
        self.execution_count: int | None = None

    def add(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "clear_output":
            if content.get("wait"):
                self._clear_next = True
            else:
                self._clear()
            return
        if kind == "update_display_data":
            for output in self._displays.get(_display_id(content), []):
                output["data"], output["metadata"] = content.get("data", {}), content.get("metadata", {})
            return
        if self._clear_next:
            self._clear()
        if kind == "stream":
            self._stream(str(content.get("name")), str(content.get("text")))
        elif kind in ("display_data", "execute_result"):
            output = {"output_type": kind, "data": content.get("data", {}), "metadata": content.get("metadata", {})}
            if kind == "execute_result":
                self.execution_count = content.get("execution_count")
                output["execution_count"] = self.execution_count
            self.outputs.append(output)
            display_id = _display_id(content)
            if display_id:
                self._displays.setdefault(display_id, []).append(output)
        elif kind == "error":
            self.outputs.append(
                {"output_type": "error", **{k: content.get(k) for k in ("ename", "evalue", "traceback")}}
            )

    def _stream(self, name: str, text: str) -> None:
        last = len(self.outputs) - 1
        if not self.outputs or self.outputs[last].get("name") != name:
            last += 1
            self.outputs.append({"output_type": "stream", "name": name, "text": ""})
            self._shown[last] = _Text()
            self._streams.append((name, self._shown[last]))
        self._shown[last].add(text)

    def _clear(self) -> None:
        self.outputs.clear()
        self._shown.clear()
        self._displays.clear()
        self._clear_next = False

    def text(self, name: str) -> str:
        """All that the stream ``name`` said."""
        said = [text for stream, text in self._streams if stream == name]
        return said[0].whole() if len(said) == 1 else "".join(text.whole() for text in said)

    def finish(self) -> list[dict[str, Any]]:
        for index, text in self._shown.items():
            self.outputs[index]["text"] = text.whole()
        return self.outputs


def _display_id(content: dict[str, Any]) -> str:
    transient = content.get("transient")
    return str(transient.get("display_id") or "") if isinstance(transient, dict) else ""
