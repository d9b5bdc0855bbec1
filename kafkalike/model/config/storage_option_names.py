"""Names of storage options: the options of object stores by provider, with obstore's and delta-rs's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Provider = Literal["s3", "azure", "google"]

CLIENT: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
"""Options of the HTTP client, the same for every provider. Times are texts such as `10s`."""

_AZURE_LOGIN: Final = ("client_id", "client_secret", "tenant_id")


@dataclass(frozen=True, slots=True)
class Kind:
    """The options of one provider."""

    title: str
    prefixes: tuple[str, ...]
    """Prefixes of environment variables and of options in environment style."""
    names: frozenset[str]
    aliases: Mapping[str, str]
    credentials: tuple[tuple[str, ...], ...]
    """Sets of options, each of which identifies the client. Without any, an SDK would ask the machine's metadata
    address."""


KINDS: Final[Mapping[Provider, Kind]] = {
    "s3": Kind(
        title="S3",
        prefixes=("aws_",),
        names=frozenset(
            {
                "access_key_id",
                "checksum_algorithm",
                "container_authorization_token_file",
                "container_credentials_full_uri",
                "container_credentials_relative_uri",
                "endpoint",
                "region",
                "request_payer",
                "role_arn",
                "role_session_name",
                "secret_access_key",
                "server_side_encryption",
                "session_token",
                "skip_signature",
                "sse_bucket_key_enabled",
                "sse_customer_key_base64",
                "sse_kms_key_id",
                "sts_endpoint",
                "unsigned_payload",
                "virtual_hosted_style_request",
                "web_identity_token_file",
            }
        ),
        aliases={
            "default_region": "region",
            "endpoint_url": "endpoint",
            "endpoint_url_s3": "endpoint",
            "endpoint_url_sts": "sts_endpoint",
            "token": "session_token",
        },
        credentials=(
            ("access_key_id", "secret_access_key"),
            ("role_arn", "web_identity_token_file"),
            ("container_credentials_full_uri",),
            ("container_credentials_relative_uri",),
            ("skip_signature",),
        ),
    ),
    "azure": Kind(
        title="Azure",
        prefixes=("azure_storage_", "azure_"),
        names=frozenset(
            {
                "account_key",
                "account_name",
                "authority_host",
                "client_id",
                "client_secret",
                "encryption_key",
                "endpoint",
                "federated_token_file",
                "sas_key",
                "skip_signature",
                "tenant_id",
                "token",
                "use_azure_cli",
                "use_emulator",
            }
        ),
        aliases={
            "access_key": "account_key",
            "authority_id": "tenant_id",
            "bearer_token": "token",
            "master_key": "account_key",
            "sas_token": "sas_key",
        },
        credentials=(
            ("account_key",),
            ("sas_key",),
            ("token",),
            _AZURE_LOGIN,
            ("client_id", "federated_token_file", "tenant_id"),
            ("use_azure_cli",),
            ("use_emulator",),
            ("skip_signature",),
        ),
    ),
    "google": Kind(
        title="Google",
        prefixes=("google_",),
        names=frozenset(
            {
                "application_credentials",
                "base_url",
                "bearer_token",
                "service_account",
                "service_account_key",
                "skip_signature",
            }
        ),
        aliases={"service_account_path": "service_account"},
        credentials=(
            ("service_account",),
            ("service_account_key",),
            ("application_credentials",),
            ("bearer_token",),
            ("skip_signature",),
        ),
    ),
}

NO_MEANING: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("bucket", "bucket_name", "container", "container_name"), "the storage root names the bucket or container"
    ),
    **dict.fromkeys(
        ("s3_allow_unsafe_rename", "s3_locking_provider", "conditional_put", "copy_if_not_exists"),
        "every commit is a conditional put",
    ),
    **dict.fromkeys(
        ("credential_type", "imdsv1_fallback", "metadata_endpoint", "msi_endpoint", "msi_resource_id", "object_id"),
        "kafkalike never asks the machine's metadata address",
    ),
    **dict.fromkeys(("s3_express", "use_fabric_endpoint"), "untested storage, to which kafkalike does not write"),
}
"""Options of obstore or delta-rs that are rejected, with the reason."""

SECRETS: Final = frozenset(
    {
        "access_key_id",
        "account_key",
        "bearer_token",
        "client_secret",
        "encryption_key",
        "proxy_url",
        "sas_key",
        "secret_access_key",
        "service_account_key",
        "session_token",
        "sse_customer_key_base64",
        "token",
    }
)
"""Options whose values are never shown, not even inside other texts."""
