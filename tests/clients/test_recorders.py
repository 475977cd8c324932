"""The recorder tests that `eventsourcing` carries, through `eventsourcing-umadb`, a new server for each test."""

import unittest
from uuid import uuid4

import umadb
from eventsourcing.dcb import tests as dcb
from eventsourcing.persistence import AggregateRecorder, ApplicationRecorder
from eventsourcing.tests import persistence as cases
from eventsourcing.utils import Environment
from eventsourcing_umadb import Factory
from eventsourcing_umadb.recorders import (
    UmaDbAggregateRecorder,
    UmaDbApplicationRecorder,
    UmaDbDcbRecorder,
)

from servers import Server, binary


class WithServer(unittest.TestCase):
    """An empty store for each test."""

    def setUp(self):
        self.server = Server(binary())
        self.addCleanup(self.server.stop)
        if hasattr(self, "env"):
            self.env["UMADB_URI"] = self.server.url
        super().setUp()

    def client(self):
        client = umadb.Client(self.server.url)
        self.addCleanup(client.close)
        return client

    def new_originator_id(self):
        return str(uuid4())


class TestDcbRecorder(WithServer, dcb.DcbRecorderTestCase):
    def test_append_read(self):
        self._test_append_read(UmaDbDcbRecorder(self.client()))

    def test_append_subscribe(self):
        self._test_append_subscribe(UmaDbDcbRecorder(self.client()))


class TestStores(unittest.TestCase):
    def test_d1_18_each_store_has_a_port(self):
        with Server(binary(), options=["--grpc-stores", "shop=127.0.0.1:0"]) as server:
            shop, main = umadb.Client(server.stores["shop"]), umadb.Client(server.url)
            self.assertIsNone(shop.head())
            self.assertEqual(shop.append([umadb.Event(event_type="A", data=b"", tags=["t"])]), 1)
            self.assertEqual((shop.head(), main.head()), (1, None))
            self.assertEqual([event.event.event_type for event in shop.read()], ["A"])
            shop.close()
            main.close()


class TestAggregateRecorder(WithServer, cases.AggregateRecorderTestCase):
    recorder_supports_idempotent_appends = True

    def create_recorder(self) -> AggregateRecorder:
        return UmaDbAggregateRecorder(self.client())


class TestApplicationRecorder(WithServer, cases.ApplicationRecorderTestCase):
    recorder_supports_idempotent_appends = True

    def create_recorder(self) -> ApplicationRecorder:
        return UmaDbApplicationRecorder(self.client())

    @unittest.skip(
        "expects a conflict where its events all have the nil UUID, which UmaDB's rules make a retry; "
        "fails alike against the server of UmaDB 0.7.8"
    )
    def test_insert_select(self):
        pass

    def test_insert_subscribe(self):
        self.optional_test_insert_subscribe()

    def close_db_connection(self, *args):
        """There is one connection for all threads."""


class TestNonInterleaving(WithServer, cases.NonInterleavingNotificationIDsBaseCase):
    insert_num = 1000

    def create_recorder(self) -> ApplicationRecorder:
        return UmaDbApplicationRecorder(self.client())


class OwnApplicationRecorder(UmaDbApplicationRecorder):
    """A subclass that the factory is told to make."""


class TestFactory(WithServer, cases.InfrastructureFactoryTestCase):
    def setUp(self):
        self.env = Environment("TestCase")
        self.env["PERSISTENCE_MODULE"] = "eventsourcing_umadb"
        super().setUp()

    def expected_factory_class(self):
        return Factory

    def expected_aggregate_recorder_class(self):
        return UmaDbAggregateRecorder

    def expected_application_recorder_class(self):
        return UmaDbApplicationRecorder

    def application_recorder_subclass(self):
        return OwnApplicationRecorder

    @unittest.skip("eventsourcing-umadb 0.4.4 has no tracking recorder")
    def test_create_tracking_recorder(self):
        pass

    @unittest.skip("eventsourcing-umadb 0.4.4 has no process recorder")
    def test_create_process_recorder(self):
        pass

    def expected_tracking_recorder_class(self):
        raise NotImplementedError

    def tracking_recorder_subclass(self):
        raise NotImplementedError

    def expected_process_recorder_class(self):
        raise NotImplementedError

    def process_recorder_subclass(self):
        raise NotImplementedError

