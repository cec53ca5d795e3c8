"""The Jupyter server extension: answers the panel in the browser with what the supervisors serve, and no more."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp
    from tornado.web import Application


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "ipysandbox.server"}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Where `jupyter labextension develop` finds the built panel."""
    return [{"src": "../labextension", "dest": "ipysandbox"}]


def _load_jupyter_server_extension(serverapp: ServerApp) -> None:
    # Imported here: Jupyter imports this module already to list the extensions that it has.
    from ipysandbox.server.handlers import handlers
    from ipysandbox.server.places import Places
    from ipysandbox.server.supervisors import Supervisors

    application: Application = serverapp.web_app
    supervisors = Supervisors(Places(serverapp.root_dir))
    application.add_handlers(".*$", handlers(application.settings["base_url"], supervisors))
    if os.environ.get("IPYSANDBOX_PANEL") == "open":  # as `make lab` wants it
        application.settings.setdefault("page_config_data", {})["ipysandboxOpen"] = "true"
    serverapp.log.info("ipysandbox: the panel's server extension is loaded")
