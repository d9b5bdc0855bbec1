"""KafkaAdminClient: kafka-python's admin client over a storage root."""

from __future__ import annotations

import logging
from dataclasses import fields
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Self, Unpack

from kafkalike.admin.configs import ConfigOperations
from kafkalike.admin.group_changes import GroupChangeOperations
from kafkalike.admin.groups import GroupOperations
from kafkalike.admin.offsets import OffsetOperations
from kafkalike.admin.quorum import QuorumOperations
from kafkalike.admin.topics import TopicOperations
from kafkalike.admin.transactions import TransactionOperations
from kafkalike.admin.unsupported import UnsupportedOperations
from kafkalike.connect import connect
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.config.admin import NO_EFFECT, AdminConfig
from kafkalike.model.config.client import refuse_to_pickle
from kafkalike.model.config.settings import AdminSettings, documented

logger = logging.getLogger(__name__)


@documented(AdminSettings)
class KafkaAdminClient(
    TopicOperations,
    OffsetOperations,
    ConfigOperations,
    GroupOperations,
    GroupChangeOperations,
    TransactionOperations,
    QuorumOperations,
    UnsupportedOperations,
):
    """Looks at and changes topics, partitions, settings, groups and transactions. No JVM is started; not thread-safe.

    Args:
        clock: where waiting gets its time from.
        **configs: settings, see below and docs/settings.md; `bootstrap_servers` names the storage root.

    Raises:
        KafkaConfigurationError: an unknown setting, one without meaning here, or a bad value.
        UnsafeStorageError: the storage cannot keep several writers apart.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = {f.name: f.default for f in fields(AdminConfig)}
    """The settings with their defaults, as kafka-python has them; to be read, not changed."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, **configs: Unpack[AdminSettings]) -> None:
        self.config = AdminConfig.from_configs(configs)
        self._clock = clock
        self._client_id = self.config.client_id
        self._closed = False
        self._connected = connect(self.config.bootstrap_servers, self.config.storage_options)
        unused = sorted(NO_EFFECT & configs.keys())
        if unused:
            logger.info("%s: settings without effect here: %s", self.config.client_id, ", ".join(unused))

    def close(self) -> None:
        """Refuse further calls; closing again does nothing."""
        if not self._closed:
            self._cluster.settle()
        self._closed = True

    def __reduce__(self) -> NoReturn:
        """Raise `TypeError`: a client belongs to its process."""
        refuse_to_pickle(self)

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
