"""Registries: a cluster in, the address of its registry's service out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafkalike.admin.testing import MemoryCluster
from kafkalike.schemas.service.credentials import Credentials
from kafkalike.schemas.service.registry_service import RegistryServer, RegistryService


@contextmanager
def served(cluster: Any = None, allowed: Credentials = Credentials(), **settings: Any) -> Iterator[str]:  # noqa: B008
    """A service; gives its URL."""
    service = RegistryService(cluster or MemoryCluster(), read_only=settings.pop("read_only", False))
    limits = {"max_body": 100_000, **settings}
    server = RegistryServer(service, host="127.0.0.1", port=0, credentials=allowed, **limits)
    server.start()
    try:
        yield server.url
    finally:
        server.stop()
