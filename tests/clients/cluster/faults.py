"""Faults of a cluster: of its processes, its network, the power of its machines, and of PostgreSQL as its log."""

import dataclasses
import signal
import time
from collections.abc import Callable

from processes import until

#: How long something is halted or cut off, seconds: from less than a lease to longer than the nodes' patience.
SHORTEST, LONGEST = 0.5, 7
#: How long a leader is halted, at least: longer than two leases, so that another node leads.
HALT = 3


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault: `strike` gets the cluster and a generator of random numbers, and returns the repair."""

    strike: Callable
    #: Servers of the log that are away, or without the others, until the repair.
    log_servers: int = 0

    @property
    def name(self):
        return self.strike.__name__.replace("_", " ")

    def stops(self, cluster):
        """True if no write can be acknowledged before the repair."""
        return self.log_servers > cluster.log.tolerates


def duration(chosen):
    return chosen.uniform(SHORTEST, LONGEST)


def nothing():
    """The repair of a fault that has ended by itself."""


# Processes.


def kill_leader(cluster, chosen):
    leader = cluster.leader()
    leader.kill()
    return lambda: cluster.restart(leader)


def kill_follower(cluster, chosen):
    follower = chosen.choice(cluster.followers())
    follower.kill()
    return lambda: cluster.restart(follower)


def kill_all_nodes(cluster, chosen):
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        node.start()
    return lambda: [until(f"{node.name} serves again", node.serves) for node in cluster.nodes]


def halt_leader(cluster, chosen):
    cluster.leader().halted(HALT)
    return nothing


def halt_follower(cluster, chosen):
    chosen.choice(cluster.followers()).halted(duration(chosen))
    return nothing


def kill_log_server(cluster, chosen):
    server = chosen.choice(cluster.log.servers)
    server.kill()
    return server.serve


def halt_log_server(cluster, chosen):
    chosen.choice(cluster.log.servers).halted(duration(chosen))
    return nothing


def kill_log(cluster, chosen):
    for server in cluster.log.servers:
        server.kill()
    time.sleep(duration(chosen))
    return lambda: [server.serve() for server in cluster.log.servers]


# Network. The test reaches every process, so that clients write to nodes that are cut off.


def names(processes):
    return [process.name for process in processes]


def dropped(cluster, chosen, *directions):
    """Drops the packets of some directions for a while. The repair lets them through again."""
    for sources, targets in directions:
        cluster.network.drop(sources, targets)
    time.sleep(duration(chosen))
    return cluster.network.heal


def cut(cluster, chosen, ones, others):
    return dropped(cluster, chosen, (ones, others), (others, ones))


def cut_leader_from_log(cluster, chosen):
    return cut(cluster, chosen, [cluster.leader().name], cluster.log.names)


def cut_leader_from_all(cluster, chosen):
    leader = cluster.leader()
    others = names(node for node in cluster.nodes if node is not leader)
    return cut(cluster, chosen, [leader.name], cluster.log.names + others)


def cut_follower_from_all(cluster, chosen):
    follower = chosen.choice(cluster.followers())
    others = names(node for node in cluster.nodes if node is not follower)
    return cut(cluster, chosen, [follower.name], cluster.log.names + others)


def cut_log_server(cluster, chosen):
    server = chosen.choice(cluster.log.names)
    others = [name for name in cluster.log.names if name != server]
    return cut(cluster, chosen, [server], others + names(cluster.nodes))


def cut_log_servers_from_each_other(cluster, chosen):
    pairs = [(one, other) for one in cluster.log.names for other in cluster.log.names if one != other]
    return dropped(cluster, chosen, *(([one], [other]) for one, other in pairs))


def cut_leader_with_one_log_server(cluster, chosen):
    server, leader = chosen.choice(cluster.log.names), cluster.leader()
    others = [name for name in cluster.log.names if name != server]
    return cut(cluster, chosen, [server, leader.name], others + names(node for node in cluster.nodes if node is not leader))


def drop_from_leader_to_log(cluster, chosen):
    return dropped(cluster, chosen, ([cluster.leader().name], cluster.log.names))


def drop_from_log_to_leader(cluster, chosen):
    return dropped(cluster, chosen, (cluster.log.names, [cluster.leader().name]))


def drop_from_followers_to_leader(cluster, chosen):
    return dropped(cluster, chosen, (names(cluster.followers()), [cluster.leader().name]))


def drop_from_leader_to_followers(cluster, chosen):
    return dropped(cluster, chosen, ([cluster.leader().name], names(cluster.followers())))


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


def power_cut_of_leader(cluster, chosen):
    return power_cut(cluster, [cluster.nodes.index(cluster.leader())])


def power_cut_of_follower(cluster, chosen):
    return power_cut(cluster, [cluster.nodes.index(chosen.choice(cluster.followers()))])


def power_cut_of_all(cluster, chosen):
    return power_cut(cluster, range(len(cluster.nodes)))


# PostgreSQL.


def promote_standby(cluster, chosen):
    return cluster.log.fail_over()


PROCESSES = [
    Fault(kill_leader),
    Fault(halt_leader),
    Fault(kill_follower),
    Fault(halt_follower),
    Fault(kill_log_server, 1),
    Fault(halt_log_server),
    Fault(kill_all_nodes),
    Fault(kill_log, 3),
]
PARTITIONS = [
    Fault(cut_leader_from_log),
    Fault(cut_leader_from_all),
    Fault(cut_follower_from_all),
    Fault(cut_log_server, 1),
    Fault(cut_log_servers_from_each_other, 3),
    Fault(cut_leader_with_one_log_server, 1),
    Fault(drop_from_leader_to_log),
    Fault(drop_from_log_to_leader),
    Fault(drop_from_followers_to_leader),
    Fault(drop_from_leader_to_followers),
]
POWER_CUTS = [Fault(power_cut_of_leader, 1), Fault(power_cut_of_follower, 1), Fault(power_cut_of_all, 3)]
POSTGRES = [Fault(promote_standby, 1)]
