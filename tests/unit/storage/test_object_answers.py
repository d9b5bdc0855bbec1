"""What a client makes of a storage's answers."""

import pytest

from kafkalike.errors import KafkaConnectionError, UnsafeStorageError
from kafkalike.storage.object_client import ObjectClient
from kafkalike.storage.probe import probe
from tests.tools.answers import answering, asking
from tests.tools.object_servers import S3, ObjectServer


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "ExpiredToken", PermissionError),
        (400, "InvalidToken", PermissionError),
        (403, "SignatureDoesNotMatch", PermissionError),
        (400, "AuthorizationHeaderMalformed", KafkaConnectionError),
        (404, "NoSuchBucket", KafkaConnectionError),
        (400, "InvalidArgument", UnsafeStorageError),
        (501, "NotImplemented", UnsafeStorageError),
    ],
)
def test_a_storage_is_called_unsafe_for_its_conditions_alone(status: int, code: str, error: type[Exception]) -> None:
    """S3 answers 400 to a token that has expired, and to one who asks in another region."""
    body = f"<Error><Code>{code}</Code><Message>the reason</Message></Error>".encode()
    with answering("127.0.0.1", status, body=body) as (port, _):
        client = ObjectClient(*asking(ObjectServer(S3, port), session_token="a-token"))  # noqa: S106 - of nobody

        with pytest.raises(error, match=f"{status} .*{code}"):
            probe(client, whole=False)
