"""SettingsClient: the methods of Confluent's client that are about compatibility, levels and modes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalike.schemas.asking import Asking, at, query_of, said
from kafkalike.schemas.shapes import ServerConfig, body_of


class SettingsClient(Asking):
    """See `RegistryClient`."""

    def test_compatibility(
        self,
        subject_name: str,
        schema: object,
        version: int | str = "latest",
        normalize: bool = False,  # noqa: FBT001, FBT002
        verbose: bool = False,  # noqa: FBT001, FBT002
    ) -> bool:
        """Whether the subject's level allows a schema beside one version."""
        del verbose
        return not self.problems(subject_name, schema, version, normalize=normalize)

    def test_compatibility_all_versions(
        self,
        subject_name: str,
        schema: object,
        normalize: bool = False,  # noqa: FBT001, FBT002
        verbose: bool = False,  # noqa: FBT001, FBT002
    ) -> bool:
        """Whether the subject's level allows a schema as its next version."""
        del verbose
        return not self.problems(subject_name, schema, None, normalize=normalize)

    def problems(
        self, subject_name: str, schema: object, version: int | str | None = None, *, normalize: bool = False
    ) -> list[str]:
        """What stands against a schema as the next version of a subject; empty when nothing does.

        Args:
            subject_name: the subject.
            schema: the schema.
            version: compare with this one; None for all that the subject's level says.
            normalize: bring it to its normal form before.
        """
        path = ["compatibility", "subjects", subject_name, "versions", *([] if version is None else [str(version)])]
        answer = self._door.ask("POST", path, query_of(normalize=normalize, verbose=True), body_of(schema))
        return [] if answer["is_compatible"] else list(answer.get("messages") or ["it is not compatible"])

    def set_compatibility(self, subject_name: str | None = None, level: str | None = None) -> dict[str, Any]:
        """Set the level of a subject, or of all that have none."""
        if level is None:
            raise ValueError("level must be set")
        return dict(self._door.ask("PUT", at("config", subject_name), None, {"compatibility": str(level).upper()}))

    def get_compatibility(self, subject_name: str | None = None) -> str:
        """The level of a subject, or of all.

        Raises:
            SchemaRegistryError: a subject has none of its own; 40408.
        """
        return str(self._door.ask("GET", at("config", subject_name))["compatibilityLevel"])

    def set_config(self, subject_name: str | None = None, config: object = None) -> dict[str, Any]:
        """Set what a configuration says, of this package or of Confluent's."""
        if config is None:
            raise ValueError("config must be set")
        return dict(self._door.ask("PUT", at("config", subject_name), None, _config_body(config)))

    def get_config(self, subject_name: str | None = None) -> ServerConfig:
        """What is set for a subject, or for all."""
        return _config(self._door.ask("GET", at("config", subject_name)))

    def delete_config(self, subject_name: str | None = None) -> ServerConfig:
        """Forget what is set; returns it."""
        return _config(self._door.ask("DELETE", at("config", subject_name)))

    def get_mode(self, subject_name: str) -> str:
        """The mode of a subject.

        Raises:
            SchemaRegistryError: it has none of its own; 40409.
        """
        return str(self._door.ask("GET", at("mode", subject_name))["mode"])

    def update_mode(self, subject_name: str | None, mode: str, force: bool = False) -> str:  # noqa: FBT001, FBT002
        """Set the mode of a subject: READWRITE, READONLY, READONLY_OVERRIDE or IMPORT."""
        path = at("mode", subject_name)
        return str(self._door.ask("PUT", path, {"force": said(force)}, {"mode": mode})["mode"])

    def delete_mode(self, subject_name: str | None) -> str:
        """Forget the mode of a subject; returns it."""
        return str(self._door.ask("DELETE", at("mode", subject_name))["mode"])

    def get_global_mode(self) -> str:
        """The mode of all that have none of their own."""
        return str(self._door.ask("GET", ("mode",))["mode"])

    def update_global_mode(self, mode: str, force: bool = False) -> str:  # noqa: FBT001, FBT002
        """Set it; see `update_mode`."""
        return self.update_mode(None, mode, force)


def _config_body(config: object) -> dict[str, Any]:
    if isinstance(config, ServerConfig):
        body = {"compatibility": config.compatibility or config.compatibility_level, "normalize": config.normalize}
        return {name: value for name, value in body.items() if value is not None}
    if not hasattr(config, "to_dict"):
        raise TypeError(f"a ServerConfig is needed, not {type(config).__name__}")
    return dict(config.to_dict())


def _config(answer: Mapping[str, Any]) -> ServerConfig:
    return ServerConfig(answer.get("compatibility"), answer.get("compatibilityLevel"), answer.get("normalize"))
