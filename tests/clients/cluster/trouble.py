"""Rounds of faults for a cluster under load, and the report about them."""

import collections
import statistics
import time

import linearizable
from faults import LONGEST, Chance
from load import Load, Outcome
from nats_log import Nats
from nodes import Cluster
from processes import until
from registers import Registers
from sites import Site

#: Settings of the nodes: an append with an unknown outcome is given up before the clients give up, and also before some of the
#: faults are repaired.
OPTIONS = ["--cluster-patience", "5s"]


class Report:
    """The result of a run."""

    def __init__(self):
        #: Violations of what a cluster promises, and faults after which it did not continue.
        self.problems = []
        #: Acknowledged writes that are not there.
        self.lost = 0
        self.counts, self.read_back = collections.Counter(), 0
        #: Operations of registers by their outcome, reasons of unknown ones, and the remark if the history was not checked.
        self.operations, self.reasons, self.registers, self.unchecked = collections.Counter(), collections.Counter(), 0, None
        #: Fault of each round, and the longest time in it without an acknowledged write, seconds.
        self.gaps = []
        #: The ends of the nodes' logs, after a violation.
        self.logs = ""

    def is_good(self):
        return not self.problems and not self.lost

    def __str__(self):
        by_fault = collections.defaultdict(list)
        for name, gap in self.gaps:
            by_fault[name].append(gap)
        rows = [(name, len(gaps), statistics.median(gaps), max(gaps)) for name, gaps in sorted(by_fault.items())]
        every = [gap for _, gap in self.gaps] or [0.0]
        rows.append(("all faults", len(self.gaps), statistics.median(every), max(every)))
        lines = [f"{'fault':<32} rounds  gap p50  gap max"]
        lines += [f"{name:<32} {count:6}  {middle:5.1f} s  {most:5.1f} s" for name, count, middle, most in rows]
        counts = ", ".join(f"{self.counts[outcome]} {outcome.name.lower()}" for outcome in Outcome)
        lines.append(f"writes: {counts}; {self.read_back} read back")
        operations = ", ".join(f"{count} {kind}" for kind, count in sorted(self.operations.items()))
        lines.append(f"registers: {self.registers}; operations: {operations}; {self.unchecked or 'checked by Porcupine'}")
        lines += [f"  unknown: {count} {reason}" for reason, count in self.reasons.most_common(10)]
        lines.append(f"{self.lost} acknowledged writes lost, {len(self.problems)} violations")
        return "\n".join([*lines, *self.problems, self.logs]).rstrip()


def order(faults, rounds, seed):
    """So many faults: each once in a random order, and again."""
    found, chance = [], Chance(seed)
    while len(found) < rounds:
        found += chance.sample(faults, len(faults))
    return found[:rounds]


def one_round(cluster, load, fault, chance):
    """Strikes and repairs. Returns the longest time without an acknowledged write."""
    begun = time.monotonic()
    repair = fault.strike(cluster, chance)
    if not fault.stops(cluster):
        struck = time.monotonic()
        until(f"a write is acknowledged during: {fault.name}", lambda: load.has_acknowledged_since(struck))
    repair()
    repaired = time.monotonic()
    until(f"a write is acknowledged after: {fault.name}", lambda: load.has_acknowledged_since(repaired))
    ended = [node.name for node in cluster.nodes if not node.lives()]
    if ended:
        raise RuntimeError(f"{', '.join(ended)} ended after: {fault.name}")
    return load.longest_gap(begun)


def run(binary, faults, seconds, writers=4, seed="gate", longest=LONGEST, show=lambda line: None, service=Nats):
    """Runs a round of load with each of these faults, on a new cluster over a log service. `show` gets a line after each."""
    report, chance = Report(), Chance(seed, longest)
    report.unchecked = linearizable.unavailable()
    if not report.unchecked:
        linearizable.program()
    kinds = {fault.kind for fault in faults}
    site = Site("partitions" in kinds, "power" in kinds)
    with Cluster(binary, options=OPTIONS, site=site, service=service) as cluster:
        try:
            with Load(cluster, writers) as load, Registers(cluster) as registers:
                for number, fault in enumerate(faults, 1):
                    time.sleep(seconds * chance.uniform(0.5, 1.5))
                    gap = one_round(cluster, load, fault, chance)
                    report.gaps.append((fault.name, gap))
                    show(f"{number:4}: {fault.name}: {gap:.1f} s without an acknowledged write")
            report.lost, problems = load.check()
            report.problems += problems
            report.problems += [f"node {node} has other contents than the leader" for node in cluster.differing()]
            report.problems += registers.problems
            report.counts, report.read_back = load.counts(), load.read_back
            report.operations, report.reasons = registers.counts, registers.reasons
            report.registers = len({operation["register"] for operation in registers.history})
            if not report.unchecked:
                report.problems += linearizable.problems(registers.history)
        except Exception as error:
            report.problems.append(repr(error))
        if not report.is_good():
            report.logs = cluster.logs()
    return report
