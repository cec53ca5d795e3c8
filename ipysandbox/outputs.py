"""Collects a cell's messages into nbformat outputs, exactly as a front end would show them."""

from __future__ import annotations

from typing import Any


class OutputCollector:
    """Feed it the cleaned messages of one cell, in order."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Any]] = []
        self._chunks: dict[int, list[str]] = {}
        self._displays: dict[str, list[dict[str, Any]]] = {}
        self._clear_next = False
        self.streams: dict[str, list[str]] = {"stdout": [], "stderr": []}
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
        self.streams.setdefault(name, []).append(text)
        last = len(self.outputs) - 1
        if self.outputs and self.outputs[last].get("name") == name:
            self._chunks[last].append(text)  # joined once at the end: adding to a string would be quadratic
        else:
            self.outputs.append({"output_type": "stream", "name": name, "text": ""})
            self._chunks[last + 1] = [text]

    def _clear(self) -> None:
        self.outputs.clear()
        self._chunks.clear()
        self._displays.clear()
        self._clear_next = False

    def finish(self) -> list[dict[str, Any]]:
        for index, chunks in self._chunks.items():
            self.outputs[index]["text"] = "".join(chunks)
        return self.outputs


def _display_id(content: dict[str, Any]) -> str:
    transient = content.get("transient")
    return str(transient.get("display_id") or "") if isinstance(transient, dict) else ""
