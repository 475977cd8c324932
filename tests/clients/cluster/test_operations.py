"""Commands of operators on a cluster of three nodes over three servers of NATS: checkpoints, moving the leadership, removing a
node, and continuing after the loss of the shared log and of everything."""

import shutil
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from operated import Operated, command  # noqa: E402
from processes import until  # noqa: E402

#: Exit codes of the command line.
NOT_FOUND, CONFLICT, BUSY = 3, 4, 5
#: Seconds without a report after which a node may be removed, and some.
SILENCE = 8


class Operations(Operated):
    def setUp(self):
        super().setUp()
        self.store = self.cluster.place / "checkpoints"

    def stop_all(self):
        """Stops the followers before the leader, which then has every commit. Returns the leader and the followers."""
        leader, followers = self.cluster.leader(), self.cluster.followers()
        for node in [*followers, leader]:
            self.assertEqual(node.stop(), 0, self.cluster.logs())
        return leader, followers

    def start_on(self, url, nodes):
        for node in nodes:
            node.move_to(url)
            node.start()
        for node in nodes:
            until(f"{node.name} serves", node.serves)

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
        rows = self.succeed("cluster", "status", "--at", self.cluster.leader().url)
        self.assertTrue(all(row["checkpoint"] and row.get("problem") is None for row in rows), rows)

    def test_leader_steps_down(self):
        self.append()
        leader, other = self.cluster.leader(), self.cluster.followers()[0]
        term = leader.status()["term"]
        code, _, messages = command("cluster", "step-down", "--at", other.url)
        self.assertEqual(code, BUSY, messages)
        self.assertIn(leader.url, messages)
        [row] = self.succeed("cluster", "step-down", "--at", leader.url)
        self.assertEqual((row["ended_term"], row["term"] > term), (term, True), row)
        self.assertNotEqual(row["leader"], leader.url, row)
        self.assertEqual(self.cluster.leader().url, row["leader"])
        self.append(1)
        for node in self.cluster.nodes:
            self.assertEqual(self.count(node), 11)
        until("it follows", lambda: (leader.status() or {}).get("role") == "follower")

    def test_contents_of_all_nodes_are_compared(self):
        self.append(100)
        leader, other = self.cluster.leader(), self.cluster.followers()[0]
        [row] = self.succeed("cluster", "check", "--at", other.url)
        self.assertTrue(row["bytes"] > 0 and row["commit"] > 0 and not row.get("differing"), row)
        until("the contents were compared", lambda: leader.status()["contents"]["checks"] >= 1)
        self.append(1)
        for node in self.cluster.nodes:
            self.assertEqual(self.count(node), 101)

    def test_effects_of_all_nodes_are_compared(self):
        # A statement at the first multiple of 1024 commits names where the sums begin; the second one compares.
        leader, body = self.cluster.leader(), {"events": [{"type": "A"}]}

        def append(_):
            status, _, answer = leader.ask("POST", "/v1/stores/shop/events", body)
            self.assertEqual(status, 200, answer)

        def compared():
            list(clients.map(append, range(200)))
            return all(node.status()["contents"]["equal_seq"] >= 2048 for node in self.cluster.nodes)

        with ThreadPoolExecutor(8) as clients:
            until("the effects were compared", compared)
        self.assertFalse(any(node.status()["contents"]["differing"] for node in self.cluster.nodes))

    def test_node_is_removed_when_it_does_not_run(self):
        leader, gone = self.cluster.leader(), self.cluster.followers()[0]
        name = gone.status()["node"]
        until("it has reported", lambda: list(self.store.glob(f"nodes/{name}-*")))
        code, _, messages = command("cluster", "remove", name, "--at", leader.url)
        self.assertEqual(code, BUSY, messages)
        gone.kill()
        time.sleep(SILENCE)
        [row] = self.succeed("cluster", "remove", name, "--at", leader.url)
        self.assertEqual((row["node"], row["reports"] > 0), (name, True), row)
        self.assertEqual(len(leader.status()["members"]), 2)
        self.assertEqual(list(self.store.glob(f"nodes/{name}-*")), [])
        code, _, messages = command("cluster", "remove", name, "--at", leader.url)
        self.assertEqual(code, NOT_FOUND, messages)
        # The shared log is no longer kept for it.
        shutil.rmtree(gone.directory)
        self.cluster.restart(gone)
        until("it has joined again", lambda: len(leader.status()["members"]) == 3)

    def test_lost_log_is_made_again_from_the_nodes(self):
        self.append()
        leader, (one, other) = self.stop_all()
        url = self.cluster.log.url.replace("/ropewalk", "/second")
        log = ["--cluster", url, "--cluster-checkpoints", self.store]
        [made] = self.succeed("cluster", "reseed", "--from", one.directory, "--from", leader.directory, *log)
        self.assertIsNone(made.get("lost"), made)
        self.assertGreaterEqual(made["commit"], int(self.seq))
        code, _, messages = command("cluster", "reseed", "--from", leader.directory, *log)
        self.assertEqual(code, CONFLICT, messages)
        self.succeed("cluster", "adopt", "--at", other.directory, "--cluster", url)
        self.start_on(url, self.cluster.nodes)
        self.append(1)
        for node in self.cluster.nodes:
            self.assertEqual(self.count(node), 11)

    def test_cluster_continues_from_its_checkpoints_alone(self):
        self.append()
        self.until_checkpoint()
        for node in self.cluster.nodes:
            node.kill()
            shutil.rmtree(node.directory)
        first, *others = self.cluster.nodes
        url = self.cluster.log.url.replace("/ropewalk", "/third")
        [restored] = self.succeed("cluster", "restore", "--at", first.directory, "--cluster-checkpoints", self.store)
        self.assertGreaterEqual(restored["commit"], int(self.seq))
        self.succeed("cluster", "reseed", "--from", first.directory, "--cluster", url, "--cluster-checkpoints", self.store)
        self.start_on(url, [first])
        self.append(1)
        self.until_checkpoint()
        self.start_on(url, others)
        for node in self.cluster.nodes:
            self.assertEqual(self.count(node), 11)

    def test_database_enters_a_cluster_and_leaves_it(self):
        self.stop_all()
        first, second, _ = self.cluster.nodes
        for node in self.cluster.nodes:
            shutil.rmtree(node.directory)
        shutil.rmtree(self.store)
        self.succeed("init", "--at", first.directory)
        self.succeed("append", "--type", "A", "--store", "shop", "--at", first.directory)
        url = self.cluster.log.url.replace("/ropewalk", "/fourth")
        self.succeed("cluster", "init", "--from", first.directory, "--cluster", url)
        self.start_on(url, [first, second])
        self.append(1)
        self.assertEqual(self.count(second), 2)
        for node in (second, first):
            self.assertEqual(node.stop(), 0, self.cluster.logs())
        code, _, messages = command("count", "--store", "shop", "--at", first.directory)
        self.assertNotEqual(code, 0, messages)
        self.succeed("cluster", "leave", "--at", first.directory)
        self.assertEqual(self.succeed("count", "--store", "shop", "--at", first.directory), [2])


if __name__ == "__main__":
    unittest.main()
