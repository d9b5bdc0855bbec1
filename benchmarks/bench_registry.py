"""Registry: subjects and versions in, what registering, looking up and starting cost out, as the registry grows.

1,000 subjects with 10 versions each; `KAFKALIKE_BENCH_SUBJECTS` names another number. Each registration is a version of
the table `__schemas`, forced to the disk, with its check of compatibility inside.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.harness import Report, percentile
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.schemas import Registry, RemoteRegistry, Schema
from kafkalike.schemas.service.credentials import Credentials
from kafkalike.schemas.service.registry_service import RegistryServer, RegistryService

SUBJECTS = int(os.environ.get("KAFKALIKE_BENCH_SUBJECTS", "1000"))
VERSIONS = 10
LOOKS = 1_000
RUNS = 5

OPEN = """
import sys, time
from kafkalike.schemas import Registry

def pages():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

Registry(sys.argv[1]).get_subjects()
before, start = pages(), time.perf_counter()
assert Registry(sys.argv[2]).schema_by_id(1)
print(time.perf_counter() - start, (pages() - before) * 4096 / 2**20)
"""
"""A new process that has its modules loaded, by a look at another root, before the clock starts."""


def text(subject: int, version: int) -> str:
    """A record of ten fields, with other ones in each version: all of them have defaults."""
    fields = [{"name": f"field{version}x{n}", "type": "string", "default": ""} for n in range(10)]
    return json.dumps({"type": "record", "name": f"Order{subject}", "namespace": "bench", "fields": fields})


def taken(acts: Sequence[Callable[[], object]]) -> list[float]:
    """Milliseconds of each."""
    found = []
    for act in acts:
        start = time.perf_counter()
        act()
        found.append((time.perf_counter() - start) * 1e3)
    return found


def told(report: Report, what: str, samples: list[float], aim: str = "") -> None:
    """A line of a table."""
    middle, high = statistics.median(samples), percentile(samples, 0.99)
    report.add(what, f"{middle:.3f} ms, 99 % {high:.3f} ms", aim=aim)
    report.raw[what] = samples


def fill(report: Report, registry: Registry) -> None:
    """Register everything, and tell what it costs after each power of ten."""
    wanted = [(subject, version) for version in range(VERSIONS) for subject in range(SUBJECTS)]
    samples: list[float] = []
    start = time.perf_counter()
    for subject, version in wanted:
        schema = Schema(text(subject, version))
        samples += taken([lambda: registry.register_schema(f"s{subject}", schema)])  # noqa: B023 - called at once
    whole = time.perf_counter() - start
    report.add(f"register {len(wanted)} versions", f"{whole:.1f} s", result=f"{len(wanted) / whole:.0f}/s")
    size = 100
    while size <= len(wanted):
        told(report, f"register, at {size} versions", samples[size * 9 // 10 : size], aim="flat")
        size *= 10


def look(report: Report, registry: Registry) -> None:
    """What a reader and a serializer ask, embedded and of the service."""
    every = range(0, SUBJECTS * VERSIONS, max(1, SUBJECTS * VERSIONS // LOOKS))
    ids = registry.ids_of("s0")
    known = Schema(text(0, VERSIONS - 1))
    told(report, "embedded: schema by id", taken([lambda: registry.schema_by_id(ids[0])] * LOOKS))
    told(
        report,
        "embedded: latest of a subject, fresh",
        taken([partial(registry.latest, f"s{n % SUBJECTS}") for n in every]),
    )
    told(report, "embedded: register what is there", taken([lambda: registry.register_schema("s0", known)] * LOOKS))
    told(report, "embedded: look up by text", taken([lambda: registry.lookup_schema("s0", known)] * LOOKS))
    service = RegistryService(registry.cluster)
    server = RegistryServer(service, host="127.0.0.1", port=0, credentials=Credentials(), max_body=1 << 20)
    server.start()
    try:
        with RemoteRegistry(server.url) as remote:
            remote.get_subjects()
            told(
                report,
                "service: latest of a subject",
                taken([partial(remote.latest, f"s{n % SUBJECTS}") for n in every]),
            )
            told(
                report, "service: register what is there", taken([lambda: remote.register_schema("s0", known)] * LOOKS)
            )
            told(report, "service: all subjects", taken([remote.get_subjects] * 20))
    finally:
        server.stop()


def opened(report: Report, when: str, other: str, root: str) -> None:
    """What a new process pays to know all schemas."""
    samples, mib = [], []
    for _ in range(RUNS):
        done = subprocess.run([sys.executable, "-c", OPEN, other, root], check=True, capture_output=True, text=True)
        seconds, memory = done.stdout.split()
        samples.append(float(seconds) * 1e3)
        mib.append(float(memory))
    versions = SUBJECTS * VERSIONS
    report.add(
        f"start with {versions} versions, {when}",
        f"{statistics.median(samples):.0f} ms, {statistics.median(mib):.0f} MiB",
    )
    report.raw[f"start {when}"] = samples


def main() -> None:
    """Measure and print."""
    report = Report("registry")
    with tempfile.TemporaryDirectory() as scratch:
        other, root = f"{scratch}/other", f"{scratch}/root"
        Registry(other).register_schema("s", Schema('"long"'))
        registry = Registry(root)
        fill(report, registry)
        opened(report, "as written", other, root)
        lines = list(registry.export_records())
        start = time.perf_counter()
        Registry(f"{scratch}/third").import_records(lines)
        report.add(f"import {len(lines)} records", f"{time.perf_counter() - start:.1f} s")
        maintain(registry.cluster, [], clock=SYSTEM_CLOCK, works=["control"])
        opened(report, "maintained", other, root)
        look(report, registry)
    report.finish()


if __name__ == "__main__":
    main()
