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

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started

from kafkalike.errors import KafkaError

_log = logging.getLogger(__name__)

CLASSES: Final = Path(__file__).parent
"""Folder of the Java files."""
TARGET: Final = 8
"""Version of Java from which interfaces have static methods."""


def java_class(name: str) -> Any:  # noqa: ANN401
    """Return a class of this process's JVM by its whole name.

    For `jvm.org.apache.spark` the JVM looks for a class of each part's name in all jars, a third of a millisecond each.
    """
    return getattr(SparkContext._jvm, name)  # noqa: SLF001 - PySpark has no public name for the JVM


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


_compiled: dict[str, Any] = {}
"""Loaders of the compiled classes by Spark application."""


def new_object(spark: Any, name: str, *arguments: Any) -> Any:  # noqa: ANN401
    """Create an object of a Java class; the first call of an application compiles all files.

    Args:
        spark: a session with a JVM.
        name: of the class, such as `TopicStream`.
        *arguments: of its only constructor.
    """
    gateway = spark.sparkContext._gateway  # noqa: SLF001
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    application = spark.sparkContext.applicationId
    if application not in _compiled:
        _compiled[application] = _compile(spark)
    given = gateway.jvm.java.util.ArrayList()
    for argument in arguments:
        given.add(argument)
    found = _compiled[application].loadClass(f"kafkalike.spark.{name}")
    return found.getConstructors()[0].newInstance(given.toArray())


def _compile(spark: Any) -> Any:  # noqa: ANN401
    """Compile all files, and give their classes to the executors; returns their loader."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001
    janino, resource = gateway.jvm.org.codehaus.janino, gateway.jvm.org.codehaus.commons.compiler.util.resource
    sources = {file.name: file.read_text("utf-8") for file in sorted(CLASSES.glob("*.java"))}
    given = gateway.new_array(resource.Resource, len(sources))
    for n, (name, source) in enumerate(sources.items()):
        given[n] = resource.StringResource(name, source)
    parent = gateway.jvm.Thread.currentThread().getContextClassLoader()
    made = resource.MapResourceCreator()
    compiler = janino.Compiler()
    compiler.setTargetVersion(TARGET)
    compiler.setIClassLoader(janino.ClassLoaderIClassLoader(parent))
    compiler.setClassFileCreator(made)
    compiler.compile(given)
    # Executors take jars of one name for the same.
    version = crc32("".join(sources.values()).encode())
    place = Path(tempfile.mkdtemp(prefix="kafkalike-stream-"), f"kafkalike-{version:08x}.jar")
    with zipfile.ZipFile(place, "w") as jar:
        for name, code in dict(made.getMap()).items():
            jar.writestr(name, bytes(code))
    spark.sparkContext._jsc.addJar(str(place))  # noqa: SLF001
    atexit.register(shutil.rmtree, place.parent, ignore_errors=True)
    finder = resource.MapResourceFinder(made.getMap())
    return gateway.jvm.org.codehaus.commons.compiler.util.ResourceFinderClassLoader(finder, parent)
