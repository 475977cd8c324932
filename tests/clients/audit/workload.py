"""The workload: writers and auditors of every protocol at once, while the server is killed and started again.

    writers  ── transfers ──▶ server ◀── audits of the round ── auditors
                                │ kill -9, start
                                └ audit of what is new, every n-th time of everything ─▶ the base of the next audits

A round begins when the server has started, and takes no longer because of the audit at its beginning.
"""

import random
import time

import auditors
import bank
import ropewalk
from crew import Crew
from ledger import Ledger
from place import PATIENCE, Place
from report import Kind, Report
from writers import WRITERS

#: Pause of an auditor between two audits, seconds.
AUDIT_PAUSE = 0.02
#: Largest amount of a transfer: some transfers exceed the balance, and fail in all models.
AMOUNT_MAX = 40
#: Name of the backup.
COPY = "audited"
#: Rounds after which everything is audited instead of what is new.
COMPLETE_EVERY = 10


class Workload:
    """One run on one server."""

    def __init__(self, place, threads):
        self.report = Report()
        self._place = place
        self._ledger = Ledger(AMOUNT_MAX)
        self._crew = Crew()
        self._start = bank.start(bank.INITIAL)
        with ropewalk.connect(place.http) as db:
            bank.create(db, bank.INITIAL)
        self._auditors = [one(place) for one in auditors.AUDITORS]
        # Others for the audits after a kill, which run in another thread at the same time.
        self._after_kill = [one(place) for one in auditors.AUDITORS]
        self._promql = auditors.Promql(place)
        self._writers = [
            kind(place, f"{kind.__name__.lower()}{number}") for kind in WRITERS for number in range(threads)
        ]
        #: The newest audited state, and the same for the audits of the current round.
        self._audited = self._base = None
        self._next_round(self._start, self.audit(self._after_kill[0], self._start, Kind.COMPLETE))

    def run(self, rounds, seconds, complete_every):
        """Runs the rounds, then backs the database up and audits the original and the restored copy."""
        begun = time.monotonic()
        for writer in self._writers:
            self._crew.start(writer.name, lambda writer=writer: self._transfer(writer))
        for auditor in self._auditors:
            self._crew.start(auditor.protocol, lambda auditor=auditor: self._audit(auditor), AUDIT_PAUSE)
        self._crew.start(self._promql.protocol, self._audit_promql, AUDIT_PAUSE)
        end = begun + seconds
        for number in range(rounds):
            self._wait(end, seconds)
            self._place.crash()
            end = time.monotonic() + seconds * random.uniform(0.5, 1.5)
            self._audit_after_kill(number, complete_every)
        self._wait(end, seconds)
        acknowledged = self._ledger.acknowledged()
        self._place.back_up(COPY)
        time.sleep(seconds / 4)
        self._crew.stop()
        self._audit_by_all()
        self._place.restore(COPY)
        self._audit_by_all(acknowledged)
        for client in [*self._writers, *self._auditors, *self._after_kill, self._promql]:
            client.close()
        self.report.transfers = self._ledger.counts
        self.report.failures = self._crew.failures
        taken = round(time.monotonic() - begun)
        self.report.figures = {"rounds": rounds, "kills": self._place.kills, "backups": 1, "seconds": taken}
        return self.report

    def audit(self, auditor, base, kind, acknowledged=None):
        """Audits all models from a base on, and that every transfer is as the client knows it. Returns the view.

        `acknowledged` are the transfers that have to be present: by default those until now.
        """
        expected = self._ledger.acknowledged() if acknowledged is None else acknowledged
        end = time.monotonic() + PATIENCE
        while True:
            try:
                view = auditor.view(base)
                break
            except auditors.Gone:
                # A connection to the killed server.
                if time.monotonic() > end:
                    raise
        problems = bank.disagreements(base, view) + self._ledger.disagreements(base, view, expected)
        self.report.audited(auditor.protocol, problems, kind)
        return view

    def _wait(self, end, seconds):
        """Waits until the round ends, and always for a moment after the audit at its beginning."""
        time.sleep(max(end - time.monotonic(), seconds * random.uniform(0, 0.5)))

    def _audit_after_kill(self, number, complete_every):
        """Audits what is new after the kill of a round, or everything: each time by the next protocol."""
        if (number + 1) % complete_every == 0:
            kind, base, turn = Kind.COMPLETE, self._start, number // complete_every
        else:
            kind, base, turn = Kind.AFTER_KILL, self._audited, number
        auditor = self._after_kill[turn % len(self._after_kill)]
        self._next_round(base, self.audit(auditor, base, kind))

    def _next_round(self, base, view):
        """Begins a round. Its audits start from the view, and read the samples of its boot only."""
        self._ledger.boot += 1
        self._audited = base.after(view)
        self._base = self._audited.of_boot(self._ledger.boot)

    def _audit_by_all(self, acknowledged=None):
        views = [self.audit(auditor, self._start, Kind.COMPLETE, acknowledged) for auditor in self._after_kill]
        if any(view != views[0] for view in views):
            problem = "they read different data from a database without writers"
            self.report.audited("all protocols", [problem], Kind.COMPLETE)

    def _transfer(self, writer):
        transfer = self._ledger.issue(writer)
        self._ledger.settle(writer, transfer, writer.transfer(transfer))

    def _audit(self, auditor):
        base = self._base
        try:
            self.report.audited(auditor.protocol, bank.disagreements(base, auditor.view(base)), Kind.ROUND)
        except auditors.Gone:
            pass

    def _audit_promql(self):
        self.report.audited(self._promql.protocol, self._promql.disagreements(self._base), Kind.ROUND)


def run(binary, rounds, seconds, threads=1, complete_every=COMPLETE_EVERY):
    """Runs the workload on a new server; `seconds` is the average duration of a round, `threads` per protocol."""
    with Place(binary) as place:
        return Workload(place, threads).run(rounds, seconds, complete_every)
