"""Checkpoints of a cluster in a bucket, on moto's server of S3."""

import http.client
import http.server
import os
import shutil
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from operated import Operated, command  # noqa: E402
from processes import Process, free_ports, until  # noqa: E402

MOTO = Path(sys.executable).parent / "moto_server"
#: Exit code of the command line.
INVALID = 2


def environment(port):
    """Variables by which a program reaches a service on this machine."""
    return {
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    }


def ask(port, method, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@unittest.skipUnless(MOTO.exists(), "there is no moto_server: install tests/clients/requirements.txt")
class InBucket(Operated):
    checkpoints = "s3://checkpoints/of/shop"

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        [self.port] = free_ports(1)
        service = Process([MOTO, "-H", "127.0.0.1", "-p", str(self.port)], Path(place.name) / "moto.log")
        service.start()
        self.addCleanup(service.kill)
        until("the service makes a bucket", self.makes_bucket)
        variables = mock.patch.dict(os.environ, environment(self.port))
        variables.start()
        self.addCleanup(variables.stop)
        super().setUp()

    def makes_bucket(self):
        try:
            return ask(self.port, "PUT", "/checkpoints")[0] == 200
        except OSError:
            return False

    def test_node_that_lost_its_disk_begins_with_a_checkpoint(self):
        self.append()
        self.until_checkpoint()
        lost = self.cluster.followers()[0]
        lost.kill()
        shutil.rmtree(lost.directory)
        self.cluster.restart(lost)
        self.assertIn("the node begins with a checkpoint", lost.log())
        self.append(1)
        self.assertEqual(self.count(lost), 11)
        keys = ask(self.port, "GET", "/checkpoints?list-type=2&prefix=of/shop/")[1]
        self.assertIn("<Key>of/shop/", keys)
        self.assertNotIn("<Key>of/shop/checks/", keys)

    def test_database_is_restored_from_the_bucket(self):
        self.append()
        self.until_checkpoint()
        for node in self.cluster.nodes:
            node.kill()
        copy = self.cluster.place / "copy"
        [restored] = self.succeed("cluster", "restore", "--at", copy, "--cluster-checkpoints", self.checkpoints)
        self.assertGreaterEqual(restored["commit"], int(self.seq))
        self.succeed("cluster", "leave", "--at", copy)
        self.assertEqual(self.succeed("count", "--store", "shop", "--at", copy), [10])


class Careless(http.server.BaseHTTPRequestHandler):
    """A service that stores what it gets, whatever the condition."""

    def answer(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(204 if self.command == "DELETE" else 200)
        self.send_header("etag", '"1"')
        self.send_header("content-length", "0")
        self.end_headers()

    do_PUT = do_DELETE = answer

    def log_message(self, *_):
        pass


class Refusals(unittest.TestCase):
    def restore(self, port):
        with tempfile.TemporaryDirectory() as place, mock.patch.dict(os.environ, environment(port)):
            return command("cluster", "restore", "--at", Path(place) / "copy", "--cluster-checkpoints", "s3://bucket/x")

    def test_service_that_ignores_the_condition_is_refused(self):
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Careless) as service:
            threading.Thread(target=service.serve_forever).start()
            self.addCleanup(service.shutdown)
            code, _, messages = self.restore(service.server_port)
            service.shutdown()
        self.assertEqual(code, INVALID, messages)
        self.assertIn("cluster.checkpoints", messages)
        self.assertIn("replaces an object although If-None-Match: * forbids it", messages)

    def test_service_that_does_not_answer_is_reported(self):
        code, _, messages = self.restore(free_ports(1)[0])
        self.assertEqual(code, INVALID, messages)
        self.assertIn("cluster.checkpoints: create checks/", messages)


if __name__ == "__main__":
    unittest.main()
