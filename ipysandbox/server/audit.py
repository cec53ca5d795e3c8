"""The audit trail for the panel: pages, whether it is complete, and an export that is streamed."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from itertools import islice
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import iostream, web

from ipysandbox import bootstrap
from ipysandbox.audit import AuditError, iter_records
from ipysandbox.audit.export import FORMATS, exported
from ipysandbox.audit.pages import page
from ipysandbox.audit.query import Filter
from ipysandbox.audit.record import SEVERITIES
from ipysandbox.server import bounded
from ipysandbox.server.handlers import Handler
from ipysandbox.server.supervisors import Refused

MOST_ON_A_PAGE = 200
#: Records that are written at once: what is between two looks at the clock of everything else that the server does.
_CHUNK = 200
#: A log of nine files of 64 MiB takes about ten seconds.
_VERIFY_SECONDS = 120.0


class _Filtered(Handler):
    def wanted(self) -> Filter:
        severity = self.get_query_argument("severity", "info")
        if severity not in SEVERITIES:
            raise Refused(400, f"severity: one of {', '.join(SEVERITIES)}.")
        names = ("action", "sandbox", "notebook")
        given: dict[str, Any] = {name: self.get_query_argument(name, "")[:1000] or None for name in names}
        return Filter(severity=severity, text=self.get_query_argument("text", "")[:1000], **given)


class PageHandler(_Filtered):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        wanted, before = self.wanted(), self.get_query_argument("before", None)
        size = self.get_query_argument("size", "100")
        if not (size.isascii() and size.isdigit() and len(size) < 9 and 1 <= int(size) <= MOST_ON_A_PAGE):
            raise Refused(400, f"size: from 1 to {MOST_ON_A_PAGE}.")
        try:
            found = await self.supervisors.look(
                f"audit {wanted} {before} {size}", lambda: page(None, wanted, before=before, size=int(size))
            )
        except ValueError as error:
            raise Refused(400, f"before: {bounded.text(str(error))}.") from None
        except OSError as error:
            raise Refused(500, f"The audit log can't be read: {error.strerror}.") from None
        self.reply(200, {"records": [bounded.record(record) for record in found.records], "older": found.older})


class VerifyHandler(Handler):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        self.reply(200, await self.supervisors.look("audit verify", _verified, _VERIFY_SECONDS + 5))


def _verified() -> dict[str, Any]:
    """In a process of its own: reading a million records would hold up everything else that the server does."""
    code = "import json; from ipysandbox.audit import verify; print(json.dumps(verify().to_json()))"
    try:
        done = subprocess.run(
            bootstrap.command(code, []), stdin=subprocess.DEVNULL, capture_output=True, timeout=_VERIFY_SECONDS
        )
        report: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        hint = "`ipysandbox audit verify` in a terminal says why."
        raise AuditError("the audit log can't be read", hint=hint) from None
    return report


class ExportHandler(_Filtered):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        wanted, form = self.wanted(), self.get_query_argument("format", "jsonl")
        if form not in FORMATS:
            raise Refused(400, f"format: one of {', '.join(FORMATS)}.")
        lines = exported((record for record in iter_records() if wanted.wants(record)), form)
        try:
            chunk = await self._next(lines)
            # As a download, of a type that no browser shows as a page.
            self.set_header("Content-Type", "text/csv" if form == "csv" else "application/jsonl")
            self.set_header("Content-Disposition", f'attachment; filename="ipysandbox-audit.{form}"')
            self.set_header("Cache-Control", "no-store")
            while chunk:
                self.write(chunk)
                await self.flush()
                chunk = await self._next(lines)
        except iostream.StreamClosedError:
            return  # whoever asked has gone
        except OSError as error:
            raise Refused(500, f"The audit log can't be read: {error.strerror}.") from None
        except AuditError as error:
            raise Refused(500, bounded.text(error.message, 1000)) from None
        await self.finish()

    def finish(self, *args: Any, **kwargs: Any) -> Any:
        # APIHandler would make it JSON.
        return web.RequestHandler.finish(self, *args, **kwargs)

    @staticmethod
    async def _next(lines: Iterator[str]) -> str:
        return await asyncio.get_running_loop().run_in_executor(None, lambda: "".join(islice(lines, _CHUNK)))
