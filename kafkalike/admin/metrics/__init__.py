"""Metrics of a cluster and of this process, for Prometheus and as plain values.

`prometheus_client` is imported at the first use of a name, so that importing the admin client and the console stays
fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalike.model.public_names import lazy_names

if TYPE_CHECKING:
    from kafkalike.admin.metrics.cluster_collector import AppendCollector as AppendCollector
    from kafkalike.admin.metrics.cluster_collector import exposition as exposition
    from kafkalike.admin.metrics.cluster_collector import serve_appends as serve_appends

_HOME = {
    "AppendCollector": "kafkalike.admin.metrics.cluster_collector",
    "exposition": "kafkalike.admin.metrics.cluster_collector",
    "serve_appends": "kafkalike.admin.metrics.cluster_collector",
}

__all__ = [  # noqa: PLE0604 - `__getattr__` gives the names
    *sorted(_HOME),
]


__getattr__, __dir__ = lazy_names(__name__, _HOME)
