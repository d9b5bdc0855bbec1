"""Session settings: those that change what SQL text, types or zones mean, and a session under some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONE: Final = "spark.sql.session.timeZone"

SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": {},
    "times-without-zone": {"spark.sql.timestampType": "TIMESTAMP_NTZ", ZONE: "America/New_York"},
    "zone": {ZONE: "America/New_York"},
    "zone-offset": {ZONE: "-13:33:33"},
    "ansi-off": {"spark.sql.ansi.enabled": "false"},
    "double-quoted-names": {"spark.sql.ansi.doubleQuotedIdentifiers": "true"},
    "case-sensitive": {"spark.sql.caseSensitive": "true"},
    "binary-as-string": {"spark.sql.parquet.binaryAsString": "true"},
    "regex-columns": {"spark.sql.parser.quotedRegexColumnNames": "true"},
    "escaped-literals": {"spark.sql.parser.escapedStringLiterals": "true"},
    "large-arrow-types": {"spark.sql.execution.arrow.useLargeVarTypes": "true"},
    "rows-one-by-one": {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"},
    "legacy-time-parser": {"spark.sql.legacy.timeParserPolicy": "LEGACY"},
    "strict-assignment": {"spark.sql.storeAssignmentPolicy": "STRICT"},
    "legacy-assignment": {"spark.sql.storeAssignmentPolicy": "LEGACY"},
    "last-map-key": {"spark.sql.mapKeyDedupPolicy": "LAST_WIN"},
    "java-times": {"spark.sql.datetime.java8API.enabled": "true"},
    "bytearrays": {"spark.sql.execution.pyspark.binaryAsBytes": "false"},
    "binary-concat": {"spark.sql.function.concatBinaryAsString": "true"},
    "size-of-null": {"spark.sql.legacy.sizeOfNull": "true"},
    "string-arrays": {"spark.sql.legacy.createEmptyCollectionUsingStringType": "true"},
    "null-fields": {"spark.sql.jsonGenerator.ignoreNullFields": "false"},
    "corrupt-record": {"spark.sql.columnNameOfCorruptRecord": "value"},
    "no-vectors": {"spark.sql.parquet.enableVectorizedReader": "false", "spark.sql.codegen.wholeStage": "false"},
    "no-push-down": {"spark.sql.parquet.filterPushdown": "false"},
    "rebased-times": {"spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY"},
    "travel-keys": {"spark.sql.timeTravelVersionKey": "v", "spark.sql.timeTravelTimestampKey": "t"},
    "arrow-frames": {"spark.sql.execution.arrow.pyspark.enabled": "true"},
    "other-default-source": {"spark.sql.sources.default": "json"},
    "legacy-names": {"spark.sql.legacy.identifierClause": "true"},
    "hidden-traceback": {"spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true"},
}
"""Settings by what they do."""

WITHOUT_ANSI: Final = ("ansi-off", "zone-offset", "rows-one-by-one", "java-times", "no-vectors", "no-push-down")
WITH_ANSI: Final = tuple(name for name in SETTINGS if name not in {*WITHOUT_ANSI, "plain", "zone", "legacy-assignment"})


def together(names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for one in names for name, value in SETTINGS[one].items()}


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """A session with other settings, for as long as the block runs."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
