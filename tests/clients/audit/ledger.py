"""The client's record of its transfers: issued ones, and what the server reported about them."""

import collections
import enum
import random
import threading
import time

from bank import ACCOUNTS, LISTED_MAX, Transfer


class Outcome(enum.Enum):
    """The client's knowledge of a transfer."""

    #: The server reported the commit: the transfer is present, exactly once.
    ACKNOWLEDGED = "acknowledged"
    #: The transfer failed, or the connection broke before the commit was requested: it is absent.
    ABSENT = "absent"
    #: The connection broke during the commit: the transfer is present or absent, in all models.
    UNKNOWN = "unknown"


class Ledger:
    """Issues transfers and records their outcomes. Thread-safe."""

    def __init__(self, amount_max):
        self._lock = threading.Lock()
        self._amount_max = amount_max
        self._at = 0
        self.boot = 1
        self._issued = {}
        self._by_outcome = {outcome: set() for outcome in Outcome}
        #: Transfers by protocol and outcome.
        self.counts = collections.Counter()

    def issue(self, writer):
        """Returns a new transfer between two random accounts."""
        source, target = random.sample(ACCOUNTS, 2)
        with self._lock:
            # Samples of one series need different times.
            self._at = max(self._at + 1, time.time_ns() // 1_000_000)
            id = f"{writer.name}-{len(self._issued)}"
            amount = random.randint(1, self._amount_max)
            transfer = Transfer(id, source, target, amount, self._at, self.boot)
            self._issued[id] = transfer
        return transfer

    def settle(self, writer, transfer, outcome):
        """Records an outcome."""
        with self._lock:
            self._by_outcome[outcome].add(transfer.id)
            self.counts[writer.protocol, outcome] += 1

    def acknowledged(self):
        """The ids of the acknowledged transfers until now."""
        with self._lock:
            return set(self._by_outcome[Outcome.ACKNOWLEDGED])

    def is_acknowledged(self):
        """Reports whether every issued transfer was acknowledged."""
        with self._lock:
            return self._issued.keys() == self._by_outcome[Outcome.ACKNOWLEDGED]

    def disagreements(self, base, view, acknowledged):
        """Compares the events with the record: those of the view, and the ids of those before it.

        `acknowledged` was read before the view.
        """
        stored = {data["id"]: data for _, data in view.events}
        present = base.ids | stored.keys()
        with self._lock:
            absent = self._by_outcome[Outcome.ABSENT] & present
            changed = [id for id, data in stored.items() if id in self._issued and self._issued[id].data() != data]
            unknown = stored.keys() - self._issued.keys()
        sets = [
            ("acknowledged transfers are lost", acknowledged - present),
            ("transfers that failed are present", absent),
            ("transfers have other data", changed),
            ("events belong to no transfer", unknown),
        ]
        return [f"{len(ids)} {what}: {sorted(ids)[:LISTED_MAX]}" for what, ids in sets if ids]
