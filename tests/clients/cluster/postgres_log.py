"""PostgreSQL as the log service of a cluster: a primary with a synchronous standby, which can be promoted."""

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

from processes import PATIENCE, Process, free_ports, until

sys.path.append(str(Path(__file__).resolve().parents[1] / "postgres"))

from cluster import PROGRAMS, is_installed  # noqa: E402


def unavailable():
    """The reason why PostgreSQL cannot be the log, or `None`."""
    return None if is_installed() else f"PostgreSQL 15 is not installed in {PROGRAMS}"


class Server(Process):
    """A server of PostgreSQL. It has no data before `create` or `copy`."""

    def __init__(self, site, number, port):
        self.name = f"log{number}"
        self.host, self.port = site.host(self.name), port
        self._site, self._number = site, number
        # Each append waits for a standby; after a promotion, until there is one again.
        settings = ["synchronous_standby_names=ANY 1 (*)", f"listen_addresses={self.host}", "shared_buffers=32MB"]
        # A standby whose primary is gone without a word finds out in time, and so does a primary.
        settings += ["wal_sender_timeout=5s", "wal_receiver_timeout=5s"]
        command = ["postgres", "-D", self.data(), "-p", port, "-k", ""]
        for setting in settings:
            command += ["-c", setting]
        super().__init__(site.command(self.name, as_postgres(command)), site.place / f"{self.name}.log")

    def data(self):
        """The directory of the data, in one that belongs to PostgreSQL's user."""
        return self._site.directory("log", self._number) / "data"

    def _run(self, *command):
        whole = self._site.command(self.name, as_postgres(command))
        subprocess.run(whole, check=True, capture_output=True, text=True, cwd="/", timeout=PATIENCE)

    def _empty(self):
        parent = self.data().parent
        shutil.rmtree(parent, ignore_errors=True)
        parent.mkdir()
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(parent, user.pw_uid, user.pw_gid)

    def create(self):
        self._empty()
        self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--data-checksums", "-D", self.data())
        with open(self.data() / "pg_hba.conf", "a") as rules:
            for database in ("all", "replication"):
                rules.write(f"host {database} all all trust\n")

    def copy(self, primary):
        """Becomes a standby of a server that runs."""
        self._empty()
        place = f"host={primary.host} port={primary.port} user=postgres"
        # --no-sync would lose the copy in a power cut.
        self._run("pg_basebackup", "-d", place, "-c", "fast", "-X", "stream", "-R", "-D", self.data())

    def sql(self, statement):
        """The first value that a statement returns; `None` without an answer."""
        place = ["-h", self.host, "-p", self.port, "-U", "postgres", "-d", "postgres"]
        command = [PROGRAMS / "psql", "-XAtq", *place, "-c", statement]
        environment = os.environ | {"PGCONNECT_TIMEOUT": "5"}
        try:
            run = subprocess.run(
                [*map(str, command)], env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE
            )
        except subprocess.TimeoutExpired:
            return None
        return run.stdout.strip() if run.returncode == 0 else None

    def serve(self):
        """Starts it, and waits until it answers. After SIGKILL, a process of the server before may still end."""

        def answers():
            if not self.lives():
                self.start()
            return self.sql("SELECT 1") == "1"

        until(f"PostgreSQL {self.name} answers", answers, 0.2)

    def _everyone(self):
        children = Path(f"/proc/{self._running.pid}/task/{self._running.pid}/children").read_text().split()
        return [self._running.pid, *map(int, children)]

    def signal(self, number):
        for process in self._everyone():
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass

    def kill(self):
        """Ends all of its processes at once."""
        if self.lives():
            self.signal(9)
        super().kill()


def as_postgres(command):
    """A program of PostgreSQL, run as its user when we are root: it does not run as root."""
    whole = [PROGRAMS / command[0], *command[1:]]
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--", *whole] if os.geteuid() == 0 else whole


class Postgres:
    """A primary with a synchronous standby. One of them gone, appends wait."""

    tolerates = 0

    def __init__(self, site):
        ports = free_ports(2)
        self.servers = [Server(site, number, port) for number, port in enumerate(ports)]
        self.names = [server.name for server in self.servers]
        places = ",".join(f"{server.host}:{server.port}" for server in self.servers)
        self.url = f"postgres://postgres@{places}/postgres?sslmode=disable"
        primary, standby = self.servers
        try:
            primary.create()
            primary.serve()
            standby.copy(primary)
            standby.serve()
        except BaseException:
            self.close()
            raise

    def close(self):
        for server in self.servers:
            server.kill()

    def primary(self):
        """The server that takes appends."""

        def found():
            return next((server for server in self.servers if server.sql("SELECT pg_is_in_recovery()") == "f"), None)

        return until("a server of PostgreSQL is the primary", found)

    def fail_over(self):
        """Kills the primary and promotes its standby. Returns the function that makes the old primary a standby of the new one,
        until which appends wait."""
        primary = self.primary()
        [standby] = [server for server in self.servers if server is not primary]
        primary.kill()
        if standby.sql("SELECT pg_promote()") != "t":
            raise RuntimeError(f"PostgreSQL {standby.name} was not promoted:\n{standby.log()[-2000:]}")

        def repair():
            primary.copy(standby)
            primary.serve()

        return repair
