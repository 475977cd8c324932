"""Three servers of NATS, and nodes of Ropewalk that share a log in them. Each can be killed and started again, at the same
addresses."""

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Longest time for a process to start, or for a node to lead or to catch up, seconds; only to end a hang.
PATIENCE = 120
#: Time without a leader after which a node tries to lead.
LEASE = "1s"
#: Ports of a node, in the order of the drivers' lists.
PROTOCOLS = ("http", "postgres", "mongo")


def nats_server():
    """The program `nats-server`: in ROPEWALK_NATS_SERVER, next to this Python, or in the search path; `None` if there is none."""
    beside = Path(sys.executable).parent / "nats-server"
    return os.environ.get("ROPEWALK_NATS_SERVER") or (str(beside) if beside.exists() else shutil.which("nats-server"))


def free_ports(number):
    """Ports that nothing listens on, below those that the system gives to clients: a node that starts again must find its
    port free."""
    ports = []
    while len(ports) < number:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            if port not in ports:
                ports.append(port)
    return ports


def until(what, condition, pause=0.05):
    """Waits for a condition, and returns what it returned."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {PATIENCE} s: {what}")
        time.sleep(pause)
    return found


class Process:
    """A process that writes to a file, and can be killed, halted and started again."""

    def __init__(self, command, log):
        self._command, self._log = command, log
        self._running = None

    def start(self):
        with open(self._log, "ab") as log:
            self._running = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def lives(self):
        return self._running is not None and self._running.poll() is None

    def kill(self):
        """Ends it at once, as a crash does."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None

    def stop(self):
        """Ends it as an operator does, and returns its exit code."""
        self._running.terminate()
        code = self._running.wait(PATIENCE)
        self._running = None
        return code

    def signal(self, number):
        self._running.send_signal(number)

    def log(self):
        return Path(self._log).read_text(errors="replace")


class Nats:
    """Servers of NATS with JetStream, which sync each message."""

    def __init__(self, place, number=3):
        program = nats_server()
        ports = free_ports(2 * number)
        clients, routes = ports[:number], ports[number:]
        every = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in routes)
        self.servers = []
        for name, client, route in zip(range(number), clients, routes):
            configuration = place / f"nats{name}.conf"
            configuration.write_text(
                f"server_name: n{name}\n"
                f'listen: "127.0.0.1:{client}"\n'
                "max_payload: 8MB\n"
                f'jetstream {{ store_dir: "{place}/nats{name}", sync_interval: always, max_mem: 64MB, max_file: 8GB }}\n'
                f'cluster {{ name: test, listen: "127.0.0.1:{route}", routes: [{every}] }}\n'
            )
            self.servers.append(Process([program, "-c", configuration], place / f"nats{name}.log"))
        hosts = ",".join(f"127.0.0.1:{port}" for port in clients)
        self.url = f"nats://{hosts}/ropewalk"
        for server in self.servers:
            server.start()


class Node(Process):
    """A node. `http`, `postgres` and `mongo` are its ports."""

    def __init__(self, binary, place, name, url, ports, options=()):
        self.name, self.directory, self._ready = name, place / name, place / f"{name}.ready"
        self.http, self.postgres, self.mongo = ports
        self._binary, self._options = binary, options
        super().__init__(self._on(url), place / f"{name}.log")

    def _on(self, url):
        """The command of this node on the shared log at a URL."""
        command = [self._binary, "serve", self.directory, "--cluster", url, "--advertise", "127.0.0.1"]
        for protocol, port in zip(PROTOCOLS, (self.http, self.postgres, self.mongo)):
            command += [f"--{protocol}-listen", f"127.0.0.1:{port}"]
        command += ["--grpc-listen", "off", "--prometheus-self-scrape", "off", "--ready-file", self._ready]
        return [*command, "--cluster-lease", LEASE, *self._options]

    def move_to(self, url):
        """The next start is on another shared log."""
        self._command = self._on(url)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http}"

    def start(self):
        self._ready.unlink(missing_ok=True)
        super().start()

    def serves(self):
        """True once it has opened its ports; an error if it has ended."""
        if not self.lives():
            raise RuntimeError(f"node {self.name} has ended:\n{self.log()}")
        return self._ready.exists()

    def ask(self, method, path, body=None, headers=None, timeout=30):
        """One request: status, headers in lower case, body as JSON. Raises OSError or HTTPException without an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=timeout)
        try:
            content = {"content-type": "application/json"} if body is not None else {}
            text = json.dumps(body) if body is not None else None
            connection.request(method, path, text, content | (headers or {}))
            response = connection.getresponse()
            read = response.read()
            told = {name.lower(): value for name, value in response.getheaders()}
            try:
                return response.status, told, json.loads(read) if read else None
            except ValueError:
                return response.status, told, read.decode(errors="replace")
        finally:
            connection.close()

    def status(self):
        """What the node says about itself and the cluster; `None` if it does not answer."""
        try:
            status, _, body = self.ask("GET", "/v1/cluster", timeout=5)
        except (OSError, http.client.HTTPException):
            return None
        return body if status == 200 else None


class Cluster:
    """Three nodes over three servers of NATS. `options` are further settings of each node; `{place}` in them is a directory that
    all nodes reach."""

    def __init__(self, binary, number=3, options=()):
        self._directory = tempfile.TemporaryDirectory(prefix="ropewalk-cluster-")
        self.place = place = Path(self._directory.name)
        options = [option.format(place=place) for option in options]
        self.nats, self.nodes = None, []
        try:
            self.nats = Nats(place)
            binary = str(Path(binary).resolve())
            ports, each = free_ports(number * len(PROTOCOLS)), len(PROTOCOLS)
            self.nodes = [
                Node(binary, place, f"node{name}", self.nats.url, ports[name * each : (name + 1) * each], options)
                for name in range(number)
            ]
            for node in self.nodes:
                node.start()
            for node in self.nodes:
                until(f"{node.name} serves", node.serves)
            until("the leader knows all nodes", lambda: len((self.leader().status() or {}).get("members", [])) == number)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for process in [*self.nodes, *(self.nats.servers if self.nats else [])]:
            process.kill()
        self._directory.cleanup()

    def leader(self):
        """The node that leads: of those that say so the one with the largest term."""

        def leading():
            said = [(node.status(), node) for node in self.nodes if node.lives()]
            leading = [(status["term"], node) for status, node in said if status and status["role"] == "leader"]
            return max(leading, key=lambda one: one[0])[1] if leading else None

        return until("a node leads", leading)

    def followers(self):
        leader = self.leader()
        return [node for node in self.nodes if node is not leader and node.lives()]

    def halted(self, node, seconds):
        """Halts a node for so long, as a machine that swaps or a virtual machine that moves."""
        node.signal(signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            node.signal(signal.SIGCONT)

    def restart(self, node):
        node.start()
        until(f"{node.name} serves again", node.serves)

    def logs(self):
        """The ends of what the nodes wrote."""
        return "\n".join(f"--- {node.name}\n{node.log()[-4000:]}" for node in self.nodes)
