"""RegistryState: the subjects, versions, ids, references, levels and modes that the rows of `__schemas` describe.

A state is a value: applying rows returns a new state. The cost of a row hardly depends on the number of subjects. A row
that cannot be read raises the same error every time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from kafkalike.model.frozen_map import Draft, FrozenMap
from kafkalike.model.names import SCHEMAS
from kafkalike.model.row_value import damaged
from kafkalike.model.schemas import refusals, schema_rows
from kafkalike.model.schemas.schema import BACKWARD, READONLY_OVERRIDE, READWRITE, Reference, Registered, Schema

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """A schema that has or had an id."""

    named: schema_rows.Named
    """Without the schema's text if all versions with it are permanently deleted."""
    uses: FrozenMap[tuple[str, int], str] = field(default_factory=FrozenMap)
    """State of each subject and version with the schema, without permanently deleted ones."""


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """A version of a subject."""

    id: int
    standing: str
    registered_ms: int = field(default=0, compare=False)
    """Time of the version's first row, ms; of its last change, if the log was cleaned since."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The versions of one subject."""

    versions: FrozenMap[int, SubjectVersion] = field(default_factory=FrozenMap)
    """All versions, including permanently deleted ones, because a number is never reused."""
    live: tuple[int, ...] = ()
    """Versions that are not deleted, in order."""
    soft: tuple[int, ...] = ()
    """Soft-deleted versions, in order."""
    last: int = 0
    """The highest assigned number."""

    @property
    def kept(self) -> tuple[int, ...]:
        """Versions that are not permanently deleted, in order."""
        return tuple(sorted(self.live + self.soft))


_NO_SUBJECT: Final = Subject()
_NO_REFERRERS: Final[FrozenMap[int, bool]] = FrozenMap()


@dataclass(frozen=True, slots=True)
class RegistryState:
    """All schemas of a cluster after the rows applied so far. The control log applies rows in `seq` order."""

    seq: int = 0
    """Number of the last row applied."""
    last_id: int = 0
    """The highest assigned id."""
    schemas: FrozenMap[int, SchemaEntry] = field(default_factory=FrozenMap)
    """By id, including ids without a remaining version."""
    ids: FrozenMap[bytes, int] = field(default_factory=FrozenMap)
    """Ids by the schemas' fingerprints."""
    guids: FrozenMap[str, int] = field(default_factory=FrozenMap)
    """Ids by the schemas' GUIDs."""
    subjects: FrozenMap[str, Subject] = field(default_factory=FrozenMap)
    referrers: FrozenMap[tuple[str, int], FrozenMap[int, bool]] = field(default_factory=FrozenMap)
    """By subject and version, the ids of schemas that refer to it and have a version that is not permanently deleted;
    as keys."""
    configs: FrozenMap[str, schema_rows.Config] = field(default_factory=FrozenMap)
    """Settings by subject; the settings of all subjects have the empty name."""
    modes: FrozenMap[str, str] = field(default_factory=FrozenMap)

    def applied(self, rows: Iterable[schema_rows.SchemaRow]) -> RegistryState:
        """Return the state after applying more rows; rows that are already applied are ignored.

        Raises:
            UnsupportedVersionError: a newer release wrote one.
            LogCorruptError: one is damaged, or contradicts an earlier one.
        """
        draft = _Draft(self)
        for row in rows:
            if row.seq > draft.seq:
                draft.apply(row)
        return draft.state()

    # --- questions -----------------------------------------------------------------------------

    def subject(self, name: str) -> Subject:
        """Return the subject with that name; an empty one if it is unknown."""
        return self.subjects.get(name, _NO_SUBJECT)

    def registered(self, subject: str, version: int, *, deleted: bool = False) -> Registered | None:
        """Return a version of a subject; None if it does not exist.

        Args:
            subject: its name.
            version: its number.
            deleted: include a soft-deleted version.
        """
        known = self.subject(subject).versions.get(version)
        if known is None or known.standing == schema_rows.GONE or (known.standing == schema_rows.SOFT and not deleted):
            return None
        schema = self.schemas[known.id].named.schema
        assert schema is not None
        return Registered(subject, version, known.id, schema, deleted=known.standing == schema_rows.SOFT)

    def latest(self, subject: str, *, deleted: bool = False) -> Registered | None:
        """Return the newest version of a subject; see `registered`."""
        known = self.subject(subject)
        versions = known.kept if deleted else known.live
        return self.registered(subject, versions[-1], deleted=deleted) if versions else None

    def schema(self, schema_id: int) -> Schema | None:
        """Return the schema with an id; None if all versions with it are permanently deleted."""
        known = self.schemas.get(schema_id)
        return known.named.schema if known is not None and known.uses else None

    def reference(self, reference: Reference) -> Schema:
        """Return the schema of a reference.

        Raises:
            SchemaRegistryError: it is permanently deleted; 40402.
        """
        found = self.registered(reference.subject, reference.version, deleted=True)
        if found is None:
            raise refusals.no_version(f"{reference.version} of subject '{reference.subject}'")
        return found.schema

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """Return the schemas that a schema uses, by the names of the references, in the order of dependencies.

        Raises:
            SchemaRegistryError: one is permanently deleted; 40402.
        """
        return referenced_by(schema, self.reference)

    def level(self, subject: str) -> str:
        """Return the compatibility level in effect."""
        return self._setting(subject, lambda config: config.level) or BACKWARD

    def normalizes(self, subject: str) -> bool:
        """Return whether schemas of a subject are normalized by default."""
        return bool(self._setting(subject, lambda config: config.normalize))

    def _setting(self, subject: str, of: Callable[[schema_rows.Config], V | None]) -> V | None:
        for name in (subject, schema_rows.EVERYWHERE):
            config = self.configs.get(name)
            found = None if config is None else of(config)
            if found is not None:
                return found
        return None

    def mode(self, subject: str) -> str:
        """Return the mode in effect."""
        everywhere = self.modes.get(schema_rows.EVERYWHERE, READWRITE)
        return everywhere if everywhere == READONLY_OVERRIDE else self.modes.get(subject, everywhere)


def referenced_by(schema: Schema, look_up: Callable[[Reference], Schema]) -> dict[str, Schema]:
    """Return the schemas that a schema uses, directly or not, by the names of the references.

    Args:
        schema: the schema.
        look_up: returns the schema of a reference.

    Returns:
        The schemas, each after the schemas that it uses. If two references have one name, the schema's own one counts,
        otherwise the last one.
    """
    # Not recursive, because a chain of references may be longer than Python's stack. It cannot be circular, because a
    # reference names a version that exists before the schema.
    order: list[tuple[Reference, Schema]] = []
    seen: set[Reference] = set()
    waiting: list[tuple[Reference, Schema | None]] = [(r, None) for r in reversed(schema.references)]
    while waiting:
        reference, found = waiting.pop()
        if found is not None:
            order.append((reference, found))
        elif reference not in seen:
            seen.add(reference)
            found = look_up(reference)
            waiting.append((reference, found))
            waiting += [(r, None) for r in reversed(found.references)]
    own = {reference.name: reference for reference in schema.references}
    named: dict[str, Schema] = {}
    for reference, used in order:
        if own.get(reference.name, reference) == reference:
            named.pop(reference.name, None)
            named[reference.name] = used
    return named


class _Draft:
    """A state in preparation."""

    def __init__(self, state: RegistryState) -> None:
        self._before = state
        self.seq = state.seq
        self._last_id = state.last_id
        self._schemas = Draft(state.schemas)
        self._ids = Draft(state.ids)
        self._guids = Draft(state.guids)
        self._subjects = Draft(state.subjects)
        self._referrers = Draft(state.referrers)
        self._configs = Draft(state.configs)
        self._modes = Draft(state.modes)

    def apply(self, row: schema_rows.SchemaRow) -> None:
        said = schema_rows.parse_row(row)
        match said:
            case schema_rows.Stands():
                self._stand(row, said)
            case schema_rows.Configured(subject, config):
                _set(self._configs, subject, config)
            case schema_rows.ModeSet(subject, mode):  # pragma: no branch - the only other case
                _set(self._modes, subject, mode)
        self.seq = row.seq

    def _stand(self, row: schema_rows.SchemaRow, stands: schema_rows.Stands) -> None:
        known = self._known(row, stands)
        schema_id = known.named.id
        self._last_id = max(self._last_id, schema_id, stands.last_id)
        subject = self._subjects.get(stands.subject) or _NO_SUBJECT
        before = subject.versions.get(stands.version)
        if before is not None and before.id != schema_id:
            raise damaged(SCHEMAS, row, ValueError(f"version {stands.version} had id {before.id}"))
        versions = Draft(subject.versions)
        registered_ms = row.time_ms if before is None else before.registered_ms
        versions.put(stands.version, SubjectVersion(schema_id, stands.standing, registered_ms))
        made = Subject(
            versions.frozen(),
            _with(subject.live, stands.version, present=stands.standing == schema_rows.LIVE),
            _with(subject.soft, stands.version, present=stands.standing == schema_rows.SOFT),
            max(subject.last, stands.version),
        )
        self._subjects.put(stands.subject, made)
        uses = Draft(known.uses)
        _set(uses, (stands.subject, stands.version), None if stands.standing == schema_rows.GONE else stands.standing)
        self._use(known, uses.frozen())

    def _known(self, row: schema_rows.SchemaRow, stands: schema_rows.Stands) -> SchemaEntry:
        """Return the schema of a version, under its permanent id."""
        named = stands.named
        known, owner = self._schemas.get(named.id), self._ids.get(named.mark)
        if known is None and owner is None:
            if self._guids.get(named.guid) is not None:
                raise damaged(
                    SCHEMAS, row, ValueError(f"GUID {named.guid} is that of id {self._guids.get(named.guid)}")
                )
            self._ids.put(named.mark, named.id)
            self._guids.put(named.guid, named.id)
            return SchemaEntry(named)
        if known is None or known.named.mark != named.mark:
            raise damaged(SCHEMAS, row, ValueError(f"id {named.id} and its schema do not belong together"))
        if known.named.schema is None and named.schema is not None:
            return replace(known, named=replace(known.named, schema=named.schema))
        return known

    def _use(self, before: SchemaEntry, uses: FrozenMap[tuple[str, int], str]) -> None:
        """Update the users of a schema and, with its first or last user, the referrers of its references."""
        named = before.named
        if bool(before.uses) != bool(uses):
            for reference in named.schema.references if named.schema is not None else ():
                where = (reference.subject, reference.version)
                others = Draft(self._referrers.get(where) or _NO_REFERRERS)
                _set(others, named.id, True if uses else None)
                _set(self._referrers, where, others.frozen() if len(others) else None)
        self._schemas.put(named.id, SchemaEntry(named if uses else replace(named, schema=None), uses))

    def state(self) -> RegistryState:
        if self.seq == self._before.seq:
            return self._before
        return RegistryState(
            self.seq,
            self._last_id,
            self._schemas.frozen(),
            self._ids.frozen(),
            self._guids.frozen(),
            self._subjects.frozen(),
            self._referrers.frozen(),
            self._configs.frozen(),
            self._modes.frozen(),
        )


def _set(draft: Draft[K, V], key: K, value: V | None) -> None:
    if value is None:
        draft.drop(key)
    else:
        draft.put(key, value)


def _with(numbers: tuple[int, ...], number: int, *, present: bool) -> tuple[int, ...]:
    """Return numbers in order, with or without `number`."""
    if (number in numbers) is present:
        return numbers
    if not present:
        return tuple(n for n in numbers if n != number)
    return tuple(sorted((*numbers, number)))


def kept_schema_rows(rows: Sequence[schema_rows.SchemaRow]) -> list[schema_rows.SchemaRow]:
    """Return the last row of each version, level and mode, and the last row of the table.

    The row of a permanently deleted version stays too, so that its number and id are not assigned again.

    Args:
        rows: all rows of the table in `seq` order.

    Raises:
        UnsupportedVersionError, LogCorruptError: a row cannot be read.
    """
    # Unreadable rows must not be dropped.
    RegistryState().applied(rows)
    last = {_key(row): row.seq for row in rows}
    return [
        row
        for row in rows
        if last[_key(row)] == row.seq and (row.kind == schema_rows.SCHEMA or row.value or row is rows[-1])
    ]


def _key(row: schema_rows.SchemaRow) -> Hashable:
    return row.kind, row.subject, row.version
