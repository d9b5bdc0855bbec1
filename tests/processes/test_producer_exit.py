"""What becomes of a producer that nobody closed when the interpreter exits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalike import KafkaAdminClient, NewTopic
from kafkalike.connect import connect

SENDS_AND_ENDS = """
import sys
from kafkalike import KafkaProducer
producer = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
for number in range(1000):
    producer.send("orders", b"%d" % number)
{end}
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError('on purpose')", "producer.flush()"])
def test_exit_sends_what_is_queued(tmp_path: Path, end: str) -> None:
    """However the program ends, and without a word on the terminal but its own."""
    root = str(tmp_path / "cluster")

    ended = subprocess.run(
        [sys.executable, "-c", SENDS_AND_ENDS.format(end=end), root],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    log = connect(root).log("orders")
    assert log.log_end(0) == 1000
    assert ended.returncode == {"": 0, "producer.flush()": 0, "sys.exit(3)": 3}.get(end, 1)
    assert "terminate" not in ended.stderr
    assert ended.stderr == "" or "on purpose" in ended.stderr


SENDS_TABLES_AND_ENDS = """
import sys
import pyarrow as pa
from kafkalike import KafkaProducer
producer = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000, batch_size=1 << 30)
producer.send_arrow("orders", pa.table({"value": [bytes(500)] * 20_000, "partition": [0, 1] * 10_000}))
"""


def test_exit_sends_a_large_table_of_several_partitions(tmp_path: Path) -> None:
    """Its files are otherwise written by several threads, and none can be started by then."""
    root = str(tmp_path / "cluster")
    with KafkaAdminClient(bootstrap_servers=root) as admin:
        admin.create_topics([NewTopic("orders", num_partitions=2)])

    ended = subprocess.run(
        [sys.executable, "-c", SENDS_TABLES_AND_ENDS, root], capture_output=True, text=True, timeout=120, check=False
    )

    log = connect(root).log("orders")
    assert (log.log_end(0), log.log_end(1), ended.stderr) == (10_000, 10_000, "")


INTERRUPTED_CLOSE = """
import atexit, json, os, signal, sys, threading

futures = []

def report():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    done = [f for f in futures if f.is_done]
    written = {}
    for f in done:
        if f.succeeded():
            written[f.value.topic] = written.get(f.value.topic, 0) + 1
    print(json.dumps({"sent": len(futures), "done": len(done), "written": written}), flush=True)

# Twice: an interrupt may come before the first one ignores it.
atexit.register(report)
atexit.register(report)
from kafkalike import KafkaProducer

root, wait_ms, signals, then = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
producer = KafkaProducer(bootstrap_servers=root, linger_ms=60_000, batch_size=1 << 30)
for number in range(3):
    producer.send(f"orders-{number}", b"first")
producer.flush()
for number in range(30_000):
    futures.append(producer.send(f"orders-{number % 3}", b"%060d" % number))

def interrupt():
    for _ in range(signals):
        os.kill(os.getpid(), signal.SIGINT)
        pause.wait(0.02)

pause = threading.Event()
timer = threading.Timer(wait_ms / 1000, interrupt)
timer.daemon = True
try:
    timer.start()
    producer.close()
    while True:
        pause.wait()  # it may come after the end
except KeyboardInterrupt:
    pass
if then == "again":
    while True:
        try:
            producer.close()
            assert all(f.is_done for f in futures), "close returned before the records were settled"
            break
        except KeyboardInterrupt:
            pass
"""


# Each time, each number and each way to go on stands in one of those that `make test` has; the others join them anew.
EVERY = [(wait_ms, *way) for wait_ms in (0, 10, 40) for way in ((1, "exit"), (4, "exit"), (4, "again"))]
OFTEN = {(0, 4, "again"), (10, 1, "exit"), (40, 4, "exit")}
INTERRUPTS = [pytest.param(*one, marks=[] if one in OFTEN else pytest.mark.full) for one in EVERY]


@pytest.mark.parametrize(("wait_ms", "signals", "then"), INTERRUPTS)
def test_an_interrupted_close_never_crashes_and_never_lies(
    tmp_path: Path, wait_ms: int, signals: int, then: str
) -> None:
    """Ctrl-C while `close` waits, once or several times, then the program's end or another `close`."""
    root = str(tmp_path / "cluster")

    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_CLOSE, root, str(wait_ms), str(signals), then],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert "terminate" not in ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["done"] == told["sent"] == 30_000
    cluster = connect(root)
    assert {name: cluster.log(name).log_end(0) - 1 for name in told["written"]} == told["written"]
    assert then == "exit" or sum(told["written"].values()) == 30_000


LEAVES_A_FILE_OPEN = """
import sys
from kafkalike.storage.timeouts import TimedCalls, TimedFile
calls = TimedCalls(sys.argv[1], 600.0)
file = TimedFile(calls, sys.argv[1] + "/data")
calls.file = file
"""


def test_exit_with_an_open_file_in_a_cycle_with_its_root_ends(tmp_path: Path) -> None:
    """The interpreter closes the file when no thread can make the call."""
    (tmp_path / "data").write_bytes(b"x")

    ended = subprocess.run(
        [sys.executable, "-c", LEAVES_A_FILE_OPEN, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
