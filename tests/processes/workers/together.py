"""Together worker: writes batches into three topics, with the offset of a group; killed by a fault if so ordered."""

import json

from tests.processes.workers.common import cluster, orders, wait_for_go
from tests.tools.jobs import offsets_of, spread, write_rows

TOPICS = ("a", "b", "c")


def main() -> None:
    given = orders()
    opened = cluster(given["root"])
    wait_for_go()
    for batch in range(given["first"], given["last"] + 1):
        done = write_rows(
            opened,
            spread([f"{batch}-0", f"{batch}-1"], TOPICS),
            spread([f"{batch}-2"], TOPICS[:2]),
            name=("stream:q", batch),
            offsets=offsets_of("g", "in", batch + 1),
        )
        print(json.dumps({topic: placed.version for topic, placed in done.items()}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
