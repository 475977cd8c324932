"""A cluster of three nodes: faults lose nothing that was acknowledged, all nodes become equal, and drivers find the leader by
themselves."""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import faults  # noqa: E402
import postgres_log  # noqa: E402
import sites  # noqa: E402
import trouble  # noqa: E402
from load import Outcome  # noqa: E402
from nats_log import nats_server  # noqa: E402
from nodes import Cluster  # noqa: E402
from processes import until  # noqa: E402
from servers import binary  # noqa: E402

needs_nats = unittest.skipUnless(nats_server(), "there is no nats-server: set ROPEWALK_NATS_SERVER to its path")


class Faults(unittest.TestCase):
    """A short form of `run.py`."""

    def assert_nothing_is_lost(self, *chosen, **options):
        missing = sites.unavailable()
        possible = [fault for fault in chosen if fault.kind not in missing]
        report = trouble.run(binary(), possible, 0.5, longest=2, **options)
        print(report)
        self.assertTrue(report.is_good(), report)
        self.assertGreater(report.counts[Outcome.ACKNOWLEDGED], 100)
        self.assertGreater(report.read_back, 0)
        self.assertGreater(report.operations["read"], 100)
        for reason in [*(missing.get(kind) for kind in {fault.kind for fault in chosen}), report.unchecked]:
            with self.subTest(reason):
                if reason:
                    self.skipTest(reason)

    @needs_nats
    def test_nothing_is_lost_and_histories_are_linearizable(self):
        self.assert_nothing_is_lost(
            faults.kill_leader,
            faults.cut_leader_from_log,
            faults.power_cut_of_leader,
            faults.halt_leader,
            faults.drop_from_log_to_leader,
            faults.kill_log_server,
            faults.power_cut_of_all,
        )

    @unittest.skipIf(postgres_log.unavailable(), postgres_log.unavailable())
    def test_nothing_is_lost_with_the_log_in_postgresql(self):
        service = postgres_log.Postgres
        self.assert_nothing_is_lost(faults.kill_leader, faults.kill_log_server, faults.promote_standby, service=service)


@needs_nats
class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(binary())
        cls.addClassCleanup(cls.cluster.close)

    def fail_over(self):
        """Kills the leader, and starts it again when another node leads."""
        leader = self.cluster.leader()
        leader.kill()
        self.cluster.leader()
        self.cluster.restart(leader)

    def test_status_of_each_node(self):
        leader = self.cluster.leader()
        for node in self.cluster.nodes:
            status = node.status()
            self.assertEqual(status["role"], "leader" if node is leader else "follower")
            self.assertIn(f"http://127.0.0.1:{leader.http}", status["leader"])
            self.assertEqual(len(status["members"]), 3)
            self.assertEqual(node.ask("GET", "/ready")[0], 200)

    def test_writes_at_a_follower_reach_the_leader(self):
        follower = self.cluster.followers()[0]
        event = {"events": [{"type": "A"}]}
        status, headers, answer = follower.ask("POST", "/v1/stores/forwarded/events", event)
        self.assertEqual((status, answer["first"]), (200, 1), answer)
        count = follower.ask("GET", "/v1/stores/forwarded/events:count", None, {"ropewalk-seq": headers["ropewalk-seq"]})
        self.assertEqual(count[2], {"count": 1})
        leader = self.cluster.leader()
        status, headers, _ = follower.ask("POST", "/v1/stores/forwarded/events", event, {"prefer": "redirect"})
        self.assertEqual((status, headers["location"]), (307, f"http://127.0.0.1:{leader.http}/v1/stores/forwarded/events"))

    def test_postgresql_drivers_find_the_leader_and_standbys(self):
        import psycopg

        ports = ",".join(str(node.postgres) for node in self.cluster.nodes)
        hosts = ",".join(["127.0.0.1"] * len(self.cluster.nodes))

        def connect(kind):
            place = f"host={hosts} port={ports} user=ann dbname=ropewalk connect_timeout=5"
            return psycopg.connect(f"{place} target_session_attrs={kind}", autocommit=True)

        with connect("read-write") as leader, connect("standby") as standby:
            self.assertEqual(leader.execute("SELECT pg_is_in_recovery()").fetchone(), (False,))
            self.assertEqual(standby.execute("SELECT pg_is_in_recovery()").fetchone(), (True,))
            leader.execute("CREATE TABLE drivers (id int PRIMARY KEY)")
            with self.assertRaises(psycopg.errors.ReadOnlySqlTransaction):
                standby.execute("CREATE TABLE other (id int PRIMARY KEY)")
        self.fail_over()

        def write():
            try:
                with connect("primary") as leader:
                    return leader.execute("INSERT INTO drivers VALUES (1) RETURNING id").fetchone()
            except (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction):
                return None

        self.assertEqual(until("the new leader takes a row", write), (1,))

    def test_mongodb_drivers_find_the_primary_after_a_fail_over(self):
        import pymongo

        hosts = ",".join(f"127.0.0.1:{node.mongo}" for node in self.cluster.nodes)
        url = f"mongodb://{hosts}/?replicaSet=ropewalk&retryWrites=true&serverSelectionTimeoutMS=60000"
        with pymongo.MongoClient(url) as client:
            client.app.c.insert_one({"_id": 1})
            self.assertEqual(client.primary, ("127.0.0.1", self.cluster.leader().mongo))
            until("the driver knows both secondaries", lambda: len(client.secondaries) == 2)
            self.fail_over()
            with client.start_session(causal_consistency=True) as session:
                # Retried by the driver at the new primary.
                client.app.c.insert_one({"_id": 2}, session=session)
                near = client.app.get_collection("c", read_preference=pymongo.ReadPreference.SECONDARY)
                # Waits for the write of the session.
                self.assertEqual(near.count_documents({"_id": 2}, session=session), 1)
            self.assertEqual(client.primary, ("127.0.0.1", self.cluster.leader().mongo))


if __name__ == "__main__":
    unittest.main()
