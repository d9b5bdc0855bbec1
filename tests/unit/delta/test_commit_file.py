"""The files of table commits, as Delta's readers and writers of any release find them."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import fields
from typing import Any

import pytest

from kafkalike.delta.actions import Add, TableCommit, parse_commit
from kafkalike.delta.commit_file import CommitFile, creation
from kafkalike.version import engine_info, user_and_host


def lines(content: bytes) -> list[dict[str, Any]]:
    """The actions of a file, without the fields of its `commitInfo` that name the writer, which are checked here."""
    first, *actions = [json.loads(line) for line in content.decode().splitlines()]
    info = first["commitInfo"]
    user, host = user_and_host()
    assert info.pop("engineInfo") == engine_info()
    assert (info.pop("userName"), info.pop("kafkalikeHost"), info.pop("kafkalikeProcess")) == (user, host, os.getpid())
    assert info.pop("kafkalikeChecksum") == zlib.crc32(content.partition(b"\n")[2])
    return [first, *actions]


def file(path: str, partition: int | None, size: int, records: int, *, data_change: bool = True) -> Add:
    return Add(
        path=path,
        partition=partition,
        size=size,
        modification_ms=8,
        data_change=data_change,
        stats={"numRecords": records} if records else {},
    )


APPENDED = CommitFile(
    version=3,
    time_ms=1_000,
    operation="WRITE",
    append_id="a1",
    adds=[file("partition=2/new", 2, 50, 4), file("rows", None, 6, 0)],
    txns={"kafkalike.end/2": 9},
    note={"time": 7},
)
REWRITTEN = CommitFile(
    version=4,
    time_ms=2_000,
    operation="OPTIMIZE",
    append_id="a2",
    adds=[file("partition=2/whole", 2, 70, 5, data_change=False)],
    removes=[file("partition=2/new", 2, 50, 4, data_change=False), file("rows", None, 6, 0)],
    closes=False,
)


def test_append_is_a_blind_write_of_its_files_and_applications() -> None:
    assert lines(APPENDED.content()) == [
        {
            "commitInfo": {
                "timestamp": 1_000,
                "operation": "WRITE",
                "operationParameters": {"mode": "Append"},
                "operationMetrics": {"numFiles": "2", "numOutputRows": "4", "numOutputBytes": "56"},
                "isBlindAppend": True,
                "userMetadata": '{"kafkalikeAppend":"a1","time":7}',
            }
        },
        {"txn": {"appId": "kafkalike.end/2", "version": 9, "lastUpdated": 1_000}},
        {
            "add": {
                "path": "partition=2/new",
                "partitionValues": {"partition": "2"},
                "size": 50,
                "modificationTime": 8,
                "dataChange": True,
                "stats": '{"numRecords":4}',
            }
        },
        {
            "add": {
                "path": "rows",
                "partitionValues": {},
                "size": 6,
                "modificationTime": 8,
                "dataChange": True,
                "stats": "{}",
            }
        },
    ]


def test_rewrite_removes_files_before_it_adds_others() -> None:
    assert lines(REWRITTEN.content()) == [
        {
            "commitInfo": {
                "timestamp": 2_000,
                "operation": "OPTIMIZE",
                "operationParameters": {},
                "operationMetrics": {
                    "numFiles": "1",
                    "numOutputRows": "5",
                    "numOutputBytes": "70",
                    "numRemovedFiles": "2",
                    "numRemovedBytes": "56",
                },
                "isBlindAppend": False,
                "userMetadata": '{"kafkalikeAppend":"a2"}',
            }
        },
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "remove": {
                "path": "partition=2/new",
                "deletionTimestamp": 2_000,
                "dataChange": False,
                "extendedFileMetadata": True,
                "partitionValues": {"partition": "2"},
                "size": 50,
            }
        },
        {
            "remove": {
                "path": "rows",
                "deletionTimestamp": 2_000,
                "dataChange": True,
                "extendedFileMetadata": True,
                "partitionValues": {},
                "size": 6,
            }
        },
        {
            "add": {
                "path": "partition=2/whole",
                "partitionValues": {"partition": "2"},
                "size": 70,
                "modificationTime": 8,
                "dataChange": False,
                "stats": '{"numRecords":5}',
            }
        },
    ]


def test_creation_has_the_schema_and_closes_the_table() -> None:
    content = creation(
        "t1", {"type": "struct"}, partition_by=["partition"], properties={"a": "b"}, time_ms=5, txns={"app": 7}
    )

    assert lines(content) == [
        {
            "commitInfo": {
                "timestamp": 5,
                "operation": "CREATE TABLE",
                "operationParameters": {"mode": "ErrorIfExists", "location": ""},
                "userMetadata": '{"kafkalikeAppend":"t1"}',
            }
        },
        {
            "protocol": {
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": ["appendOnly", "invariants", "changeOnlyThroughKafkalike"],
            }
        },
        {
            "metaData": {
                "id": "t1",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": '{"type":"struct"}',
                "partitionColumns": ["partition"],
                "configuration": {"a": "b"},
                "createdTime": 5,
            }
        },
        {"txn": {"appId": "app", "version": 7, "lastUpdated": 5}},
    ]


@pytest.mark.parametrize("commit", [APPENDED, REWRITTEN], ids=["append", "rewrite"])
def test_writer_knows_its_commit_as_readers_do(commit: CommitFile) -> None:
    """But for the fields of `commitInfo` that only people read, and removed files' times and statistics."""
    applied, read = commit.applied(), parse_commit(commit.version, commit.content(), "t")

    names = {field.name for field in fields(TableCommit)} - {"info", "taken"}
    assert {name: getattr(applied, name) for name in names} == {name: getattr(read, name) for name in names}
    assert [old.path for old in applied.taken] == [old.path for old in read.taken]
    assert applied.writer == read.writer
