"""ObjectClient: requests to one object store through obstore; errors are `OSError` without secrets.

The client does not know the purpose of the objects. Reads and plain puts are retried for a while. A conditional put is
sent once, because a retry may meet the first one.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, TypeVar

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from kafkalike.errors import IllegalStateError, KafkaConfigurationError
from kafkalike.model.clock import time_left
from kafkalike.model.config.storage_option_names import CLIENT
from kafkalike.model.config.storage_options import NOBODY, StorageOptions, no_others
from kafkalike.storage.object_root import ObjectRoot
from kafkalike.storage.port import Entry, NotStoredError

Client = S3Store | AzureStore | GCSStore
T = TypeVar("T")

RETRIES: Final = 8
PATIENCE: Final = (20.0, 8.0, 3.0, 1.0)
"""Retry time and per-try timeout of requests, in seconds: the longest of these that fits twice before the caller's
deadline, or the shortest. There is one client for each."""

PART_TRIES: Final = 5
"""Maximum number of tries if only part of an answer arrives."""

KINDS: Final = ("get", "head", "put", "list", "delete", "copy")
"""Kinds of requests; storages charge about twelve times as much for a `put`, a `list` and a `copy` as for a `get`."""

LONGEST_NAME: Final = 1024
"""Bytes of the longest name, with the root's path, that S3, Azure and Google take. Emulators may take longer ones."""

LIST_PAGE: Final = 1000
"""Objects that one request lists."""

FIRST_RETRY_SECONDS: Final = 0.05
LONGEST_RETRY_SECONDS: Final = 2.0
"""First and longest wait before a retry; the wait doubles with each try."""

DEFAULT_CLIENT: Final = {"connect_timeout": "5s"}
"""Connect timeout, unless the user sets one; for the timeout of a request see `PATIENCE`."""

_STATUS: Final = re.compile(r"status code: (\d{3}[^:\n]*)")
_CODE: Final = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<\n]{1,200})")
_NOT_HERE: Final = (
    "NoSuchBucket",
    "ContainerNotFound",
    "The specified bucket does not exist",
    "AuthorizationHeaderMalformed",
)
"""Answers for a wrong address or a wrong region."""

_NOT_YOU: Final = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
"""Answers of S3 with the status 400 that concern the credentials."""

_NO_ANSWER: Final = re.compile(r"^(429|500|502|503|504) |timed out|error sending request", re.IGNORECASE)
"""Errors that mean no answer or a busy storage. All of them can be retried later."""

_SURELY_THERE: Final = ("412 ", "304 ", "BlobAlreadyExists")
"""Answers to a conditional put that prove that the object exists. S3's 409 only means that another request was running.
"""

_process: int | None = None
"""Id of the process that has made requests; obstore's threads do not survive a fork."""


def check_process() -> None:
    """Refuse to work in a child of a process that has made requests: the child's first request would never return.

    Raises:
        IllegalStateError: this is such a child.
    """
    global _process  # noqa: PLW0603 - a property of the process
    here = os.getpid()
    if _process is None:
        _process = here
    elif _process != here:
        raise IllegalStateError(
            f"this process was forked after its parent {_process} used an object store, whose client does not survive "
            "a fork; use the start method 'spawn' or 'forkserver', or open object stores only after the fork"
        )


class ObjectClient:
    """The requests of one root.

    Args:
        root: the place; all names are relative to it.
        options: from `resolve_options`.

    Raises:
        KafkaConfigurationError: the options make no client.
    """

    def __init__(self, root: ObjectRoot, options: StorageOptions) -> None:
        self.uri = root.uri
        self.address = options.get("endpoint") or ""
        self._place = root
        self._options = options
        self._counts = Counter(dict.fromkeys(KINDS, 0))
        self._counts_mutex = threading.Lock()
        self._clients: dict[tuple[int, float, float], Client] = {}
        try:
            self._to_create(0)
        except (exceptions.BaseError, ValueError, TypeError, OSError) as cause:
            text = options.scrubbed(str(cause).split("\n\n", 1)[0])
            raise KafkaConfigurationError(f"{self.uri}: the storage options make no client: {text}") from None

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of requests so far, by kind (`KINDS`). A retried request counts once."""
        with self._counts_mutex:
            return dict(self._counts)

    def count(self, kind: str, number: int = 1) -> None:
        """Count requests that callers make through `writer`."""
        with self._counts_mutex:
            self._counts[kind] += number

    def _client(self, retries: int, patience: float, silence: float = 0.0) -> Client:
        """Return the client with these arguments of `make_client`."""
        key = retries, patience, silence
        found = self._clients.get(key)
        if found is None:
            found = self._clients[key] = make_client(self._place, self._options, *key)
        return found

    @property
    def _again(self) -> Client:
        """The client for requests that can be retried: until about the caller's deadline, at least for a second."""
        left = time_left()
        return self._client(RETRIES, next((each for each in PATIENCE if 2 * each <= left), PATIENCE[-1]))

    def _to_put(self, size: int) -> Client:
        """Return the client for a put of this size that can be retried."""
        del size
        return self._again

    def _to_create(self, size: int) -> Client:
        """Return the client for a put of this size that is sent once."""
        del size
        return self._client(0, PATIENCE[0])

    def create(self, name: str, content: bytes) -> str | None:
        """Put an object unless it exists: one request, and a second one to check an unclear answer.

        Returns:
            The object's ETag, empty if the storage does not report one; None if the object exists.

        Raises:
            NotStoredError: nothing was stored, and nothing will be.
            OSError: unknown.
        """
        self._check_name(name)
        self.count("put")
        with self._asking(name, conditional=True):
            try:
                made = obstore.put(self._to_create(len(content)), name, content, mode="create")
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError, exceptions.NotModifiedError) as cause:
                # A 409 may only mean that another request was running.
                if not any(sign in str(cause) for sign in _SURELY_THERE):
                    self._look(name)
                return None
        return _tag(made["e_tag"])

    def _look(self, name: str) -> None:
        self.count("head")
        try:
            obstore.head(self._to_create(0), name)
        except FileNotFoundError:
            raise OSError(errno.EIO, "the storage reported that it exists, but does not find it") from None

    def put(self, name: str, content: bytes | memoryview) -> None:
        """Put an object; overwrites an existing one."""
        self._check_name(name)
        self.count("put")
        with self._asking(name):
            obstore.put(self._to_put(memoryview(content).nbytes), name, content, use_multipart=False)

    def writer(self, name: str, part_bytes: int) -> Any:  # noqa: ANN401 - obstore's class is known to type checkers only
        """Open a multipart upload; the object exists when it is closed."""
        self._check_name(name)
        with self._asking(name):
            return obstore.open_writer(self._to_put(part_bytes), name, buffer_size=part_bytes)

    def get(self, name: str) -> bytes:
        """Return the content of an object."""
        return self._asked(name, lambda: bytes(obstore.get(self._again, name).bytes()), "get")

    def get_with_time(self, name: str) -> tuple[bytes, int]:
        """Return the content of an object and its write time in ns, by the store's clock, in whole seconds."""

        def ask() -> tuple[bytes, int]:
            found = obstore.get(self._again, name)
            return bytes(found.bytes()), _ns(found.meta["last_modified"])

        return self._asked(name, ask, "get")

    def get_begin(self, name: str, length: int) -> tuple[bytes, int]:
        """Return the first bytes of an object, and its size."""

        def ask() -> tuple[bytes, int]:
            try:
                found = obstore.get(self._again, name, options={"range": (0, length)})
            except exceptions.BaseError as cause:
                if "416 " in str(cause):  # an empty object has no first byte
                    return b"", 0
                raise
            content, size = bytes(found.bytes()), int(found.meta["size"])
            _check_length(len(content), min(length, size))
            return content, size

        return self._asked(name, ask, "get")

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        """Return the bytes of an object from `start` to before `stop`; the object must have them."""

        def ask() -> bytes:
            content = bytes(obstore.get_range(self._again, name, start=start, end=stop))
            _check_length(len(content), stop - start)
            return content

        return self._asked(name, ask, "get")

    def head(self, name: str) -> tuple[int, int]:
        """Return the size of an object in bytes, and its write time in ns."""

        def ask() -> tuple[int, int]:
            found = obstore.head(self._again, name)
            return int(found["size"]), _ns(found["last_modified"])

        return self._asked(name, ask, "head")

    def list(self, folder: str, *, deep: bool, after: str = "") -> list[Entry]:
        """List the objects of a folder by relative name: direct children unless `deep`, only names behind `after`."""

        def ask() -> list[Entry]:
            prefix = folder or None
            above = f"{folder}/" if folder else ""
            if deep or after:
                offset = above + after if after else None
                chunks = obstore.list(self._again, prefix=prefix, offset=offset, chunk_size=LIST_PAGE)
                found = [meta for chunk in chunks for meta in chunk]
            else:
                found = list(obstore.list_with_delimiter(self._again, prefix=prefix)["objects"])
            self.count("list", len(found) // LIST_PAGE)
            entries = [
                Entry(
                    str(m["path"]).removeprefix(above),
                    int(m["size"]),
                    _ns(m["last_modified"]) // 1_000_000,
                    _tag(m["e_tag"]),
                )
                for m in found
            ]
            return entries if deep else [entry for entry in entries if "/" not in entry.name]

        return self._asked(folder, ask, "list")

    def holds(self, folder: str) -> bool:
        """Return True if a folder contains an object."""
        return self._asked(folder, lambda: any(obstore.list(self._again, prefix=folder, chunk_size=1)), "list")

    def folders(self, folder: str) -> Sequence[str]:
        """Return the names of the folders directly below a folder."""

        def ask() -> Sequence[str]:
            found = obstore.list_with_delimiter(self._again, prefix=folder or None)["common_prefixes"]
            return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

        return self._asked(folder, ask, "list")

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store."""
        self._check_name(target)
        self._asked(source, lambda: obstore.copy(self._again, source, target), "copy")

    def delete(self, name: str) -> None:
        """Remove an object, if it exists."""
        try:
            self._asked(name, lambda: obstore.delete(self._again, name), "delete")
        except FileNotFoundError:
            return

    def _check_name(self, name: str) -> None:
        """Refuse a name that is too long for a new object."""
        if len(f"{self._place.path}/{name}".lstrip("/").encode(errors="surrogatepass")) > LONGEST_NAME:
            raise NotStoredError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), f"{self.uri}/{name}")

    def _asked(self, name: str, ask: Callable[[], T], kind: str) -> T:
        self.count(kind)
        for _ in range(PART_TRIES - 1):
            try:
                with self._asking(name):
                    return ask()
            except OSError as cause:
                # obstore retries unless the answer had begun.
                if "body" not in str(cause.strerror) or time_left() <= 0:
                    raise
        with self._asking(name):
            return ask()

    @contextmanager
    def asking(self, name: str) -> Iterator[None]:
        """Raise the errors of obstore in the block as `OSError`; for uses of `writer`."""
        with self._asking(name):
            yield

    @contextmanager
    def _asking(self, name: str, *, conditional: bool = False) -> Iterator[None]:
        check_process()
        try:
            yield
        except (exceptions.BaseError, OSError, ValueError, TypeError, OverflowError) as cause:
            # The last two errors come from names that are not UTF-8, and from ranges beyond any object.
            raise self._error(name, cause, conditional=conditional) from None

    def _error(self, name: str, cause: Exception, *, conditional: bool) -> OSError:
        text, where = self._told(str(cause)), f"{self.uri}/{name}"
        # A refused list is obstore's general error.
        denied = text.startswith(("401 ", "403 ")) or any(f": {sign}" in text for sign in _NOT_YOU)
        if denied or isinstance(cause, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)):
            return (NotStoredError if conditional else PermissionError)(errno.EACCES, text, where)
        missing = isinstance(cause, FileNotFoundError)
        if any(sign in str(cause) for sign in _NOT_HERE) or (missing and conditional):
            return (NotStoredError if conditional else OSError)(errno.ENXIO, text, where)
        if missing:
            return FileNotFoundError(errno.ENOENT, "there is no such object", where)
        return OSError(errno.ETIMEDOUT if _NO_ANSWER.search(text) else errno.EIO, text, where)

    def _told(self, text: str) -> str:
        """Return the useful part of obstore's message, without the signed text that a server may echo."""
        status = _STATUS.search(text)
        if status is None:
            short = text.split("\n\n", 1)[0].rpartition(" - ")[2]
            if f"{NOBODY.partition('//')[2]}," in text:
                short = "it was sent on to another address, which is not asked: is the endpoint right?"
            elif "TimedOut" in text and "timed out" not in short:
                short += " (timed out)"
        else:
            code, said = _CODE.search(text), _MESSAGE.search(text)
            parts = [status[1].strip(), *([code[1]] if code else []), *([said[1].strip()] if said else [])]
            short = ": ".join(parts)
        return self._options.scrubbed(" ".join(short.split()))


def make_client(
    root: ObjectRoot, options: StorageOptions, retries: int, patience: float = PATIENCE[0], silence: float = 0.0
) -> Client:
    """Make the obstore client of a root; it only contacts hosts that `no_others` allows.

    Args:
        root: the place.
        options: from `resolve_options`.
        retries: maximum number of retries of a failed request.
        patience: total time of the retries and timeout of a try, in seconds.
        silence: a try may take longer while it is never silent for this many seconds; 0 sets no such exception.
    """
    hints = root.hints.given()
    config: Any = {**hints, **options.among(CLIENT, others=True)}
    others = no_others(root.provider, options)
    allowed = (
        {"read_timeout": f"{silence:g}s", "timeout": f"{PATIENCE[0]:g}s"} if silence else {"timeout": f"{patience:g}s"}
    )
    client: Any = {**DEFAULT_CLIENT, **allowed, **options.among(CLIENT), **others}
    retry: Any = {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=patience),
        "backoff": {
            "init_backoff": timedelta(seconds=FIRST_RETRY_SECONDS),
            "max_backoff": timedelta(seconds=LONGEST_RETRY_SECONDS),
            "base": 2,
        },
    }
    known: dict[str, Any] = {
        "prefix": root.path or None,
        "client_options": client,
        "retry_config": retry,
    }
    if root.provider == "s3":
        # Objects are removed one by one, because some S3 services lack the bulk request.
        config["disable_bulk_delete"] = "true"
        return S3Store(root.bucket, config=config, **known)
    if root.provider == "azure":
        config["account_name"] = root.account
        return AzureStore(root.bucket, config=config, **known)
    return GCSStore(root.bucket, config=config, **known)


def _check_length(found: int, wanted: int) -> None:
    if found != wanted:
        raise OSError(errno.EIO, f"{found} bytes came where {wanted} were asked for")


def _tag(given: str | None) -> str:
    """Return an ETag without quotes; some storages omit them in lists."""
    return (given or "").strip('"')


def _ns(when: Any) -> int:  # noqa: ANN401 - a datetime; its class is for type checkers only
    return int(when.timestamp() * 1000) * 1_000_000
