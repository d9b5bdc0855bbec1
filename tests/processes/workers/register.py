"""Register worker: subjects and a schema for them in; which of them took it, and under which id, out.

With `columns` in the place of the schema, names of columns of whole numbers, it does what a DataFrame's first write
with `schemas="protobuf"` does; -1 stands for columns that were refused.
"""

import json

import pyarrow as pa

from kafkalike.errors import SchemaRegistryError, SerializationError, UnknownOutcomeError
from kafkalike.schemas import Registry, Schema
from kafkalike.schemas.factory import RegistryLocation
from kafkalike.spark.call_options import RecordSchemas
from kafkalike.spark.typed.encode import writing_of
from tests.processes.workers.common import cluster, orders, wait_for_go


def main() -> None:
    asked = orders()
    registry = Registry(cluster(asked["root"], queue=asked.get("queue", True)))
    registry.get_subjects()
    wait_for_go()
    found: dict[str, int] = {}
    for subject in asked["subjects"]:
        try:
            if "columns" in asked:
                kind = pa.struct([(name, pa.int64()) for name in asked["columns"]])
                where = RegistryLocation((("url", asked["root"]),))
                made = writing_of(kind, subject.removesuffix("-value"), "value", where, RecordSchemas(value="protobuf"))
                found[subject] = made.id
            else:
                found[subject] = registry.register_schema(subject, Schema(asked["schema"]))
        except SerializationError:
            found[subject] = -1
        except SchemaRegistryError as error:
            found[subject] = -error.error_code
        except UnknownOutcomeError:
            found[subject] = 0
    print(json.dumps(found))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
