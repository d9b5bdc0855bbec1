"""Worker: uses kafkalike, forks, and uses it in the children and in itself; prints what each of them saw.

Arguments: root, and `fork` (os.fork), `pool` (multiprocessing), or `busy` (os.fork beside threads that work).
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import sys
import threading
import traceback
import warnings

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.admin import KafkaAdminClient, NewTopic

SENT = 110
"""Records of each child and of the parent: enough commits for a checkpoint beside them."""
READ = 100
HANGS_SECONDS = 60


def use(root: str, name: str) -> int:
    """Create a topic, send, poll and commit with clients of this process; returns how many records were read."""
    with KafkaAdminClient(bootstrap_servers=root) as admin:
        admin.create_topics([NewTopic(f"made-{name}", 1, 1)])
    with KafkaProducer(bootstrap_servers=root) as producer:
        for _ in range(SENT):
            producer.send("t", b"x").get(30)
    with KafkaConsumer("t", bootstrap_servers=root, group_id=name, auto_offset_reset="earliest") as consumer:
        read = 0
        while read < READ:
            found = consumer.poll(1000, max_records=READ - read)
            read += sum(map(len, found.values()))
        consumer.commit()
    return read


def forked(root: str, name: str) -> int:
    """The same in a child."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(HANGS_SECONDS, exit=True)
        status = 1
        try:
            os.write(into, str(use(root, name)).encode())
            status = 0
        except BaseException:  # noqa: BLE001 - whatever it is, the parent reports it
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(into)
    with os.fdopen(out) as told:
        text = told.read()
    assert os.waitpid(child, 0)[1] == 0
    return int(text)


def main(root: str, how: str) -> None:
    """Run."""
    warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
    count = 2
    over = threading.Event()
    with (
        KafkaProducer(bootstrap_servers=root) as producer,
        KafkaConsumer("t", bootstrap_servers=root, group_id="parent", auto_offset_reset="earliest") as consumer,
    ):
        producer.send("t", b"first").get(30)
        while not consumer.poll(1000):
            pass
        extra = [1]

        def work() -> None:
            while not over.is_set():
                producer.send("t", b"busy").get(30)
                extra.append(1)

        workers = [threading.Thread(target=work) for _ in range(2 if how == "busy" else 0)]
        for worker in workers:
            worker.start()
        if how == "pool":
            with multiprocessing.get_context("fork").Pool(count) as pool:
                read = pool.starmap_async(use, [(root, str(n)) for n in range(count)]).get(2 * HANGS_SECONDS)
        else:
            read = [forked(root, str(n)) for n in range(count)]
        over.set()
        for worker in workers:
            worker.join()
        producer.send("t", b"last").get(30)
        extra.append(1)
        consumer.poll(1000)
        consumer.commit()
    sys.stdout.write(f"children={count} read={','.join(map(str, read))} sent={len(extra) + count * SENT}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
