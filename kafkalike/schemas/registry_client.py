"""`RegistryClient`: the methods of `confluent_kafka.schema_registry.SchemaRegistryClient`, over any transport.

Confluent's serializers and code written for its client work with it unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from kafkalike.model.schemas import refusals
from kafkalike.schemas import confluent_types, schema_source


class SettingsClient(schema_source.TransportClient):
    """Compatibility, configuration and modes of `RegistryClient`."""

    def test_compatibility(
        self,
        subject_name: str,
        schema: object,
        version: int | str = "latest",
        normalize: bool = False,  # noqa: FBT001, FBT002
        verbose: bool = False,  # noqa: FBT001, FBT002
    ) -> bool:
        """Return True if the subject's level allows a schema together with one version."""
        del verbose
        return not self.problems(subject_name, schema, version, normalize=normalize)

    def test_compatibility_all_versions(
        self,
        subject_name: str,
        schema: object,
        normalize: bool = False,  # noqa: FBT001, FBT002
        verbose: bool = False,  # noqa: FBT001, FBT002
    ) -> bool:
        """Return True if the subject's level allows a schema as its next version."""
        del verbose
        return not self.problems(subject_name, schema, None, normalize=normalize)

    def problems(
        self, subject_name: str, schema: object, version: int | str | None = None, *, normalize: bool = False
    ) -> list[str]:
        """Return the reasons why a schema cannot be the next version of a subject; empty if it can.

        Args:
            subject_name: the subject.
            schema: the schema.
            version: the version to compare with; None for all versions that the subject's level covers.
            normalize: normalize the schema first.
        """
        path = ["compatibility", "subjects", subject_name, "versions", *([] if version is None else [str(version)])]
        answer = self._transport.ask(
            "POST", path, schema_source.query_of(normalize=normalize, verbose=True), confluent_types.body_of(schema)
        )
        return [] if answer["is_compatible"] else list(answer.get("messages") or ["it is not compatible"])

    def set_compatibility(self, subject_name: str | None = None, level: str | None = None) -> dict[str, Any]:
        """Set the compatibility level of a subject, or the global level."""
        if level is None:
            raise ValueError("level must be set")
        return dict(
            self._transport.ask(
                "PUT", schema_source.at("config", subject_name), None, {"compatibility": str(level).upper()}
            )
        )

    def get_compatibility(self, subject_name: str | None = None) -> str:
        """Return the compatibility level of a subject, or the global level.

        Raises:
            SchemaRegistryError: the subject has no level of its own; `error_code` is 40408.
        """
        return str(self._transport.ask("GET", schema_source.at("config", subject_name))["compatibilityLevel"])

    def set_config(self, subject_name: str | None = None, config: object = None) -> dict[str, Any]:
        """Apply a configuration of this package or of Confluent's."""
        if config is None:
            raise ValueError("config must be set")
        return dict(self._transport.ask("PUT", schema_source.at("config", subject_name), None, _config_body(config)))

    def get_config(self, subject_name: str | None = None) -> confluent_types.ServerConfig:
        """Return the settings of a subject, or the global settings."""
        return _config(self._transport.ask("GET", schema_source.at("config", subject_name)))

    def delete_config(self, subject_name: str | None = None) -> confluent_types.ServerConfig:
        """Remove the settings of a subject, or the global settings, and return them."""
        return _config(self._transport.ask("DELETE", schema_source.at("config", subject_name)))

    def get_mode(self, subject_name: str) -> str:
        """Return the mode of a subject.

        Raises:
            SchemaRegistryError: the subject has no mode of its own; `error_code` is 40409.
        """
        return str(self._transport.ask("GET", schema_source.at("mode", subject_name))["mode"])

    def update_mode(self, subject_name: str | None, mode: str, force: bool = False) -> str:  # noqa: FBT001, FBT002
        """Set the mode of a subject: READWRITE, READONLY, READONLY_OVERRIDE or IMPORT."""
        path = schema_source.at("mode", subject_name)
        return str(self._transport.ask("PUT", path, {"force": schema_source.query_flag(force)}, {"mode": mode})["mode"])

    def delete_mode(self, subject_name: str | None) -> str:
        """Remove the mode of a subject and return it."""
        return str(self._transport.ask("DELETE", schema_source.at("mode", subject_name))["mode"])

    def get_global_mode(self) -> str:
        """Return the mode of all subjects without a mode of their own."""
        return str(self._transport.ask("GET", ("mode",))["mode"])

    def update_global_mode(self, mode: str, force: bool = False) -> str:  # noqa: FBT001, FBT002
        """Set the mode of all subjects without a mode of their own; see `update_mode`."""
        return self.update_mode(None, mode, force)


def _config_body(config: object) -> dict[str, Any]:
    if isinstance(config, confluent_types.ServerConfig):
        body = {"compatibility": config.compatibility or config.compatibility_level, "normalize": config.normalize}
        return {name: value for name, value in body.items() if value is not None}
    if not hasattr(config, "to_dict"):
        raise TypeError(f"a ServerConfig is needed, not {type(config).__name__}")
    return dict(config.to_dict())


def _config(answer: Mapping[str, Any]) -> confluent_types.ServerConfig:
    return confluent_types.ServerConfig(
        answer.get("compatibility"), answer.get("compatibilityLevel"), answer.get("normalize")
    )


class _NoCache:
    """Stands in for the cache of Confluent's client, which its serializers query if the user sets `use.schema.id`."""

    def get_registered_by_subject_id(self, subject: str, schema_id: int) -> None:
        """Return None, so that the serializer asks the client."""
        del subject, schema_id


class RegistryClient(SettingsClient, schema_source.SourceClient):
    """A client of a schema registry. Thread-safe.

    Args:
        transport: sends the requests.
        conf: the settings that `config` returns.
    """

    def __init__(self, transport: schema_source.Transport, conf: Mapping[str, Any]) -> None:
        super().__init__(transport)
        self._conf = dict(conf)
        self._cache = _NoCache()
        self._by_id: schema_source.LruCache[tuple[int, str | None], confluent_types.Schema] = schema_source.LruCache(
            schema_source.CACHED_SCHEMAS
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the client's resources."""

    def config(self) -> dict[str, Any]:
        """Return the client's settings."""
        return self._conf

    # --- schemas ---------------------------------------------------------------------------------

    def register_schema(self, subject_name: str, schema: object, normalize_schemas: bool = False) -> int:  # noqa: FBT001, FBT002
        """Register a schema as the next version of a subject, unless it already is a version; return its id.

        Args:
            subject_name: such as `orders-value`.
            schema: a `Schema` of this package or of Confluent's.
            normalize_schemas: treat schemas as equal if no reader can tell them apart.

        Raises:
            SchemaRegistryError: 409 incompatible, 42201 invalid, 42205 not allowed in this mode.
            UnknownOutcomeError: the schema may have been registered; retrying is safe.
        """
        made = self.register_schema_full_response(subject_name, schema, normalize_schemas)
        assert made.schema_id is not None
        return made.schema_id

    def register_schema_full_response(
        self,
        subject_name: str,
        schema: object,
        normalize_schemas: bool = False,  # noqa: FBT001, FBT002
    ) -> confluent_types.RegisteredSchema:
        """Register a schema as `register_schema` does; return its id, GUID and version."""
        query = {"normalize": schema_source.query_flag(normalize_schemas)}
        body = confluent_types.body_of(schema)
        answer = self._transport.ask("POST", ("subjects", subject_name, "versions"), query, body)
        # Older registries return only the id.
        return confluent_types.read_registered({**body, "subject": subject_name, **answer})

    def get_schema(
        self,
        schema_id: int,
        subject_name: str | None = None,
        fmt: str | None = None,
        reference_format: str | None = None,
    ) -> confluent_types.Schema:
        """Return the schema of an id.

        Args:
            schema_id: the id, for example from a record.
            subject_name: the subject to look in first, for registries with contexts.
            fmt: `serialized` returns a Protobuf schema as a Base64 descriptor.
            reference_format: for registries that inline references into the schema.

        Raises:
            SchemaRegistryError: the id is unknown; `error_code` is 40403.
        """
        known = self._by_id.get((schema_id, fmt))
        if known is not None:
            return known
        query = schema_source.query_of(subject=subject_name, format=fmt, referenceFormat=reference_format)
        schema = confluent_types.read_schema(self._transport.ask("GET", ("schemas", "ids", str(schema_id)), query))
        self._by_id.put((schema_id, fmt), schema)
        return schema

    def get_schema_by_guid(self, guid: str, fmt: str | None = None) -> confluent_types.Schema:
        """Return the schema of a GUID."""
        return confluent_types.read_schema(
            self._transport.ask("GET", ("schemas", "guids", guid), schema_source.query_of(format=fmt))
        )

    def get_schema_types(self) -> list[str]:
        """Return the schema types that the registry supports."""
        return list(self._transport.ask("GET", ("schemas", "types")))

    def get_subjects_by_schema_id(
        self,
        schema_id: int,
        subject_name: str | None = None,
        deleted: bool = False,  # noqa: FBT001, FBT002
        offset: int = 0,
        limit: int = -1,
    ) -> list[str]:
        """Return the subjects that have a version with this schema."""
        query = schema_source.query_of(subject=subject_name, deleted=deleted, offset=offset, limit=limit)
        return list(self._transport.ask("GET", ("schemas", "ids", str(schema_id), "subjects"), query))

    def get_schema_versions(
        self,
        schema_id: int,
        subject_name: str | None = None,
        deleted: bool = False,  # noqa: FBT001, FBT002
        offset: int = 0,
        limit: int = -1,
    ) -> list[confluent_types.SchemaVersion]:
        """Return the versions with this schema, in all subjects."""
        query = schema_source.query_of(subject=subject_name, deleted=deleted, offset=offset, limit=limit)
        found = self._transport.ask("GET", ("schemas", "ids", str(schema_id), "versions"), query)
        return [confluent_types.SchemaVersion(one["subject"], one["version"]) for one in found]

    def lookup_schema(
        self,
        subject_name: str,
        schema: object,
        normalize_schemas: bool = False,  # noqa: FBT001, FBT002
        fmt: str | None = None,
        deleted: bool = False,  # noqa: FBT001, FBT002
    ) -> confluent_types.RegisteredSchema:
        """Return the version of a subject with this schema.

        Raises:
            SchemaRegistryError: the subject (40401) or the schema (40403) is unknown.
        """
        query = schema_source.query_of(normalize=normalize_schemas, deleted=deleted, format=fmt)
        return confluent_types.read_registered(
            self._transport.ask("POST", ("subjects", subject_name), query, confluent_types.body_of(schema))
        )

    # --- subjects and versions -------------------------------------------------------------------

    def get_subjects(
        self,
        subject_prefix: str | None = None,
        deleted: bool = False,  # noqa: FBT001, FBT002
        deleted_only: bool = False,  # noqa: FBT001, FBT002
        offset: int = 0,
        limit: int = -1,
    ) -> list[str]:
        """Return the names of subjects, sorted."""
        query = schema_source.query_of(subjectPrefix=subject_prefix, deleted=deleted, deletedOnly=deleted_only)
        return list(
            self._transport.ask("GET", ("subjects",), {**query, **schema_source.query_of(offset=offset, limit=limit)})
        )

    def get_versions(
        self,
        subject_name: str,
        deleted: bool = False,  # noqa: FBT001, FBT002
        deleted_only: bool = False,  # noqa: FBT001, FBT002
        offset: int = 0,
        limit: int = -1,
    ) -> list[int]:
        """Return the version numbers of a subject, ascending."""
        query = schema_source.query_of(deleted=deleted, deletedOnly=deleted_only, offset=offset, limit=limit)
        return list(self._transport.ask("GET", ("subjects", subject_name, "versions"), query))

    def get_version(
        self,
        subject_name: str,
        version: int | str = "latest",
        deleted: bool = False,  # noqa: FBT001, FBT002
        fmt: str | None = None,
    ) -> confluent_types.RegisteredSchema:
        """Return a version of a subject, by number or `latest`."""
        path = ("subjects", subject_name, "versions", str(version))
        return confluent_types.read_registered(
            self._transport.ask("GET", path, schema_source.query_of(deleted=deleted, format=fmt))
        )

    def get_latest_version(self, subject_name: str, fmt: str | None = None) -> confluent_types.RegisteredSchema:
        """Return the newest version of a subject without caching."""
        return self.get_version(subject_name, fmt=fmt)

    def get_latest_with_metadata(
        self,
        subject_name: str,
        metadata: Mapping[str, str],
        deleted: bool = False,  # noqa: FBT001, FBT002
        fmt: str | None = None,
    ) -> confluent_types.RegisteredSchema:
        """Return the newest version of a subject with the given metadata. A cluster's own registry stores none."""
        query = schema_source.query_of(
            deleted=deleted, format=fmt, key=",".join(metadata), value=",".join(metadata.values())
        )
        return confluent_types.read_registered(
            self._transport.ask("GET", ("subjects", subject_name, "metadata"), query)
        )

    def get_referenced_by(
        self, subject_name: str, version: int | str = "latest", offset: int = 0, limit: int = -1
    ) -> list[int]:
        """Return the ids of schemas that reference a version."""
        path = ("subjects", subject_name, "versions", str(version), "referencedby")
        return list(self._transport.ask("GET", path, schema_source.query_of(offset=offset, limit=limit)))

    def delete_subject(self, subject_name: str, permanent: bool = False) -> list[int]:  # noqa: FBT001, FBT002
        """Delete all versions of a subject and return their numbers.

        Args:
            subject_name: the subject.
            permanent: remove versions that were soft-deleted before.

        Raises:
            SchemaRegistryError: 40401, 40404, 40405, 42205, 42206.
        """
        return list(
            self._transport.ask(
                "DELETE", ("subjects", subject_name), {"permanent": schema_source.query_flag(permanent)}
            )
        )

    def delete_version(self, subject_name: str, version: int | str, permanent: bool = False) -> int:  # noqa: FBT001, FBT002
        """Delete a version of a subject and return its number.

        Args:
            subject_name: the subject.
            version: the version's number or `latest`.
            permanent: remove a version that was soft-deleted before.

        Raises:
            SchemaRegistryError: 40401, 40402, 40406, 40407, 42205, 42206.
        """
        path = ("subjects", subject_name, "versions", str(version))
        return int(self._transport.ask("DELETE", path, {"permanent": schema_source.query_flag(permanent)}))

    def get_contexts(self, offset: int = 0, limit: int = -1) -> list[str]:
        """Return the contexts; a cluster's own registry has only the default context."""
        return list(self._transport.ask("GET", ("contexts",), schema_source.query_of(offset=offset, limit=limit)))

    def get_associations_by_resource_name(
        self, resource_name: str, resource_namespace: str, *args: object, **kwargs: object
    ) -> list[Any]:
        """Return an empty list: associations with topics are not supported, and strategies use the topic's name."""
        del resource_name, resource_namespace, args, kwargs
        return []

    def create_association(self, request: object) -> Any:  # noqa: ANN401 - it has no answer
        """Raise `SchemaRegistryError` 42205, because associations are not supported."""
        del request
        raise refusals.no_associations()

    def delete_associations(self, resource_id: str, *args: object, **kwargs: object) -> None:
        """Raise `SchemaRegistryError` 42205, because associations are not supported."""
        del resource_id, args, kwargs
        raise refusals.no_associations()

    def clear_latest_caches(self) -> None:
        """Do nothing: the latest versions are not cached."""

    def clear_caches(self) -> None:
        """Drop all cached schemas of this client."""
        super().clear_caches()
        self._by_id.clear()
