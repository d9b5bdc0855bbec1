"""The metadata on several voters, over real folders: what is decided stays, whichever minority of them goes."""

from __future__ import annotations

import resource
import shutil
import threading
from pathlib import Path

import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.delta.actions import log_name, version_of
from kafkalike.delta.commit_file import CommitFile
from kafkalike.delta.layout import CLUSTER_METADATA
from kafkalike.errors import KafkaStorageError, UnknownOutcomeError
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.replication.quorum_protocol import ReadVersion, publishing
from kafkalike.model.replication.registers import UnreachableVoterError
from kafkalike.model.replication.takeover import OpenVoter, VoterSet, taking_over
from kafkalike.replication.tables.voter_files import MetadataVersion
from kafkalike.replication.tables.voter_roots import VoterRoots
from tests.tools.effort import examples
from tests.tools.voters import KilledError, VoterFolders


@pytest.fixture
def voters(tmp_path: Path) -> VoterFolders:
    return VoterFolders(tmp_path)


def test_every_voter_has_the_same_table(voters: VoterFolders) -> None:
    voters.client().create("a")
    voters.client().create("b")

    assert voters.client().topics() == ["a", "b"]
    assert voters.table(1) == voters.table(2) == voters.table(3) != {}


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_it_goes_on_without_a_voter_which_catches_up_when_it_is_back(voters: VoterFolders, gone: int) -> None:
    client = voters.client()
    client.create("a")
    voters.take_away(gone)

    client.create("b")
    voters.client().create("c")

    voters.give_back(gone)
    assert voters.last(gone) == 1
    voters.client().create("d")
    assert voters.table(1) == voters.table(2) == voters.table(3)
    assert voters.client().topics() == ["a", "b", "c", "d"]


def test_without_a_majority_nothing_is_changed_and_what_is_known_can_be_read(voters: VoterFolders) -> None:
    client = voters.client()
    client.create("a")
    for gone in (2, 3):
        voters.take_away(gone)

    with pytest.raises(KafkaStorageError, match=r"2 of the 3 voters.*broker 2 at.*broker 3 at.*kafkalike recover"):
        client.create("b")

    assert list(voters.client().log.refresh().topics) == ["a"]
    voters.give_back(3)
    client.create("c")
    assert voters.client().topics() == ["a", "c"]


def test_a_file_that_a_full_disk_cut_off_is_not_there(voters: VoterFolders) -> None:
    """It would be read before the whole ones that others have."""
    client = voters.client()
    client.create("a")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="voters"):
            client.store.write("part-x.parquet", b"x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    with pytest.raises(FileNotFoundError):
        client.store.size("part-x.parquet")


@pytest.mark.parametrize("slow", [1, 2, 3])
def test_a_voter_that_is_slow_is_waited_for_once(voters: VoterFolders, slow: int) -> None:
    clock = ManualClock()
    client = voters.with_slow(slow, clock, 5.0)
    client.create("a")
    client.log.refresh()
    began = clock.monotonic()

    for n in range(5):
        client.create(f"b{n}")

    assert clock.monotonic() - began <= 10.0
    voters.client().create("c")
    assert voters.last(1) == voters.last(2) == voters.last(3)


@pytest.mark.parametrize("full", [1, 2, 3])
def test_a_full_disk_leaves_no_half_of_a_file(voters: VoterFolders, full: int) -> None:
    voters.client().create("a")

    voters.with_full(full).create("b")

    assert voters.client().topics() == ["a", "b"]
    voters.client().create("c")
    assert voters.table(1) == voters.table(2) == voters.table(3)


def test_an_empty_folder_in_a_voters_place_does_not_vote(voters: VoterFolders) -> None:
    client = voters.client()
    client.create("a")
    shutil.rmtree(voters.uris[2])
    Path(voters.uris[2]).mkdir()
    voters.take_away(3)

    with pytest.raises(KafkaStorageError, match="2 of the 3 voters"):
        client.create("b")

    voters.give_back(3)
    client.create("b")
    assert voters.client().topics() == ["a", "b"]
    assert not list(Path(voters.uris[2]).iterdir())


@pytest.mark.slow
def test_many_clients_at_once(voters: VoterFolders) -> None:
    failed: list[BaseException] = []

    def work(n: int) -> None:
        try:
            client = voters.client()
            for m in range(3):
                client.create(f"t{n}.{m}")
        except BaseException as cause:
            failed.append(cause)
            raise

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failed
    client = voters.client()
    assert client.topics() == sorted(f"t{n}.{m}" for n in range(4) for m in range(3))
    assert [row.seq for row in client.log.rows] == list(range(12)) or [row.seq for row in client.log.rows] == list(
        range(1, 13)
    )
    last = max(version_of(entry.name) or 0 for entry in client.store.list("_delta_log"))
    newest = MetadataVersion(client.store.read(log_name(last)))
    client.store.voters.decide(lambda known: publishing(last, newest, known))
    assert voters.table(1) == voters.table(2) == voters.table(3)


@pytest.mark.slow
@pytest.mark.parametrize("last_happens", [False, True])
def test_a_process_killed_between_any_two_requests(tmp_path: Path, *, last_happens: bool) -> None:
    """Whoever comes next goes on, and nothing of what was shown is gone."""
    base = VoterFolders(tmp_path / "base")
    base.client().create("a")
    for requests in range(1 + last_happens, 400, examples(4, 12)):
        shutil.copytree(tmp_path / "base", tmp_path / f"n{requests}")
        voters = VoterFolders(tmp_path / f"n{requests}", made=True)
        try:
            voters.mortal(requests, last_happens=last_happens).create("b")
        except KilledError:
            pass
        else:
            break
        shown = voters.client().topics()
        voters.take_away(requests % 3 + 1)
        client = voters.client()
        assert set(shown) <= set(client.topics()), requests
        client.create("c")
        client.create("b")
        assert client.topics() == ["a", "b", "c"], requests
        voters.give_back(requests % 3 + 1)
        voters.client().create("d")
        assert voters.client().topics() == ["a", "b", "c", "d"], requests
        assert voters.last(1) == voters.last(2) == voters.last(3), requests
        shutil.rmtree(tmp_path / f"n{requests}")
    else:
        pytest.fail("it never ends")
    assert requests > 40


def test_registers_go_with_a_checkpoint_and_a_late_writer_is_fenced(voters: VoterFolders) -> None:
    client = voters.client()
    for n in range(4):
        client.create(f"t{n}")
    voters.take_away(3)
    late = CommitFile(version=2, time_ms=1, operation="WRITE", append_id="late").content()

    client.log._table.store.replace  # noqa: B018 - the store that the log's own clean-up would call
    _checkpoint(client)

    for broker in (1, 2):
        rows = Path(voters.uris[broker], CLUSTER_METADATA, "_quorum", f"0.{broker}")
        assert sorted(p.name for p in rows.iterdir()) == ["open", "voter"]
        for version in range(4):
            Path(voters.uris[broker], CLUSTER_METADATA, log_name(version)).unlink()
    with pytest.raises(OSError, match="log cleaning has removed this version"):
        voters.client().store.put_if_absent(log_name(2), late)
    voters.give_back(3)
    voters.client().create("u")
    assert voters.client().topics() == ["t0", "t1", "t2", "t3", "u"]
    voters.take_away(1)
    voters.take_away(2)
    assert list(voters.client().log.refresh().topics) == ["t0", "t1", "t2", "t3", "u"]


def _checkpoint(client: object) -> None:
    from kafkalike.delta.checkpoint import make_checkpoint
    from kafkalike.delta.snapshot import load_snapshot

    store = client.store  # type: ignore[attr-defined]
    make_checkpoint(store, load_snapshot(store), SYSTEM_CLOCK.now_ms())


def test_others_take_over_from_a_voter_that_is_lost(voters: VoterFolders) -> None:
    client, stale = voters.client(), voters.client()
    client.create("a")
    assert stale.topics() == ["a"]
    voters.take_away(2)
    client.create("b")
    spare = str(voters.path / "root4")
    before = client.store.voters.now
    assert before is not None
    fourth = voters.voter(1, 1)._replace(broker=4, id="1.4", uri=spare)
    after = VoterSet(1, (voters.voter(1, 1), voters.voter(3, 1), fourth))

    taken = VoterRoots(client.store.voters.folder_of, SYSTEM_CLOCK, "a test").carry_out(taking_over(before, after))

    assert taken.sure
    stale.create("c")
    client.create("d")
    voters.give_back(2)
    voters.take_away(1)
    client.create("e")
    assert voters.client().topics() == stale.topics() == ["a", "b", "c", "d", "e"]
    assert voters.last(2) == 1


def test_who_has_slept_opens_no_voter_that_was_replaced(voters: VoterFolders) -> None:
    """The last step of a takeover that somebody else has ended long ago: those who believe the old voters must not
    learn from them that there is nothing new."""
    client, stale = voters.client(), voters.client()
    client.create("a")
    assert stale.topics() == ["a"]
    before = client.store.voters.now
    assert before is not None
    spare = str(voters.path / "root4")
    fourth = voters.voter(1, 1)._replace(broker=4, id="1.4", uri=spare)
    after = VoterSet(1, (voters.voter(3, 1), voters.voter(1, 1), fourth))
    roots = VoterRoots(client.store.voters.folder_of, SYSTEM_CLOCK, "a test")
    roots.carry_out(taking_over(before, after))
    client.create("b")

    for voter in before.voters:
        roots.do(OpenVoter(voter, 0))

    version = voters.last(1)
    for voter in (voters.voter(1), voters.voter(3)):
        with pytest.raises(UnreachableVoterError):
            roots.do(ReadVersion(voter, version + 1))
    assert not client.store.voters.is_open(before)
    assert stale.topics() == ["a", "b"]


def test_a_write_in_doubt_is_settled_by_its_id(voters: VoterFolders) -> None:
    """Its versions are decided, and too few voters are left to say so."""
    client = voters.client()
    client.create("a")
    for gone in (1, 2):
        voters.take_away(gone)

    with pytest.raises((UnknownOutcomeError, KafkaStorageError)):
        client.create("b")
