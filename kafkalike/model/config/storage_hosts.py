"""Storage hosts: whom a client of an object store may ask in, options that keep it from asking anybody else out.

obstore's client goes where an answer with a `Location` sends it, and takes headers such as a session token along; it
has no option that says it must not. So a proxy that is no address stands before every host but these.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kafkalike.model.config.storage import StorageOptions
from kafkalike.model.config.storage_names import Provider

NOBODY: Final = "http://127.0.0.1:0"
"""A connection to port 0 is refused by this machine, and nobody is asked."""

_OWN: Final[Mapping[Provider, tuple[str, ...]]] = {
    "s3": ("amazonaws.com", "amazonaws.com.cn"),
    "azure": ("core.windows.net",),
    "google": ("googleapis.com", "accounts.google.com"),
}
"""Hosts that a provider's stores have without an `endpoint`, and whoever gives out Google's tokens."""

_CONTAINER: Final = "169.254.170.2"
_EMULATOR: Final = ("127.0.0.1", "localhost")
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")


def no_others(provider: Provider, options: StorageOptions, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Options of the HTTP client with which it asks no host but those that its other options name.

    Args:
        provider: whose store it is.
        options: from `resolve_options`.
        environ: environment variables; None takes the process's own.

    Returns:
        Nothing where the user has a proxy: then that one decides who is asked.
    """
    known = os.environ if environ is None else environ
    if options.get("proxy_url") or any(known.get(name) or known.get(name.upper()) for name in _PROXIES):
        return {}
    return {"proxy_url": NOBODY, "proxy_excludes": ",".join(sorted(_hosts(provider, options, known)))}


def _hosts(provider: Provider, options: StorageOptions, environ: Mapping[str, str]) -> set[str]:
    """Hosts that may be asked; a name stands for those below it, too."""
    store = options.get("endpoint") or (_google(options) if provider == "google" else None)
    hosts = {_host(store)} if store else set(_OWN[provider])
    if options.get("role_arn"):
        hosts |= {_host(options.get("sts_endpoint"))} if options.get("sts_endpoint") else set(_OWN["s3"])
    if options.get("container_credentials_full_uri"):
        hosts.add(_host(options.get("container_credentials_full_uri")))
    if options.get("container_credentials_relative_uri"):
        hosts.add(_CONTAINER)
    if options.get("tenant_id"):
        hosts.add(_host(options.get("authority_host") or "https://login.microsoftonline.com"))
    if options.get("use_emulator"):
        hosts |= {*_EMULATOR, _host(environ.get("AZURITE_BLOB_STORAGE_URL"))}
    if provider == "google":
        hosts |= set(_OWN["google"])
    return hosts - {""}


def _host(url: str | None) -> str:
    """The host of a URL; empty for none. With what is no URL, the client cannot be made, and says so itself."""
    try:
        return urlsplit(url or "").hostname or ""
    except ValueError:
        return ""


def _google(options: StorageOptions) -> str | None:
    """The address of a store that stands for Google's, as an option or a key says it."""
    path = options.get("service_account") or options.get("application_credentials")
    try:
        key = json.loads(options.get("service_account_key") or (Path(path).read_bytes() if path else "{}"))
    except (OSError, ValueError):
        key = {}
    told = key.get("gcs_base_url") if isinstance(key, dict) else None
    return options.get("base_url") or (told if isinstance(told, str) else None)
