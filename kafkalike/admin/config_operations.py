"""Config operations: describe and change settings of topics, groups and the cluster, with the source of each value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from kafkalike import errors
from kafkalike.admin.admin_base import BROKER_ID, AdminBase
from kafkalike.log.group.group_config import (
    GROUP_PROPERTIES,
    HEARTBEAT,
    SERVER_DEFAULTS,
    SESSION,
    config_row,
    group_setting,
)
from kafkalike.model.config import server_config
from kafkalike.model.config.properties import Property, PropertySet, as_text, nearest
from kafkalike.model.config.topic_config import TOPIC_PROPERTIES
from kafkalike.model.group_rows import GroupRow
from kafkalike.model.group_state import GroupsState
from kafkalike.model.names import check_group_id
from kafkalike.model.structs import AlterConfigOp, ConfigResource, ConfigResourceType

DYNAMIC_TOPIC: Final = "DYNAMIC_TOPIC_CONFIG"
DYNAMIC_DEFAULT: Final = "DYNAMIC_DEFAULT_BROKER_CONFIG"
STATIC_BROKER: Final = "STATIC_BROKER_CONFIG"
DYNAMIC_GROUP: Final = "DYNAMIC_GROUP_CONFIG"
DEFAULT: Final = "DEFAULT_CONFIG"

KINDS: Final = {
    ConfigResourceType.TOPIC: TOPIC_PROPERTIES,
    ConfigResourceType.BROKER: server_config.SERVER_PROPERTIES,
    ConfigResourceType.GROUP: GROUP_PROPERTIES,
}
"""The known settings of each kind of resource."""

Changes = Mapping[str, tuple[AlterConfigOp, str | None]]
Edit = Callable[[Mapping[str, str]], Mapping[str, str]]


class ConfigFilterType(IntEnum):
    """Settings that `describe_configs` returns."""

    ALL = 0
    DYNAMIC = 1
    """Settings that `alter_configs` can change."""
    MODIFIED = 2
    """Settings that were set on the topic, or on the cluster."""
    DEFAULT = 3
    """Settings that were not set on the topic, or on the cluster."""
    STATIC = 4
    """Settings seeded by a `server.properties` file."""


class ConfigOperations(AdminBase):
    """Operations on settings: describe, alter and reset."""

    def describe_configs(
        self,
        config_resources: Sequence[ConfigResource],
        include_synonyms: bool = False,  # noqa: FBT001, FBT002 - kafka-python's signature
        config_filter: ConfigFilterType | str = "modified",
    ) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
        """Return effective settings of topics, groups, the cluster (`BROKER` with an empty name) or a broker (its id).

        Args:
            config_resources: the resources; `configs` of a resource lists setting names, None for all.
            include_synonyms: list all sources of each setting, the effective one first.
            config_filter: a `ConfigFilterType` or its name.

        Returns:
            `{"topic": {topic: {setting: {value, config_source, is_default, is_sensitive, read_only, config_type,
            documentation, synonyms}}}}`. `config_source` is DYNAMIC_TOPIC_CONFIG, DYNAMIC_GROUP_CONFIG,
            DYNAMIC_DEFAULT_BROKER_CONFIG (a default of the cluster), STATIC_BROKER_CONFIG (seeded by a
            `server.properties` file and unchanged since) or DEFAULT_CONFIG.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            IllegalArgumentError: a broker id is not a number (a ValueError).
            UnsupportedVersionError: the kind of resource has no settings here.
        """
        described: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
        for resource in _resources(config_resources):
            keep = _filter_of(config_filter, _own_sources(resource))
            entries = self._entries(resource)
            if resource.configs is not None:
                entries = {name: entry for name, entry in entries.items() if name in resource.configs}
            kept = {name: entry for name, entry in entries.items() if keep(entry)}
            if not include_synonyms:
                kept = {name: {**entry, "synonyms": []} for name, entry in kept.items()}
            described.setdefault(resource.resource_type.name.lower(), {})[str(resource.name)] = kept
        return described

    def _entries(self, resource: ConfigResource) -> dict[str, dict[str, Any]]:
        if resource.resource_type is ConfigResourceType.TOPIC:
            own = self._cluster.topic(resource.name).configs
            defaults = self._defaults()
            return {
                name: _entry(known, _synonyms(known.name, own, defaults))
                for name, known in TOPIC_PROPERTIES.properties.items()
            }
        if resource.resource_type is ConfigResourceType.GROUP:
            own, defaults = self._group_configs(resource.name), self._defaults()
            return {
                name: _entry(known, _group_synonyms(name, own, defaults))
                for name, known in GROUP_PROPERTIES.properties.items()
            }
        _check_broker(resource)
        defaults = self._defaults()
        return {
            name: {
                **_entry(known, _server_synonyms(name, defaults)),
                "read_only": bool(resource.name) or name in server_config.PER_ROOT,
            }
            for name, known in server_config.SERVER_PROPERTIES.properties.items()
        }

    def _group_configs(self, group_id: str) -> Mapping[str, str]:
        return self._cluster.groups.refresh().configs.get(check_group_id(group_id), {})

    def _edit_group(self, group_id: str, edit: Edit, *, validate_only: bool) -> None:
        """Replace the settings of a group, which need not exist, by the result of `edit`.

        Raises:
            InvalidConfigurationError: a setting is unknown or has an invalid value.
        """
        check_group_id(group_id)

        def plan(state: GroupsState) -> list[GroupRow]:
            known = state.configs.get(group_id, {})
            configs = GROUP_PROPERTIES.check_all(edit(known))
            if group_setting(configs, HEARTBEAT) >= group_setting(configs, SESSION):
                raise errors.InvalidConfigurationError(f"group setting {HEARTBEAT!r} must be below {SESSION!r}")
            if validate_only or configs == known:
                return []
            return [config_row(state.seq + 1, group_id, configs, self._clock.now_ms())]

        self._cluster.groups.transact(plan)

    def _defaults(self) -> _Defaults:
        recorded = self._cluster.metadata.refresh().defaults
        if recorded is None or not recorded.are_set:
            # The defaults were never changed, so the defaults of the file apply.
            server = self._cluster.server
            return _Defaults(server, dict.fromkeys(server.settings, STATIC_BROKER))
        # Use the recorded defaults, not `server`: they can be shown and changed even if the file differs.
        seed, settings = recorded.seed, recorded.settings
        source = {name: STATIC_BROKER if seed.get(name) == text else DYNAMIC_DEFAULT for name, text in settings.items()}
        return _Defaults(server_config.ServerProperties(settings=settings), source)

    def alter_configs(
        self,
        config_resources: Sequence[ConfigResource],
        validate_only: bool = False,  # noqa: FBT001, FBT002
        raise_on_unknown: bool = True,  # noqa: FBT001, FBT002
        incremental: bool | None = None,  # noqa: FBT001
        *,
        raise_errors: bool = False,
    ) -> dict[str, dict[str, str]]:
        """Change settings of topics, groups and the cluster, one resource at a time; other settings keep their values.

        Args:
            config_resources: topics, groups, and the cluster (`BROKER` with an empty name); `configs` is
                `{setting: value}` or `{setting: (AlterConfigOp, value)}`, with the operation also by name or number.
                APPEND and SUBTRACT apply to lists such as `cleanup.policy`.
            validate_only: check without changing anything.
            raise_on_unknown: raise an error for an unknown setting before anything is changed.
            incremental: False allows only SET, as in Kafka's older request.
            raise_errors: raise the first error instead of returning its text; not in kafka-python.

        Returns:
            `{"topic": {name: "OK" or the error's text}}`, and `{"broker": {"": ...}}` for the cluster.

        Raises:
            IllegalArgumentError: a setting is unknown, or `configs` has another form.
            InvalidRequestError: a single broker was given, but settings apply to the whole cluster.
        """
        work = [(resource, _changes(resource.configs)) for resource in _resources(config_resources)]
        for resource, changes in work:
            _check_alterable(resource)
            if raise_on_unknown:
                _check_known(changes, KINDS[resource.resource_type])
            if incremental is False and any(op is not AlterConfigOp.SET for op, _ in changes.values()):
                raise errors.IllegalArgumentError("incremental=False allows only SET; leave incremental out")
        return self._apply(work, validate_only=validate_only, raise_errors=raise_errors)

    def reset_configs(
        self,
        config_resources: Sequence[ConfigResource],
        validate_only: bool = False,  # noqa: FBT001, FBT002
        raise_on_unknown: bool = True,  # noqa: FBT001, FBT002
        incremental: bool | None = None,  # noqa: FBT001
        *,
        raise_errors: bool = False,
    ) -> dict[str, dict[str, str]]:
        """Reset settings of topics and groups to the cluster's defaults, or the cluster's to Kafka's.

        Args:
            config_resources: topics, groups, and the cluster (`BROKER` with an empty name); `configs` lists the
                settings, None or empty for all.
            validate_only: check without changing anything.
            raise_on_unknown: raise an error for an unknown setting.
            incremental: no effect, because both of Kafka's requests have the same result here.
            raise_errors: as in `alter_configs`.

        Returns:
            The same as `alter_configs`.
        """
        del incremental
        work = []
        for resource in _resources(config_resources):
            _check_alterable(resource)
            names = list(resource.configs or self._own(resource))
            changes = dict.fromkeys(names, (AlterConfigOp.DELETE, None))
            if raise_on_unknown:
                _check_known(changes, KINDS[resource.resource_type])
            work.append((resource, changes))
        return self._apply(work, validate_only=validate_only, raise_errors=raise_errors)

    def _own(self, resource: ConfigResource) -> Iterable[str]:
        if resource.resource_type is ConfigResourceType.BROKER:
            recorded = self._cluster.metadata.refresh().defaults
            return () if recorded is None else recorded.settings
        if resource.resource_type is ConfigResourceType.GROUP:
            return self._group_configs(resource.name)
        info = self._cluster.topics().get(resource.name)
        return () if info is None else info.configs

    def _apply(
        self, work: Iterable[tuple[ConfigResource, Changes]], *, validate_only: bool, raise_errors: bool
    ) -> dict[str, dict[str, str]]:
        results: dict[str, dict[str, str]] = {}
        first: errors.BrokerResponseError | None = None
        for resource, changes in work:
            done = "OK"
            try:
                edit = _edit(changes, KINDS[resource.resource_type])
                if resource.resource_type is ConfigResourceType.BROKER:
                    self._cluster.edit_defaults(edit, validate_only=validate_only)
                elif resource.resource_type is ConfigResourceType.GROUP:
                    self._edit_group(resource.name, edit, validate_only=validate_only)
                else:
                    self._cluster.edit_configs(resource.name, edit, validate_only=validate_only)
            except errors.BrokerResponseError as error:
                done = f"{type(error).__name__}: {error}"
                first = first or error
            results.setdefault(resource.resource_type.name.lower(), {})[resource.name] = done
        if raise_errors and first is not None:
            raise first
        return results

    def list_config_resources(
        self, resource_types: Sequence[ConfigResourceType | str] | None = None
    ) -> dict[str, list[str]]:
        """Return the resources with settings by kind: `{"topic": [...], "broker": ["1"], "group": [...]}`.

        Args:
            resource_types: the kinds to list; None for all.
        """
        groups = sorted(self._cluster.groups.refresh().configs)
        known = {"topic": sorted(self._cluster.topics()), "broker": [str(BROKER_ID)], "group": groups}
        if not resource_types:
            return known
        wanted = [ConfigResource(kind, "").resource_type.name.lower() for kind in resource_types]
        return {kind: known.get(kind, []) for kind in wanted}


class _Defaults(NamedTuple):
    """The cluster's defaults, and their sources."""

    server: server_config.ServerProperties
    source: Mapping[str, str]
    """Source of each setting that is set, by name."""


def _resources(given: object) -> list[ConfigResource]:
    listed = [given] if isinstance(given, ConfigResource) else given
    if not isinstance(listed, Iterable) or isinstance(listed, (str, bytes)):
        raise errors.IllegalArgumentError(f"config_resources must be a list of ConfigResource, not {given!r}")
    resources = []
    for resource in listed:
        if not isinstance(resource, ConfigResource):
            raise errors.IllegalArgumentError(f"config_resources must hold ConfigResource, not {resource!r}")
        resources.append(resource)
    return resources


def _check_broker(resource: ConfigResource) -> None:
    if resource.resource_type is not ConfigResourceType.BROKER:
        raise errors.UnsupportedVersionError(
            f"{resource.resource_type.name} resources have no settings here; use TOPIC, GROUP or BROKER"
        )
    if resource.name and not str(resource.name).isdecimal():
        raise errors.IllegalArgumentError(
            f"a broker is named by its id, a number, not {resource.name!r}; use an empty name for the whole cluster"
        )
    if str(resource.name) not in {str(BROKER_ID), ""}:
        raise errors.InvalidRequestError(
            f"broker {resource.name!r} does not exist; use an empty name for the settings of the cluster"
        )


def _check_alterable(resource: ConfigResource) -> None:
    if resource.resource_type in {ConfigResourceType.TOPIC, ConfigResourceType.GROUP}:
        return
    _check_broker(resource)
    if resource.name:
        raise errors.InvalidRequestError(
            f"settings of the single broker {resource.name} cannot be altered: they hold for the whole cluster. Name "
            "the cluster instead (--entity-default, or a BROKER with an empty name); a file server.properties only "
            "seeds them"
        )


def _check_known(names: Iterable[str], properties: PropertySet) -> None:
    for name in names:
        if properties.name_of(name) not in properties.properties:
            meaningless = properties.meaningless.get(name)
            hint = f": {meaningless}" if meaningless else nearest(name, properties.properties)
            raise errors.IllegalArgumentError(f"unrecognized {properties.kind} setting {name!r}{hint}")


def _changes(configs: object) -> dict[str, tuple[AlterConfigOp, str | None]]:
    if not isinstance(configs, Mapping):
        raise errors.IllegalArgumentError(f"configs must be a dict of settings, not {configs!r}")
    return {str(name): _change(name, given) for name, given in configs.items()}


def _change(name: str, given: object) -> tuple[AlterConfigOp, Any]:
    if not isinstance(given, tuple):
        return AlterConfigOp.SET, given
    operation, value = given
    try:
        wanted = AlterConfigOp[operation.upper()] if isinstance(operation, str) else AlterConfigOp(operation)
    except (KeyError, ValueError) as cause:
        raise errors.IllegalArgumentError(f"setting {name!r}: unknown operation {operation!r}") from cause
    return wanted, value


def _edit(changes: Changes, properties: PropertySet) -> Edit:
    def edit(current: Mapping[str, str]) -> Mapping[str, str]:
        after = dict(current)
        for name, (operation, value) in changes.items():
            text = None if value is None or operation is AlterConfigOp.DELETE else as_text(value)
            after = properties.merged(after, name, operation.name, text)
        return after

    return edit


def _own_sources(resource: ConfigResource) -> Collection[str]:
    """Return the sources of settings that were set on the resource itself."""
    if resource.resource_type is ConfigResourceType.TOPIC:
        return (DYNAMIC_TOPIC,)
    if resource.resource_type is ConfigResourceType.GROUP:
        return (DYNAMIC_GROUP,)
    return () if resource.name else (DYNAMIC_DEFAULT, STATIC_BROKER)


def _filter_of(given: ConfigFilterType | str, own: Collection[str]) -> Callable[[Mapping[str, Any]], bool]:
    try:
        wanted = ConfigFilterType[given.upper()] if isinstance(given, str) else ConfigFilterType(given)
    except (KeyError, ValueError) as cause:
        raise errors.IllegalArgumentError(
            f"unknown config_filter {given!r}; known are {', '.join(f.name.lower() for f in ConfigFilterType)}"
        ) from cause
    return {
        ConfigFilterType.ALL: bool,
        ConfigFilterType.DYNAMIC: lambda entry: not entry["read_only"],
        ConfigFilterType.MODIFIED: lambda entry: entry["config_source"] in own,
        ConfigFilterType.DEFAULT: lambda entry: entry["config_source"] not in own,
        ConfigFilterType.STATIC: lambda entry: entry["config_source"] == STATIC_BROKER,
    }[wanted]


def _synonyms(name: str, own: Mapping[str, str], defaults: _Defaults) -> list[dict[str, str]]:
    server = defaults.server
    found = [_synonym(name, own[name], DYNAMIC_TOPIC)] if name in own else []
    found += [
        _synonym(server_name, server.settings[server_name], defaults.source[server_name])
        for server_name in server_config.TOPIC_DEFAULTS[name]
        if server_name in server.settings
    ]
    found.append(_synonym(server_config.TOPIC_DEFAULTS[name][0], TOPIC_PROPERTIES.properties[name].default, DEFAULT))
    if found[0]["source"] in {STATIC_BROKER, DYNAMIC_DEFAULT}:
        # The server's setting may be in hours; the topic's is in ms.
        found[0] = {**found[0], "effective": server.topic_default(name)[0]}
    return found


def _server_synonyms(name: str, defaults: _Defaults) -> list[dict[str, str]]:
    settings, source = defaults.server.settings, defaults.source
    found = [_synonym(name, settings[name], source[name])] if name in settings else []
    return [*found, _synonym(name, server_config.SERVER_PROPERTIES.properties[name].default, DEFAULT)]


def _group_synonyms(name: str, own: Mapping[str, str], defaults: _Defaults) -> list[dict[str, str]]:
    found = [_synonym(name, own[name], DYNAMIC_GROUP)] if name in own else []
    if name in SERVER_DEFAULTS:
        return found + _server_synonyms(SERVER_DEFAULTS[name], defaults)
    return [*found, _synonym(name, GROUP_PROPERTIES.properties[name].default, DEFAULT)]


def _synonym(name: str, value: str, source: str) -> dict[str, str]:
    return {"name": name, "value": value, "source": source}


def _entry(known: Property, synonyms: list[dict[str, str]]) -> dict[str, Any]:
    effect = synonyms[0]
    return {
        "value": effect.get("effective", effect["value"]),
        "config_source": effect["source"],
        "is_default": effect["source"] == DEFAULT,
        "is_sensitive": False,
        "read_only": False,
        "config_type": _type_name(known),
        "documentation": known.doc,
        "synonyms": [{k: v for k, v in synonym.items() if k != "effective"} for synonym in synonyms],
    }


def _type_name(known: Property) -> str:
    value = known.parse(known.default)
    return {bool: "BOOLEAN", int: "LONG", float: "DOUBLE", str: "STRING", tuple: "LIST"}[type(value)]
