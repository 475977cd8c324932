"""A cluster over NATS with checkpoints, as an operator uses it; the base of tests."""

import json
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from nats_log import nats_server  # noqa: E402
from nodes import Cluster  # noqa: E402
from processes import PATIENCE, until  # noqa: E402
from servers import binary  # noqa: E402


def command(*arguments):
    """Runs `ropewalk`: exit code, rows, and the messages."""
    run = subprocess.run([binary(), *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)
    return run.returncode, [json.loads(line) for line in run.stdout.splitlines()], run.stderr


@unittest.skipUnless(nats_server(), "there is no nats-server: set ROPEWALK_NATS_SERVER to its path")
class Operated(unittest.TestCase):
    #: The setting `cluster.checkpoints`; `{place}` is a directory that all nodes reach.
    checkpoints = "{place}/checkpoints"

    def setUp(self):
        self.cluster = Cluster(binary(), options=["--cluster-checkpoints", self.checkpoints, "--cluster-checkpoint-interval", "1s"])
        self.addCleanup(self.cluster.close)
        #: The commit of the newest event.
        self.seq = None

    def succeed(self, *arguments):
        code, rows, messages = command(*arguments)
        self.assertEqual(code, 0, f"{arguments}: {messages}\n{self.cluster.logs()}")
        return rows

    def append(self, events=10):
        """Appends events at the leader."""

        def once():
            body = {"events": [{"type": "A"}]}
            status, headers, answer = self.cluster.leader().ask("POST", "/v1/stores/shop/events", body)
            if status == 503:
                return None
            self.assertEqual(status, 200, answer)
            return headers["ropewalk-seq"]

        for _ in range(events):
            self.seq = until("the leader takes an event", once)

    def count(self, node):
        headers = {"ropewalk-seq": self.seq}
        status, _, answer = node.ask("GET", "/v1/stores/shop/events:count", None, headers)
        self.assertEqual(status, 200, answer)
        return answer["count"]

    def newest_checkpoint(self):
        """Number of the newest checkpoint that the leader knows; 0 for none."""
        return ((self.cluster.leader().status() or {}).get("checkpoints") or {}).get("number", 0)

    def until_checkpoint(self):
        """Waits until a checkpoint was begun and made after the newest event: the next one may be under way already."""
        number = self.newest_checkpoint()
        until("two checkpoints", lambda: self.newest_checkpoint() > number + 1)
