"""Mutants: one small fault at a time in code that everything rests on in, which of them no test notices out.

    python scripts/mutants.py [--part model] [PATTERN …]

mutmut makes the faults, and runs for each the tests that reach the changed function, the quickest first.
`tests/tools/mutant_trials.py` makes its trials cheaper, and their order random: what a stopped run has found is a
sample. It reads its settings from the folder that it stands in and cannot be told to use some tests for some modules;
so each part gets a folder of its own, `build/mutants/<part>`. What is known of unchanged functions stays there from run
to run.

A PATTERN picks mutants by name, such as `kafkalike.model.segments.*`, and tries them again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]

BUILD: Final = ROOT / "build" / "mutants"

MUTMUT: Final = (sys.executable, "-P", str(ROOT / "tests" / "tools" / "mutant_trials.py"))

MEMORY: Final = 8 << 30
"""Bytes of address space that a trial may take: some faults make a loop that gathers things for ever."""

NOTICED: Final = frozenset({"killed", "timeout", "segfault"})
"""Endings of a trial that count: the tests failed, or did not come to an end."""

COPIED: Final = ("conf", "docs", "jobs", "scripts")
"""What tests read beside the code."""

QUICK: Final = {"CI": "true", "KAFKALIKE_TESTS": "mutants", "KAFKALIKE_SCHEDULES": "180"}
"""The same few examples of each property in each run: what these find, all examples find too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Modules, and the tests that are to notice what is wrong with them."""

    modules: Sequence[str]
    tests: Sequence[str]
    without: str = ""
    """Tests that are left out, as pytest's `-k` picks them: who looks for a planted fault sees nothing of others."""


def _unit(*names: str) -> tuple[str, ...]:
    """Paths of unit tests, whatever room they lie in."""
    return tuple(next(ROOT.glob(f"tests/unit/*/test_{name}.py")).relative_to(ROOT).as_posix() for name in names)


PARTS: Final[Mapping[str, Part]] = {
    "transactions": Part(
        modules=("kafkalike/model/transactions/*.py",),
        tests=_unit(
            "transaction_claims",
            "transaction_course",
            "transaction_faults",
            "transaction_index",
            "transaction_interrupts",
            "transaction_rows",
            "transaction_rules",
            "transaction_simulation",
            "snapshot_value",
        ),
    ),
    "shares": Part(
        modules=("kafkalike/model/shares/*.py",),
        tests=_unit("share_partition", "share_simulation"),
        without="planted",
    ),
    "combining": Part(
        modules=tuple(
            f"kafkalike/model/appends/{name}.py" for name in ("group_commit", "taken_appends", "waiting_appends")
        ),
        tests=_unit("combined_appends", "combined_course", "commit_notes", "schema_admission", "units"),
    ),
    "schemas": Part(
        modules=("kafkalike/model/schemas/*.py",),
        without="taken_away",
        tests=_unit(
            "avro_text",
            "schema_admission",
            "schema_records",
            "schema_refusals",
            "schema_rows",
            "schema_rules",
            "schema_simulation",
        ),
    ),
    "dead-letters": Part(
        modules=("kafkalike/model/dead_letter.py",),
        tests=_unit("held_letters", "replayed_letters"),
    ),
    "replication": Part(
        modules=("kafkalike/model/replication/*.py",),
        tests=_unit(
            "brokers",
            "counting",
            "metadata_quorum",
            "quorum_course",
            "quorum_simulation",
            "registers_simulation",
            "replica_assignment",
            "replica_courses",
            "replica_rows",
            "replication_course",
            "replication_simulation",
        ),
        without="taken_away",
    ),
    "corrections": Part(
        modules=("kafkalike/model/maintenance/record_removal.py",),
        tests=_unit("removal"),
    ),
    "brokers": Part(
        modules=("kafkalike/model/brokers.py",),
        tests=_unit("brokers", "metadata_rows", "reading_order"),
    ),
    "mirrors": Part(
        modules=(
            "kafkalike/model/mirror.py",
            "kafkalike/model/replication/mirror_offsets.py",
            "kafkalike/model/offset_commit.py",
        ),
        tests=_unit(
            "commit_notes",
            "group_roster",
            "group_rows",
            "group_rules",
            "mirror_rules",
            "offset_commit",
            "offset_expiry",
            "partition_split",
        ),
    ),
    "model": Part(
        modules=("kafkalike/model/*.py", "kafkalike/model/groups/*.py", "kafkalike/model/maintenance/*.py"),
        tests=_unit(
            "access_rules",
            "assignment",
            "assignors",
            "client_led_group",
            "cluster_state",
            "combined_appends",
            "commit_notes",
            "compaction_plan",
            "consumer_protocol",
            "control_rows",
            "deadlines",
            "effects",
            "fork_imports",
            "frozen_map",
            "group_roster",
            "group_rows",
            "group_rules",
            "group_sessions",
            "lag",
            "lag_history",
            "latest_position",
            "member_lease",
            "merge_plan",
            "metadata_rows",
            "mirror_rules",
            "model_values",
            "murmur2",
            "names",
            "offset_commit",
            "offset_expiry",
            "offsets",
            "on_error",
            "partition_split",
            "partitioners",
            "public_paths",
            "retention_plan",
            "row_facts",
            "row_value",
            "segments",
            "share_exchange",
            "share_partition",
            "sql_reading",
            "stream_ids",
            "topic_lives",
            "topic_states",
            "transaction_course",
            "transaction_rows",
            "units",
            "wire_member",
        ),
    ),
    "change-loop": Part(
        modules=tuple(
            f"kafkalike/delta/{name}.py"
            for name in ("tailed_table", "commit_file", "table_state", "table", "table_change")
        ),
        without="loop_that_is_wrong",
        tests=_unit(
            "change_loop", "change_rules", "commit_file", "far_table", "settling", "table_state", "table_steps"
        ),
    ),
}


def modules_of(part: Part) -> list[str]:
    """Paths of the modules of a part.

    mutmut would take a star for any path, and the modules of folders below with it. A module that one part names is
    left out of the parts whose star matches it.
    """
    named = {ROOT / path for other in PARTS.values() for path in other.modules if "*" not in path}
    found = (path for glob in part.modules for path in ROOT.glob(glob) if _has_code(path))
    found = (path for path in found if path not in named or str(path.relative_to(ROOT)) in part.modules)
    return sorted(str(path.relative_to(ROOT)) for path in found)


def _has_code(path: Path) -> bool:
    """Whether there is something to change: the own files of most packages only say what is in them."""
    return path.stem != "__init__" or "\ndef " in path.read_text(encoding="utf-8")


def settings(part: Part) -> dict[str, Any]:
    """What mutmut is told, as its `tool.mutmut`."""
    return {
        "source_paths": ["kafkalike"],
        "only_mutate": modules_of(part),
        "also_copy": list(COPIED),
        "pytest_add_cli_args": [
            "-m",
            "not (soak or objects or spark)",
            "-p",
            "no:randomly",
            "-p",
            "no:cacheprovider",
            *(["-k", f"not ({part.without})"] if part.without else []),
        ],
        "pytest_add_cli_args_test_selection": list(part.tests),
        # The limit of a trial is one of CPU, in mutant_trials.py; this one ends those that only wait.
        "timeout_multiplier": 100.0,
        "timeout_constant": 4.0,
        "track_dependencies": False,
        "use_git_change_detection": False,
        "on_dependency_change": "ignore",
    }


def prepare(name: str, part: Part) -> Path:
    """The folder in which mutmut works."""
    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    for top in ("kafkalike", "tests", *COPIED):
        link = folder / top
        link.unlink(missing_ok=True)
        link.symlink_to(ROOT / top)
    # mutmut adds new files to its copy, and never takes old ones away.
    copy = folder / "mutants"
    shutil.rmtree(copy / "tests", ignore_errors=True)
    for module in copy.glob("kafkalike/**/*.py"):
        if not (ROOT / module.relative_to(copy)).exists():
            module.unlink()
    told = "\n".join(f"{key} = {json.dumps(value)}" for key, value in settings(part).items())
    whole = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (folder / "pyproject.toml").write_text(f"{whole}\n[tool.mutmut]\n{told}\n", encoding="utf-8")
    return folder


def results(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and ending of each mutant."""
    listed = subprocess.run(  # noqa: S603  # the command is ours
        [*MUTMUT, "results", "--all", "true"], cwd=folder, check=True, capture_output=True, text=True
    )
    for line in listed.stdout.splitlines():
        name, _, ending = line.strip().rpartition(": ")
        yield name, ending


def concerned(part: Part, patterns: Sequence[str]) -> bool:
    """Whether patterns can pick a mutant of a part; none picks all."""
    modules = [path.removesuffix(".py").replace("/", ".") for path in modules_of(part)]
    return not patterns or any(p.startswith(f"{m}.") or fnmatch(f"{m}.", p) for p in patterns for m in modules)


def module_of(mutant: str) -> str:
    """Module of a mutant: its name goes on with the function."""
    return mutant.rpartition(".")[0]


def report(found: Sequence[tuple[str, str]]) -> str:
    """A table in Markdown, a row per module, and below it the mutants that lived."""
    endings: dict[str, Counter[str]] = {}
    for name, ending in found:
        endings.setdefault(module_of(name), Counter())[ending] += 1
    rows = [(module, sum(counts.values()), counts) for module, counts in sorted(endings.items())]
    total: Counter[str] = sum((counts for _, _, counts in rows), Counter())
    lines = ["| module | mutants | noticed | score | of these by time limit |", "| --- | --- | --- | --- | --- |"]
    for module, count, counts in [*rows, ("all", sum(total.values()), total)]:
        noticed = sum(counts[ending] for ending in NOTICED)
        share = f"{100 * noticed / count:.1f} %" if count else "-"
        lines.append(f"| `{module}` | {count} | {noticed} | {share} | {counts['timeout']} |")
    return "\n".join([*lines, "", *(f"{name}: {ending}" for name, ending in found if ending not in NOTICED)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the mutants; the exit code is mutmut's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=list(PARTS), action="append", help="all parts when left out")
    parser.add_argument("--report", action="store_true", help="only tell what earlier runs have found")
    parser.add_argument("--children", type=int, default=os.cpu_count() or 1, help="trials at a time")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    options = parser.parse_args(arguments)
    for name in options.part or PARTS:
        if not concerned(PARTS[name], options.patterns):
            continue
        folder = BUILD / name if options.report else prepare(name, PARTS[name])
        if not options.report:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
            tried = subprocess.run(  # noqa: S603  # the command is ours
                [*MUTMUT, "run", "--max-children", str(options.children), *options.patterns],
                cwd=folder,
                check=False,
                env=os.environ | QUICK,
            )
            if tried.returncode:
                return tried.returncode
        wanted = options.patterns or ["*"]
        print(report([(m, e) for m, e in results(folder) if any(fnmatch(m, pattern) for pattern in wanted)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
