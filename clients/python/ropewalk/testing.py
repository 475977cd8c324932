"""Starts a server for tests.

    with ropewalk.testing.Server() as server:
        db = ropewalk.connect(server.url)
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

#: Longest time for a server to start or to stop, seconds.
PATIENCE = 60.0


def program() -> str | None:
    """Returns the path of the server: `ROPEWALK_BIN`, or `ropewalk` in the search path."""
    return os.environ.get("ROPEWALK_BIN") or shutil.which("ropewalk")


class Server:
    """A server on a free port of this machine, with an empty database in a temporary directory.

    `url` is its HTTP address; it stays the same when the server is started again. Raises
    `RuntimeError` if there is no program, or if it does not start.
    """

    def __init__(self, binary: str | None = None, options: tuple[str, ...] = ()) -> None:
        found = binary or program()
        if found is None:
            raise RuntimeError("there is no program ropewalk: set ROPEWALK_BIN to its path")
        self.binary = str(Path(found).resolve())
        self._options = options
        self._directory = tempfile.TemporaryDirectory(prefix="ropewalk-test-")
        self.database = Path(self._directory.name) / "db"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"http://{self._address}"
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Starts the server, and returns when it serves."""
        place = Path(self._directory.name)
        ready = place / "ready.json"
        ready.unlink(missing_ok=True)
        command = [self.binary, "serve", str(self.database), "--http-listen", self._address]
        for other in ("postgres", "mongo", "grpc"):
            command += [f"--{other}-listen", "off"]
        command += ["--log-level", "error", "--ready-file", str(ready), *self._options]
        with open(place / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE
        while not _is_complete(ready):
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"the server does not start:\n{(place / 'log').read_text()}")
            time.sleep(0.01)

    def kill(self) -> None:
        """Ends the process at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Stops the server in order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(PATIENCE)
            finally:
                self.kill()

    def close(self) -> None:
        """Ends the server and removes its directory."""
        self.kill()
        self._directory.cleanup()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_complete(ready: Path) -> bool:
    try:
        return bool(json.loads(ready.read_text()))
    except (OSError, ValueError):
        return False
