"""Register worker: subjects and a schema for them in; which of them took it, and under which id, out."""

import json

from kafkalike.errors import SchemaRegistryError, UnknownOutcomeError
from kafkalike.schemas import Registry, Schema
from tests.processes.workers.common import cluster, orders, wait_for_go


def main() -> None:
    asked = orders()
    registry = Registry(cluster(asked["root"], queue=asked.get("queue", True)))
    registry.get_subjects()
    wait_for_go()
    found: dict[str, int] = {}
    for subject in asked["subjects"]:
        try:
            found[subject] = registry.register_schema(subject, Schema(asked["schema"]))
        except SchemaRegistryError as error:
            found[subject] = -error.error_code
        except UnknownOutcomeError:
            found[subject] = 0
    print(json.dumps(found))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
