"""Faults of a cluster: of its processes, its network, the power of its machines, and of PostgreSQL as its log."""

import dataclasses
import random
import signal
import time
from collections.abc import Callable

from processes import until

#: How long something is halted or cut off, seconds: less than a lease, and longer than the nodes' patience.
SHORTEST, LONGEST = 0.5, 7
#: How long a leader is halted, at least: longer than two leases, so that another node leads.
HALT = 3


class Chance(random.Random):
    """Random numbers of a run."""

    def __init__(self, seed, longest=LONGEST):
        super().__init__(seed)
        self._longest = longest

    def duration(self):
        """Seconds of a halt or a cut."""
        return self.uniform(SHORTEST, self._longest)


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault: `strike` gets the cluster and the random numbers of the run, and returns the repair."""

    strike: Callable
    #: `processes`, `partitions` and `power`, which need more than processes, or `postgres`, which needs that log.
    kind: str
    #: Servers of the log that are away, or without the others, until the repair.
    log_servers: int = 0

    @property
    def name(self):
        return self.strike.__name__.replace("_", " ")

    def stops(self, cluster):
        """True if no write can be acknowledged before the repair."""
        return self.log_servers > cluster.log.tolerates


#: Every fault.
FAULTS = []


def fault(kind, log_servers=0):
    """Makes a function a fault."""

    def made(strike):
        FAULTS.append(Fault(strike, kind, log_servers))
        return FAULTS[-1]

    return made


def nothing():
    """The repair of a fault that has ended by itself."""


# Processes.


@fault("processes")
def kill_leader(cluster, chance):
    leader = cluster.leader()
    leader.kill()
    return lambda: cluster.restart(leader)


@fault("processes")
def kill_follower(cluster, chance):
    follower = chance.choice(cluster.followers())
    follower.kill()
    return lambda: cluster.restart(follower)


@fault("processes")
def kill_all_nodes(cluster, chance):
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        node.start()
    return lambda: [until(f"{node.name} serves again", node.serves) for node in cluster.nodes]


@fault("processes")
def halt_leader(cluster, chance):
    cluster.leader().halted(HALT)
    return nothing


@fault("processes")
def halt_follower(cluster, chance):
    chance.choice(cluster.followers()).halted(chance.duration())
    return nothing


@fault("processes", log_servers=1)
def kill_log_server(cluster, chance):
    server = chance.choice(cluster.log.servers)
    server.kill()
    return server.serve


@fault("processes")
def halt_log_server(cluster, chance):
    chance.choice(cluster.log.servers).halted(chance.duration())
    return nothing


@fault("processes", log_servers=3)
def kill_log(cluster, chance):
    for server in cluster.log.servers:
        server.kill()
    time.sleep(chance.duration())
    return lambda: [server.serve() for server in cluster.log.servers]


# Network. The test reaches every process, so that clients write to nodes that are cut off.


def names(processes):
    return [process.name for process in processes]


def dropped(cluster, chance, *directions):
    """Drops the packets of some directions for a while. The repair lets them through again."""
    for sources, targets in directions:
        cluster.network.drop(sources, targets)
    time.sleep(chance.duration())
    return cluster.network.heal


def cut(cluster, chance, ones, others):
    return dropped(cluster, chance, (ones, others), (others, ones))


@fault("partitions")
def cut_leader_from_log(cluster, chance):
    return cut(cluster, chance, [cluster.leader().name], cluster.log.names)


@fault("partitions")
def cut_leader_from_all(cluster, chance):
    leader = cluster.leader()
    others = names(node for node in cluster.nodes if node is not leader)
    return cut(cluster, chance, [leader.name], cluster.log.names + others)


@fault("partitions")
def cut_follower_from_all(cluster, chance):
    follower = chance.choice(cluster.followers())
    others = names(node for node in cluster.nodes if node is not follower)
    return cut(cluster, chance, [follower.name], cluster.log.names + others)


@fault("partitions", log_servers=1)
def cut_log_server(cluster, chance):
    server = chance.choice(cluster.log.names)
    others = [name for name in cluster.log.names if name != server]
    return cut(cluster, chance, [server], others + names(cluster.nodes))


@fault("partitions", log_servers=3)
def cut_log_servers_from_each_other(cluster, chance):
    pairs = [(one, other) for one in cluster.log.names for other in cluster.log.names if one != other]
    return dropped(cluster, chance, *(([one], [other]) for one, other in pairs))


@fault("partitions", log_servers=1)
def cut_leader_with_one_log_server(cluster, chance):
    server, leader = chance.choice(cluster.log.names), cluster.leader()
    others = [name for name in cluster.log.names if name != server]
    return cut(cluster, chance, [server, leader.name], others + names(node for node in cluster.nodes if node is not leader))


@fault("partitions")
def drop_from_leader_to_log(cluster, chance):
    return dropped(cluster, chance, ([cluster.leader().name], cluster.log.names))


@fault("partitions")
def drop_from_log_to_leader(cluster, chance):
    return dropped(cluster, chance, (cluster.log.names, [cluster.leader().name]))


@fault("partitions")
def drop_from_followers_to_leader(cluster, chance):
    return dropped(cluster, chance, (names(cluster.followers()), [cluster.leader().name]))


@fault("partitions")
def drop_from_leader_to_followers(cluster, chance):
    return dropped(cluster, chance, ([cluster.leader().name], names(cluster.followers())))


# Power. A machine has a node and a server of the log.


def power_cut(cluster, numbers):
    """Cuts the power of machines at once, and gives them their disks back. The repair starts what ran on them."""
    nodes = [cluster.nodes[number] for number in numbers]
    servers = [cluster.log.servers[number] for number in numbers if number < len(cluster.log.servers)]
    for process in [*nodes, *servers]:
        process.signal(signal.SIGKILL)
    for number in numbers:
        cluster.disks.cut(number)
    for process in [*nodes, *servers]:
        process.kill()
    for number in numbers:
        cluster.disks.restore(number)

    def repair():
        for server in servers:
            server.serve()
        for node in nodes:
            node.start()
        for node in nodes:
            until(f"{node.name} serves again", node.serves)

    return repair


@fault("power", log_servers=1)
def power_cut_of_leader(cluster, chance):
    return power_cut(cluster, [cluster.nodes.index(cluster.leader())])


@fault("power", log_servers=1)
def power_cut_of_follower(cluster, chance):
    return power_cut(cluster, [cluster.nodes.index(chance.choice(cluster.followers()))])


@fault("power", log_servers=3)
def power_cut_of_all(cluster, chance):
    return power_cut(cluster, range(len(cluster.nodes)))


# PostgreSQL.


@fault("postgres", log_servers=1)
def promote_standby(cluster, chance):
    return cluster.log.fail_over()
