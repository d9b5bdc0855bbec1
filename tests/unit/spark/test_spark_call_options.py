"""Option objects of `kafkalike.spark`: bad values are refused when they are made, before anything else is."""

from __future__ import annotations

import dataclasses

import pytest

from kafkalike.errors import IllegalArgumentError, UnsupportedCodecError
from kafkalike.schemas.arrow.batch_decoder import DEPTH
from kafkalike.spark import ProducerOptions, QueryOptions, ReaderSchemaOptions, RecordSchemas


def test_unknown_output_mode_is_refused() -> None:
    with pytest.raises(IllegalArgumentError, match="append, update, complete, not 'overwrite'"):
        QueryOptions(output_mode="overwrite")


def test_unknown_compression_is_refused() -> None:
    with pytest.raises(UnsupportedCodecError, match="not 'rar'"):
        ProducerOptions(compression_type="rar")


def test_no_compression_is_the_codec_none() -> None:
    assert ProducerOptions().codec == "none"
    assert ProducerOptions(compression_type="zstd").codec == "zstd"


def test_a_schema_alone_is_the_one_of_the_values() -> None:
    assert RecordSchemas.of("avro") == RecordSchemas(value="avro")
    assert RecordSchemas.of(RecordSchemas(key="avro")) == RecordSchemas(key="avro")


def test_no_schemas_are_false() -> None:
    assert not RecordSchemas.of(None)
    assert RecordSchemas(key="avro")


def test_options_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ProducerOptions().compression_type = "gzip"  # type: ignore[misc]


def test_depth_is_that_of_readers() -> None:
    assert ReaderSchemaOptions().depth == DEPTH
