"""Lines: lines of text in, a stream of them out, a batch for each call."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


class Lines:
    """A stream of the lines of files in a folder: each file is a batch, and always the same one."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        folder.mkdir()
        self._spark = spark
        self._folder = folder
        self._files = 0

    def add(self, *lines: str) -> None:
        """One more batch."""
        self._files += 1
        # The source must never see half a file.
        hidden = self._folder / f".{self._files}"
        hidden.write_text("".join(f"{line}\n" for line in lines))
        hidden.rename(self._folder / f"{self._files}.txt")

    def frame(self) -> DataFrame:
        """The stream; one column `value`."""
        return self._spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(self._folder))
