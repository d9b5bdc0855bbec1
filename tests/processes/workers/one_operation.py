"""One-operation worker: an operation of the sweeps on a root in, what became of it out; a process for each."""

import json

from tests.processes.workers.common import orders, wait_for_go
from tests.processes.workers import sweep
from tests.processes.workers.upkeep_sweep import run
from tests.tools.clusters import on_disk


sweep.OPERATIONS["maintain"] = run


def main() -> None:
    asked = orders()
    do = sweep.OPERATIONS[asked["operation"]](on_disk(asked["root"]))
    wait_for_go()
    print(json.dumps(sweep.outcome(do)))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
