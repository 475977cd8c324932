"""Bank and audit over every protocol, with kills of the server; and tests that an audit notices what it should."""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[2] / "clients" / "python")]

import auditors  # noqa: E402
import bank  # noqa: E402
import repetition  # noqa: E402
import workload  # noqa: E402
from ledger import Ledger, Outcome  # noqa: E402
from report import Kind  # noqa: E402
from servers import binary  # noqa: E402
from writers import WRITERS  # noqa: E402


class Protocols(unittest.TestCase):
    def test_all_models_agree_in_every_protocol_through_kills_and_restore(self):
        report = workload.run(binary(), rounds=6, seconds=2, complete_every=3)
        print(report)
        self.assertTrue(report.is_good())
        for writer in WRITERS:
            self.assertGreater(report.transfers[writer.protocol, Outcome.ACKNOWLEDGED], 0, writer.protocol)
        for auditor in [*auditors.AUDITORS, auditors.Promql]:
            self.assertGreater(report.audits[auditor.protocol, Kind.ROUND], 0, auditor.protocol)
        # The first, two of six rounds, and those of all protocols before and after the restore.
        counts = {kind: sum(report.audits[one.protocol, kind] for one in auditors.AUDITORS) for kind in Kind}
        self.assertEqual(counts[Kind.COMPLETE], 3 + 2 * len(auditors.AUDITORS))
        self.assertEqual(counts[Kind.AFTER_KILL], 4)
        self.assertGreater(sum(report.transfers[writer.protocol, Outcome.ABSENT] for writer in WRITERS), 0)

    def test_repeated_requests_are_applied_once_through_cut_connections_and_kills(self):
        report = repetition.run(binary(), rounds=4, seconds=1)
        print(report)
        self.assertTrue(report.is_good())
        # Requests whose response was lost were sent again, after they had been applied.
        for protocol in ("HTTP", "gRPC"):
            self.assertGreater(report.figures[f"again, {protocol}"], 0, protocol)


class Audits(unittest.TestCase):
    """A view of two transfers, the second of which differs from what the auditor expects."""

    def setUp(self):
        self.start = bank.start(bank.INITIAL)
        self.ledger = Ledger(amount_max=5)

        class Writer:
            name = protocol = "w"

        self.transfers = [self.ledger.issue(Writer) for _ in range(2)]
        self.acknowledged = {one.id for one in self.transfers}
        for one in self.transfers:
            self.ledger.settle(Writer, one, Outcome.ACKNOWLEDGED)

    def view(self, events=(0, 1), rows=(0, 1), documents=(0, 1), samples=(0, 1), promql=(0, 1), positions=(1, 2, 3)):
        """A view in which each model has these transfers."""

        def accounts(numbers):
            state = {account: (bank.INITIAL, 0) for account in bank.ACCOUNTS}
            for account, change in changes(numbers):
                state[account] = (state[account][0] + change, state[account][1] + 1)
            return state

        def sums(numbers):
            state = {}
            for account, change in changes(numbers):
                total, number = state.get(account, (0, 0))
                state[account] = (total + change, number + 1)
            return state

        def changes(numbers):
            return [one for number in numbers for one in self.transfers[number].changes()]

        read = [(position, self.transfers[number].data()) for position, number in zip(positions, events)]
        totals = {account: total for account, (total, _) in sums(promql).items()}
        return bank.View(accounts(rows), accounts(documents), read, sums(samples), totals)

    @staticmethod
    def each(numbers):
        """Arguments for a view in which every model has the same transfers."""
        return dict.fromkeys(["events", "rows", "documents", "samples", "promql"], numbers)

    def found(self, base=None, **differences):
        """The disagreements of such a view with a base; by default the state before the first transfer."""
        base, view = base or self.start, self.view(**differences)
        found = bank.disagreements(base, view) + self.ledger.disagreements(base, view, self.acknowledged)
        return " ".join(found)

    def test_equal_models_agree(self):
        self.assertEqual(self.found(), "")

    def test_transfer_that_a_model_lacks_is_reported(self):
        for model, name in [("rows", "rows"), ("documents", "documents"), ("samples", "samples"), ("promql", "PromQL")]:
            self.assertIn(f"{name} of 2 accounts" if model != "promql" else name, self.found(**{model: (0,)}), model)

    def test_lost_transfer_is_reported(self):
        self.assertIn("1 acknowledged transfers are lost", self.found(**self.each((0,))))

    def test_transfer_that_was_applied_twice_is_reported(self):
        self.assertIn("1 transfers were applied twice", self.found(**self.each((0, 1, 1))))

    def test_gap_of_positions_is_reported(self):
        self.assertIn("gaps", self.found(positions=(1, 3)))

    def test_audit_after_a_base_compares_the_next_events_with_complete_models(self):
        base = self.start.after(self.view(**self.each((0,))))
        after = {"base": base, "positions": (2, 3), "events": (1,)}
        self.assertEqual(self.found(**after), "")
        self.assertIn("samples of 2 accounts", self.found(**after, samples=(1,)))
        self.assertIn("rows of 2 accounts", self.found(**after, rows=(1,)))
        self.assertIn("gaps", self.found(base=base, events=(1,)))
        again = self.found(base=base, positions=(2, 3), events=(0,))
        self.assertIn("1 transfers were applied twice", again)
        self.assertIn("1 acknowledged transfers are lost", again)

    def test_audit_of_a_boot_compares_the_samples_of_that_boot(self):
        base = self.start.after(self.view(**self.each((0,)))).of_boot(self.ledger.boot)
        after = {"base": base, "positions": (2, 3), "events": (1,), "samples": (1,), "promql": (1,)}
        self.assertEqual(self.found(**after), "")
        self.assertIn("samples of 2 accounts", self.found(**after | {"samples": (0, 1)}))

    def test_failed_transfer_that_is_present_is_reported(self):
        class Writer:
            protocol = "w"

        self.ledger.settle(Writer, self.transfers[1], Outcome.ABSENT)
        self.assertIn("1 transfers that failed are present", self.found())


if __name__ == "__main__":
    unittest.main()
