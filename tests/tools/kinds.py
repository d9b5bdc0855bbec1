"""Kinds of roots that a fixture runs over: parameters for pytest."""

from __future__ import annotations

import os

import pytest

from tests.tools.object_servers import AZURE, GOOGLE, S3

ASKED = os.environ.get("KAFKALIKE_OBJECT_STORES", f"{S3},{AZURE}").split(",")
"""Which object stores a run is over; `google` is tried only where it is asked for, or in `GOOGLE_TOO`."""

OBJECT_STORES = [pytest.param(kind, marks=[pytest.mark.objects, pytest.mark.slow]) for kind in ASKED]
"""Parameters of a fixture that is to run over real object stores too."""

GOOGLE_TOO = [
    pytest.param(kind, marks=[pytest.mark.objects, pytest.mark.slow]) for kind in dict.fromkeys([*ASKED, GOOGLE])
]
"""Those, and what stands for Google: no judge of what Google's own storage does, but of our client for it."""

DISK = "disk"

SEVERAL = "three roots"
THREE_ROOTS = pytest.param(SEVERAL, marks=pytest.mark.slow)
"""Parameter of a fixture that is to run over a cluster whose tables have three replicas each, too."""

WITHOUT_LOCK = pytest.param("delta without lock", marks=pytest.mark.slow)
"""Parameter of tables whose writers do not queue; `make check` has those whose writers do."""

ABOVE_THE_LOG = {
    "test_admin_contract",
    "test_admin_groups",
    "test_admin_transactions",
    "test_cli_contract",
    "test_cli_groups",
    "test_cli_metrics",
    "test_cli_schemas",
    "test_cli_snapshot",
    "test_consumer_assignment_contract",
    "test_consumer_commit_contract",
    "test_consumer_contract",
    "test_consumer_idle",
    "test_consumer_records_contract",
    "test_dead_letters",
    "test_dlq",
    "test_group_contract",
    "test_lag_contract",
    "test_lookup",
    "test_producer_contract",
    "test_record_query",
    "test_schema_checks",
    "test_schema_registry",
    "test_send_arrow",
    "test_ui_notebook",
    "test_ui_pages",
}
"""Files whose tests see tables only through a cluster's port: `make check` runs them in memory, `make test` over tables
too, `make test-all` over three roots as well. That the port is kept over tables and three roots, all others show."""


def only_on_disk(fixture: str) -> pytest.MarkDecorator:
    """Marks a test that looks into its root's folder, or asks more of it than an object store has.

    Args:
        fixture: the one with several places as its `params`.
    """
    return pytest.mark.parametrize(fixture, [DISK], indirect=True)


def only_in_memory(fixture: str) -> pytest.MarkDecorator:
    """Marks a test of arguments that are refused before any storage is asked: one kind of cluster shows it.

    Args:
        fixture: the one with several kinds of clusters as its `params`.
    """
    return pytest.mark.parametrize(fixture, ["memory"], indirect=True)


ALL_STORES = ["local", "memory", *OBJECT_STORES]

BUCKETS, MIXED = "three buckets", "two buckets and a folder"
THREE_BUCKETS = [pytest.param(kind, marks=[pytest.mark.objects, pytest.mark.slow]) for kind in (BUCKETS, MIXED)]
"""Parameters of a fixture that is to run over clusters of several roots in object stores, too: places of one server."""
