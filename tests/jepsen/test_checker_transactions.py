# ruff: noqa: ANN001, ANN003, ANN201, ANN204, C408, C901, E501, PT006, PT018, RUF021, S610
# mypy: ignore-errors
# fmt: off
# As checker.py: without anything of the project.
"""The checker of histories, for transactions: histories with and without each anomaly, and a pipeline with seeded bugs."""
import random

import pytest

from tests.jepsen.checker import check
from tests.jepsen.test_checker import H, X, Y, found, only

IN = "in-0"


def txn(h, p, reads, sends, *, typ="ok", **kw):
    """reads: {tp: [(offset, value)]}; sends: [(tp, offset, value)]"""
    asked = [["poll"], *[["send", tp, v] for tp, _, v in sends]]
    done = [["poll", {tp: [list(r) for r in rs] for tp, rs in reads.items()}],
            *[["send", tp, [o, v]] for tp, o, v in sends]]
    return h.ev(p, "invoke", "txn", asked, **kw).ev(p, typ, "txn", done, **kw)


def copier(h, p, start, stop, at, *, typ="ok", suffix="", **kw):
    """A transaction that copies in-0[start:stop] to x-0[at:]."""
    records = [(o, f"r{o}") for o in range(start, stop)]
    kw = {"group": "g", "offsets": {IN: stop}, **kw}
    return txn(h, p, {IN: records}, [(X, at + n, v + suffix) for n, (_, v) in enumerate(records)], typ=typ, **kw)


def filled(n=6):
    h = H()
    for o in range(n):
        h.send("w", (IN, o, f"r{o}"))
    return h


EOS = dict(dense=True, drained=True, eos=True, serial=True)


def test_an_acknowledged_record_without_an_offset_is_unseen_in_a_dense_log_too():
    h = H()
    txn(h, 1, {}, [(X, 0, "a"), (Y, None, "b")])
    h.send(2, (Y, 0, "c")).poll(3, {X: [(0, "a")], Y: [(0, "c")]})
    assert {"unseen", "torn-txn"} <= set(check(list(h), dense=True, drained=True)["bad"])


def drain(h, records, tp=X):
    h.op("d", "assign", [tp, IN], [tp, IN], seek="beginning")
    return h.poll("d", {tp: records, IN: [(o, f"r{o}") for o in range(6)]})


def test_a_pipeline_without_anomalies():
    h = filled()
    copier(copier(h, 1, 0, 3, 0), 2, 3, 6, 3)
    h.op(3, "committed", {IN: 6}, {IN: 6}, group="g")
    h.op(4, "snapshot", {X: 3, IN: 6}, {X: 3, IN: 6}, offsets={"g": {IN: 3}})
    drain(h, [(o, f"r{o}") for o in range(6)])
    r = check(list(h), **EOS)
    assert r["valid"] and r["anomalies"] == {}, r["anomalies"]


def test_double_consumption_counts_a_transaction_whose_outcome_was_learned_from_its_records():
    h = filled()
    copier(h, 1, 0, 3, 0, typ="info")
    copier(h, 2, 0, 3, 3, suffix="'")
    drain(h, [(o, f"r{o % 3}" + "'" * (o // 3)) for o in range(6)])
    r = only(h, "double-consumption", **EOS)
    assert r["anomalies"]["double-consumption"]["count"] == 3 and not r["valid"]


def test_skipped_consumption():
    h = filled()
    copier(copier(h, 1, 0, 2, 0), 1, 4, 6, 2)
    drain(h, [(0, "r0"), (1, "r1"), (2, "r4"), (3, "r5")])
    r = only(h, "skipped-consumption", **EOS)
    assert [e["offset"] for e in r["anomalies"]["skipped-consumption"]["examples"]] == [2, 3] and not r["valid"]
    assert "skipped-consumption" not in found(h)          # only where it is promised


def test_interleaved_transactions_are_tolerated_unless_serial_order_is_promised():
    h = H()
    txn(txn(h, 1, {}, [(X, 0, "a"), (X, 2, "c")]), 2, {}, [(X, 1, "b"), (X, 3, "d")])
    r = only(h, "interleaved-txn", "G0")
    assert r["valid"] and r["anomalies"]["interleaved-txn"]["count"] == 2
    assert {"interleaved-txn", "G0", "int-send-skip"} <= set(check(list(h), serial=True)["bad"])


def test_two_partitions_in_different_orders_are_a_write_cycle():
    h = H()
    txn(txn(h, 1, {}, [(X, 0, "a"), (Y, 1, "b")]), 2, {}, [(X, 1, "c"), (Y, 0, "d")])
    assert check(list(h))["valid"]
    assert check(list(h), serial=True)["bad"] == ["G0"]


def test_zombie_transaction():
    h = H().op(1, "init", None, None, transactional_id="t", epoch=1)
    h.ev(1, "invoke", "txn", [["send", X, "a"]], transactional_id="t", epoch=1)
    h.op(2, "init", None, None, transactional_id="t", epoch=2)
    late = len(h)
    h.ev(1, "ok", "txn", [["send", X, [0, "a"]]], transactional_id="t", epoch=1, commit_invoked=late)
    r = only(h, "zombie-txn")
    assert r["anomalies"]["zombie-txn"]["examples"][0]["epochs"] == [2, 1] and not r["valid"]


def test_a_commit_that_was_asked_for_before_the_newer_epoch_is_no_zombie():
    h = H().op(1, "init", None, None, transactional_id="t", epoch=1)
    h.ev(1, "invoke", "txn", [["send", X, "a"]], transactional_id="t", epoch=1)
    h.op(2, "init", None, None, transactional_id="t", epoch=2)
    h.ev(1, "ok", "txn", [["send", X, [0, "a"]]], transactional_id="t", epoch=1, commit_invoked=2)
    assert found(h) == {"unseen"}


def test_aborted_offsets():
    h = filled()
    copier(h, 1, 0, 3, 0, typ="fail")
    h.op(2, "committed", {IN: 3}, {IN: 3}, group="g")
    r = only(h, "aborted-offsets")
    assert not r["valid"]


def test_offsets_that_somebody_else_committed_too_are_not_the_aborted_ones():
    h = filled()
    copier(h, 1, 0, 3, 0, typ="fail")
    h.op(2, "commit", {IN: 3}, {IN: 3}, group="g").op(3, "committed", {IN: 3}, {IN: 3}, group="g")
    assert "aborted-offsets" not in found(h)


def test_torn_offsets_records_without_offsets():
    h = filled()
    copier(h, 1, 0, 3, 0, typ="info")
    h.op("d", "assign", [X], [X], seek="beginning").poll("d", {X: [(0, "r0"), (1, "r1"), (2, "r2")]})
    h.op(2, "committed", {IN: None}, {IN: None}, group="g")
    r = only(h, "torn-offsets")
    assert r["anomalies"]["torn-offsets"]["examples"][0]["read"] is None and not r["valid"]


def test_torn_offsets_offsets_without_records():
    h = filled()
    copier(h, 1, 0, 3, 0, typ="info")
    h.op(2, "committed", {IN: 3}, {IN: 3}, group="g")
    drain(h, [])
    r = only(h, "torn-offsets", drained=True)
    assert r["anomalies"]["torn-offsets"]["examples"][0]["offset"] == 3 and not r["valid"]


def test_a_group_that_was_set_back_is_not_torn():
    h = filled()
    copier(h, 1, 0, 3, 0)
    h.op(2, "commit", {IN: 0}, {IN: 0}, group="g").op(3, "committed", {IN: 0}, {IN: 0}, group="g")
    assert "torn-offsets" not in found(h)


@pytest.mark.parametrize("cut, offset, torn", [
    ({X: 0, Y: 0}, 0, False), ({X: 1, Y: 1}, 3, False), ({X: 1, Y: 0}, 3, True), ({X: 1, Y: 1}, 0, True),
    ({X: 0, Y: 0}, 3, True), ({X: 1}, 3, False),
])
def test_torn_snapshot(cut, offset, torn):
    h = filled()
    txn(h, 1, {}, [(X, 0, "a"), (Y, 0, "b")], group="g", offsets={IN: 3})
    h.op(2, "snapshot", cut, cut, offsets={"g": {IN: offset}})
    assert ("torn-snapshot" in found(h)) is torn
    assert ("torn-snapshot" in check(list(h))["bad"]) is torn


# ------------------------------------------------------------------ a pipeline with seeded bugs
class Pipeline:
    """Copiers in a group move records from two input partitions to two output topics, in transactions that a correct
    log decides one after the other. They are paused, killed and replaced; `bug` plants one defect in the log."""

    def __init__(self, seed, bug=None, steps=250):
        self.r, self.bug, self.h, self.planted = random.Random(seed), bug, H(), 0
        self.inputs, self.outputs = ["i-0", "i-1"], ["x-0", "x-1", "y-0"]
        self.log = {tp: [] for tp in self.inputs + self.outputs}
        self.offsets = dict.fromkeys(self.inputs, 0)
        self.epoch = {"t0": 0, "t1": 0}
        self.owner = {}                                     # partition -> (transactional id, epoch)
        self.open = {}                                      # (id, epoch) -> an open transaction
        self.n = self.steps = 0
        for tid in self.epoch:
            self.begin(tid)
        for self.steps in range(steps):
            self.r.choice((self.write, self.read, self.read, self.read, self.settle, self.settle, self.settle,
                           self.replace, self.look))()
        self.bug, bug = None, self.bug
        for tid in self.epoch:
            self.begin(tid)
        for _ in range(200):
            self.read(), self.settle()
        self.look()
        self.h.op("d", "assign", list(self.log), list(self.log), seek="beginning")
        self.h.poll("d", {tp: list(enumerate(values)) for tp, values in self.log.items()})

    def due(self, bug):
        if self.bug == bug and self.steps > 60 and (not self.planted or self.r.random() < .3):
            self.planted += 1
            return True
        return False

    def begin(self, tid):
        self.epoch[tid] += 1
        if not self.due("zombies-commit"):
            self.open = {who: t for who, t in self.open.items() if who[0] != tid or t["asked"]}
            self.owner = {tp: who for tp, who in self.owner.items() if who[0] != tid}
        self.h.op(f"{tid}-{self.epoch[tid]}", "init", None, None, transactional_id=tid, epoch=self.epoch[tid])
        for tp in self.inputs:
            if tp not in self.owner or self.r.random() < .5:
                self.owner[tp] = (tid, self.epoch[tid])

    def replace(self):
        if self.r.random() < .3:
            self.begin(self.r.choice(sorted(self.epoch)))

    def write(self):
        for _ in range(self.r.randint(1, 4)):
            self.n += 1
            tp = self.r.choice(self.inputs)
            self.h.send("w", (tp, len(self.log[tp]), f"r{self.n}"))
            self.log[tp].append(f"r{self.n}")

    def read(self):
        """A copier polls and stages; one transaction for each copier."""
        who = self.r.choice(sorted(set(self.owner.values())) or [None])
        if who is None or who in self.open:
            return
        reads, sends, offsets = {}, [], {}
        for tp in (tp for tp in self.inputs if self.owner[tp] == who):
            at = self.offsets[tp]
            if at and self.due("consumes-twice"):
                at -= 1
            if at < len(self.log[tp]) - 1 and self.due("skips-input"):
                at += 1
            some = list(enumerate(self.log[tp]))[at:at + self.r.randint(1, 3)]
            if some:
                reads[tp], offsets[tp] = some, some[-1][0] + 1
        for records in reads.values():
            for _, v in records:
                outs = (self.r.choice(self.outputs[:2]), "y-0")
                sends += [(out, f"{v}/{who[0]}.{who[1]}.{len(self.h)}") for out in outs]
        if sends:
            self.open[who] = dict(reads=reads, sends=sends, offsets=offsets, asked=False)
            self.h.ev(f"{who[0]}-{who[1]}", "invoke", "txn",
                      [["poll", {tp: [list(x) for x in rs] for tp, rs in reads.items()}],
                       *[["send", tp, v] for tp, v in sends]], **self.extra(who, offsets))

    def extra(self, who, offsets):
        return dict(transactional_id=who[0], epoch=who[1], group="g", offsets=offsets)

    def settle(self):
        who = self.r.choice(sorted(self.open) or [None])
        if who is None:
            return
        t = self.open.pop(who)
        asked = len(self.h)
        current = self.epoch[who[0]] == who[1] and all(self.owner[tp] == who for tp in t["offsets"])
        zombie = not current and self.bug == "zombies-commit" and self.steps > 60
        fate = self.r.choices(("ok", "fail", "info"), (7, 2, 1))[0]
        if not (current or zombie) or any(self.offsets[tp] > t["reads"][tp][0][0] and not self.bug for tp in t["reads"]):
            fate = "fail"
        happens = fate == "ok" or fate == "info" and self.r.random() < .5
        placed = []
        if happens or self.due("aborted-are-visible"):
            sends = list(t["sends"])
            tops = {tp for tp, _ in sends}
            if len(tops) > 1 and self.due("tears"):
                sends = [s for s in sends if s[0] != "y-0"]
            between = self.due("interleaves")
            for nth, (tp, v) in enumerate(sends):
                placed.append([tp, len(self.log[tp]), v])
                self.log[tp].append(v)
                if between and nth < len(sends) - 1:
                    self.n += 1
                    self.h.send("z", (tp, len(self.log[tp]), f"z{self.n}"))
                    self.log[tp].append(f"z{self.n}")
            if self.bug == "snapshots-tear" and self.steps > 60:
                # The look comes between two topics of one transaction.
                ends = {tp: len(values) for tp, values in self.log.items()}
                ends["y-0"] = min([at for tp, at, _ in placed if tp == "y-0"], default=ends["y-0"])
                self.h.op("s", "snapshot", ends, ends)
        if (happens and not self.due("loses-offsets")) or (not happens and self.due("aborted-offsets-count")):
            self.offsets.update({tp: max(off, self.offsets[tp]) for tp, off in t["offsets"].items()})
        told = {(tp, v): at for tp, at, v in placed} if fate == "ok" else {}
        done = [["poll", {tp: [list(x) for x in rs] for tp, rs in t["reads"].items()}]]
        done += [["send", tp, [told.get((tp, v)), v]] for tp, v in t["sends"]]
        if fate != "info" or self.r.random() < .5:
            self.h.ev(f"{who[0]}-{who[1]}", fate, "txn", done,
                      **self.extra(who, t["offsets"]), commit_invoked=asked)
        if fate == "info":
            self.begin(who[0])

    def look(self):
        self.h.op("l", "committed", dict(self.offsets), dict(self.offsets), group="g")
        ends = {tp: len(values) for tp, values in self.log.items()}
        self.h.op("s", "snapshot", ends, ends, offsets={"g": dict(self.offsets)})


@pytest.mark.parametrize("seed", range(25))
def test_a_correct_pipeline_passes(seed):
    r = check(list(Pipeline(seed).h), **EOS)
    assert r["valid"], (r["bad"], {k: v["examples"][:2] for k, v in r["anomalies"].items() if k in r["bad"]})
    assert r["counts"]["acked"] > 50 and r["counts"]["failed"] > 0


@pytest.mark.parametrize("bug, expected", [
    ("zombies-commit", {"zombie-txn", "double-consumption"}),
    ("consumes-twice", {"double-consumption"}),
    ("skips-input", {"skipped-consumption"}),
    ("aborted-are-visible", {"aborted-read"}),
    ("tears", {"torn-txn", "unseen"}),
    ("interleaves", {"interleaved-txn", "int-send-skip"}),
    ("snapshots-tear", {"torn-snapshot"}),
    ("loses-offsets", {"torn-offsets", "double-consumption"}),
    ("aborted-offsets-count", {"aborted-offsets", "skipped-consumption"}),
])
def test_seeded_bugs_of_transactions_are_found(bug, expected):
    caught = 0
    for seed in range(12):
        pipeline = Pipeline(seed, bug)
        caught += bool(expected & set(check(list(pipeline.h), **EOS)["bad"]))
    assert caught >= 4, f"{bug}: found in {caught} of 12 histories"
