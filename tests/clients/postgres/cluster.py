"""PostgreSQL 15 itself, where Debian's packages are: the other end of what is dumped and loaded."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
#: Time to start or to stop, seconds; only to end a hang.
PATIENCE = 60


def is_installed():
    return (PROGRAMS / "initdb").exists()


def _as_somebody(command):
    """PostgreSQL refuses to run as root: then it runs as its own user."""
    if os.getuid() == 0:
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--", *map(str, command)]
    return [str(part) for part in command]


class Cluster:
    """A server of PostgreSQL on a socket in a directory of its own, `host`, with the superuser `ann` and her database `ropewalk`."""

    port = "5432"

    def __init__(self):
        self._directory = tempfile.mkdtemp(prefix="ropewalk-peer-")
        self.host = self._directory
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self._directory, user.pw_uid, user.pw_gid)
        data = Path(self._directory) / "data"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
        # Texts in the order of their bytes; letters of all alphabets are small and capital.
        locale = ["--locale=C", "--lc-ctype=C.UTF-8", "-E", "UTF8"]
        initdb = [PROGRAMS / "initdb", "-U", "ann", "-A", "trust", *locale, "--no-sync", "-D", data]
        subprocess.run(_as_somebody(initdb), check=True, timeout=PATIENCE, **quiet)
        command = [PROGRAMS / "postgres", "-D", data, "-k", self.host, "-p", self.port, "-c", "listen_addresses=", "-c", "fsync=off"]
        self._process = subprocess.Popen(_as_somebody(command), **quiet)
        end = time.monotonic() + PATIENCE
        make = [PROGRAMS / "createdb", "-h", self.host, "-p", self.port, "-U", "ann", "ropewalk"]
        while subprocess.run(make, **quiet).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError("PostgreSQL does not start")
            time.sleep(0.1)

    def stop(self):
        self._process.terminate()
        try:
            self._process.wait(timeout=PATIENCE)
        finally:
            self._process.kill()
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
