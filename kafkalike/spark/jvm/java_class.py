"""Java classes of the package: compiled in the session's JVM, and answered by Python in the driver's process."""

from __future__ import annotations

import atexit
import json
import logging
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any, ClassVar, Final
from zlib import crc32

from pyspark.java_gateway import ensure_callback_server_started

from kafkalike.errors import KafkaError

_log = logging.getLogger(__name__)

CLASSES: Final = Path(__file__).parent
"""Folder of the Java files."""
TARGET: Final = 8
"""Version of Java from which interfaces have static methods."""


class JavaCalls:
    """Answers the calls of a Java class: `{"call": "latest", …}` is answered by the method `_latest`."""

    class Java:
        """The interface that py4j implements by this class."""

        implements: ClassVar = ["java.util.function.Function"]

    def apply(self, question: str) -> str:
        """Answer a call: JSON in, JSON out. An error of kafkalike is part of the answer."""
        asked = json.loads(question)
        try:
            answer = getattr(self, f"_{asked['call']}")(asked["first"], asked["second"])
        except KafkaError as error:
            _log.debug("a call of a stream failed", exc_info=True)
            answer = {"error": f"{type(error).__module__}.{type(error).__name__}: {error}"}
        return json.dumps(answer)


_compiled: dict[tuple[str, str], Any] = {}
"""Loaders of compiled classes by Spark application and file."""


def new_object(spark: Any, name: str, *arguments: Any) -> Any:  # noqa: ANN401
    """Create an object of a Java class; its file is compiled at the first call of an application.

    Args:
        spark: a session with a JVM.
        name: name of the file, and of the class in it, such as `TopicStream.TopicBatch`.
        *arguments: of its only constructor.
    """
    gateway = spark.sparkContext._gateway  # noqa: SLF001
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    file, _, owner = name.partition(".")
    wanted = spark.sparkContext.applicationId, file
    if wanted not in _compiled:
        _compiled[wanted] = _compile(spark, file)
    given = gateway.jvm.java.util.ArrayList()
    for argument in arguments:
        given.add(argument)
    found = _compiled[wanted].loadClass(f"kafkalike.spark.{owner}")
    return found.getConstructors()[0].newInstance(given.toArray())


def _compile(spark: Any, file: str) -> Any:  # noqa: ANN401
    """Compile a file, and give its classes to the executors; returns their loader."""
    compiler = spark.sparkContext._jvm.org.codehaus.janino.SimpleCompiler()  # noqa: SLF001
    compiler.setTargetVersion(TARGET)
    source = Path(CLASSES, f"{file}.java").read_bytes()
    compiler.cook(source.decode())
    # Executors take jars of one name for the same.
    place = Path(tempfile.mkdtemp(prefix="kafkalike-stream-"), f"{file}-{crc32(source):08x}.jar")
    with zipfile.ZipFile(place, "w") as jar:
        for name, code in dict(compiler.getBytecodes()).items():
            jar.writestr(f"{name.replace('.', '/')}.class", bytes(code))
    spark.sparkContext._jsc.addJar(str(place))  # noqa: SLF001
    atexit.register(shutil.rmtree, place.parent, ignore_errors=True)
    return compiler.getClassLoader()
