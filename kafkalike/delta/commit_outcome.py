"""Commit outcome: whether the file of a version is there, also where the storage gives no clear answer.

`Storage.put_if_absent` of the file is the compare-and-set on which offsets rest. What it leaves in doubt is settled by
the id of the change, which stands in the file.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

from kafkalike.delta.actions import FENCES_KEY, log_name, parse_commit
from kafkalike.delta.commit_file import CommitFile
from kafkalike.delta.table_state import FENCE
from kafkalike.errors import KafkaError, KafkaStorageError, UnknownOutcomeError
from kafkalike.model.clock import Clock
from kafkalike.storage.port import NotStoredError, Storage

BACKOFF_SECONDS: Final = 0.05
"""Longest first wait after a concurrent writer's commit, or a failed call of the storage; doubles with each try."""

SETTLE_TRIES: Final = 5
"""How often a storage that does not answer is asked what became of a commit."""


class CommitPuts:
    """Puts the files of a table's versions.

    Args:
        store: the table's files.
        clock: time and waiting.
        jitter: random number from 0 to 1, for the wait after a failed call.
    """

    def __init__(self, store: Storage, clock: Clock, jitter: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._jitter = jitter

    def put(self, version: int, content: bytes, append_id: str, *, durable: bool) -> bool:
        """Put a version's file if absent, and settle by its id what is in doubt.

        A put that failed may be under way still, and one that says "exists" may have met itself: storages retry. So it
        is put again, which is harmless, until the storage gives an answer; and if it gives none, the version is given
        to an empty commit: then no other one can have it any more.

        Args:
            version: the wanted one.
            content: its file.
            append_id: the id of the change, which the content holds.
            durable: whether it must survive a power failure.

        Returns:
            True when it is there; False when another one is, so that it can never land.

        Raises:
            KafkaStorageError: it is not there, and will not be.
            UnknownOutcomeError: the storage does not say.
        """
        name = log_name(version)
        failed: OSError | None = None
        for attempt in range(SETTLE_TRIES):
            try:
                if self._store.put_if_absent(name, content, durable=durable):
                    return True
                made_by = self._maker(name)
            except NotStoredError as refused:
                # An earlier try of this put may still land: then a refusal is no answer, and the put is retried.
                if failed is None:
                    raise KafkaStorageError(
                        f"{self._store.uri}: the storage refused the commit: {refused}"
                    ) from refused
            except OSError as cause:
                failed = cause
            else:
                if made_by == append_id:
                    return self._landed(name, append_id, durable=durable)
                if made_by is not None:
                    return False
                failed = failed or FileExistsError(f"{name} exists, and cannot be found")
            self._wait(attempt)
        assert failed is not None
        return self._fenced(version, append_id, failed, durable=durable)

    def _landed(self, name: str, append_id: str, *, durable: bool) -> bool:
        """A commit that landed by a try that failed may not have reached the disk."""
        if durable:
            try:
                self._store.sync(name)
            except OSError as cause:
                raise UnknownOutcomeError(f"commit to {self._store.uri}", append_id) from cause
        return True

    def _fenced(self, version: int, append_id: str, cause: OSError, *, durable: bool) -> bool:
        """Give a version to an empty commit, unless it has been given already.

        Returns:
            True when the commit in doubt has it, False when another one does.

        Raises:
            KafkaStorageError: the empty one has it.
            UnknownOutcomeError: the storage does not say. The first version of a table cannot be fenced.
        """
        name, fence_id = log_name(version), uuid.uuid4().hex
        fence = CommitFile(
            version=version,
            time_ms=self._clock.now_ms(),
            operation=FENCE,
            append_id=fence_id,
            note={FENCES_KEY: append_id},
        )
        for attempt in range(SETTLE_TRIES):
            try:
                fenced = version > 0 and self._store.put_if_absent(name, fence.content(), durable=durable)
                made_by = fence_id if fenced else self._maker(name)
            except OSError as second:
                cause, made_by = second, None
            if made_by == fence_id:
                raise KafkaStorageError(f"{self._store.uri}: the storage refused the commit: {cause}") from cause
            if made_by is not None:
                return made_by == append_id and self._landed(name, append_id, durable=durable)
            self._wait(attempt)
        raise UnknownOutcomeError(f"commit to {self._store.uri}", append_id) from cause

    def _wait(self, attempt: int) -> None:
        self._clock.sleep(self._jitter() * BACKOFF_SECONDS * 2**attempt)

    def _maker(self, name: str) -> str | None:
        """Id of the change that made a version, "" for a foreign writer's; None when there is none to be seen.

        Raises:
            OSError: the storage does not say.
        """
        try:
            content = self._store.read(name)
        except FileNotFoundError:
            return None
        try:
            return parse_commit(0, content, self._store.uri).append_id or ""
        except KafkaError as cause:
            # Of our own file only a part may have come.
            raise OSError(f"{name} cannot be read: {cause}") from cause
