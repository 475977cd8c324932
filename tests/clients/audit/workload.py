"""The workload: writers and auditors of every protocol at once, while the server is killed and started again.

    writers  ── transfers ──▶ server ◀── audits of the round ── auditors
                                │ kill -9, start
                                └ complete audit ─▶ the base of the next round's audits
"""

import random
import time

import auditors
import bank
import ropewalk
from crew import Crew
from ledger import Ledger
from place import PATIENCE, Place
from report import Report
from writers import WRITERS

#: Pause of an auditor between two audits, seconds.
AUDIT_PAUSE = 0.02
#: Largest amount of a transfer: some transfers exceed the balance, and fail in all models.
AMOUNT_MAX = 40
#: Name of the backup.
COPY = "audited"


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
        # Others for the complete audits, which run in another thread at the same time.
        self._complete = [one(place) for one in auditors.AUDITORS]
        self._promql = auditors.Promql(place)
        self._writers = [
            kind(place, f"{kind.__name__.lower()}{number}") for kind in WRITERS for number in range(threads)
        ]
        self._base = None
        self._next_round(self.complete_audit(self._complete[0]))

    def run(self, rounds, seconds):
        """Runs the rounds, then backs the database up and audits the original and the restored copy."""
        for writer in self._writers:
            self._crew.start(writer.name, lambda writer=writer: self._transfer(writer))
        for auditor in self._auditors:
            self._crew.start(auditor.protocol, lambda auditor=auditor: self._audit(auditor), AUDIT_PAUSE)
        self._crew.start(self._promql.protocol, self._audit_promql, AUDIT_PAUSE)
        for number in range(rounds):
            time.sleep(seconds * random.uniform(0.5, 1.5))
            self._place.crash()
            self._next_round(self.complete_audit(self._complete[number % len(self._complete)]))
        time.sleep(seconds * random.uniform(0.5, 1.5))
        acknowledged = self._ledger.acknowledged()
        self._place.back_up(COPY)
        time.sleep(seconds / 4)
        self._crew.stop()
        self._audit_by_all()
        self._place.restore(COPY)
        self._audit_by_all(acknowledged)
        for client in [*self._writers, *self._auditors, *self._complete, self._promql]:
            client.close()
        self.report.transfers = self._ledger.counts
        self.report.failures = self._crew.failures
        self.report.figures = {"rounds": rounds, "kills": self._place.kills, "backups": 1}
        return self.report

    def complete_audit(self, auditor, acknowledged=None):
        """Audits all events of the database, and that every transfer in it is as the client knows it.

        `acknowledged` are the transfers that have to be present: by default those until now. Returns the view.
        """
        expected = self._ledger.acknowledged() if acknowledged is None else acknowledged
        end = time.monotonic() + PATIENCE
        while True:
            try:
                view = auditor.view(self._start)
                break
            except auditors.Gone:
                # A connection to the killed server.
                if time.monotonic() > end:
                    raise
        problems = bank.disagreements(self._start, view) + self._ledger.disagreements(view, expected)
        self.report.audited(auditor.protocol, problems, is_complete=True)
        return view

    def _next_round(self, view):
        """Begins a round. Its audits start from the view, and read the samples of its boot only."""
        self._ledger.boot += 1
        self._base = bank.Base(len(view.events), self._ledger.boot, view.rows)

    def _audit_by_all(self, acknowledged=None):
        views = [self.complete_audit(auditor, acknowledged) for auditor in self._complete]
        if any(view != views[0] for view in views):
            self.report.audited("all protocols", ["they read different data from a database without writers"])

    def _transfer(self, writer):
        transfer = self._ledger.issue(writer)
        self._ledger.settle(writer, transfer, writer.transfer(transfer))

    def _audit(self, auditor):
        base = self._base
        try:
            self.report.audited(auditor.protocol, bank.disagreements(base, auditor.view(base)))
        except auditors.Gone:
            pass

    def _audit_promql(self):
        self.report.audited(self._promql.protocol, self._promql.disagreements(self._base))


def run(binary, rounds, seconds, threads=1):
    """Runs the workload on a new server; `seconds` is the average duration of a round, `threads` per protocol."""
    with Place(binary) as place:
        return Workload(place, threads).run(rounds, seconds)
