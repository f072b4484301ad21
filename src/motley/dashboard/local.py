"""The dashboard for one person, on this machine: it speaks with that person's own kubeconfig.

Whoever reaches it could see what that person may see. So it listens on loopback alone, under names
of loopback alone, and shows itself only to a browser that came by the address it printed.
"""

import asyncio
import secrets
import ssl
import threading
from collections.abc import Callable
from dataclasses import replace

from motley.client.execplugin import Plugin, PluginError
from motley.client.kubeconfig import Config, ConfigError
from motley.dashboard.kube import ApiError, Endpoint
from motley.dashboard.server import Options, Server

_KEY_BYTES = 24


def server(config: Config, port: int = 0) -> Server:
    """A server for whom the kubeconfig is; `opening` has its address. Raises ConfigError, OSError.

    A plugin of the kubeconfig is asked now for a client certificate, and later for tokens.
    """
    if config.impersonate is not None or config.proxy_url:
        raise ConfigError("the dashboard knows neither impersonation nor proxies")
    plugin = Plugin(config.exec) if config.exec is not None else None
    if plugin is not None:
        made = asyncio.run(plugin.credential())
        config = replace(config, client_cert=made.client_cert, client_key=made.client_key)
    endpoint = Endpoint(config.server, _context(config))
    key = secrets.token_urlsafe(_KEY_BYTES)
    return Server(
        Options(endpoint, port=port, key=key, authorization=_authorization(config, plugin))
    )


def opening(of: Server) -> str:
    """The address that lets its reader in."""
    return f"{of.url}/?key={of.options.key}"


def _context(config: Config) -> ssl.SSLContext | None:
    context = config.ssl_context()
    if context is not None and config.tls_server_name:
        raise ConfigError("the dashboard does not know tls-server-name")
    return context


def _authorization(config: Config, plugin: Plugin | None) -> Callable[[], str]:
    asking = threading.Lock()  # every connection has its thread, and the plugin knows of none

    def current() -> str:
        if plugin is not None:
            with asking:
                made = asyncio.run(plugin.credential())
            return f"Bearer {made.token}" if made.token else ""
        if config.token_file is not None:
            return f"Bearer {config.token_file.read_text().strip()}"
        return config.authorization

    def told() -> str:
        try:
            return current()
        except (OSError, PluginError) as error:
            raise ApiError(0, f"your kubeconfig's credentials cannot be had: {error}") from error

    return told
