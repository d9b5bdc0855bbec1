"""Storage options: names as obstore and deltalake have them, and no value that is ever shown."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.config.admin_config import AdminConfig
from kafkalike.model.config.consumer_config import ConsumerConfig
from kafkalike.model.config.producer_config import ProducerConfig
from kafkalike.model.config.storage_option_names import CLIENT, SECRETS, Provider
from kafkalike.model.config.storage_options import HIDDEN, StorageOptions, check_options, resolve_options

CANARY = "canary-5d1c"
KEYS = {"access_key_id": CANARY, "secret_access_key": CANARY}


@pytest.mark.parametrize(
    "given",
    [
        {"access_key_id": "a", "secret_access_key": "b", "region": "r", "endpoint": "e"},
        {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "r", "AWS_ENDPOINT_URL": "e"},
        {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_default_region": "r", "endpoint_url": "e"},
    ],
)
def test_the_spellings_of_a_name_are_one_name(given: dict[str, str]) -> None:
    """obstore's, deltalake's and the environment's."""
    found = resolve_options("s3", StorageOptions(given), {})

    assert found.given() == {"access_key_id": "a", "secret_access_key": "b", "region": "r", "endpoint": "e"}


def test_azures_and_googles_names_are_taken_too() -> None:
    azure = StorageOptions({"AZURE_STORAGE_ACCOUNT_NAME": "n", "azure_storage_sas_token": "s"})
    google = StorageOptions({"GOOGLE_SERVICE_ACCOUNT_PATH": "/file", "timeout": "3s"})

    assert resolve_options("azure", azure, {}).given() == {"account_name": "n", "sas_key": "s"}
    assert resolve_options("google", google, {}).given() == {"service_account": "/file", "timeout": "3s"}


def test_the_environment_says_what_was_not_given() -> None:
    environ = {
        "AWS_ACCESS_KEY_ID": "env",
        "AWS_SECRET_ACCESS_KEY": "env",
        "AWS_ENDPOINT_URL": "all",
        "AWS_ENDPOINT_URL_S3": "s3",
        "AWS_ALLOW_HTTP": "true",
        "AWS_PROFILE": "nobody-reads-it",
    }

    found = resolve_options("s3", StorageOptions({"access_key_id": "given"}), environ)

    assert found.given() == {
        "access_key_id": "given",
        "allow_http": "true",
        "endpoint": "s3",
        "secret_access_key": "env",
    }


@pytest.mark.parametrize("provider", ["s3", "azure", "google"])
@pytest.mark.parametrize("given", [{}, {"allow_http": "true"}, {"skip_signature": "false"}])
def test_without_credentials_there_is_no_client(provider: Provider, given: dict[str, str]) -> None:
    """It would ask the machine's metadata address."""
    with pytest.raises(
        KafkaConfigurationError, match=r"no credentials for .* never asks the machine's metadata address$"
    ):
        resolve_options(provider, StorageOptions(given), {})


@pytest.mark.parametrize("name", ["metadata_endpoint", "AZURE_MSI_ENDPOINT", "credential_type", "imdsv1_fallback"])
@pytest.mark.parametrize("provider", ["s3", "azure"])
def test_options_that_name_the_metadata_address_are_refused(provider: Provider, name: str) -> None:
    if name.startswith("AZURE_") and provider != "azure":
        name = name.removeprefix("AZURE_").lower()

    with pytest.raises(KafkaConfigurationError, match="never asks the machine's metadata address"):
        resolve_options(provider, StorageOptions({**KEYS, name: "x"} if provider == "s3" else {name: "x"}), {})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("acess_key_id", "did you mean 'access_key_id'"),
        ("bucket", "the storage root names the bucket"),
        ("AWS_S3_ALLOW_UNSAFE_RENAME", "every commit is a conditional put"),
        ("conditional_put", "every commit is a conditional put"),
        ("s3_express", "untested storage"),
        ("account_key", "unknown storage option 'account_key' of S3"),
    ],
)
def test_an_option_that_is_not_taken_is_refused_with_the_reason(name: str, told: str) -> None:
    """None is taken and ignored."""
    with pytest.raises(KafkaConfigurationError, match=told) as refused:
        resolve_options("s3", StorageOptions({**KEYS, name: CANARY}), {})

    assert CANARY not in str(refused.value)


def test_one_option_in_two_spellings_must_say_one_thing() -> None:
    with pytest.raises(KafkaConfigurationError, match="'region' is given twice") as refused:
        resolve_options("s3", StorageOptions({**KEYS, "region": CANARY, "AWS_REGION": "other"}), {})

    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    "config",
    [ProducerConfig.of, ConsumerConfig.of, AdminConfig.from_configs],
    ids=["producer", "consumer", "admin"],
)
def test_no_client_shows_a_value(config: Callable[[dict[str, Any]], Any]) -> None:
    """Neither in its settings nor in the error about wrong ones."""
    made = config({"storage_options": {**KEYS, "allow_http": True}})

    assert CANARY not in repr(made)
    assert "StorageOptions(access_key_id, allow_http, secret_access_key)" in repr(made)
    assert made.storage_options.given()["allow_http"] == "true"
    for wrong in (CANARY, [CANARY], {"access_key_id": [CANARY]}, {1: CANARY}):
        with pytest.raises(KafkaConfigurationError, match="'storage_options': a dict of texts is needed") as refused:
            config({"storage_options": wrong})
        assert CANARY not in str(refused.value)


def test_options_are_not_pickled() -> None:
    """They would lie in a file or a message."""
    with pytest.raises(TypeError, match="secrets"):
        pickle.dumps(check_options(KEYS))


def test_options_that_are_sent_to_tasks_arrive_and_are_not_shown() -> None:
    """Only these are pickled, and they count as the same options."""
    options = check_options(KEYS)
    assert options is not None

    sent = pickle.loads(pickle.dumps(options.for_tasks()))  # noqa: S301 - made here

    assert sent == options
    assert sent.given() == options.given()
    assert CANARY not in repr(sent) + str([sent])


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_secret_is_taken_out_of_a_text(name: str) -> None:
    options = StorageOptions({name: CANARY, "region": "r"})

    assert options.scrubbed(f"a {CANARY} in r") == f"a {HIDDEN} in r"
    assert CANARY not in repr(options)


def test_every_option_of_the_client_is_one_of_obstores() -> None:
    """They are handed to it as they are."""
    from obstore.store import S3Store

    values: Any = dict.fromkeys(CLIENT, "1s") | dict.fromkeys([n for n in CLIENT if n.startswith("allow")], "true")
    del values["root_certificate"], values["proxy_ca_certificate"], values["proxy_url"]
    values["pool_max_idle_per_host"] = "1"

    made = S3Store("bucket", config={"skip_signature": True}, client_options=values)

    assert made.client_options is not None
    assert set(made.client_options) >= set(values)
