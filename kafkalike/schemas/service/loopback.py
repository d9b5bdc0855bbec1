"""Neighbours: what a `Host` header says; whether it is this machine."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def host_name(host: str) -> str:
    """The name of a `Host` header without its port, in lower case; empty for one that cannot be read."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def is_loopback(name: str) -> bool:
    """Whether a name or an address is that of this machine."""
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False
