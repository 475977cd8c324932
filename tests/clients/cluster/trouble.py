"""Rounds of trouble for a cluster under load."""

import random
import time

import load
from nodes import Cluster, until

#: How long a node is halted: longer than two leases.
HALT = 3


def kill_leader(cluster, chosen):
    leader = cluster.leader()
    leader.kill()
    return lambda: cluster.restart(leader)


def kill_follower(cluster, chosen):
    follower = chosen.choice(cluster.followers())
    follower.kill()
    return lambda: cluster.restart(follower)


def halt_leader(cluster, chosen):
    cluster.halted(cluster.leader(), HALT)
    return lambda: None


def kill_log_server(cluster, chosen):
    server = chosen.choice(cluster.nats.servers)
    server.kill()
    return server.start


def kill_all(cluster, chosen):
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        node.start()
    return lambda: [until(f"{node.name} serves again", node.serves) for node in cluster.nodes]


TROUBLES = (kill_leader, halt_leader, kill_follower, kill_log_server, kill_leader, kill_all)


class Report:
    """What a run has found."""

    def __init__(self):
        self.problems, self.counts, self.read_back = [], {}, 0
        #: Trouble, and seconds until the next acknowledged write.
        self.pauses = []

    def is_good(self):
        return not self.problems

    def __str__(self):
        lines = [f"{outcome.name.lower():>14}: {count}" for outcome, count in sorted(self.counts.items(), key=lambda one: one[0].name)]
        lines.append(f"{'read back':>14}: {self.read_back}")
        lines += [f"{name:>14}: {pause:.1f} s until the next acknowledged write" for name, pause in self.pauses]
        return "\n".join([*lines, *self.problems])


def run(binary, rounds=len(TROUBLES), seconds=2.0, writers=4, seed="gate"):
    """Runs so many rounds of load and trouble on a new cluster."""
    report, chosen = Report(), random.Random(seed)
    with Cluster(binary) as cluster:
        try:
            with load.Load(cluster, writers) as running:
                for number in range(rounds):
                    time.sleep(seconds * chosen.uniform(0.5, 1.5))
                    trouble = TROUBLES[number % len(TROUBLES)]
                    repair = trouble(cluster, chosen)
                    begun = time.monotonic()
                    until(f"a write is acknowledged after {trouble.__name__}", lambda: running.acknowledged_at > begun)
                    report.pauses.append((trouble.__name__, running.acknowledged_at - begun))
                    repair()
            report.problems = running.check()
            report.counts, report.read_back = running.counts(), running.read_back
        except Exception as error:
            report.problems.append(f"{error!r}\n{cluster.logs()}")
    return report
