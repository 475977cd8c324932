"""A real Prometheus beside our server: finding it, starting it, feeding it, asking both."""

import json
import math
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

#: Longest wait for a server or for samples on their way, seconds; only to end a hang.
PATIENCE = 120
#: How far two values may be apart, relative to them: sums are built in another order.
TOLERANCE = 1e-6


def installed(name):
    """Path of `prometheus` or `promtool`; where they lie is told by run.py."""
    return str(Path(os.environ["PROMETHEUS"]) / name)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Prometheus:
    """A Prometheus on a directory of its own."""

    def __init__(self, config, options=()):
        self._directory = tempfile.TemporaryDirectory(prefix="prometheus-clients-")
        self._place = Path(self._directory.name)
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = open(self._place / "log", "w+")
        self._write(config)
        command = [installed("prometheus"), "--config.file", self._place / "prometheus.yml"]
        command += ["--storage.tsdb.path", self._place / "data", "--storage.tsdb.retention.time", "10y"]
        command += ["--web.enable-remote-write-receiver", "--log.level", "warn"]
        command += ["--web.listen-address", self.url.removeprefix("http://"), *options]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        wait(lambda: status(f"{self.url}/-/ready") == 200, "Prometheus does not start", self.said)

    def said(self):
        self._log.seek(0)
        return self._log.read()

    def _write(self, config):
        # Every YAML parser reads JSON.
        (self._place / "prometheus.yml").write_text(json.dumps(config))

    def configure(self, config):
        """Goes on with another configuration."""
        loaded = "prometheus_config_last_reload_success_timestamp_seconds"
        before = self.metric(loaded)
        self._write(config)
        time.sleep(1.1)  # the time of the last one is in whole seconds
        self._process.send_signal(signal.SIGHUP)
        wait(lambda: self.metric(loaded) > before, "the configuration is not loaded", self.said)

    def metric(self, name):
        """Sum of one of its own metrics."""
        lines = get(f"{self.url}/metrics")[1].decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    def stop(self):
        self._process.terminate()
        self._process.wait(timeout=PATIENCE)
        self._log.close()
        self._directory.cleanup()


def wait(happened, otherwise, more=lambda: ""):
    end = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > end:
            raise AssertionError(f"{otherwise}: {more()}")
        time.sleep(0.05)


def get(url, data=None, headers=None):
    """Status and body."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers or {}), timeout=PATIENCE) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def status(url):
    try:
        return get(url)[0]
    except OSError:
        return None


def ask(url, path, **parameters):
    """The answer of the API to a POST."""
    code, body = get(f"{url}/api/v1/{path}", urllib.parse.urlencode(parameters, doseq=True).encode())
    return code, json.loads(body)


# ---- remote write 1.0, enough of it to feed ----


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def snappy(raw):
    """The block format, of literals alone."""
    out = bytearray(varint(len(raw)))
    for at in range(0, len(raw), 65536):
        piece = raw[at : at + 65536]
        out += bytes([61 << 2]) + struct.pack("<H", len(piece) - 1) + piece
    return bytes(out)


def write_request(series):
    """`series`: pairs of labels and (time in ms, value)."""
    raw = bytearray()
    for labels, samples in series:
        one = b"".join(
            field(1, field(1, name.encode()) + field(2, value.encode())) for name, value in sorted(labels.items())
        )
        for time_ms, value in samples:
            one += field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + varint(time_ms))
        raw += field(1, one)
    return snappy(bytes(raw))


def push(url, series):
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
    headers["X-Prometheus-Remote-Write-Version"] = "0.1.0"
    code, body = get(f"{url}/api/v1/write", write_request(series), headers)
    assert code in (200, 204), (code, body)


class Targets:
    """Pages to scrape: `page(path)` gives the text."""

    def __init__(self, page):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                text = page(self.path).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


# ---- comparing ----


def close(a, b):
    a, b = float(a), float(b)
    if a == b or (math.isnan(a) and math.isnan(b)):
        return True
    # Logarithms differ in their last bit, which is what is left when two of them are subtracted.
    return abs(a - b) <= max(TOLERANCE * max(abs(a), abs(b)), 1e-15)


def flat(answer):
    """What an answer says, in a form that does not depend on the order of its rows."""
    if answer["status"] != "success":
        return answer["errorType"], {}
    kind, result = answer["data"]["resultType"], answer["data"]["result"]
    if kind in ("scalar", "string"):
        return kind, {(): [result]}
    rows = {}
    for row in result:
        key = tuple(sorted(row["metric"].items()))
        points = row.get("values", [row["value"]] if "value" in row else [])
        rows[key] = points
    return kind, rows


def difference(ours, theirs):
    """What differs between two answers, as text; `None` if nothing does."""
    (kind, mine), (other_kind, others) = flat(ours), flat(theirs)
    if kind != other_kind:
        return f"{kind} {ours.get('error', '')} instead of {other_kind} {theirs.get('error', '')}"
    if mine.keys() != others.keys():
        more, less = sorted(mine.keys() - others.keys())[:3], sorted(others.keys() - mine.keys())[:3]
        return f"{len(mine)} series instead of {len(others)}; too many: {more}; missing: {less}"
    for key, points in mine.items():
        theirs_points = others[key]
        if [point[0] for point in points] != [point[0] for point in theirs_points]:
            return f"{key} has other times: {points[:3]} instead of {theirs_points[:3]}"
        for point, other in zip(points, theirs_points):
            if not close(point[1], other[1]):
                return f"{key} at {point[0]}: {point[1]} instead of {other[1]}"
    return None
