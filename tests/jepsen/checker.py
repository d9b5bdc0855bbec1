# ruff: noqa: ANN001, ANN003, ANN201, ANN202, ANN204, B007, B904, B905, C408, C420, C901, E702, F841, FBT003, PLR0912, PTH123, RUF007, RUF021, RUF022, RUF023, SIM114, T201
# mypy: ignore-errors
# fmt: off
# One file without dependencies, to be carried from project to project as it is.
"""Black-box history checker for Kafka-like logs (pure Python, standard library only).

Written from the *definitions* of the anomalies used by Jepsen's Kafka workload; the data structures and
algorithms here are this file's own.

Input: a history, one JSON object per line, in the order in which the events happened
(one shared clock; ``--sort-by-time`` merges files of several processes):

  {"process": 3, "type": "invoke|ok|fail|info", "f": "send|poll|txn|commit|assign|subscribe|...",
   "time": 12345, "value": ...}

  send / poll / txn   value = list of micro-operations
                        ["send", "topic-0", payload]   payload = literal or [offset|null, literal]
                        ["poll"]  (invoke)  or  ["poll", {"topic-0": [[offset, value], ...]}]
  assign / subscribe  value = list of topic-partitions (assign) or topics (subscribe);
                        optional "seek": "beginning" | "end" | {"topic-0": offset}
  seek                value = {"topic-0": offset}
  commit              value = {"topic-0": next_offset}; optional "group", "generation"
  committed           value = {"topic-0": next_offset|null} (a read of committed offsets); "group"
  assignment          value = list of topic-partitions owned now; needs "group", "generation"
  truncate            value = {"topic-0": new_log_start}   (retention / delete_records)
  init                a producer took a transactional id over; needs "transactional_id", "epoch"
  snapshot            value = {"topic-0": log_end}: log ends of several partitions as of one moment, and optionally
                        "offsets": {group: {"topic-0": next_offset|null}} as of the same moment

Optional fields of transactions (f=txn), of the invocation or the completion: "transactional_id", "epoch";
"offsets": {"topic-0": next_offset}, which "group" commits with it. The invocation should say what was polled before it
began: a client that dies tells nothing more.

Optional fields on send/poll/txn operations: "rebalance_log": [{"keys": [...]}, ...],
"commit_invoked": time at which the client asked for the commit of this transaction, "group".

Types: ok = definitely happened; fail = definitely did NOT happen; info = unknown.
A "fail" for an operation which could have happened makes every verdict worthless: when in
doubt the harness must write "info".  An invocation without completion counts as info.

Every (topic-partition, value) pair must be sent at most once per history (use unique values).
f=txn is atomic (all or nothing); a f=send with several records is not, unless it has "atomic": true.

Use:  report = check(load("history.jsonl"));  assert report["valid"], report["bad"]
CLI:  python checker.py history.jsonl [--dense] [--drained] [--json] ...; exit code 1 = invalid
"""
from __future__ import annotations

import argparse
import json
import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque

__all__ = ["check", "load", "parse", "ANOMALIES", "DEFAULT_ALLOWED"]

#: every anomaly class this checker can report, with its definition
ANOMALIES = {
    "inconsistent-offsets": "two different values were seen at one (topic-partition, offset)",
    "duplicate": "one sent value sits at two or more offsets of its topic-partition",
    "lost-write": "a write that must have committed was never read although a read passed its offset",
    "unseen": "an acknowledged write which no poll ever returned by the end of the history",
    "aborted-read": "G1a: a poll returned a value whose send definitely failed or was aborted",
    "phantom-read": "a poll returned a value which nobody ever tried to send (corruption)",
    "future-read": "a poll completed before the send of the value it returned was even invoked",
    "intermediate-read": "a poll returned a value before the writing transaction asked to commit",
    "precommitted-read": "a transaction polled a value which it sent itself",
    "torn-txn": "part of a transaction is visible, another part of it is provably missing",
    "int-poll-skip": "inside one operation successive polled records skip over an existing record",
    "int-nonmonotonic-poll": "inside one operation polled records repeat or go backwards",
    "poll-skip": "between two operations of a process its position jumped over an existing record",
    "nonmonotonic-poll": "between two operations of a process its position repeated or went backwards",
    "int-send-skip": "inside one operation successive sends to a partition have foreign records between",
    "int-nonmonotonic-send": "inside one operation a later send landed at or before an earlier one",
    "nonmonotonic-send": "a process' later operation sent at or before an earlier operation's sends",
    "G0": "write cycle: operations ordered both ways by ww (log order) edges",
    "G0-realtime": "write cycle which needs a real-time edge",
    "G1c": "circular information flow: cycle of ww and wr edges with at least one wr",
    "G1c-realtime": "G1c cycle which needs a real-time edge",
    "offset-gap": "(dense logs) an offset below a record that was read holds no record",
    "commit-regression": "a group's committed offset went backwards without a seek by the group",
    "commit-beyond-end": "a committed offset lies above every record known to exist",
    "lost-commit": "a read of the committed offset returned less than an acknowledged commit",
    "zombie-commit": "a commit of an old generation was acknowledged after one of a newer generation",
    "overlapping-assignment": "two members of one group generation own the same partition",
    "double-consumption": "a record was consumed by two committed transactions of one group",
    "skipped-consumption": "committed transactions of a group passed a record which none of them consumed",
    "interleaved-txn": "records of other operations stand between those of one transaction in a partition",
    "zombie-txn": "a transaction of an old epoch of its transactional id committed after a newer one had begun",
    "aborted-offsets": "committed offsets were read which only an aborted transaction had asked for",
    "torn-offsets": "a transaction's records are in the log and its group's offsets are not, or the other way round",
    "torn-snapshot": "a snapshot has a part of a transaction: some of its records or offsets, and not all",
}

#: what Jepsen itself tolerates for Kafka: sends of several transactions interleave, so write
#: cycles and send skips are normal, and with ww edges in the graph G1c is normal too.
DEFAULT_ALLOWED = frozenset({"int-send-skip", "G0", "G0-realtime"})
INF = float("inf")


# ---------------------------------------------------------------- parsing
def _freeze(v):
    """Values must be hashable: containers become their canonical JSON text."""
    return json.dumps(v, sort_keys=True) if isinstance(v, (list, dict)) else v


def _payload(p, completed):
    """-> (offset or None, value). A completed payload is [offset|null, value]."""
    if isinstance(p, (list, tuple)) and len(p) == 2 and (p[0] is None or _is_offset(p[0])):
        return p[0], _freeze(p[1])
    return None, _freeze(p)


def _is_offset(x):
    return isinstance(x, int) and not isinstance(x, bool)


class Op:
    """One logical operation: an invocation joined with its completion."""
    __slots__ = ("id", "process", "f", "type", "mops", "value", "inv", "com", "t_inv", "t_com",
                 "rebalanced", "extra", "atomic")

    def __init__(self, oid, inv, com, inv_i, com_i):
        src = com or inv
        self.id, self.process, self.f = oid, src.get("process"), src.get("f")
        self.type = com["type"] if com else "info"
        self.inv, self.com = inv_i, com_i
        self.t_inv = (inv or src).get("time", inv_i)
        self.t_com = com.get("time", com_i) if com else INF
        self.value = src.get("value") if src.get("value") is not None else (inv or {}).get("value")
        self.extra = {**(inv or {}), **(com or {})}
        self.rebalanced = {k for e in (self.extra.get("rebalance_log") or []) for k in e.get("keys", ())}
        self.atomic = bool(self.extra.get("atomic", self.f == "txn"))
        self.mops = []
        if self.f in ("send", "poll", "txn"):
            done = com is not None
            mops = self.value if isinstance(self.value, list) else []
            asked = (inv or {}).get("value")
            if done and self.type != "ok" and isinstance(asked, list):
                # a failed/unknown completion may have lost what was asked: keep the asked sends
                have = {(m[1], _payload(m[2], True)[1]) for m in mops if m and m[0] == "send"}
                mops = mops + [m for m in asked if m and m[0] == "send"
                               and (m[1], _payload(m[2], False)[1]) not in have]
            for m in mops:
                if m and m[0] == "send":
                    self.mops.append(("send", m[1], *_payload(m[2], done)))
                elif m and m[0] == "poll" and len(m) > 1 and isinstance(m[1], dict):
                    self.mops.append(("poll", {tp: [(p[0], _freeze(p[1])) for p in recs]
                                               for tp, recs in m[1].items()}))

    def sends(self):
        """[(tp, offset|None, value)] in order."""
        return [m[1:] for m in self.mops if m[0] == "send"]

    def reads(self):
        """{tp: [(offset, value)]} over all its polls, in order."""
        out = defaultdict(list)
        for m in self.mops:
            if m[0] == "poll":
                for tp, recs in m[1].items():
                    out[tp].extend(recs)
        return out

    def brief(self):
        return {"op": self.id, "process": self.process, "type": self.type, "f": self.f, "time": self.t_com
                if self.t_com != INF else None}


def load(path: object) -> list:
    """Reads a JSON-lines file. A torn last line (writer killed) is dropped, any other bad line is an error."""
    out = []
    with open(path, encoding="utf-8", errors="surrogateescape") as fh:
        lines = fh.read().split("\n")
    for n, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            out.append(json.loads(line))
        except ValueError:
            if n == len(lines) - 1:      # no newline after it: torn by a kill
                break
            raise ValueError(f"{path}:{n + 1}: not JSON")
    return out


def parse(history):
    """Joins invocations with completions -> list of Op in completion order (open ones last)."""
    ops, pending, n = [], {}, 0
    for i, e in enumerate(history):
        typ, p = e.get("type"), e.get("process")
        if typ == "invoke":
            if p in pending:             # the process died and came back under its own name
                inv, ii = pending.pop(p)
                ops.append(Op(n, inv, None, ii, INF)); n += 1
            pending[p] = (e, i)
        elif typ in ("ok", "fail", "info"):
            inv, ii = pending.pop(p, (None, i))
            if inv is not None and inv.get("f") != e.get("f"):
                raise ValueError(f"line {i + 1}: process {p!r} completes {e.get('f')!r}, had invoked {inv.get('f')!r}")
            ops.append(Op(n, inv, e, ii, i)); n += 1
        else:
            raise ValueError(f"line {i + 1}: unknown type {typ!r}")
    for inv, ii in pending.values():
        ops.append(Op(n, inv, None, ii, INF)); n += 1
    return ops


# ---------------------------------------------------------------- the analysis
class _Log:
    """What is known about one topic-partition: offset -> values, and ranks (dense positions)."""
    __slots__ = ("at", "offsets", "rank", "places")

    def __init__(self):
        self.at = {}                       # offset -> {value: None} (an ordered set)
        self.places = defaultdict(list)    # value -> its offsets, ascending
        self.offsets, self.rank = [], {}

    def add(self, off, val):
        self.at.setdefault(off, {})[val] = None

    def seal(self):
        self.offsets = sorted(self.at)
        self.rank = {o: i for i, o in enumerate(self.offsets)}
        for o in self.offsets:
            for v in self.at[o]:
                self.places[v].append(o)

    def pos(self, off, val):
        """Offset of a record: its own if known, else the first place where its value was seen."""
        if off is not None and off in self.rank:
            return off
        got = self.places.get(val)
        return got[0] if got else None


class Checker:
    def __init__(self, history, *, ww_deps=True, dense=False, drained=False, compacted=(), eos=False,
                 serial=False, allowed=None, strict_subscribe=False, max_examples=10):
        self.opt = dict(ww_deps=ww_deps, dense=dense, drained=drained, eos=eos, serial=serial)
        self.compacted = set(compacted)
        self.max_examples = max_examples
        self.ops = parse(history)
        self.found = defaultdict(list)
        self.strict_subscribe = strict_subscribe
        self.data = [o for o in self.ops if o.mops]
        self._index()
        if allowed is None:
            allowed = set(DEFAULT_ALLOWED)
            if not serial:
                allowed.add("interleaved-txn")
            if serial:
                allowed -= {"G0", "int-send-skip"}
            elif ww_deps:
                allowed |= {"G1c", "G1c-realtime"}
            if not strict_subscribe and any(o.f == "subscribe" for o in self.ops):
                allowed |= {"poll-skip", "nonmonotonic-poll"}   # rebalances move positions
            if not drained:
                allowed.add("unseen")
        self.allowed = set(allowed)

    def hit(self, anomaly, **info):
        assert anomaly in ANOMALIES, anomaly
        self.found[anomaly].append(info)

    # -- shared indexes
    def _index(self):
        self.writer, self.readers = {}, defaultdict(list)
        self.sent = {"ok": set(), "fail": set(), "info": set()}
        ok_reads = set()
        for o in self.data:
            for tp, _, v in o.sends():
                old = self.writer.get((tp, v))
                if old is not None and old is not o:
                    raise ValueError(f"value {v!r} is sent to {tp} by two operations: values must be unique")
                self.writer[tp, v] = o
                self.sent[o.type].add((tp, v))
            for tp, recs in o.reads().items():
                for _, v in recs:
                    self.readers[tp, v].append(o)
                    if o.type == "ok":
                        ok_reads.add((tp, v))
        #: what must have committed although its result is unknown: an atomic operation of which
        #: any value was read, else just the values which were read
        self.proven = set()
        for o in self.data:
            if o.type == "info":
                seen = [(tp, v) for tp, _, v in o.sends() if (tp, v) in ok_reads]
                self.proven.update(((tp, v) for tp, _, v in o.sends()) if seen and o.atomic else seen)
        self.logs = defaultdict(_Log)
        for o in self.data:
            for tp, off, v in o.sends():
                if off is not None and self.committed(o, tp, v):
                    self.logs[tp].add(off, v)
            for tp, recs in o.reads().items():   # polls count whatever became of their transaction
                for off, v in recs:
                    if off is not None:
                        self.logs[tp].add(off, v)
        for log in self.logs.values():
            log.seal()
        self.start, self.truncs = defaultdict(int), []
        for o in self.ops:                       # an attempted truncation may have happened
            if o.f == "truncate" and o.type != "fail" and isinstance(o.value, dict):
                for tp, off in o.value.items():
                    self.start[tp] = max(self.start[tp], off)
                    self.truncs.append((o.inv, tp, off))
        self.ok_bound = {}                       # tp -> (offset, op): the highest committed read
        for o in self.data:
            if o.type == "ok":
                for tp, recs in o.reads().items():
                    for off, v in recs:
                        p = off if off is not None else self.logs[tp].pos(None, v)
                        if p is not None and (tp not in self.ok_bound or p > self.ok_bound[tp][0]):
                            self.ok_bound[tp] = (p, o)

    def committed(self, o, tp, v):
        return o.type == "ok" or (o.type == "info" and (tp, v) in self.proven)

    def gone(self, tp, off, before=INF):
        """May the record at this offset have been deleted by retention before event `before`?"""
        if tp in self.compacted:
            return True
        return any(t == tp and off < lim and i < before for i, t, lim in self.truncs)

    # -- values and offsets
    def offsets(self):
        for tp, log in self.logs.items():
            for off in log.offsets:
                if len(log.at[off]) > 1:
                    self.hit("inconsistent-offsets", tp=tp, offset=off, values=list(log.at[off]))
            for v, places in log.places.items():
                if len(places) > 1:
                    self.hit("duplicate", tp=tp, value=v, offsets=places, count=len(places))
            if self.opt["dense"] and tp not in self.compacted and tp in self.ok_bound:
                top, lo = self.ok_bound[tp][0], self.start.get(tp, 0)
                known = [o for o in log.offsets if lo <= o <= top]
                prev = lo - 1
                for o in known:
                    if o > prev + 1:
                        self.hit("offset-gap", tp=tp, first=prev + 1, last=o - 1)
                    prev = o

    def values(self):
        for o in self.data:
            mine = {(tp, v) for tp, _, v in o.sends()}
            for tp, recs in o.reads().items():
                for off, v in recs:
                    w = self.writer.get((tp, v))
                    if w is None:
                        self.hit("phantom-read", tp=tp, offset=off, value=v, reader=o.brief())
                        continue
                    if (tp, v) in mine:
                        self.hit("precommitted-read", tp=tp, value=v, operation=o.brief())
                        continue
                    if w.type == "fail":
                        self.hit("aborted-read", tp=tp, offset=off, value=v, writer=w.brief(), reader=o.brief())
                    if o.com < w.inv:
                        self.hit("future-read", tp=tp, value=v, writer=w.brief(), reader=o.brief())
                    asked = w.extra.get("commit_invoked")
                    if asked is not None and o.t_com < asked:
                        self.hit("intermediate-read", tp=tp, value=v, writer=w.brief(), reader=o.brief())

    def lost(self):
        torn = set()
        for (tp, v), w in self.writer.items():
            if (tp, v) in self.readers:
                continue
            log, places = self.logs[tp], self.logs[tp].places.get(v)
            bound = self.ok_bound.get(tp)
            if places is None:                    # not in the log by proof; maybe a known offset of an info op
                own = [off for t, off, x in w.sends() if (t, x) == (tp, v) and off is not None]
                places = own
            last = places[-1] if places else None
            expired = last is not None and self.gone(tp, last)
            if last is None and (tp in self.start or tp in self.compacted):
                expired = True                    # unknown place in a truncated log: no verdict
            missing = False
            if self.committed(w, tp, v) and last is not None and bound and last <= bound[0] and not expired:
                missing = True
                self.hit("lost-write", tp=tp, value=v, offset=last, max_read_offset=bound[0],
                         writer=w.brief(), max_reader=bound[1].brief())
            if w.type == "ok" and not expired:
                self.hit("unseen", tp=tp, value=v, offset=last, writer=w.brief())
                missing = missing or self.opt["drained"]
            elif w.type == "info" and (tp, v) in self.proven and self.opt["drained"] and not expired:
                missing = True
            if missing and w.atomic:
                torn.add(w.id)
        for o in self.data:
            if o.id in torn:
                seen = [(tp, v) for tp, _, v in o.sends() if (tp, v) in self.readers]
                if seen:
                    self.hit("torn-txn", operation=o.brief(), seen=seen[:5],
                             missing=[(tp, v) for tp, _, v in o.sends() if (tp, v) not in self.readers][:5])

    # -- positions
    def _step(self, tp, a, b):
        """(delta in ranks, skipped offsets) between two records (offset, value); None if unknown."""
        log = self.logs[tp]
        pa, pb = log.pos(*a), log.pos(*b)
        if pa is None or pb is None:
            return None, ()
        d = log.rank[pb] - log.rank[pa]
        return d, log.offsets[log.rank[pa] + 1:log.rank[pb]] if d > 1 else ()

    def polls(self):
        for o in self.data:
            for tp, recs in o.reads().items():
                if tp in o.rebalanced:
                    continue
                for a, b in zip(recs, recs[1:]):
                    d, skipped = self._step(tp, a, b)
                    if d is None:
                        continue
                    skipped = [s for s in skipped if not self.gone(tp, s, o.com)]
                    if d > 1 and skipped:
                        self.hit("int-poll-skip", tp=tp, records=[a, b], skipped=skipped[:10], operation=o.brief())
                    elif d < 1:
                        self.hit("int-nonmonotonic-poll", tp=tp, records=[a, b], delta=d, operation=o.brief())
        last = defaultdict(dict)                   # process -> tp -> (record, op)
        for o in self.ops:
            pos = last[o.process]
            if o.f in ("assign", "subscribe") and o.type in ("ok", "info"):
                keep = set(o.value or ())
                seek = o.extra.get("seek")
                for tp in list(pos):
                    if tp not in keep and tp.rsplit("-", 1)[0] not in keep:
                        del pos[tp]
                    elif seek in ("beginning", "end") or isinstance(seek, dict) and tp in seek:
                        del pos[tp]
            elif o.f == "seek" and o.type != "fail":
                for tp in (o.value or {}):
                    pos.pop(tp, None)
            elif o.mops:
                for tp in o.rebalanced:
                    pos.pop(tp, None)
                for tp, recs in o.reads().items():
                    if not recs:
                        continue
                    if tp in pos and tp not in o.rebalanced:
                        rec, before = pos[tp]
                        d, skipped = self._step(tp, rec, recs[0])
                        skipped = [s for s in skipped if not self.gone(tp, s, o.com)]
                        if d is not None and d > 1 and skipped:
                            self.hit("poll-skip", tp=tp, records=[rec, recs[0]], skipped=skipped[:10],
                                     operations=[before.brief(), o.brief()])
                        elif d is not None and d < 1:
                            self.hit("nonmonotonic-poll", tp=tp, records=[rec, recs[0]], delta=d,
                                     operations=[before.brief(), o.brief()])
                    if o.type == "ok":             # an aborted transaction's positions are rolled back
                        pos[tp] = (recs[-1], o)

    def send_order(self):
        last = defaultdict(dict)
        for o in self.data:
            per = defaultdict(list)
            for tp, off, v in o.sends():
                per[tp].append((off, v))
            if o.type == "fail":
                continue
            for tp, recs in per.items():
                for a, b in zip(recs, recs[1:]):
                    d, skipped = self._step(tp, a, b)
                    if d is not None and d > 1:
                        self.hit("int-send-skip", tp=tp, records=[a, b], skipped=list(skipped)[:10],
                                 operation=o.brief())
                    elif d is not None and d < 1:
                        self.hit("int-nonmonotonic-send", tp=tp, records=[a, b], delta=d, operation=o.brief())
                if tp in last[o.process]:
                    rec, before = last[o.process][tp]
                    d, _ = self._step(tp, rec, recs[0])
                    if d is not None and d < 1:
                        self.hit("nonmonotonic-send", tp=tp, records=[rec, recs[0]], delta=d,
                                 operations=[before.brief(), o.brief()])
                last[o.process][tp] = (recs[-1], o)

    # -- cycles
    def cycles(self):
        nodes = {o.id: o for o in self.data if o.type != "fail"}
        edges = {"ww": defaultdict(set), "wr": defaultdict(set), "rt": defaultdict(set)}
        if self.opt["ww_deps"]:
            for tp, log in self.logs.items():
                prev = None
                for off in log.offsets:
                    ws = [self.writer[tp, v] for v in log.at[off] if (tp, v) in self.writer]
                    w = ws[0] if ws and ws[0].id in nodes else None
                    if w is None:
                        continue
                    if prev is not None and prev.id != w.id:
                        edges["ww"][prev.id].add(w.id)
                    prev = w
        for (tp, v), rs in self.readers.items():
            w = self.writer.get((tp, v))
            if w is not None and w.id in nodes:
                for r in rs:
                    if r.id in nodes and r.id != w.id:
                        edges["wr"][w.id].add(r.id)
        # real time: a completed (ok) before b was invoked. The frontier keeps only direct predecessors.
        events = sorted([(o.inv, 1, o) for o in nodes.values()]
                        + [(o.com, 0, o) for o in nodes.values() if o.type == "ok"], key=lambda e: e[:2])
        frontier, before = {}, {}
        for _, kind, o in events:
            if kind == 1:
                before[o.id] = list(frontier)
                for a in frontier:
                    edges["rt"][a].add(o.id)
            else:
                for a in before.get(o.id, ()):
                    frontier.pop(a, None)
                frontier[o.id] = o
        for name, kinds, need in (("G0", ("ww",), ("ww",)), ("G1c", ("ww", "wr"), ("wr",)),
                                  ("G0-realtime", ("ww", "rt"), ("ww", "rt")),
                                  ("G1c-realtime", ("ww", "wr", "rt"), ("wr", "rt"))):
            for comp in _sccs(nodes, [edges[k] for k in kinds]):
                cyc = _cycle(comp, {k: edges[k] for k in kinds}, need)
                if cyc:
                    self.hit(name, steps=[{"from": nodes[a].brief(), "edge": k, "to": nodes[b].brief()}
                                          for a, k, b in cyc])

    # -- groups
    def groups(self):
        commits = [o for o in self.ops if o.f == "commit" and o.type == "ok" and isinstance(o.value, dict)]
        reset = [(o.inv, set(o.value or ())) for o in self.ops if o.f == "seek" and o.type != "fail"]
        best = {}                                   # (group, tp) -> list of (op, offset)
        for o in sorted(commits, key=lambda o: o.com):
            g, gen = o.extra.get("group"), o.extra.get("generation")
            for tp, off in o.value.items():
                log = self.logs.get(tp)
                end = (log.offsets[-1] + 1) if log and log.offsets else 0
                if log is not None and off > max(end, self.start.get(tp, 0)):
                    self.hit("commit-beyond-end", tp=tp, group=g, offset=off, end=end, operation=o.brief())
                for p, poff in best.get((g, tp), ()):
                    if p.com < o.inv:               # strictly one after the other
                        pg = p.extra.get("generation")
                        if gen is not None and pg is not None and gen < pg:
                            self.hit("zombie-commit", tp=tp, group=g, generations=[pg, gen],
                                     operations=[p.brief(), o.brief()])
                            break
                        if off < poff and not any(p.com < i < o.com and tp in ks for i, ks in reset):
                            self.hit("commit-regression", tp=tp, group=g, offsets=[poff, off],
                                     operations=[p.brief(), o.brief()])
                            break
                best.setdefault((g, tp), []).append((o, off))
        attempts = [o for o in self.ops if o.f == "commit" and o.type != "fail" and isinstance(o.value, dict)]
        for o in self.ops:
            if o.f == "committed" and o.type == "ok" and isinstance(o.value, dict):
                g = o.extra.get("group")
                for tp, off in o.value.items():
                    done = [(p, x) for p, x in best.get((g, tp), ()) if p.com < o.inv]
                    if not done:
                        continue
                    newest = max(p.inv for p, _ in done)
                    # values which the read may return: the newest ones and everything concurrent or unknown
                    may = {x for p, x in done if p.com > newest}
                    may |= {p.value[tp] for p in attempts if tp in p.value and p.extra.get("group") == g
                            and p.inv < o.com and (p.type == "info" or p.com > o.inv)}
                    if (off if off is not None else -1) not in may:
                        self.hit("lost-commit", tp=tp, group=g, read=off, acknowledged=sorted(may),
                                 operation=o.brief())
        owners = {}
        for o in self.ops:
            if o.f == "assignment" and o.type == "ok":
                key0 = (o.extra.get("group"), o.extra.get("generation"))
                for tp in o.value or ():
                    other = owners.setdefault((*key0, tp), o)
                    if other.process != o.process:
                        self.hit("overlapping-assignment", tp=tp, group=key0[0], generation=key0[1],
                                 processes=[other.process, o.process])
        self.consumed = defaultdict(int)
        for o in self.data:
            if o.f == "txn" and o.extra.get("group") is not None and self.visible(o):
                for tp, recs in o.reads().items():
                    for off, v in recs:
                        self.consumed[o.extra["group"], tp, v] += 1
        if self.opt["eos"]:
            for (g, tp, v), n in self.consumed.items():
                if n > 1:
                    self.hit("double-consumption", group=g, tp=tp, value=v, count=n)

    # -- transactions
    def visible(self, o):
        """Whether the records of an operation are in the log: True, False, or None when nobody knows."""
        sent = [(tp, v) for tp, _, v in o.sends()]
        if any(tv in self.readers for tv in sent) or o.type == "ok":
            return True
        return False if o.type == "fail" else None

    def transactions(self):
        txns = [o for o in self.ops if o.f == "txn"]
        self._interleaved(txns)
        self._zombies(txns)
        self._offsets_of(txns)
        self._snapshots(txns)
        if self.opt["eos"]:
            self._skipped(txns)

    def _interleaved(self, txns):
        for o in txns:
            per = defaultdict(list)
            for tp, off, v in o.sends():
                at = self.logs[tp].pos(off, v) if self.committed(o, tp, v) else None
                if at is not None:
                    per[tp].append(at)
            for tp, places in per.items():
                known = self.logs[tp].offsets
                between = known[bisect_right(known, min(places)):bisect_left(known, max(places))]
                foreign = [off for off in between
                           if any(self.writer.get((tp, v)) is not o for v in self.logs[tp].at[off])]
                if foreign:
                    self.hit("interleaved-txn", tp=tp, between=foreign[:10], operation=o.brief())

    def _zombies(self, txns):
        begun = defaultdict(list)                   # transactional id -> (time at which it was done, epoch)
        for o in self.ops:
            if o.f == "init" and o.type == "ok":
                begun[o.extra.get("transactional_id")].append((o.t_com, o.extra.get("epoch")))
        for o in txns:
            tid, epoch = o.extra.get("transactional_id"), o.extra.get("epoch")
            if tid is None or epoch is None or not self.visible(o):
                continue
            # Surely a zombie's only if the commit was asked for after the newer epoch had begun.
            asked = o.extra.get("commit_invoked", o.t_inv)
            newer = [e for t, e in begun[tid] if e is not None and e > epoch and t < asked]
            if newer:
                self.hit("zombie-txn", transactional_id=tid, epochs=[max(newer), epoch], operation=o.brief())

    def _offsets_of(self, txns):
        """Reads of committed offsets against the transactions that committed them."""
        asked = defaultdict(list)                   # (group, tp) -> [(operation, offset)]
        for o in txns:
            for tp, off in (o.extra.get("offsets") or {}).items():
                asked[o.extra.get("group"), tp].append((o, off))
        others = defaultdict(set)
        for o in self.ops:
            if o.f == "commit" and o.type != "fail" and isinstance(o.value, dict):
                for tp, off in o.value.items():
                    others[o.extra.get("group"), tp].add(off)
        for r in self.ops:
            if r.f != "committed" or r.type != "ok" or not isinstance(r.value, dict):
                continue
            g = r.extra.get("group")
            for tp, got in r.value.items():
                mine = asked.get((g, tp), ())
                by = [o for o, off in mine if off == got]
                if got is not None and by and got not in others[g, tp]:
                    if all(o.type == "fail" for o in by):
                        self.hit("aborted-offsets", tp=tp, group=g, offset=got, reader=r.brief(),
                                 operations=[o.brief() for o in by])
                    elif self.opt["drained"] and len(by) == 1 and self._missing(by[0]):
                        self.hit("torn-offsets", tp=tp, group=g, offset=got, reader=r.brief(),
                                 operation=by[0].brief(), missing=self._missing(by[0])[:5])
                # What was read out of the log before this look was asked for had its offsets committed with it.
                low = [(o, off) for o, off in mine if (got is None or got < off) and self._seen_before(o, r)]
                if low and not any(self._rewound(g, tp, o, r) for o, _ in low):
                    o, off = low[0]
                    self.hit("torn-offsets", tp=tp, group=g, offset=off, read=got, reader=r.brief(),
                             operation=o.brief())

    def _missing(self, o):
        return [(tp, v) for tp, _, v in o.sends() if (tp, v) not in self.readers and not self._expired(tp, v)]

    def _expired(self, tp, v):
        places = self.logs[tp].places.get(v)
        return tp in self.compacted or tp in self.start and (not places or self.gone(tp, places[-1]))

    def _seen_before(self, o, r):
        if o.type == "ok" and o.com < r.inv:
            return True
        return any(p.type == "ok" and p.com < r.inv and p is not o
                   for tp, _, v in o.sends() for p in self.readers.get((tp, v), ()))

    def _rewound(self, g, tp, o, r):
        """May the group have been set back after the operation?"""
        return any(p.f == "commit" and p.type != "fail" and p.extra.get("group") == g and tp in (p.value or {})
                   and p.com > o.inv and p.inv < r.com for p in self.ops if isinstance(p.value, dict))

    def _snapshots(self, txns):
        for s in self.ops:
            if s.f != "snapshot" or s.type != "ok" or not isinstance(s.value, dict):
                continue
            said = s.extra.get("offsets") or {}
            for o in txns:
                parts = []                          # (what, whether the snapshot has it)
                for tp, off, v in o.sends():
                    at = self.logs[tp].pos(off, v) if self.committed(o, tp, v) else None
                    if at is not None and tp in s.value:
                        parts.append(((tp, v), at < s.value[tp]))
                g = o.extra.get("group")
                for tp, off in (o.extra.get("offsets") or {}).items():
                    if parts and g in said and tp in said[g]:
                        parts.append(((g, tp, off), (said[g][tp] or 0) >= off))
                if len({has for _, has in parts}) > 1:
                    self.hit("torn-snapshot", snapshot=s.brief(), operation=o.brief(),
                             has=[w for w, has in parts if has][:5], lacks=[w for w, has in parts if not has][:5])

    def _skipped(self, txns):
        """What lies below the offsets of a group must have been consumed by its transactions."""
        ends = {}
        for o in txns:
            if o.extra.get("group") is not None and self.visible(o):
                for tp, off in (o.extra.get("offsets") or {}).items():
                    key = o.extra["group"], tp
                    ends[key] = max(ends.get(key, 0), off)
        eaten = {(o.extra["group"], tp, v) for o in txns if o.extra.get("group") is not None and self.visible(o)
                 for tp, recs in o.reads().items() for _, v in recs}
        unknown = set()                             # what an operation read, or whether it committed, is not known
        for o in txns:
            for tp in (o.extra.get("offsets") or {}):
                if o.extra.get("group") is None or o.type != "info":
                    continue
                # Of one whose records a drained history does not have, it is known that it did not commit.
                if tp not in o.reads() if self.visible(o) else not (self.opt["drained"] and o.sends()):
                    unknown.add((o.extra["group"], tp))
        for (g, tp), end in ends.items():
            if (g, tp) in unknown:
                continue
            for off in self.logs[tp].offsets:
                if off < end and not self.gone(tp, off):
                    lost = [v for v in self.logs[tp].at[off] if (g, tp, v) not in eaten]
                    if len(lost) == len(self.logs[tp].at[off]):
                        self.hit("skipped-consumption", group=g, tp=tp, offset=off, value=lost[0], end=end)

    def lag(self):
        """Conservative real-time lag: how long a newer record had been known when a poll that still
        did not return it was invoked. A figure, not an anomaly."""
        known = defaultdict(lambda: ([], []))        # tp -> (highest offset so far, (event, time)), by event
        for o in sorted((o for o in self.data if o.type == "ok"), key=lambda o: o.com):
            for tp, off, _ in o.sends():
                tops, when = known[tp]
                if off is not None and (not tops or off > tops[-1]):
                    tops.append(off); when.append((o.com, o.t_com))
        worst = {"lag": 0}
        place = defaultdict(dict)
        for o in self.ops:
            if o.type != "ok":
                continue
            if o.f == "assign":
                place[o.process] = {tp: place[o.process].get(tp, self.start[tp] - 1) for tp in (o.value or ())}
                if o.extra.get("seek") == "beginning":
                    place[o.process] = {tp: -1 for tp in (o.value or ())}
                elif o.extra.get("seek"):
                    place[o.process] = {}
            elif o.f == "subscribe":
                place[o.process] = {}
            elif any(m[0] == "poll" for m in o.mops):
                mine = place[o.process]
                for tp, recs in o.reads().items():
                    offs = [r[0] for r in recs if r[0] is not None]
                    if offs:
                        mine[tp] = max(mine.get(tp, -1), *offs)
                for tp, at in mine.items():
                    tops, when = known[tp]
                    i = bisect_right(tops, at)       # the first moment at which a newer record was known
                    if i < len(tops) and when[i][0] < o.inv and o.t_inv - when[i][1] > worst["lag"]:
                        worst = {"lag": o.t_inv - when[i][1], "tp": tp, "process": o.process, "time": o.t_inv}
        return worst

    def run(self):
        for part in (self.offsets, self.values, self.lost, self.polls, self.send_order, self.cycles, self.groups,
                     self.transactions):
            part()
        read = set(self.readers)
        bad = sorted(k for k in self.found if k not in self.allowed)
        dup = self.found.get("duplicate", ())
        return {
            "valid": not bad, "bad": bad, "allowed": sorted(k for k in self.found if k in self.allowed),
            "anomalies": {k: {"definition": ANOMALIES[k], "count": len(v), "examples": v[:self.max_examples]}
                          for k, v in sorted(self.found.items())},
            "counts": {
                "operations": len(self.ops), "attempted": len(self.writer), "acked": len(self.sent["ok"]),
                "failed": len(self.sent["fail"]), "unknown": len(self.sent["info"]),
                "recovered": sum(1 for x in self.sent["info"] if x in read), "read": len(read),
                "lost": len(self.found.get("lost-write", ())), "unseen": len(self.found.get("unseen", ())),
                "duplicate": len(dup), "extra_copies": sum(d["count"] - 1 for d in dup),
            },
            "worst_realtime_lag": self.lag(),
        }


def _sccs(nodes, graphs):
    """Strongly connected components with more than one node (Tarjan, without recursion)."""
    index, low, on, stack, out, count = {}, {}, set(), [], [], 0

    def succ(n):
        return [m for g in graphs for m in g.get(n, ())]
    for root in nodes:
        if root in index:
            continue
        work = [(root, iter(succ(root)))]
        index[root] = low[root] = count; count += 1
        stack.append(root); on.add(root)
        while work:
            n, it = work[-1]
            for m in it:
                if m not in index:
                    index[m] = low[m] = count; count += 1
                    stack.append(m); on.add(m)
                    work.append((m, iter(succ(m))))
                    break
                if m in on:
                    low[n] = min(low[n], index[m])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[n])
                if low[n] == index[n]:
                    comp = set()
                    while True:
                        m = stack.pop(); on.discard(m); comp.add(m)
                        if m == n:
                            break
                    if len(comp) > 1:
                        out.append(comp)
    return out


def _cycle(comp, graphs, need):
    """A short cycle inside one component which uses every edge kind in `need` (breadth first over
    (node, kinds used)); None when there is none."""
    full = frozenset(need)
    for start in sorted(comp):
        seen, queue = {(start, frozenset()): None}, deque([(start, frozenset())])
        while queue:
            n, used = queue.popleft()
            for kind, g in graphs.items():
                for m in sorted(g.get(n, ())):
                    if m not in comp:
                        continue
                    u = used | ({kind} & full)
                    if m == start and u == full:
                        path, cur = [(n, kind, m)], (n, used)
                        while seen[cur]:
                            p, k = seen[cur]
                            path.append((p[0], k, cur[0])); cur = p
                        return path[::-1]
                    if (m, u) not in seen:
                        seen[m, u] = ((n, used), kind)
                        queue.append((m, u))
    return None


def check(history: list, **options: object) -> dict:
    """Checks a history (list of dicts) and returns the report. Options:

    ww_deps=True     infer write-write edges from offsets (then G1c is tolerated, as by Jepsen)
    dense=False      the log promises offsets without holes: report offset-gap
    drained=False    the history ends with reads from the beginning to the end of every partition:
                     "unseen" then invalidates, and torn transactions are found without offsets
    compacted=()     partitions under compaction: no loss, skip or gap verdict for them
    eos=False        committed transactions of a group consume each record below their offsets once
    serial=False     the log promises that each partition has the records of a transaction in one run, and that all
                     partitions have transactions in one order: G0, G1c, int-send-skip and interleaved-txn invalidate
    allowed=None     anomaly names which do not invalidate (default: what Jepsen tolerates for Kafka)
    strict_subscribe=False   also forbid poll-skip / nonmonotonic-poll for subscribed consumers
                     (then the harness must write every rebalance into "rebalance_log")
    max_examples=10
    """
    return Checker(history, **options).run()


def main(argv=None):
    ap = argparse.ArgumentParser(description="check a Kafka-like history", epilog="exit code 1: invalid")
    ap.add_argument("files", nargs="+")
    ap.add_argument("--sort-by-time", action="store_true", help="merge files by the field 'time'")
    ap.add_argument("--json", action="store_true")
    ap.add_argument("--no-ww-deps", dest="ww_deps", action="store_false")
    for flag in ("dense", "drained", "eos", "serial", "strict-subscribe"):
        ap.add_argument("--" + flag, action="store_true")
    ap.add_argument("--compacted", action="append", default=[])
    ap.add_argument("--allow", action="append", default=None, choices=sorted(ANOMALIES))
    a = ap.parse_args(argv)
    history = [e for f in a.files for e in load(f)]
    if a.sort_by_time:
        history.sort(key=lambda e: e.get("time", 0))
    r = check(history, ww_deps=a.ww_deps, dense=a.dense, drained=a.drained, eos=a.eos, serial=a.serial,
              compacted=a.compacted, strict_subscribe=a.strict_subscribe, allowed=a.allow)
    if a.json:
        print(json.dumps(r, indent=1, default=str))
    else:
        print("valid" if r["valid"] else "INVALID: " + ", ".join(r["bad"]))
        print("  " + ", ".join(f"{k}={v}" for k, v in r["counts"].items()))
        for k, v in r["anomalies"].items():
            print(f"  {'tolerated' if k in r['allowed'] else 'BAD':9} {k} x{v['count']}: {v['definition']}")
            for e in v["examples"][:3]:
                print("            " + json.dumps(e, default=str)[:300])
    return 0 if r["valid"] else 1


if __name__ == "__main__":
    sys.exit(main())
