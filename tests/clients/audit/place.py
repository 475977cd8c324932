"""A server with every protocol on a free port, which can be killed and started again."""

import random
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from ropewalk.testing import Server

#: Longest time until a client reaches the server again, seconds; only to end a hang.
PATIENCE = 120
#: Longest time after which a recovery is killed, seconds.
RECOVERY_MAX = 0.1


class Place:
    """The server. Its addresses, HOST:PORT or for HTTP a URL, stay the same when it is started again."""

    def __init__(self, binary):
        self._copies = tempfile.TemporaryDirectory(prefix="ropewalk-copies-")
        self._binary = str(Path(binary).resolve())
        protocols = ["postgres", "mongo", "grpc"]
        self.postgres, self.mongo, self.grpc = addresses = _free_addresses(len(protocols))
        options = ["--backups", self._copies.name, "--prometheus-self-scrape", "off"]
        for protocol, address in zip(protocols, addresses):
            options += [f"--{protocol}-listen", address]
        self._server = Server(self._binary, tuple(options))
        self.http = self._server.url
        self.kills = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.close()
        self._copies.cleanup()

    def crash(self):
        """Kills the server and starts it again. Every second recovery is killed, too, at a random moment."""
        self._server.kill()
        self.kills += 1
        if self.kills % 2 == 0:
            command = [self._binary, "serve", self._server.database, "--http-listen", "127.0.0.1:0"]
            command += ["--grpc-listen", "off"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as recovery:
                time.sleep(random.uniform(0, RECOVERY_MAX))
                recovery.kill()
            self.kills += 1
        self._server.start()

    def back_up(self, name):
        """Copies the database while the server runs, and verifies the copy."""
        for at, command in ((self._server.database, ["backup", name]), (self._copy(name), ["verify"])):
            subprocess.run([self._binary, "--at", at, *command], check=True, stdout=subprocess.DEVNULL)

    def restore(self, name):
        """Puts a copy in the place of the database."""
        self._server.kill()
        shutil.rmtree(self._server.database)
        shutil.move(self._copy(name), self._server.database)
        self._server.start()

    def _copy(self, name):
        return Path(self._copies.name) / name


def _free_addresses(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses
