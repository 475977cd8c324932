"""The figures of a run."""

import collections
import threading

from ledger import Outcome

#: Most disagreements that are described; all are counted.
DESCRIBED_MAX = 20


class Report:
    """Counts transfers, audits and disagreements. Thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        #: Audits by protocol, of complete databases and of a round.
        self.complete = collections.Counter()
        self.audits = collections.Counter()
        #: Transfers by protocol and outcome.
        self.transfers = collections.Counter()
        #: Other figures by name, in the order of printing.
        self.figures = {}
        self.described = []
        self.number = 0
        #: Exceptions of threads.
        self.failures = []

    def audited(self, protocol, problems, is_complete=False):
        """Records an audit."""
        with self._lock:
            (self.complete if is_complete else self.audits)[protocol] += 1
            self.number += len(problems)
            self.described += [f"{protocol}: {one}" for one in problems]
            del self.described[DESCRIBED_MAX:]

    def is_good(self):
        """Reports whether every audit agreed and no thread failed."""
        return self.number == 0 and not self.failures

    def __str__(self):
        lines = [f"{'transfers':<14}" + "".join(f"{outcome.value:>14}" for outcome in Outcome)]
        for protocol in sorted({protocol for protocol, _ in self.transfers}):
            counts = [self.transfers[protocol, outcome] for outcome in Outcome]
            lines.append(f"  {protocol:<12}" + "".join(f"{count:>14,}" for count in counts))
        lines.append(f"{'audits':<14}{'of a round':>14}{'complete':>14}")
        for protocol in sorted(self.audits.keys() | self.complete.keys()):
            lines.append(f"  {protocol:<12}{self.audits[protocol]:>14,}{self.complete[protocol]:>14,}")
        lines += [f"{name:<14}{value:>14,}" for name, value in self.figures.items()]
        lines.append(f"{'disagreements':<14}{self.number:>14,}")
        return "\n".join([*lines, *self.described, *self.failures])
