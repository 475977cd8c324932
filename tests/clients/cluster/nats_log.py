"""Three servers of NATS as the log service of a cluster."""

import os
import shutil
import sys
from pathlib import Path

from processes import Process, free_ports


def nats_server():
    """The program `nats-server`: in ROPEWALK_NATS_SERVER, next to this Python, or in the search path; `None` if there is none."""
    beside = Path(sys.executable).parent / "nats-server"
    return os.environ.get("ROPEWALK_NATS_SERVER") or (str(beside) if beside.exists() else shutil.which("nats-server"))


class Server(Process):
    """A server of NATS."""

    def serve(self):
        """Starts it. Nodes and the other servers wait for it by themselves."""
        self.start()


class Nats:
    """Servers of NATS with JetStream, which sync each message."""

    #: Servers that may be away while appends continue.
    tolerates = 1

    def __init__(self, site, number=3):
        program = nats_server()
        ports = free_ports(2 * number)
        clients, routes = ports[:number], ports[number:]
        #: Name of each server at its site.
        self.names = [f"log{index}" for index in range(number)]
        hosts = [site.host(name) for name in self.names]
        every = ", ".join(f'"nats-route://{host}:{port}"' for host, port in zip(hosts, routes))
        self.servers = []
        for index, name in enumerate(self.names):
            configuration = site.place / f"{name}.conf"
            store = site.directory("log", index)
            configuration.write_text(
                f"server_name: {name}\n"
                f'listen: "{hosts[index]}:{clients[index]}"\n'
                "max_payload: 8MB\n"
                f'jetstream {{ store_dir: "{store}", sync_interval: always, max_mem: 64MB, max_file: 8GB }}\n'
                f'cluster {{ name: test, listen: "{hosts[index]}:{routes[index]}", routes: [{every}] }}\n'
            )
            command = site.command(name, [program, "-c", configuration])
            self.servers.append(Server(command, site.place / f"{name}.log"))
        addresses = ",".join(f"{host}:{port}" for host, port in zip(hosts, clients))
        self.url = f"nats://{addresses}/ropewalk"
        for server in self.servers:
            server.serve()
