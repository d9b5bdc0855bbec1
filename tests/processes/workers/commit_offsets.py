"""Committer worker: threads that commit offsets, each one commit after the other, and note what they are told.

Of each pair of threads one commits from outside a group's membership, and one as a member of a group that it shares
with the other processes, which it joins again when it was driven out.
"""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kafkalike.errors import CommitFailedError, KafkaError, RebalanceInProgressError, UnknownOutcomeError
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.group_rows import GroupRow
from kafkalike.model.group_state import GroupsState
from tests.processes.workers.common import cluster, orders, wait_for_go
from tests.tools.commits import commit_label, decided, member_of, moved, offsets_of


class Committer:
    """One thread's member."""

    def __init__(self, root: str, who: str, group: str, history: Path, *, member: bool) -> None:
        self.cluster = cluster(root)
        self.offsets = GroupOffsets(self.cluster.groups, SYSTEM_CLOCK)
        self.who = who
        self.group = group
        self.member = member
        self.generation = -1
        self.count = 0
        self.history = history.open("a")

    def _note(self, what: str, label: str) -> None:
        self.history.write(f"{what} {label}\n")
        self.history.flush()

    def _told(self, label: str, act: Callable[[], object]) -> str:
        self._note("begun", label)
        what = "acked"
        try:
            act()
        except UnknownOutcomeError:
            what = "unknown"
        except (CommitFailedError, RebalanceInProgressError):
            what = "fenced"
        except KafkaError:
            what = "refused"
        self._note(what, label)
        return what

    def work(self, commits: int, pause_ms: int) -> None:
        """So many changes; now and then a decision of several rows, or one that drives all other members out."""
        while self.count < commits:
            self.count += 1
            SYSTEM_CLOCK.sleep(pause_ms / 1000)
            if self.count % 10 == 0:
                label = f"d:{self.who}:x:{self.count}"
                self._told(label, partial(self.cluster.groups.transact, partial(decided, label=label)))
            elif self.member and (self.generation < 0 or self.count % 7 == 0):
                self._join(f"r:{self.who}:{self.group}:{self.count}")
            else:
                label = commit_label(self.who, self.group, self.count, self.generation)
                told = self._told(label, partial(self.offsets.commit, member_of(label), offsets_of(label), {"t": "id"}))
                if told == "fenced":
                    self.generation = -1

    def _join(self, label: str) -> None:
        generation = -1

        def plan(state: GroupsState) -> list[GroupRow]:
            nonlocal generation
            generation = state.group(self.group).generation + 1
            return moved(state, self.group, self.who, label, leaves=False, alone=self.count % 7 == 0)

        if self._told(label, lambda: self.cluster.groups.transact(plan)) == "acked":
            self.generation = generation


def main() -> None:
    asked = orders()
    name = asked["name"]
    threads = []
    for nth in range(asked["threads"]):
        member = nth % 2 == 1
        who = f"{name}-{nth}"
        history = Path(asked["histories"], f"{who}.txt")
        committer = Committer(asked["root"], who, "shared" if member else f"own-{who}", history, member=member)
        threads.append(threading.Thread(target=committer.work, args=(asked["commits"], asked["pause_ms"])))
    wait_for_go()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
