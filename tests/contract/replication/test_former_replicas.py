"""Replicas that are not assigned any more: their data files go, and they come back whole, or not at all."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalike import ForgetOptions, KafkaAdminClient, forget
from kafkalike.admin import ConfigResource, ConfigResourceType
from kafkalike.cli import main
from kafkalike.connect import connect
from kafkalike.delta.actions import log_name
from kafkalike.delta.layout import CLUSTER_METADATA
from kafkalike.delta.replica_files import seal
from kafkalike.errors import KafkaStorageError
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.maintenance.verify.certificate_file import check_certificate
from kafkalike.maintenance.verify.replica_check import check_replicas
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.model.replication import isr_changes
from kafkalike.model.replication.registration import Configuration, Registration, Replica
from kafkalike.model.replication.replica_protocol import sealing
from kafkalike.replication.cluster.cluster_factory import open_several
from kafkalike.replication.cluster.controller import MetadataController
from kafkalike.replication.cluster.replica_manager import FormerReplicas
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from kafkalike.storage.local import LocalStorage
from tests.tools.away import away, back
from tests.tools.consumer import texts
from tests.tools.records import batch_now
from tests.tools.three_roots import elected_unclean, opened

AT_ONCE = {"kafkalike.replaced.file.delay.ms": "0"}
UNCLEAN = {**AT_ONCE, "unclean.leader.election.enable": "true"}

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(roots: list[Path]) -> ReplicatedCluster:
    """A topic with three replicas and three appends."""
    cluster = opened(roots)
    cluster.create_topic("t", 1, AT_ONCE)
    for value in "abc":
        cluster.log("t").append(batch_now(value))
    return cluster


def assign(cluster: ReplicatedCluster, *brokers: int) -> None:
    cluster.replication.reassign("t", brokers)
    assert not cluster.replication.replicate().failed


def held(roots: list[Path]) -> list[int]:
    """How many data files of the topic each root has, whatever its replica is called."""
    return [len(list(root.glob("t~*/partition=*/*.parquet"))) for root in roots]


def folders(root: Path) -> list[str]:
    return sorted(folder.name for folder in root.glob("t~*"))


def assert_same(roots: list[Path]) -> None:
    cluster = opened(roots)
    assert list(check_replicas(cluster)) == []
    assert verify(cluster, ["t"]).findings == []


def after_the_look(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something when maintenance has looked at who is out, and has removed nothing."""
    found = FormerReplicas._found

    def and_then(self: FormerReplicas, failed: list[Any]) -> list[Any]:
        former = list(found(self, failed))
        assert former
        act()
        return former

    monkeypatch.setattr(FormerReplicas, "_found", and_then)


def test_the_files_of_a_replica_go_that_is_not_assigned_any_more(
    roots: list[Path], cluster: ReplicatedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Kafka removes them; its log stays."""
    assign(cluster, 1, 2)
    assert held(roots) == [3, 3, 3]
    (log,) = roots[2].glob("t~*/_delta_log")
    before = sorted(log.iterdir())

    assert main(["maintain", "--bootstrap-server", ",".join(map(str, roots))]) == 0

    assert "1 unassigned replica removed" in capsys.readouterr().out
    assert held(roots)[2] == 0
    assert sorted(log.iterdir()) == before
    assert texts(opened(roots), "t") == ["a", "b", "c"]
    assert maintain(opened(roots), clock=SYSTEM_CLOCK).cleared_replicas == 0


def test_one_that_is_assigned_again_has_another_name_and_all_files(
    roots: list[Path], cluster: ReplicatedCluster
) -> None:
    """Whoever removes files of the former one has never to ask whether it is back."""
    before = folders(roots[2])
    assign(cluster, 1, 2)
    assert cluster.replication.clear_former() == 1
    cluster.log("t").append(batch_now("d"))

    assign(opened(roots), 1, 2, 3)

    assert len(folders(roots[2])) == 2
    assert set(before) < set(folders(roots[2]))
    assert held(roots) == [4, 4, 4]
    assert_same(roots)
    # The name counts for that broker alone; and the one that has it now goes as the first one did.
    assign(opened(roots), 3, 2)
    assert opened(roots).replication.clear_former() == 1
    assert (held(roots), len(folders(roots[0]))) == ([0, 4, 4], 1)
    assign(opened(roots), 1, 2)
    assert opened(roots).replication.clear_former() == 1
    assert held(roots) == [4, 4, 0]
    assert_same(roots)
    assert texts(opened(roots), "t") == ["a", "b", "c", "d"]


def test_readers_go_on_when_another_name_leads(roots: list[Path], cluster: ReplicatedCluster) -> None:
    """It is the same log: only an unclean election gives one up."""
    reader = opened(roots)
    assert texts(reader, "t") == ["a", "b", "c"]
    assign(cluster, 1, 2)
    assert cluster.replication.clear_former() == 1
    assign(cluster, 3, 1)
    assert cluster.replication.replicas("t").leader == 3
    cluster.log("t").append(batch_now("d"))

    assert texts(reader, "t") == ["a", "b", "c", "d"]


def test_one_that_is_assigned_and_away_keeps_its_files(roots: list[Path], cluster: ReplicatedCluster) -> None:
    """It gets what it lacks when it is back, and may have to be chosen where nobody else is left."""
    away(roots[2])
    cluster.log("t").append(batch_now("d"))
    assert opened(roots).replication.clear_former() == 0
    back(roots[2])
    assert opened(roots).replication.clear_former() == 0
    assert held(roots) == [4, 4, 3]

    assert not opened(roots).replication.replicate().failed

    assert held(roots) == [4, 4, 4]
    assert len(folders(roots[2])) == 1
    assert_same(roots)


def test_queries_that_began_before_have_a_while(roots: list[Path], cluster: ReplicatedCluster) -> None:
    KafkaAdminClient(bootstrap_servers=cluster).alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, "t", {"kafkalike.replaced.file.delay.ms": "600000"})]
    )
    assign(cluster, 1, 2)

    assert cluster.replication.clear_former() == 0
    assert held(roots) == [3, 3, 3]


def test_one_that_is_let_in_meanwhile_keeps_its_files(
    roots: list[Path], cluster: ReplicatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at who is out and the removal."""
    assign(cluster, 1, 2)
    after_the_look(monkeypatch, lambda: assign(opened(roots), 1, 2, 3))

    assert cluster.replication.clear_former() == 0
    assert held(roots) == [3, 3, 3]
    assert_same(roots)


def test_a_run_that_ends_after_the_name_was_given_up_is_gone_on_with(
    roots: list[Path], cluster: ReplicatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assign(cluster, 1, 2)
    monkeypatch.setattr(LocalStorage, "remove", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cluster.replication.clear_former()
    monkeypatch.undo()
    assert held(roots) == [3, 3, 3]

    assert opened(roots).replication.clear_former() == 1

    assert held(roots) == [3, 3, 0]


def test_a_replica_that_lost_files_while_it_was_out_gets_them_when_it_joins(
    roots: list[Path], cluster: ReplicatedCluster
) -> None:
    """A root that was restored from a backup of its logs, for instance: it must not count as in sync without them."""
    away(roots[2])
    cluster.log("t").append(batch_now("d"))
    back(roots[2])
    for file in roots[2].glob("t~*/partition=*/*.parquet"):
        file.unlink()

    assert not opened(roots).replication.replicate().failed

    assert held(roots) == [4, 4, 4]
    assert_same(roots)


def test_forgotten_records_are_named_where_a_former_replica_has_them(
    roots: list[Path], cluster: ReplicatedCluster
) -> None:
    """Until maintenance was there."""
    log = cluster.log("t")
    made = batch_now("e")
    made.add(0, b"forget-me-0123456789", b"v", SYSTEM_CLOCK.now_ms())
    log.append(made)
    assign(cluster, 1, 2)
    named = [str(root) for root in roots]

    report = forget("t", named, keys="forget-me-0123456789", dry_run=False, options=ForgetOptions(now=True))

    certificate = report.certificate
    assert certificate is not None
    found = check_certificate(opened(roots), certificate, [b"forget-me-0123456789"]).findings
    assert {f.kind for f in found} == {"file-not-gone", "key-not-gone"}
    assert all(str(roots[2]) in f.message for f in found)
    assert opened(roots).replication.clear_former() == 1
    assert not check_certificate(opened(roots), certificate, [b"forget-me-0123456789"]).findings


# --- what else goes on meanwhile -----------------------------------------------------------------


def with_older_metadata(roots: list[Path], kept: Path) -> ReplicatedCluster:
    """The cluster of the third root alone, whose metadata are those of a moment before, after `recover`."""
    shutil.rmtree(roots[2] / CLUSTER_METADATA)
    shutil.copytree(kept, roots[2] / CLUSTER_METADATA)
    cluster = connect([str(roots[2])])
    assert isinstance(cluster, ReplicatedCluster)
    cluster.replication.recover(str(roots[2]))
    again = connect([str(roots[2])])
    assert isinstance(again, ReplicatedCluster)
    return again


def test_a_replica_of_a_name_that_the_metadata_have_lost_is_recovered_and_stays(
    roots: list[Path], cluster: ReplicatedCluster, tmp_path: Path
) -> None:
    """Not the one that was emptied, though it is that one of which the older metadata tell."""
    kept = Path(shutil.copytree(roots[2] / CLUSTER_METADATA, tmp_path / "kept"))
    assign(cluster, 1, 2)
    assert cluster.replication.clear_former() == 1
    assign(opened(roots), 1, 2, 3)
    opened(roots).log("t").append(batch_now("d"))
    assign(opened(roots), 3, 2)
    away(roots[0])
    away(roots[1])

    recovered = with_older_metadata(roots, kept)

    assert texts(recovered, "t") == ["a", "b", "c", "d"]
    recovered.log("t").append(batch_now("e"))
    recovered.replication.clear_former()
    assert texts(only_third(roots), "t") == ["a", "b", "c", "d", "e"]


def only_third(roots: list[Path]) -> ReplicatedCluster:
    """As another process opens the one that was recovered."""
    found = connect([str(roots[2])])
    assert isinstance(found, ReplicatedCluster)
    return found


def with_an_unclean_leader(roots: list[Path], tmp_path: Path) -> Path:
    """Broker 3 is chosen for the topic, which has one record there; its metadata of before are kept."""
    opened(roots).create_topic("t", 1, UNCLEAN, assignments={0: [1, 3]})
    opened(roots).log("t").append(batch_now("a"))
    kept = Path(shutil.copytree(roots[2] / CLUSTER_METADATA, tmp_path / "kept"))
    away(roots[2])
    opened(roots).log("t").append(batch_now("lost"))
    away(roots[0])
    back(roots[2])
    elected_unclean(opened(roots))
    return kept


def test_an_unclean_leader_that_the_metadata_have_lost_is_recovered(roots: list[Path], tmp_path: Path) -> None:
    kept = with_an_unclean_leader(roots, tmp_path)
    opened(roots).log("t").append(batch_now("b"))
    away(roots[1])

    recovered = with_older_metadata(roots, kept)

    recovered.replication.clear_former()
    assert texts(only_third(roots), "t") == ["a", "b"]


def test_files_of_a_later_epoch_than_the_metadata_know_stay(roots: list[Path], cluster: ReplicatedCluster) -> None:
    """Whatever has become of the metadata: nobody can say that these records are anywhere else."""
    assign(cluster, 1, 2)
    (folder,) = roots[2].glob("t~*")
    store = cluster.store.root_of(3).at(folder.name)
    assert store.put_if_absent(log_name(4), seal(Configuration(99, (Replica(3),)), 1).data)

    with pytest.raises(KafkaStorageError, match=r"has epoch 99, but the newest epoch in the metadata is \d: "):
        opened(roots).replication.clear_former()

    assert held(roots) == [3, 3, 3]


def test_one_that_is_assigned_meanwhile_keeps_its_files(
    roots: list[Path], cluster: ReplicatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assign(cluster, 1, 2)
    after_the_look(monkeypatch, lambda: opened(roots).replication.reassign("t", (1, 2, 3)))

    assert cluster.replication.clear_former() == 0
    assert held(roots) == [3, 3, 3]


def test_one_that_is_assigned_before_its_name_is_given_up_keeps_its_files(
    roots: list[Path], cluster: ReplicatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last moment: the metadata refuse that."""
    assign(cluster, 1, 2)
    change = MetadataController.change

    def late(self: MetadataController, before: Registration, after: Registration) -> bool:
        monkeypatch.undo()
        opened(roots).replication.reassign("t", (1, 2, 3))
        return change(self, before, after)

    monkeypatch.setattr(MetadataController, "change", late)

    assert cluster.replication.clear_former() == 0
    assert held(roots) == [3, 3, 3]
    assert not opened(roots).replication.replicate().failed
    assert (len(folders(roots[2])), held(roots)) == (1, [3, 3, 3])


def test_who_is_chosen_unclean_is_not_emptied_and_who_is_emptied_not_chosen(
    roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintenance that has slept since goes on in the middle of the election."""
    cluster = opened(roots)
    cluster.create_topic("t", 1, UNCLEAN, assignments={0: [1, 3]})
    for value in "abc":
        cluster.log("t").append(batch_now(value))
    assign(cluster, 1)
    late = FormerReplicas(opened(roots).replication._cluster)
    former = list(late._found([]))
    assert former
    opened(roots).replication.reassign("t", (1, 3))
    away(roots[0])
    choosing = isr_changes.choosing_unclean

    def interrupted(replica: Replica, name: Replica) -> Any:
        assert [late._emptied(one) for one in former] == [False]
        return choosing(replica, name)

    monkeypatch.setattr(isr_changes, "choosing_unclean", interrupted)

    elected_unclean(opened(roots))

    assert texts(opened(roots), "t") == ["a", "b", "c"]


def test_a_file_that_nobody_has_any_more_keeps_no_replica_out(roots: list[Path], cluster: ReplicatedCluster) -> None:
    lost = min(file.name for file in roots[0].glob("t~*/partition=*/*.parquet"))
    for root in roots:
        next(root.glob(f"t~*/partition=*/{lost}")).unlink()
    away(roots[2])
    cluster.log("t").append(batch_now("d"))
    back(roots[2])

    assert not opened(roots).replication.replicate().failed

    assert set(opened(roots).replication.replicas("t").isr) == {1, 2, 3}
    assert held(roots) == [3, 3, 3]


def test_a_root_that_refuses_removals_keeps_no_other_one_full(
    roots: list[Path], cluster: ReplicatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("u", 1, AT_ONCE)
    cluster.log("u").append(batch_now("a"))
    cluster.replication.reassign("u", (2, 3))
    assign(cluster, 1, 2)
    assert not cluster.replication.replicate().failed
    remove = LocalStorage.remove

    def refused(self: LocalStorage, name: str, *, quietly: bool = False) -> None:
        if str(roots[0]) in self.uri and name.endswith(".parquet"):
            raise OSError(errno.EROFS, "Read-only file system")
        remove(self, name, quietly=quietly)

    monkeypatch.setattr(LocalStorage, "remove", refused)

    with pytest.raises(OSError, match="Read-only file system"):
        opened(roots).replication.clear_former()

    assert held(roots)[2] == 0


def aborted_election(roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> ReplicatedCluster:
    """Broker 1 alone is in sync; an unclean election of 2 ended just before it was registered, and 1 is back."""
    cluster = opened(roots)
    cluster.create_topic("t", 1, UNCLEAN, assignments={0: [1, 2]})
    cluster.log("t").append(batch_now("a"))
    away(roots[1])
    opened(roots).log("t").append(batch_now("b"))
    back(roots[1])
    away(roots[0])
    change = MetadataController.change

    def killed(self: MetadataController, before: Registration, after: Registration) -> bool:
        if len(after.losses) > len(before.losses):
            raise ZeroDivisionError
        return change(self, before, after)

    with monkeypatch.context() as patch:
        patch.setattr(MetadataController, "change", killed)
        with pytest.raises(ZeroDivisionError):
            elected_unclean(opened(roots))
    back(roots[0])
    return opened(roots)


def test_a_copy_of_an_election_that_was_never_registered_is_not_recovered(
    roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log says a later epoch; who is in sync has what was acknowledged since."""
    aborted_election(roots, monkeypatch).log("t").append(batch_now("c"))
    away(roots[2])

    assert opened(roots).replication.recover(str(roots[0])).sure

    assert texts(opened(roots), "t") == ["a", "b", "c"]


def test_nor_where_metadata_may_be_lost(roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    aborted_election(roots, monkeypatch).log("t").append(batch_now("c"))
    fourth = str(roots[0].parent / "4")
    opened(roots).replication.add_broker(fourth)
    cluster = opened(roots)
    assert not cluster.replication.recover(voters=[3]).lost
    away(roots[2])

    assert not opened(roots).replication.recover(str(roots[0])).sure

    assert texts(opened(roots), "t") == ["a", "b", "c"]


def test_a_copy_of_an_election_that_was_never_registered_goes_when_the_epoch_has_passed_it(
    roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then nobody can tell it from one whose registration was lost."""
    assign(aborted_election(roots, monkeypatch), 1)
    with pytest.raises(KafkaStorageError, match="has epoch 2"):
        opened(roots).replication.clear_former()
    for brokers in ([1, 3], [1]):
        assign(opened(roots), *brokers)

    opened(roots).replication.clear_former()

    assert held(roots)[1] == 0
    assert texts(opened(roots), "t") == ["a", "b"]


def test_an_unclean_leader_stays_whose_source_was_cleared_and_whose_registration_is_lost(
    roots: list[Path], tmp_path: Path
) -> None:
    """Nobody has written since the election: its log ends as that of one that was never registered."""
    kept = with_an_unclean_leader(roots, tmp_path)
    assert opened(roots).replication.clear_former() == 1
    away(roots[1])

    recovered = with_older_metadata(roots, kept)

    assert texts(recovered, "t") == ["a"]
    recovered.replication.clear_former()
    assert texts(only_third(roots), "t") == ["a"]


def test_an_unclean_leader_that_was_sealed_again_is_recovered(
    roots: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log ends with a second seal of the same chain, as one that was to join went away; a record is before that."""
    kept = with_an_unclean_leader(roots, tmp_path)
    opened(roots).log("t").append(batch_now("b"))
    back(roots[0])
    calls: list[int] = []

    def ends(*given: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise OSError("gone")
        return (yield from sealing(*given))

    with monkeypatch.context() as patch:
        patch.setattr(isr_changes, "sealing", ends)
        assert opened(roots).replication.replicate().failed
    away(roots[0])
    until = time.monotonic() + 30
    while len(opened(roots).metadata.refresh().replicas[opened(roots).topic("t").location].registration.chain) > 1:
        assert time.monotonic() < until
        opened(roots).replication.replicate()
    assert texts(opened(roots), "t") == ["a", "b"]
    away(roots[1])

    recovered = with_older_metadata(roots, kept)

    assert texts(recovered, "t") == ["a", "b"]


def test_one_that_was_emptied_is_not_chosen_before_one_with_records(roots: list[Path]) -> None:
    cluster = opened(roots)
    cluster.create_topic("t", 1, UNCLEAN, assignments={0: [1, 2, 3]})
    for value in "abc":
        cluster.log("t").append(batch_now(value))
    away(roots[1])
    for value in "defgh":
        opened(roots).log("t").append(batch_now(value))
    assign(opened(roots), 1)
    assert opened(roots).replication.clear_former() == 1
    back(roots[1])
    opened(roots).replication.reassign("t", (1, 2, 3))
    away(roots[0])

    elected_unclean(opened(roots))

    assert texts(opened(roots), "t") == ["a", "b", "c"]


def test_a_log_that_was_given_up_is_not_chosen_before_one_that_counts(roots: list[Path]) -> None:
    """However long it is."""
    opened(roots).create_topic("t", 1, UNCLEAN, assignments={0: [1, 2, 3]})
    opened(roots).log("t").append(batch_now("a"))
    away(roots[1])
    opened(roots).log("t").append(batch_now("b"))
    away(roots[2])
    back(roots[1])
    for value in "cdefghij":
        opened(roots).log("t").append(batch_now(value))
    away(roots[0])
    back(roots[2])
    elected_unclean(opened(roots))
    opened(roots).log("t").append(batch_now("x"))
    assert not [why for why in opened(roots).replication.replicate().failed if "broker 2" in why]
    opened(roots).log("t").append(batch_now("y"))
    back(roots[0])
    away(roots[1])
    opened(roots).log("t").append(batch_now("z"))
    back(roots[1])
    away(roots[2])

    elected_unclean(opened(roots))

    assert texts(opened(roots), "t") == ["a", "b", "x", "y"]


def test_recovery_says_who_could_be_chosen_under_a_name_that_is_not_registered(roots: list[Path]) -> None:
    opened(roots).create_topic("t", 1, UNCLEAN, assignments={0: [1, 2]})
    for value in "ab":
        opened(roots).log("t").append(batch_now(value))
    away(roots[0])
    opened(roots).log("t").append(batch_now("c"))
    away(roots[1])
    back(roots[0])
    elected_unclean(opened(roots))
    back(roots[1])
    away(roots[0])

    planned = opened(roots).replication.recover(dry_run=True)

    (said,) = [finding for finding in planned.findings if finding.startswith("t~")]
    assert "broker 2 has records" in said
    elected_unclean(opened(roots))
    assert texts(opened(roots), "t") == ["a", "b", "c"]


def test_one_that_a_recovery_has_named_anew_can_be_chosen_unclean(tmp_path: Path) -> None:
    """It has not come back under its new name, and nobody else is left."""
    roots = [tmp_path / str(n) for n in (1, 2, 3, 4)]

    def those(*numbers: int) -> ReplicatedCluster:
        settings = ServerProperties.from_properties({"replica.lag.time.max.ms": "20"})
        return open_several([str(roots[n - 1]) for n in numbers], server=settings)

    cluster = those(1, 2, 3, 4)
    cluster.create_topic("t", 1, {"unclean.leader.election.enable": "true"}, assignments={0: [1, 4]})
    cluster.log("t").append(batch_now("a"))
    away(roots[3])
    those(1, 2, 3, 4).log("t").append(batch_now("b"))
    back(roots[3])
    away(roots[1])
    away(roots[2])
    assert not those(1, 4).replication.recover(str(roots[0])).sure
    away(roots[0])
    those(4).replication.recover()
    elected_unclean(those(4))

    assert texts(those(4), "t") == ["a"]
