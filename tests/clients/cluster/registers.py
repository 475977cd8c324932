"""Clients that read, write and compare-and-set documents and rows at any node, and record when each request began and ended.

    client ─ read, write or compare-and-set of a register, to a random node ─▶ 2xx: recorded with its outcome
                                                                               not_leader, key_conflict, no connection: no effect
                                                                               else: recorded as unknown; a read is dropped

A register is a document or a row with a value and a version, which each write increments. Reads and compare-and-sets ask for
linearizability: also a compare-and-set that finds another version says something about the newest one. A register is replaced by
the next one after some operations, or after some unknown outcomes: the checker's work grows with both.
"""

import collections
import http.client
import random
import threading
import time

DATABASE, COLLECTION = "load", "registers"
DOCUMENTS = f"/v1/databases/{DATABASE}/collections/{COLLECTION}/documents"
TABLE = "CREATE TABLE registers (id text PRIMARY KEY, version bigint NOT NULL, value text NOT NULL)"
LINEARIZABLE = {"ropewalk-read": "linearizable"}
#: Operations and unknown outcomes after which a register is replaced.
OPERATIONS_MAX, UNKNOWN_MAX = 250, 6
#: Time limit of a request, seconds. Longer than `--cluster-patience` of the tests, so that a node reports an unknown outcome.
TIME = 15
#: Version of an outcome that the client did not learn.
UNTOLD = -1


class Unknown(Exception):
    """The outcome of a request."""


class Absent(Exception):
    """The request had no effect."""


def answered(node, *request):
    """The body of a successful response."""
    try:
        status, _, answer = node.ask(*request, timeout=TIME)
    except ConnectionRefusedError as error:
        raise Absent from error
    except (OSError, http.client.HTTPException) as error:
        raise Unknown(repr(error)) from error
    if 200 <= status < 300:
        return answer
    code = answer.get("code") if isinstance(answer, dict) else None
    if code in ("not_leader", "key_conflict"):
        raise Absent
    if status not in (503, 504):
        raise AssertionError(f"{request[0]} {request[1]} at {node.name}: {status} {answer}")
    raise Unknown(f"{status} {code}")


class Documents:
    """Registers that are documents."""

    kind = "document"

    @staticmethod
    def read(node, name):
        body = {"filter": {"_id": name}}
        found = answered(node, "POST", f"{DOCUMENTS}:query", body, LINEARIZABLE)["documents"]
        return (found[0]["version"], found[0]["value"]) if found else (0, "")

    @staticmethod
    def _update(node, wanted, value, headers, **options):
        body = {"filter": wanted, "update": {"$set": {"value": value}, "$inc": {"version": 1}}, **options}
        return answered(node, "POST", f"{DOCUMENTS}:update", body, headers)

    @classmethod
    def write(cls, node, name, value):
        cls._update(node, {"_id": name}, value, {}, upsert=True)
        return UNTOLD

    @classmethod
    def compare_and_set(cls, node, name, expected, value):
        return cls._update(node, {"_id": name, "version": expected}, value, LINEARIZABLE)["matched"] == 1


class Rows:
    """Registers that are rows."""

    kind = "row"

    @staticmethod
    def _rows(node, sql, params, headers):
        return answered(node, "POST", "/v1/sql", {"sql": sql, "params": params}, headers)["results"][0]["rows"]

    @classmethod
    def read(cls, node, name):
        rows = cls._rows(node, "SELECT version, value FROM registers WHERE id = $1", [name], LINEARIZABLE)
        return tuple(rows[0]) if rows else (0, "")

    @classmethod
    def write(cls, node, name, value):
        sql = (
            "INSERT INTO registers VALUES ($1, 1, $2) ON CONFLICT (id) DO UPDATE "
            "SET version = registers.version + 1, value = excluded.value RETURNING version"
        )
        return cls._rows(node, sql, [name, value], {})[0][0]

    @classmethod
    def compare_and_set(cls, node, name, expected, value):
        sql = "UPDATE registers SET version = version + 1, value = $2 WHERE id = $1 AND version = $3 RETURNING id"
        return bool(cls._rows(node, sql, [name, value, expected], LINEARIZABLE))


class Register:
    """The current register of a kind."""

    def __init__(self, number, model):
        self.model, self.name = model, f"{model.kind}-{number}"
        self.operations = self.unknown = 0
        #: The newest version that a client has seen.
        self.version = 0


class Registers:
    """Clients of registers, as threads."""

    def __init__(self, cluster, clients=6):
        self._cluster, self._ends = cluster, threading.Event()
        self._lock = threading.Lock()
        self._registers = {model: Register(0, model) for model in (Documents, Rows)}
        self._number = 0
        #: Operations as the checker reads them.
        self.history = []
        #: What must not happen.
        self.problems = []
        #: Operations by their outcome, and the reasons of those that are unknown.
        self.counts, self.reasons = collections.Counter(), collections.Counter()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(clients)]

    def __enter__(self):
        collection = DOCUMENTS.removesuffix("/documents")
        for method, path, body in [("PUT", collection, {}), ("POST", "/v1/sql", {"sql": TABLE})]:
            status, _, answer = self._cluster.leader().ask(method, path, body)
            assert status in (200, 201), f"{path}: {status} {answer}"
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _register(self, model):
        with self._lock:
            register = self._registers[model]
            if register.operations >= OPERATIONS_MAX or register.unknown >= UNKNOWN_MAX:
                self._number += 1
                register = self._registers[model] = Register(self._number, model)
            register.operations += 1
            return register

    def _run(self, client):
        chosen, count = random.Random(client), 0
        try:
            while not self._ends.is_set():
                count += 1
                self._once(client, chosen, f"{client}-{count}")
        except Exception as error:
            with self._lock:
                self.problems.append(f"client {client} of registers: {error!r}")

    def _once(self, client, chosen, value):
        register, node = self._register(chosen.choice((Documents, Rows))), chosen.choice(self._cluster.nodes)
        kind = chosen.choice(("read", "read", "write", "cas"))
        # At times a version before: it has to fail.
        expected = register.version - (chosen.random() < 0.1)
        if kind == "cas" and expected < 1:
            kind = "write"
        operation = {"register": register.name, "client": client, "kind": kind, "called": time.monotonic_ns()}
        operation |= {} if kind == "read" else {"value": value}
        operation |= {"expected": expected} if kind == "cas" else {}
        try:
            operation |= self._outcome(register, node, operation)
            operation["returned"] = time.monotonic_ns()
        except Absent:
            self._pause("absent")
            return
        except Unknown as reason:
            with self._lock:
                self.reasons[str(reason)] += 1
                register.unknown += kind != "read"
                if kind != "read":
                    self.history.append(operation)
            self._pause("unknown")
            return
        with self._lock:
            self.counts[kind] += 1
            register.version = max(register.version, operation.get("version", 0), expected + 1 if operation.get("stored") else 0)
            self.history.append(operation)

    @staticmethod
    def _outcome(register, node, operation):
        model, name = register.model, register.name
        if operation["kind"] == "read":
            version, value = model.read(node, name)
            return {"version": version, "found": value}
        if operation["kind"] == "write":
            return {"version": model.write(node, name, operation["value"])}
        return {"stored": model.compare_and_set(node, name, operation["expected"], operation["value"])}

    def _pause(self, outcome):
        with self._lock:
            self.counts[outcome] += 1
        time.sleep(0.1)
