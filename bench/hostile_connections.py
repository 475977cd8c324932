"""Measures a server under hostile connections: its resident memory, and the latency of an authenticated insert.

    hostile_connections.py --binary target/release/ropewalk [--connections 1000] [--inserts 100] [--repeat 2] [--kind TEXT]

The promise: with 1,000 hostile connections per port, none of which completes a request, resident memory and the median latency
of an authenticated insert of 100 KB over HTTP stay within twice the values of an idle server.

Method
- Each measurement has a new server on a copy of the same database, with one user, on the ports HTTP, gRPC, MongoDB and
  PostgreSQL.
- Measurements of an idle server and of a server under one hostile kind alternate, because other load on the machine changes
  over time. The baseline of a kind is the idle measurement before it and the one after it, over all repetitions.
- The hostile clients run in a second process. They open all connections before the first timed insert and hold them until
  the last. A connection that the server closes is not opened again.
- "RSS" is VmRSS with all connections open, before the timed inserts; "peak" is VmHWM after them. With several repetitions, the
  highest value counts for the hostile server and the mean for the idle one. "KiB/conn" is the difference of RSS per connection.
  A debug build has a larger RSS when idle than a release build, and so smaller ratios.
- "open" is the number of connections that the server had not closed after the last timed insert, and "failed" the number of
  inserts with another status than 200, followed by these statuses: both summed over the repetitions.

Linux only, because memory is read from /proc. The exit code does not depend on the ratios.
"""

import argparse
import base64
import http.client
import json
import math
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

PORTS = ("http", "grpc", "mongo", "postgres")
USER, PASSWORD = "bench", "a long password for a benchmark"
AUTHORIZATION = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
EVENTS_PATH = "/v1/stores/default/events"

#: Characters of the payload of one event.
PAYLOAD_CHARS = 100_000
#: Untimed inserts before anything is measured.
WARM_UP_INSERTS = 10
#: Pause between opening the connections and reading memory, seconds.
SETTLE_SECONDS = 1.0
#: Interval between two bytes of a slow client, seconds.
SLOW_INTERVAL_SECONDS = 1.0
#: Limit for the start and the stop of a server, for a connection, and for one insert, seconds.
TIMEOUT_SECONDS = 60
#: Largest accepted ratio to the idle server.
RATIO_MAX = 2.0

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HTTP2_DATA, HTTP2_HEADERS, HTTP2_SETTINGS, HTTP2_PING = 0, 1, 4, 6
HTTP2_ACK, HTTP2_END_HEADERS = 1, 4


# Messages of hostile clients


def http2_frame(kind, flags, stream, payload=b""):
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def http2_grpc_call():
    """Opens a connection and stream 1, which appends events, without credentials (RFC 9113, RFC 7541)."""

    def text(value):
        return bytes([len(value)]) + value

    headers = b"\x83\x86"  # :method POST, :scheme http
    headers += b"\x04" + text(b"/ropewalk.events.v1.Events/Append")
    headers += b"\x01" + text(b"localhost")
    headers += b"\x0f\x10" + text(b"application/grpc")
    headers += b"\x00" + text(b"te") + text(b"trailers")
    opening = PREFACE + http2_frame(HTTP2_SETTINGS, 0, 0) + http2_frame(HTTP2_HEADERS, HTTP2_END_HEADERS, 1, headers)
    # A message of 16 MB is announced, none of which has arrived.
    return opening + http2_frame(HTTP2_DATA, 0, 1, struct.pack("!BI", 0, 16_000_000))


def http_half_request(authorization=None):
    lines = [f"POST {EVENTS_PATH} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    if authorization:
        lines.append(f"Authorization: {authorization}")
    lines.append("Content-Length: 16000000")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + b'{"events":'


def mongo_half_message(length):
    """The first 25 bytes of an OP_MSG of `length` bytes: header, flags, kind of the section, length of its document."""
    return struct.pack("<iiiiIBi", length, 1, 0, 2013, 0, 0, length - 21)


def postgres_startup():
    body = struct.pack("!i", 3 << 16) + f"user\0{USER}\0database\0ropewalk\0\0".encode()
    return struct.pack("!i", len(body) + 4) + body


def postgres_half_password(length):
    return b"p" + struct.pack("!i", length) + b"SCRAM"


@dataclass
class Client:
    """A hostile client: sends `first`, waits for bytes of the server before `second`, then sends `slow` at intervals."""

    port: str
    first: bytes = b""
    second: bytes = b""
    slow: bytes = b""


def silent(port):
    return Client(port)


HTTP_HALF = Client("http", http_half_request(AUTHORIZATION))
GRPC_SLOW = Client("grpc", http2_grpc_call(), slow=http2_frame(HTTP2_DATA, 0, 1, b"\0"))
MONGO_SMALL = Client("mongo", mongo_half_message(60_000))
POSTGRES_SMALL = Client("postgres", postgres_startup(), postgres_half_password(8_000))

#: Name and clients of each kind; a kind opens `--connections` for each of its clients.
KINDS = [
    *[("silent", [silent(port)]) for port in PORTS],
    ("half request, 16 MB, no credentials", [Client("http", http_half_request())]),
    ("half request, 16 MB, credentials", [HTTP_HALF]),
    ("25 bytes of a 48 MB message", [Client("mongo", mongo_half_message(48_000_000))]),
    ("25 bytes of a 60 KB message", [MONGO_SMALL]),
    ("password of 16 MiB, 5 bytes sent", [Client("postgres", postgres_startup(), postgres_half_password(16 << 20))]),
    ("password of 8 KB, 5 bytes sent", [POSTGRES_SMALL]),
    ("HTTP/2 preface, then silence", [Client("http", PREFACE)]),
    ("HTTP/2 preface, then silence", [Client("grpc", PREFACE)]),
    ("call without credentials, slow DATA", [GRPC_SLOW]),
    ("silent", [silent(port) for port in PORTS]),
    ("half requests and slow DATA", [HTTP_HALF, GRPC_SLOW, MONGO_SMALL, POSTGRES_SMALL]),
]


# The process of the hostile clients


class Connection:
    def __init__(self, client, address):
        self.client = client
        self.input = b""
        self.is_open = True
        try:
            self.socket = socket.create_connection(address, timeout=TIMEOUT_SECONDS)
        except OSError:
            self.socket, self.is_open = None, False
            return
        self.send(client.first)

    def send(self, data):
        if not self.is_open or not data:
            return
        try:
            self.socket.sendall(data)
        except BlockingIOError:
            pass  # the server reads nothing; a slow client waits for the next interval
        except OSError:
            self.is_open = False

    def send_second(self):
        if self.is_open and self.client.second:
            try:
                self.is_open = bool(self.socket.recv(4096))
            except OSError:
                self.is_open = False
            self.send(self.client.second)
        if self.is_open:
            self.socket.setblocking(False)

    def receive(self):
        """Reads everything that has arrived, and notices whether the server has closed the connection."""
        while self.is_open:
            try:
                data = self.socket.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self.is_open = bool(data)
            self.input += data if self.client.slow else b""

    def answer_pings(self):
        """Acknowledges the pings of HTTP/2, so that the server considers the client alive."""
        while len(self.input) >= 9:
            end = 9 + int.from_bytes(self.input[:3], "big")
            if len(self.input) < end:
                return
            kind, flags, payload = self.input[3], self.input[4], self.input[9:end]
            self.input = self.input[end:]
            if kind == HTTP2_PING and not flags & HTTP2_ACK:
                self.send(http2_frame(HTTP2_PING, HTTP2_ACK, 0, payload))

    def continue_slowly(self):
        self.receive()
        self.answer_pings()
        self.send(self.client.slow)


def run_clients(clients, addresses, count, pipe):
    """Opens the connections, reports that, holds them until a line comes, and reports how many are open."""
    connections = [Connection(client, addresses[client.port]) for client in clients for _ in range(count)]
    for connection in connections:
        connection.send_second()
    pipe.send(len(connections))
    slow = [connection for connection in connections if connection.client.slow]
    due = time.monotonic()
    while True:
        for connection in slow:
            if pipe.poll():
                break
            # Sends are spread over the interval.
            due += SLOW_INTERVAL_SECONDS / len(slow)
            time.sleep(max(0.0, due - time.monotonic()))
            connection.continue_slowly()
        if pipe.poll(None if not slow else 0):
            break
    for connection in connections:
        connection.receive()
    pipe.send(sum(connection.is_open for connection in connections))


# The server


class Server:
    """`ropewalk serve` on a copy of the database `template`, on free ports."""

    def __init__(self, binary, template, directory):
        self.directory = Path(directory)
        database, ready = self.directory / "db", self.directory / "ready.json"
        shutil.copytree(template, database)
        self.log = open(self.directory / "log", "w+")
        command = [binary, "serve", str(database), "--ready-file", str(ready)]
        for port in PORTS:
            command += [f"--{port}-listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        end = time.monotonic() + TIMEOUT_SECONDS
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"the server does not start: {(self.directory / 'log').read_text()}")
            time.sleep(0.01)
        self.addresses = {}
        for listener in json.loads(ready.read_text())["listening"]:
            if listener["protocol"] in PORTS:
                host, port = listener["address"].rsplit(":", 1)
                self.addresses[listener["protocol"]] = (host, int(port))

    def memory_mib(self, name):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return int(value.split()[0]) / 1024
        raise RuntimeError(f"/proc has no {name}")

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=TIMEOUT_SECONDS)
        self.log.close()


def make_template(binary, directory):
    database = Path(directory) / "template"
    at = [binary, "--at", str(database)]
    subprocess.run([*at, "init"], check=True, stdout=subprocess.DEVNULL)
    add = [*at, "user", "add", USER, "--role", "admin"]
    subprocess.run(add, check=True, stdout=subprocess.DEVNULL, input=PASSWORD, text=True)
    return database


# Measurements


@dataclass
class Sample:
    """What was measured, over one or more measurements."""

    rss_mib: list = field(default_factory=list)
    peak_mib: list = field(default_factory=list)
    millis: list = field(default_factory=list)
    failed: dict = field(default_factory=dict)
    still_open: int = 0
    opened: int = 0

    def add(self, other):
        self.rss_mib += other.rss_mib
        self.peak_mib += other.peak_mib
        self.millis += other.millis
        self.still_open += other.still_open
        self.opened += other.opened
        for status, count in other.failed.items():
            self.failed[status] = self.failed.get(status, 0) + count

    def median(self):
        return statistics.median(self.millis)

    def p95(self):
        return sorted(self.millis)[math.ceil(0.95 * len(self.millis)) - 1]


def insert(connection, body):
    """Appends one event; returns milliseconds, and the status or the name of an error."""
    headers = {"Content-Type": "application/json", "Authorization": AUTHORIZATION}
    begin = time.perf_counter()
    try:
        connection.request("POST", EVENTS_PATH, body, headers)
        response = connection.getresponse()
        response.read()
        status = response.status
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        status = type(error).__name__
    return 1000 * (time.perf_counter() - begin), status


def measure(binary, template, clients, count, inserts):
    """Measures one server; without clients, an idle one."""
    payload = base64.b64encode(os.urandom(PAYLOAD_CHARS * 3 // 4)).decode()
    body = json.dumps({"events": [{"type": "Measured", "tags": ["bench:hostile"], "data": payload}]}).encode()
    sample = Sample()
    with tempfile.TemporaryDirectory(prefix="ropewalk-hostile-") as directory:
        server = Server(binary, template, directory)
        hostile = None
        try:
            connection = http.client.HTTPConnection(*server.addresses["http"], timeout=TIMEOUT_SECONDS)
            for _ in range(WARM_UP_INSERTS):
                _, status = insert(connection, body)
                if status != 200:
                    raise RuntimeError(f"an insert into an idle server failed: {status}")
            if clients:
                pipe, theirs = multiprocessing.Pipe()
                arguments = (clients, server.addresses, count, theirs)
                hostile = multiprocessing.Process(target=run_clients, args=arguments, daemon=True)
                hostile.start()
                theirs.close()
                sample.opened = pipe.recv()
            time.sleep(SETTLE_SECONDS)
            sample.rss_mib.append(server.memory_mib("VmRSS"))
            for _ in range(inserts):
                millis, status = insert(connection, body)
                sample.millis.append(millis)
                if status != 200:
                    sample.failed[status] = sample.failed.get(status, 0) + 1
            sample.peak_mib.append(server.memory_mib("VmHWM"))
            if hostile:
                pipe.send("count")
                sample.still_open = pipe.recv()
            connection.close()
        finally:
            if hostile:
                hostile.terminate()
                hostile.join()
            server.stop()
    return sample


def raise_file_limit(wanted):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        sys.exit(f"{wanted} open files are needed; the hard limit is {hard}")
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def print_table(rows):
    head = ["kind", "port", "open", "RSS MiB", "ratio", "KiB/conn", "peak MiB", "ratio"]
    head += ["median ms", "ratio", "p95 ms", "ratio", "failed"]
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        cells = [cell.ljust(width) if at < 2 else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, help="the program ropewalk")
    parser.add_argument("--connections", type=int, default=1000, help="hostile connections per port (default: 1000)")
    parser.add_argument("--inserts", type=int, default=100, help="timed inserts per measurement (default: 100)")
    parser.add_argument("--repeat", type=int, default=2, help="measurements of each kind (default: 2)")
    parser.add_argument("--kind", default="", help="only kinds whose name or port contains this text")
    options = parser.parse_args()
    binary = str(Path(options.binary).resolve())
    def ports(clients):
        return "all" if len(clients) > 1 else clients[0].port

    kinds = [kind for kind in KINDS if options.kind in kind[0] or options.kind == ports(kind[1])]
    if not kinds:
        sys.exit(f"no kind contains {options.kind!r}")
    # The server inherits the limit; each of the two processes has one descriptor per connection.
    raise_file_limit(max(len(clients) for _, clients in kinds) * options.connections + 256)
    results = [(Sample(), Sample()) for _ in kinds]
    all_idle = Sample()
    with tempfile.TemporaryDirectory(prefix="ropewalk-hostile-") as directory:
        template = make_template(binary, directory)

        def run(clients, name):
            sample = measure(binary, template, clients, options.connections, options.inserts)
            memory = f"RSS {sample.rss_mib[0]:.1f} MiB, peak {sample.peak_mib[0]:.1f} MiB"
            print(f"{name}: {memory}, median {sample.median():.1f} ms", file=sys.stderr, flush=True)
            return sample

        for _ in range(options.repeat):
            idle = run([], "idle")
            all_idle.add(idle)
            for (name, clients), (hostile, baseline) in zip(kinds, results):
                baseline.add(idle)
                hostile.add(run(clients, f"{name}, {ports(clients)}"))
                idle = run([], "idle")
                all_idle.add(idle)
                baseline.add(idle)

    mean = statistics.mean
    idle_cells = [f"{mean(all_idle.rss_mib):.1f}", "", "", f"{mean(all_idle.peak_mib):.1f}", ""]
    idle_cells += [f"{all_idle.median():.1f}", "", f"{all_idle.p95():.1f}", ""]
    rows = [["idle", "", "", *idle_cells, str(sum(all_idle.failed.values()))]]
    above = []
    for (name, clients), (hostile, baseline) in zip(kinds, results):
        measured = [
            ("RSS", max(hostile.rss_mib), mean(baseline.rss_mib)),
            ("peak", max(hostile.peak_mib), mean(baseline.peak_mib)),
            ("median", hostile.median(), baseline.median()),
            ("p95", hostile.p95(), baseline.p95()),
        ]
        cells = []
        for what, value, base in measured:
            cells += [f"{value:.1f}", f"{value / base:.2f}"]
            if what == "RSS":
                opened = len(clients) * options.connections
                cells.append(f"{1024 * (value - base) / opened:.1f}")
            # A 95th percentile depends too much on other load to decide; it is printed only.
            if what != "p95" and value / base > RATIO_MAX:
                above.append(f"{name} ({ports(clients)}): {what}")
        failed = " ".join([str(sum(hostile.failed.values())), *map(str, hostile.failed)])
        rows.append([name, ports(clients), f"{hostile.still_open}/{hostile.opened}", *cells, failed])
    print_table(rows)
    verdict = "yes" if not above else "no: " + ", ".join(above)
    print(f"all ratios of RSS, peak and median <= {RATIO_MAX:g}: {verdict}")


if __name__ == "__main__":
    main()
