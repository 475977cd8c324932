"""Nodes of Ropewalk that share a log. Each can be killed and started again, at the same addresses."""

import http.client
import json
from pathlib import Path

from nats_log import Nats
from processes import Process, free_ports, until
from sites import Site

#: Time without a leader after which a node tries to lead.
LEASE = "1s"
#: Ports of a node, in the order of the drivers' lists.
PROTOCOLS = ("http", "postgres", "mongo")


class Node(Process):
    """A node at `host`. `http`, `postgres` and `mongo` are its ports."""

    def __init__(self, binary, site, number, url, ports, options=()):
        self.name = name = f"node{number}"
        self.host, self.directory, self._ready = site.host(name), site.directory("node", number), site.place / f"{name}.ready"
        self.http, self.postgres, self.mongo = ports
        self._binary, self._site, self._options = binary, site, options
        super().__init__(self._on(url), site.place / f"{name}.log")

    def _on(self, url):
        """The command of this node on the shared log at a URL."""
        command = [self._binary, "serve", self.directory, "--cluster", url, "--advertise", self.host]
        for protocol, port in zip(PROTOCOLS, (self.http, self.postgres, self.mongo)):
            command += [f"--{protocol}-listen", f"{self.host}:{port}"]
        if self._site.network:
            command += ["--insecure"]
        command += ["--grpc-listen", "off", "--prometheus-self-scrape", "off", "--ready-file", self._ready]
        return self._site.command(self.name, [*command, "--cluster-lease", LEASE, *self._options])

    def move_to(self, url):
        """The next start is on another shared log."""
        self._command = self._on(url)

    @property
    def url(self):
        return f"http://{self.host}:{self.http}"

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
        connection = http.client.HTTPConnection(self.host, self.http, timeout=timeout)
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
    """Nodes over a log service, at a site, which the cluster closes. `options` are further settings of each node; `{place}` in
    them is a directory that all nodes reach."""

    def __init__(self, binary, number=3, options=(), site=None, service=Nats):
        self._site = site = site or Site()
        self.network, self.disks = site.network, site.disks
        self.place = place = site.place
        options = [option.format(place=place) for option in options]
        self.log, self.nodes = None, []
        try:
            self.log = service(site)
            binary = str(Path(binary).resolve())
            ports, each = free_ports(number * len(PROTOCOLS)), len(PROTOCOLS)
            self.nodes = [
                Node(binary, site, name, self.log.url, ports[name * each : (name + 1) * each], options) for name in range(number)
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
        for process in [*self.nodes, *(self.log.servers if self.log else [])]:
            process.kill()
        self._site.close()

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

    def differing(self):
        """Lets the nodes compare all their contents. Returns the names of those that differ from the leader."""

        def compared():
            leader = self.leader()
            status, _, before = leader.ask("POST", "/v1/cluster/check")

            def ended():
                now = leader.status()
                leads = now and now["role"] == "leader"
                return not leads or now["contents"]["checks"] > before["checks"] and now["contents"]

            found = status == 200 and until("the leader has compared the contents", ended)
            # It does not lead any more, or the check has ended early: again.
            return None if isinstance(found, bool) or "error" in found else found

        return until("the nodes have compared their contents", compared)["differing"]

    def restart(self, node):
        node.start()
        until(f"{node.name} serves again", node.serves)

    def logs(self):
        """The ends of what the nodes wrote."""
        return "\n".join(f"--- {node.name}\n{node.log()[-4000:]}" for node in self.nodes)
