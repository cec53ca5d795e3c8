"""Cleans the content of each Jupyter message that leaves a sandbox: built anew from known keys of known types."""

from __future__ import annotations

import hashlib
import html as entities
import re
from collections.abc import Callable
from typing import Any, Literal

from .bundle import Bundle
from .html import clean_html, html_to_text
from .latex import defuse_tex
from .redact import KnownSecrets, Redactor
from .text import TextCleaner, clean_characters, clean_text, clip
from .widgets import OFF, TARGET, Gate

Content = dict[str, Any]

MAX_STREAM = 256 << 20  # characters of one stream message; the policy's output limit is the relay's
MAX_TRACEBACK = 1 << 20
MAX_NOTES = 100
_MAX_COUNT = 2**31
_MAX_ENTRIES = 1000  # of completions, traceback lines, …
_MAX_LINE = 100_000
_MAX_ROW = 10_000  # of a traceback: a longer row is data in the source, and hides what stands around it
_MAX_WORD = 400
_WORD = re.compile(r"[\w.+/ -]{0,80}", re.A)
_EXPORTER = re.compile(r"[a-z]{0,20}", re.A)
_SAFE_ID = re.compile(r"[\w.:-]{1,100}", re.A)


class Cleaner:
    """Cleans one sandbox's messages; ``notes`` says in plain lines what was left out, for the relay to take away."""

    def __init__(
        self,
        html: Literal["sanitize", "isolate", "text"] | str = "sanitize",
        sandbox: str = "",
        secrets: KnownSecrets | None = None,
        *,
        widgets: bool = False,
    ) -> None:
        self.notes: list[str] = []
        self.redactor = Redactor(secrets)
        self._sandbox = sandbox
        #: Whether any comm passes.
        self.widgets = widgets
        self._gate = Gate(html=self._widget_html, notes=self._note, redactor=self.redactor) if widgets else None
        self.show_html_as(html)
        self._streams: dict[str, TextCleaner] = {}
        self._handlers: dict[str, Callable[[Content], Content | None]] = {
            "stream": self._stream,
            "display_data": self._display,
            "update_display_data": self._display,
            "execute_result": self._result,
            "error": self._error,
            "clear_output": lambda c: {"wait": c.get("wait") is True},
            "status": self._status,
            "execute_input": lambda c: {"code": _line(c.get("code"), 8 << 20), "execution_count": _count(c)},
            "execute_reply": self._execute_reply,
            "inspect_reply": self._inspect_reply,
            "complete_reply": self._complete_reply,
            "is_complete_reply": self._is_complete_reply,
            "kernel_info_reply": self._kernel_info_reply,
            "comm_info_reply": lambda _: {"status": "ok", "comms": self._gate.listed() if self._gate else {}},
            "comm_open": self._comm_open,
            "comm_msg": lambda c: self._gate.said(c) if self._gate else None,
            "comm_close": lambda c: self._gate.closed(c) if self._gate else None,
            "history_reply": self._history_reply,
            "interrupt_reply": lambda c: self._outcome(c),
            "shutdown_reply": lambda c: {**self._outcome(c), "restart": c.get("restart") is True},
            "input_request": lambda c: {
                "prompt": _prompt(c.get("prompt")),
                "password": c.get("password") is True,
            },
        }

    def clean(self, msg_type: str, content: object) -> Content | None:
        """The content to pass on, or None when the message is to be dropped. Never raises on anything JSON can hold."""
        handler = self._handlers.get(msg_type) if isinstance(msg_type, str) else None
        if handler is None or not isinstance(content, dict):
            self._note(f"a message of type {_line(msg_type, 60) or 'unknown'} was dropped")
            return None
        cleaned = handler(content)
        # Every kind, also one that is added some day; a stream's text was redacted with what came before it.
        return cleaned if msg_type == "stream" else self.redactor.value(cleaned)

    def released(self, but: object = None) -> list[Content]:
        """Messages for text that streams (save ``but``) hold back, for when something else comes, or nothing more."""
        return [{"name": name, "text": text} for name, text in self.redactor.release(but=str(but))]

    def clean_value(self, content: Content) -> Content:
        """The reply that carries a value, with its texts redacted; its buffers are not looked at."""
        redacted: Content = self.redactor.value(content)
        return redacted

    def pager_text(self, content: object) -> str | None:
        """The plain text that ``?`` and the like put into an execute_reply's payload, cleaned; None if there isn't."""
        payload: Any = content.get("payload") if isinstance(content, dict) else None
        for entry in payload[:20] if isinstance(payload, list) else ():
            data = entry.get("data") if isinstance(entry, dict) and entry.get("source") == "page" else None
            if isinstance(data, dict) and isinstance(data.get("text/plain"), str):
                return self.redactor.text(clean_text(clip(data["text/plain"], MAX_STREAM)))
        return None

    def to_sandbox(self, msg_type: str, content: Content) -> Content | None:
        """What the sandbox may get of a comm message from the page; None when it is to be dropped."""
        return self._gate.inward(msg_type, content) if self._gate else None

    def forget_widgets(self) -> bool:
        """The sandbox is gone, and its widgets with it; whether there were any."""
        return self._gate is not None and self._gate.forget_all()

    def scoped_id(self, display_id: str) -> str:
        """A display id that no output of the host, and none of another sandbox, can have."""
        if not _SAFE_ID.fullmatch(display_id):
            display_id = hashlib.sha256(display_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return f"sandbox:{self._sandbox}:{display_id}"

    def _note(self, text: str) -> None:
        note = clip(clean_text(text), 500)
        if len(self.notes) < MAX_NOTES and note not in self.notes:
            self.notes.append(note)

    # ---- iopub

    def _comm_open(self, content: Content) -> Content | None:
        if self._gate is not None:
            return self._gate.opened(content)
        self._note(OFF if content.get("target_name") == TARGET else "a comm was left out: none passes to the page")
        return None

    def show_html_as(self, html: str) -> None:
        """From now on."""
        #: Whether even a small output can take its time: frames come with libraries, which are packed.
        self.packs = html == "isolate"
        self._html = html
        view = self._gate.view if self._gate is not None else None
        self._bundle = Bundle(html=html, notes=self._note, redactor=self.redactor, view=view)
        # Tooltips and the like show HTML too, but are no place for a frame.
        aside = "sanitize" if html == "isolate" else html
        self._aside = Bundle(html=aside, notes=self._note, redactor=self.redactor, view=view and (lambda _value: None))

    def _widget_html(self, text: str) -> str:
        """HTML for a widget, which can't be a frame."""
        if self._html == "text":
            return self.redactor.text(defuse_tex(entities.escape(html_to_text(clip(text, MAX_TRACEBACK)))))
        cleaned, notes = clean_html(text)
        for note in notes:
            self._note(note)
        redacted = self.redactor.markup(cleaned or "")
        if redacted is None:
            self._note("HTML of a widget left out: it holds a secret of this machine")
        return redacted or ""

    def _stream(self, content: Content) -> Content | None:
        name = "stderr" if content.get("name") == "stderr" else "stdout"
        text = content.get("text")
        if not isinstance(text, str):
            return None
        shown = self._streams.setdefault(name, TextCleaner()).feed(clip(text, MAX_STREAM))
        shown = self.redactor.stream(name, shown)
        return {"name": name, "text": shown} if shown else None

    def _display(self, content: Content) -> Content | None:
        data, metadata = self._bundle.clean(content.get("data"), content.get("metadata"))
        transient = content.get("transient")
        display_id = transient.get("display_id") if isinstance(transient, dict) else None
        scoped = {"display_id": self.scoped_id(display_id)} if isinstance(display_id, str) else {}
        return {"data": data, "metadata": metadata, "transient": scoped}

    def _result(self, content: Content) -> Content | None:
        return {**(self._display(content) or {}), "execution_count": _count(content)}

    def _error(self, content: Content) -> Content:
        traceback: Any = content.get("traceback")
        lines = traceback[:_MAX_ENTRIES] if isinstance(traceback, list) else []
        # What a page shows with ease: a longer one is one of an attack, or of a recursion that repeats itself.
        room = MAX_TRACEBACK // max(1, len(lines))
        return {
            "ename": _line(content.get("ename"), _MAX_WORD),
            "evalue": _line(content.get("evalue"), _MAX_LINE),
            "traceback": [_rows(line, max(1000, room)) for line in lines],
        }

    def _status(self, content: Content) -> Content | None:
        state = content.get("execution_state")
        if state not in ("busy", "idle", "starting"):
            return None
        if state == "idle":
            self._streams.clear()
        return {"execution_state": state}

    # ---- replies

    def _outcome(self, content: Content) -> Content:
        status = content.get("status")
        if status == "error":
            return {"status": "error", **self._error(content)}
        return {"status": "aborted" if status in ("abort", "aborted") else "ok"}

    def _execute_reply(self, content: Content) -> Content:
        self._streams.clear()  # what a cell left unfinished never reaches the next one
        # Payloads make a front end open pagers, insert cells and quit: none of them is passed on.
        reply = {**self._outcome(content), "execution_count": _count(content), "payload": []}
        expressions: Any = content.get("user_expressions")
        results: Content = {}
        for name in list(expressions)[:_MAX_ENTRIES] if isinstance(expressions, dict) else ():
            value = expressions[name]
            if isinstance(value, dict) and value.get("status") == "error":
                results[_line(name, _MAX_WORD)] = self._outcome(value)
            elif isinstance(value, dict):
                data, metadata = self._aside.clean(value.get("data"), value.get("metadata"))
                results[_line(name, _MAX_WORD)] = {"status": "ok", "data": data, "metadata": metadata}
        return {**reply, "user_expressions": results}

    def _inspect_reply(self, content: Content) -> Content:
        reply = self._outcome(content)
        if reply["status"] != "ok":
            return reply
        if content.get("found") is not True or not content.get("data"):
            return {**reply, "found": False, "data": {}, "metadata": {}}
        data, metadata = self._aside.clean(content.get("data"), content.get("metadata"))
        return {**reply, "found": True, "data": data, "metadata": metadata}

    def _complete_reply(self, content: Content) -> Content:
        reply = self._outcome(content)
        if reply["status"] != "ok":
            return reply
        matches = content.get("matches")
        start, end = _position(content.get("cursor_start")), _position(content.get("cursor_end"))
        metadata = content.get("metadata")
        typed: Any = metadata.get("_jupyter_types_experimental") if isinstance(metadata, dict) else None
        types = [
            {
                "start": _position(entry.get("start")),
                "end": _position(entry.get("end")),
                "text": _one_line(entry.get("text")),
                "type": _one_line(entry.get("type")),
                "signature": _one_line(entry.get("signature")),
            }
            for entry in (typed[:_MAX_ENTRIES] if isinstance(typed, list) else ())
            if isinstance(entry, dict)
        ]
        return {
            **reply,
            "matches": [_one_line(match) for match in (matches[:_MAX_ENTRIES] if isinstance(matches, list) else ())],
            "cursor_start": start,
            "cursor_end": end,
            "metadata": {"_jupyter_types_experimental": types} if types else {},
        }

    def _is_complete_reply(self, content: Content) -> Content:
        status, indent = content.get("status"), content.get("indent")
        if status == "incomplete":
            spaces = indent if isinstance(indent, str) and len(indent) <= 200 and not indent.strip(" \t") else ""
            return {"status": "incomplete", "indent": spaces}
        return {"status": status if status in ("complete", "invalid") else "unknown"}

    def _history_reply(self, content: Content) -> Content:
        """Rows of (session, line, input) or (session, line, (input, output)); the latest, where there are too many."""
        reply = self._outcome(content)
        rows: Any = content.get("history")
        history = [
            [_position(row[0]), _position(row[1]), _history_text(row[2])]
            for row in (rows[-_MAX_ENTRIES:] if isinstance(rows, list) else ())
            if isinstance(row, list) and len(row) == 3
        ]
        return {**reply, "history": history} if reply["status"] == "ok" else reply

    def _kernel_info_reply(self, content: Content) -> Content:
        language = content.get("language_info")
        language = language if isinstance(language, dict) else {}
        mode = language.get("codemirror_mode")
        info: Content = {
            key: _matching(_WORD, language.get(key)) for key in ("name", "version", "mimetype", "file_extension")
        }
        info["pygments_lexer"] = _matching(_WORD, language.get("pygments_lexer"))
        # nbconvert would import a dotted name.
        info["nbconvert_exporter"] = _matching(_EXPORTER, language.get("nbconvert_exporter"))
        info["codemirror_mode"] = (
            {"name": _matching(_WORD, mode.get("name")), "version": _position(mode.get("version"))}
            if isinstance(mode, dict)
            else _matching(_WORD, mode)
        )
        reply: Content = {
            key: _matching(_WORD, content.get(key))
            for key in ("protocol_version", "implementation", "implementation_version")
        }
        banner = _line(content.get("banner"), 2000)
        # Help links are addresses that a menu of the front end would open.
        return {**self._outcome(content), **reply, "banner": banner, "language_info": info, "help_links": []}


def _line(value: object, limit: int) -> str:
    return clean_text(clip(value, limit)) if isinstance(value, str) else ""


def _rows(value: object, limit: int) -> str:
    """Text of a traceback, each of its rows cut on its own."""
    if not isinstance(value, str):
        return ""
    if len(value) > _MAX_ROW:
        value = "\n".join(clip(row, _MAX_ROW) for row in value.split("\n"))
    return clean_text(clip(value, limit))


def _prompt(value: object) -> str:
    """Of a question the words alone: what moves the cursor could write over who asks."""
    return clean_characters(clip(value, 1000)).replace("\r", "") if isinstance(value, str) else ""


def _one_line(value: object) -> str:
    return " ".join(_line(value, _MAX_WORD).split("\n"))


def _history_text(value: object) -> object:
    """A cell's input, or its input and output, where there was one."""
    if isinstance(value, list):
        return [_line(part, _MAX_LINE) if isinstance(part, str) else None for part in value[:2]]
    return _line(value, _MAX_LINE)


def _matching(pattern: re.Pattern[str], value: object) -> str:
    return value if isinstance(value, str) and pattern.fullmatch(value) else ""


def _count(content: Content) -> int | None:
    count = content.get("execution_count")
    return count if type(count) is int and 0 <= count < _MAX_COUNT else None


def _position(value: object) -> int:
    return value if type(value) is int and 0 <= value < _MAX_COUNT else 0
