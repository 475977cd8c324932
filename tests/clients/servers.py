"""Starts and stops `ropewalk serve`."""

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

#: Time for a server to start or to stop, seconds; only to end a hang.
PATIENCE = 60


class Server:
    """A server on a directory of its own; `url` is its gRPC port, `http` its HTTP port, `mongo` that of MongoDB, `postgres` host
    and port of PostgreSQL, if they are on; `database` is its directory.

    With `token`, an admin token of that name exists, and is needed: its secret is `token`. With `user`, a name and a
    password, there is an administrator who is called so."""

    def __init__(self, binary, listen="127.0.0.1:0", http="off", token=None, user=None, options=()):
        self._directory = tempfile.TemporaryDirectory(prefix="ropewalk-clients-")
        place = Path(self._directory.name)
        ready = place / "ready.json"
        self._log = open(place / "log", "w+")
        self.database = place / "db"
        at = ["--at", str(self.database)]
        if user is not None:
            subprocess.run([binary, *at, "init"], check=True, stdout=subprocess.DEVNULL)
            add = [binary, *at, "user", "add", user[0], "--role", "admin"]
            subprocess.run(add, check=True, stdout=subprocess.DEVNULL, input=user[1], text=True)
        if token is not None:
            subprocess.run([binary, *at, "init"], check=True, stdout=subprocess.DEVNULL)
            add = [binary, *at, "--mode", "json", "token", "add", token, "--role", "admin"]
            self.token = json.loads(subprocess.run(add, check=True, stdout=subprocess.PIPE).stdout)[0]["token"]
        command = [binary, "serve", str(place / "db"), "--grpc-listen", listen, "--http-listen", http]
        self._process = subprocess.Popen(
            [*command, "--ready-file", str(ready), *options], stdout=self._log, stderr=subprocess.STDOUT
        )
        end = time.monotonic() + PATIENCE
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > end:
                self._process.kill()
                self._process.wait()
                self._log.seek(0)
                raise RuntimeError(f"the server does not start:\n{self._log.read()}")
            time.sleep(0.01)
        places = json.loads(ready.read_text())["listening"]
        #: The URL of each gRPC port that has a store.
        self.stores = {place["store"]: f"http://{place['address']}" for place in places if "store" in place}
        urls = {place["protocol"]: f"http://{place['address']}" for place in places if "store" not in place}
        self.url, self.http = urls.get("grpc"), urls.get("http")
        self.postgres = urls.get("postgres", "").removeprefix("http://")
        self.mongo = urls.get("mongo", "").replace("http", "mongodb")

    def stop(self):
        """Stops the server as a service manager would, and says whether it ended well."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout=PATIENCE) == 0
        finally:
            self._process.kill()
            self._log.close()
            self._directory.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def binary():
    """The server that is tested."""
    return os.environ["ROPEWALK_BINARY"]


class WithPostgres:
    """A server with the PostgreSQL protocol for the tests of a class, with its `host` and `port`."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(binary(), options=["--postgres-listen", "127.0.0.1:0"])
        cls.host, port = cls.server.postgres.rsplit(":", 1)
        cls.port = int(port)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop()
