"""Unsupported: what kafka-python's admin client has and this one has not; every call says why."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from kafkalike.errors import UnsupportedVersionError

_ACLS: Final = (
    "there is no broker that could enforce an ACL; grant access on the storage root or in the catalog "
    "(read a topic: its table; write: its table, __cluster_metadata and __consumer_offsets)"
)
_ONE_ROOT: Final = "a broker is one storage root, with one log directory; alter_partition_reassignments moves replicas"
_NO_USERS: Final = "there are no users and passwords; the storage knows who may access it"
_NO_PROTOCOL: Final = "there is no wire protocol, and no feature level of a cluster"


def _refuse(method: str, reason: str) -> NoReturn:
    raise UnsupportedVersionError(f"{method} is not supported: {reason}")


def _refused(method: str, reason: str) -> Any:  # noqa: ANN401 - a method of any signature
    def refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
        del self, args, kwargs
        _refuse(method, reason)

    refuse.__name__ = method
    refuse.__doc__ = f"Not supported: {reason}.\n\nRaises:\n    UnsupportedVersionError: always.\n"
    return refuse


class UnsupportedOperations:
    """Methods that always raise `UnsupportedVersionError`; none pretends to have done something."""

    describe_acls = _refused("describe_acls", _ACLS)
    create_acls = _refused("create_acls", _ACLS)
    delete_acls = _refused("delete_acls", _ACLS)

    alter_replica_log_dirs = _refused("alter_replica_log_dirs", _ONE_ROOT)

    alter_user_scram_credentials = _refused("alter_user_scram_credentials", _NO_USERS)
    describe_user_scram_credentials = _refused("describe_user_scram_credentials", _NO_USERS)

    describe_features = _refused("describe_features", _NO_PROTOCOL)
    update_features = _refused("update_features", _NO_PROTOCOL)
    api_versions = _refused("api_versions", _NO_PROTOCOL)
    get_broker_version_data = _refused("get_broker_version_data", _NO_PROTOCOL)
