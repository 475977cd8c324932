"""Writers that send events, documents and rows to any node and record what they were told; and the comparison of that record with
the contents of each node.

    writer ─ request n of kind k, to its node ─▶ 2xx: acknowledged    503 not_leader, no connection: absent    else: unknown
       └── read at another node, with the Ropewalk-Seq of the write ──▶ it has to be there
"""

import bisect
import collections
import enum
import http.client
import random
import threading
import time

from processes import PATIENCE, until

#: Share of the writes that are read back at another node.
READ_BACK = 0.2
#: Time limit of a write, seconds, before which nodes give up; and of a read that may wait at a node that is cut off.
WRITE_TIME, READ_TIME = 15, 3
KINDS = ("event", "document", "row")
STORE, DATABASE, COLLECTION = "load", "load", "writes"
DOCUMENTS = f"/v1/databases/{DATABASE}/collections/{COLLECTION}/documents"
TABLE = "CREATE TABLE writes (id text PRIMARY KEY)"


class Outcome(enum.Enum):
    ACKNOWLEDGED = enum.auto()
    ABSENT = enum.auto()
    UNKNOWN = enum.auto()


def write(node, kind, name):
    """Sends one write: outcome, and the commit that has it."""
    if kind == "event":
        body = {"events": [{"type": "Written", "tags": [f"write:{name}"], "data": {"id": name}}]}
        path = f"/v1/stores/{STORE}/events"
    elif kind == "document":
        path, body = DOCUMENTS, {"documents": [{"_id": name}]}
    else:
        path, body = "/v1/sql", {"sql": "INSERT INTO writes VALUES ($1)", "params": [name]}
    try:
        status, headers, answer = node.ask("POST", path, body, timeout=WRITE_TIME)
    except ConnectionRefusedError:
        return Outcome.ABSENT, None
    except (OSError, http.client.HTTPException):
        return Outcome.UNKNOWN, None
    if 200 <= status < 300:
        return Outcome.ACKNOWLEDGED, headers["ropewalk-seq"]
    code = answer.get("code") if isinstance(answer, dict) else None
    if code == "not_leader":
        return Outcome.ABSENT, None
    if status not in (503, 504):
        raise AssertionError(f"{kind} {name} at {node.name}: {status} {answer}")
    return Outcome.UNKNOWN, None


def is_there(node, kind, name, seq):
    """Reads a write at a node that must have the commit `seq`; `None` without an answer."""
    headers = {"ropewalk-seq": seq}
    if kind == "event":
        request = ("GET", f"/v1/stores/{STORE}/events:count?tag=write:{name}", None)
    elif kind == "document":
        request = ("GET", f"{DOCUMENTS}/{name}", None)
    else:
        request = ("POST", "/v1/sql", {"sql": "SELECT count(*) FROM writes WHERE id = $1", "params": [name]})
    try:
        status, _, answer = node.ask(*request, headers, timeout=READ_TIME)
    except (OSError, http.client.HTTPException):
        return None
    if status == 404:
        return False
    if status != 200:
        return None
    if kind == "event":
        return answer["count"] == 1
    return kind == "document" or answer["results"][0]["rows"] == [[1]]


def read_all(node, *request):
    """Headers and body of a read; waits for a node that opens its database again, as after it was deposed."""

    def answer():
        try:
            status, headers, body = node.ask(*request, timeout=PATIENCE)
        except (OSError, http.client.HTTPException):
            return None
        if status in (503, 504):
            return None
        assert status == 200, f"{node.name}: {request[1]}: {status} {body}"
        return headers, body

    return until(f"{node.name} answers {request[1]}", answer)


def contents(node, seq):
    """All writes that a node has, by kind, as of the commit `seq` at least."""
    headers = {"ropewalk-seq": seq, "ropewalk-read": "session"}

    def read(*request):
        return read_all(node, *request, headers)[1]

    events = read("GET", f"/v1/stores/{STORE}/events", None)["events"]
    documents = read("GET", DOCUMENTS, None)["documents"]
    rows = read("POST", "/v1/sql", {"sql": "SELECT id FROM writes ORDER BY id"})["results"][0]["rows"]
    return {
        # With position, commit and time, which have to be equal everywhere.
        "event": [(event["position"], event["seq"], event["recorded_at"], event["data"]["id"]) for event in events],
        "document": sorted(document["_id"] for document in documents),
        "row": [row[0] for row in rows],
    }


def names(kind, found):
    return [one[3] for one in found] if kind == "event" else found


class Load:
    """Writers over the nodes of a cluster, as threads: each has a node, so that no fault reaches all of them, and the others write
    to any."""

    def __init__(self, cluster, writers=4):
        self._cluster, self._ends = cluster, threading.Event()
        self._lock = threading.Lock()
        #: Kind and name of each write, and its outcome.
        self.outcomes = {}
        #: What must not happen.
        self.problems = []
        self.read_back = 0
        #: When writes were acknowledged, in order.
        self._acknowledged = []
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(writers)]

    def __enter__(self):
        leader = self._cluster.leader()
        for path, method, body in [(f"/v1/stores/{STORE}", "PUT", None), ("/v1/sql", "POST", {"sql": TABLE})]:
            status, _, answer = leader.ask(method, path, body)
            assert status in (200, 201), f"{path}: {status} {answer}"
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _write(self, number):
        chosen, count = random.Random(number), 0
        try:
            while not self._ends.is_set():
                count += 1
                nodes = self._cluster.nodes
                node = nodes[number] if number < len(nodes) else chosen.choice(nodes)
                self._once(chosen, node, chosen.choice(KINDS), f"{number}-{count}")
        except Exception as error:
            with self._lock:
                self.problems.append(repr(error))

    def _once(self, chosen, node, kind, name):
        other = chosen.choice(self._cluster.nodes)
        outcome, seq = write(node, kind, name)
        with self._lock:
            self.outcomes[kind, name] = outcome
            if outcome is Outcome.ACKNOWLEDGED:
                self._acknowledged.append(time.monotonic())
        if outcome is not Outcome.ACKNOWLEDGED:
            time.sleep(0.05)
        elif chosen.random() < READ_BACK:
            found = is_there(other, kind, name, seq)
            with self._lock:
                self.read_back += found is not None
                if found is False:
                    self.problems.append(f"{other.name} does not have {kind} {name} of commit {seq}")

    def counts(self):
        with self._lock:
            return collections.Counter(self.outcomes.values())

    def has_acknowledged_since(self, moment):
        with self._lock:
            return bool(self._acknowledged) and self._acknowledged[-1] > moment

    def longest_gap(self, begun):
        """The longest time without an acknowledged write, from the last one before `begun` on."""
        with self._lock:
            times = self._acknowledged[max(bisect.bisect(self._acknowledged, begun) - 1, 0) :]
        return max((after - before for before, after in zip(times, times[1:])), default=0.0)

    def check(self):
        """Compares the nodes with each other and with the record, after the last write. Returns how many acknowledged writes are
        lost, and what else is wrong."""
        problems, losses = list(self.problems), 0
        leader = self._cluster.leader()
        seq = read_all(leader, "GET", "/v1/stores", None, {"ropewalk-read": "linearizable"})[0]["ropewalk-seq"]
        found = {node.name: contents(node, seq) for node in self._cluster.nodes}
        for name, one in found.items():
            problems += [f"{name} and {leader.name} differ in {kind}s" for kind in KINDS if one[kind] != found[leader.name][kind]]
        by_outcome = {(kind, outcome): set() for kind in KINDS for outcome in Outcome}
        for (kind, name), outcome in self.outcomes.items():
            by_outcome[kind, outcome].add(name)
        for kind in KINDS:
            stored = names(kind, found[leader.name][kind])
            if len(set(stored)) != len(stored):
                problems.append(f"{len(stored) - len(set(stored))} {kind}s are there twice")
            lost = by_outcome[kind, Outcome.ACKNOWLEDGED] - set(stored)
            if lost:
                losses += len(lost)
                problems.append(f"{len(lost)} acknowledged {kind}s are lost, such as {min(lost)}")
            unasked = set(stored) & by_outcome[kind, Outcome.ABSENT]
            if unasked:
                problems.append(f"{len(unasked)} {kind}s are there that were refused, such as {min(unasked)}")
        positions = [event[0] for event in found[leader.name]["event"]]
        if positions != list(range(1, len(positions) + 1)):
            problems.append("the positions of the events have gaps")
        return losses, problems
