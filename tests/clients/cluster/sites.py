"""The place where the processes of a test cluster run: their addresses and directories.

    Site()                                      one network, the loopback interface; one directory
    Site(has_partitions=True)                   a network namespace for each process: links can be cut
    Site(has_power_cuts=True)                   a file system for each machine: its power can be cut

A machine has a node and a server of the log, with the same number.
"""

import tempfile
from pathlib import Path

import disks
import network


def unavailable():
    """Kinds of faults that this machine cannot do, with the reasons."""
    with tempfile.TemporaryDirectory() as place:
        reasons = {"partitions": network.unavailable(), "power": disks.unavailable(Path(place))}
    return {kind: reason for kind, reason in reasons.items() if reason}


class Site:
    """Addresses and directories of the processes of a cluster. `name` of a process is its kind and the number of its machine."""

    def __init__(self, has_partitions=False, has_power_cuts=False):
        self._temporary = tempfile.TemporaryDirectory(prefix="ropewalk-cluster-")
        #: A directory that all processes reach, without power cuts.
        self.place = Path(self._temporary.name)
        # PostgreSQL runs as another user.
        self.place.chmod(0o755)
        self.network = self.disks = None
        try:
            self.network = network.Network() if has_partitions else None
            self.disks = disks.Disks(self.place) if has_power_cuts else None
        except BaseException:
            self.close()
            raise

    def host(self, name):
        """The address of a process."""
        return self.network.address(name) if self.network else "127.0.0.1"

    def command(self, name, command):
        """The command of a process, at its address."""
        return [*(self.network.enter(name) if self.network else []), *map(str, command)]

    def directory(self, kind, number):
        """The directory of a process on the disk of its machine."""
        return (self.disks.mounted(number) if self.disks else self.place) / f"{kind}{number}"

    def close(self):
        """Removes everything, after its processes have ended."""
        for part in (self.disks, self.network):
            if part is not None:
                part.close()
        self._temporary.cleanup()
