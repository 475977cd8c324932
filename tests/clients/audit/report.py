"""The figures of a run."""

import collections
import enum
import threading

from ledger import Outcome

#: Most disagreements that are described; all are counted.
DESCRIBED_MAX = 20


class Kind(enum.Enum):
    """The extent of an audit."""

    #: The events and samples of a round, while the transfers continue.
    ROUND = "of a round"
    #: The events since the last audit of this kind, and all rows, documents and samples.
    AFTER_KILL = "after a kill"
    #: Everything.
    COMPLETE = "complete"


class Report:
    """Counts transfers, audits and disagreements. Thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        #: Audits by protocol and kind.
        self.audits = collections.Counter()
        #: Transfers by protocol and outcome.
        self.transfers = collections.Counter()
        #: Other figures by name, in the order of printing.
        self.figures = {}
        self.described = []
        self.number = 0
        #: Exceptions of threads.
        self.failures = []

    def audited(self, protocol, problems, kind):
        """Records an audit."""
        with self._lock:
            self.audits[protocol, kind] += 1
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
        lines.append(f"{'audits':<14}" + "".join(f"{kind.value:>14}" for kind in Kind))
        for protocol in sorted({protocol for protocol, _ in self.audits}):
            counts = [self.audits[protocol, kind] for kind in Kind]
            lines.append(f"  {protocol:<12}" + "".join(f"{count:>14,}" for count in counts))
        lines += [f"{name:<14}{value:>14,}" for name, value in self.figures.items()]
        lines.append(f"{'disagreements':<14}{self.number:>14,}")
        return "\n".join([*lines, *self.described, *self.failures])
