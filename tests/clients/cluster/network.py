"""A network of one machine, of which links can be cut: a namespace for each process, and a router between them.

    node0 ── veth ──┐
    node1 ── veth ──┤ router: the namespace of this thread ── the test, which reaches every process
    log0  ── veth ──┘   └ rule "from A to B: blackhole": packets of this direction are dropped, without an answer

The namespace of the machine is not changed, and nothing remains of a test that was killed except names in /run/netns.
"""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

#: From <linux/sched.h>; Python has it from 3.12.
CLONE_NEWNET = 0x40000000
#: The namespace of a thread: other threads may have others.
OWN = "/proc/thread-self/ns/net"
LIBC = ctypes.CDLL(None, use_errno=True)


def unavailable():
    """The reason why there are no partitions on this machine, or `None`."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip"):
        return "there is no program `ip`: install iproute2"
    try:
        network = Network()
        try:
            network.drop(["probe0"], ["probe1"])
        finally:
            network.close()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"network namespaces do not work: {error} {getattr(error, 'stderr', '')}".strip()
    return None


def ip(*arguments):
    subprocess.run(["ip", *map(str, arguments)], check=True, capture_output=True, text=True)


def checked(code):
    if code != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Network:
    """Namespaces in which processes run. The thread that makes it is their router until it is closed, and so are threads that it
    starts meanwhile."""

    def __init__(self):
        self._before = os.open(OWN, os.O_RDONLY)
        self._hosts = {}
        self._rules = []
        try:
            checked(LIBC.unshare(CLONE_NEWNET))
            ip("link", "set", "lo", "up")
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _namespace(name):
        return f"ropewalk-{os.getpid()}-{name}"

    def address(self, name):
        """The address of a process, which gets a namespace and a link to the router."""
        if name in self._hosts:
            return self._hosts[name]
        number, namespace = len(self._hosts) + 1, self._namespace(name)
        # A private network for each link.
        ours, theirs, link = f"10.213.{number}.1", f"10.213.{number}.2", f"link{number}"
        ip("netns", "add", namespace)
        self._hosts[name] = theirs
        ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("address", "add", f"{ours}/24", "dev", link)
        ip("link", "set", link, "up")
        inside = ("-n", namespace)
        ip(*inside, "link", "set", "lo", "up")
        ip(*inside, "address", "add", f"{theirs}/24", "dev", "eth0")
        ip(*inside, "link", "set", "eth0", "up")
        ip(*inside, "route", "add", "default", "via", ours)
        return theirs

    def enter(self, name):
        """The beginning of a command that runs in the namespace of a process; the process has the number of the command."""
        self.address(name)
        return ["ip", "netns", "exec", self._namespace(name)]

    def drop(self, sources, targets):
        """Drops packets from each source to each target until `heal`."""
        for source in sources:
            for target in targets:
                rule = ["from", self.address(source), "to", self.address(target), "blackhole"]
                ip("rule", "add", *rule)
                self._rules.append(rule)

    def cut(self, ones, others):
        """Drops packets of both directions until `heal`."""
        self.drop(ones, others)
        self.drop(others, ones)

    def heal(self):
        while self._rules:
            ip("rule", "del", *self._rules.pop())

    def close(self):
        for name in self._hosts:
            subprocess.run(["ip", "netns", "del", self._namespace(name)], stderr=subprocess.DEVNULL)
        self._hosts.clear()
        checked(LIBC.setns(self._before, CLONE_NEWNET))
        os.close(self._before)
