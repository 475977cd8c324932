"""pymongo as it comes from its project, with its defaults, against `ropewalk serve --mongo-listen`.

What is tested is what an application does.
"""

import datetime
import sys
import threading
import unittest
from pathlib import Path

import bson
import pymongo
from pymongo import ReturnDocument, UpdateOne, InsertOne, DeleteOne
from pymongo.collation import Collation
from pymongo.errors import (
    BulkWriteError, CollectionInvalid, CursorNotFound, DuplicateKeyError, OperationFailure, WriteError,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import Server, binary  # noqa: E402


class Commands(pymongo.monitoring.CommandListener):
    """Notes which commands were sent."""

    def __init__(self):
        self.sent = []

    def started(self, event):
        self.sent.append((event.command_name, dict(event.command)))

    def succeeded(self, event):
        pass

    def failed(self, event):
        pass


class Case(unittest.TestCase):
    """Tests on one server, each with a database of its own."""

    options, user = {}, None

    @classmethod
    def setUpClass(cls):
        cls.server = Server(binary(), user=cls.user, options=["--mongo-listen", "127.0.0.1:0"])
        cls.client = cls.connect()

    @classmethod
    def connect(cls, **options):
        return pymongo.MongoClient(cls.server.mongo, serverSelectionTimeoutMS=10_000, **cls.options, **options)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop()

    def setUp(self):
        self.db = self.client[self._testMethodName[:60]]
        self.c = self.db.things


class Basics(Case):
    def test_it_is_a_replica_set_with_a_primary(self):
        self.client.admin.command("ping")
        self.assertEqual(self.client.topology_description.topology_type_name, "ReplicaSetWithPrimary")
        self.assertIsNotNone(self.client.primary)
        self.assertEqual(self.client.server_info()["versionArray"][:2], [7, 0])

    def test_every_type_comes_back_as_it_went(self):
        document = {
            "_id": bson.ObjectId(), "double": 1.5, "string": "äöü \x00 x", "document": {"b": 1, "a": [1, {"x": None}]},
            "binary": b"\x00\xff", "uuid": bson.Binary(b"1" * 16, 4), "bool": True, "null": None,
            "date": datetime.datetime(2026, 11, 21, 12, 0, 0, 123000), "regex": bson.Regex("^a", "i"),
            "code": bson.Code("f()"), "scope": bson.Code("f()", {"x": 1}), "int32": 2**31 - 1,
            "int64": bson.Int64(2**53 + 1), "timestamp": bson.Timestamp(7, 9), "decimal": bson.Decimal128("1.10"),
            "min": bson.MinKey(), "max": bson.MaxKey(),
        }
        self.c.insert_one(document)
        self.assertEqual(self.c.find_one({"_id": document["_id"]}), document)

    def test_documents_are_made_found_changed_and_deleted(self):
        ids = self.c.insert_many([{"n": n, "tens": n // 10} for n in range(500)]).inserted_ids
        self.assertEqual(len(set(ids)), 500)
        self.assertEqual(self.c.count_documents({}), self.c.estimated_document_count())
        found = list(self.c.find({"n": {"$gte": 100}}, {"_id": 0, "n": 1}, batch_size=70).sort("n", -1))
        self.assertEqual(found, [{"n": n} for n in range(499, 99, -1)])
        self.assertEqual([d["n"] for d in self.c.find().sort("n").skip(10).limit(3)], [10, 11, 12])
        self.assertEqual(self.c.update_many({"tens": 3}, {"$inc": {"n": 1000}}).modified_count, 10)
        self.assertEqual(self.c.update_one({"n": -1}, {"$set": {"a": 1}}, upsert=True).matched_count, 0)
        self.assertEqual(self.c.replace_one({"n": 5}, {"n": 5, "new": True}).modified_count, 1)
        changed = self.c.find_one_and_update({"n": 7}, {"$push": {"l": 1}}, return_document=ReturnDocument.AFTER)
        self.assertEqual(changed["l"], [1])
        self.assertEqual(self.c.find_one_and_delete({"n": 7})["l"], [1])
        self.assertEqual(self.c.delete_many({"tens": {"$gte": 10}}).deleted_count, 400)
        self.assertEqual(self.c.distinct("tens", {"n": {"$lt": 30}}), [0, 1, 2])

    def test_bulk_writes_tell_what_failed(self):
        self.c.insert_one({"_id": 1})
        writes = [InsertOne({"_id": 2}), InsertOne({"_id": 1}), UpdateOne({"_id": 2}, {"$set": {"a": 1}}), DeleteOne({"_id": 9})]
        with self.assertRaises(BulkWriteError) as refused:
            self.c.bulk_write(writes, ordered=False)
        details = refused.exception.details
        self.assertEqual((details["nInserted"], details["nModified"]), (1, 1))
        self.assertEqual((details["writeErrors"][0]["index"], details["writeErrors"][0]["code"]), (1, 11000))
        with self.assertRaises(DuplicateKeyError) as refused:
            self.c.insert_one({"_id": 1})
        self.assertEqual(refused.exception.details["keyValue"], {"_id": 1})

    def test_pipelines(self):
        self.c.insert_many([{"_id": n, "k": n % 3} for n in range(300)])
        self.db.names.insert_many([{"_id": k, "name": str(k)} for k in range(3)])
        got = list(self.c.aggregate([
            {"$group": {"_id": "$k", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}},
            {"$lookup": {"from": "names", "localField": "_id", "foreignField": "_id", "as": "name"}},
            {"$unwind": "$name"}, {"$project": {"n": 1, "name": "$name.name"}},
        ]))
        self.assertEqual(got, [{"_id": k, "n": 100, "name": str(k)} for k in range(3)])
        self.assertEqual(len(list(self.c.aggregate([{"$match": {}}], batchSize=50))), 300)

    def test_indexes_and_collections(self):
        self.c.insert_many([{"n": n, "even": n % 2 == 0} for n in range(100)])
        self.c.create_index([("even", 1), ("n", -1)])
        self.c.create_index("n", unique=True, name="unique")
        self.assertEqual(set(self.c.index_information()), {"_id_", "even_1_n_-1", "unique"})
        plan = self.c.find({"n": 5}).explain()
        self.assertEqual(plan["executionStats"]["totalDocsExamined"], 1)
        with self.assertRaises(DuplicateKeyError):
            self.c.insert_one({"n": 5})
        self.c.drop_index("unique")
        self.db.create_collection("ruled", validator={"age": {"$gt": 0}})
        with self.assertRaises(WriteError):
            self.db.ruled.insert_one({"age": 0})
        with self.assertRaises(CollectionInvalid):
            self.db.create_collection("ruled")
        self.assertEqual(sorted(self.db.list_collection_names()), ["ruled", "things"])
        self.c.rename("renamed")
        self.db.drop_collection("ruled")
        self.assertEqual(self.db.list_collection_names(), ["renamed"])
        self.assertIn(self.db.name, self.client.list_database_names())
        self.client.drop_database(self.db.name)
        self.assertNotIn(self.db.name, self.client.list_database_names())

    def test_text_is_compared_under_a_collation(self):
        caseless = Collation("en_US", strength=2)
        people = self.db.people
        people.create_index("name", unique=True, collation=caseless, name="caseless")
        self.assertEqual(people.index_information()["caseless"]["collation"]["strength"], 2)
        people.insert_many([{"name": name, "n": n} for n, name in enumerate(["Zoe", "ann", "Bob", "émile", "file 10", "file 9"])])
        with self.assertRaises(DuplicateKeyError):
            people.insert_one({"name": "ANN"})
        self.assertEqual(people.find_one({"name": "BOB"}), None)
        self.assertEqual(people.find_one({"name": "BOB"}, collation=caseless)["n"], 2)
        explained = people.find({"name": "BOB"}).collation(caseless).explain()
        self.assertIn("caseless", str(explained["queryPlanner"]["winningPlan"]))
        numeric = Collation("fr", numericOrdering=True)
        names = [found["name"] for found in people.find().sort("name").collation(numeric)]
        self.assertEqual(names, ["ann", "Bob", "émile", "file 9", "file 10", "Zoe"])
        self.assertEqual(people.count_documents({"name": {"$in": ["ANN", "BOB"]}}, collation=caseless), 2)
        stages = [{"$match": {"name": {"$gte": "F"}}}, {"$sort": {"name": -1}}, {"$limit": 1}]
        self.assertEqual([found["name"] for found in people.aggregate(stages, collation=caseless)], ["Zoe"])
        group = [{"$group": {"_id": {"$eq": ["$name", "ANN"]}, "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}]
        self.assertEqual([found["n"] for found in people.aggregate(group, collation=caseless)], [5, 1])
        people.insert_one({"tag": "A"})
        people.update_one({"name": "ZOE"}, {"$set": {"tag": "a"}}, collation=caseless)
        self.assertEqual(people.distinct("tag", collation=caseless), ["a"])
        changed = people.find_one_and_update({"name": "ZOE"}, {"$inc": {"n": 10}}, collation=caseless, return_document=ReturnDocument.AFTER)
        self.assertEqual(changed["n"], 10)
        done = people.bulk_write([DeleteOne({"name": "ÉMILE"}, collation=caseless), DeleteOne({"name": "ANN"})])
        self.assertEqual(done.deleted_count, 1)
        for collation, code in [({"locale": "klingon"}, 2), ({"locale": "en", "strength": 9}, 2), ({"locale": "en", "version": "57.1"}, 161)]:
            with self.assertRaises(OperationFailure) as failure:
                list(people.find(collation=collation))
            self.assertEqual(failure.exception.code, code)
        with self.assertRaises(OperationFailure) as failure:
            self.db.create_collection("caseless", collation=caseless)
        self.assertEqual(failure.exception.code, 115)

    def test_a_cursor_outlives_what_is_written_meanwhile_and_can_be_closed(self):
        self.c.insert_many([{"_id": n} for n in range(1000)])
        cursor = self.c.find(batch_size=10)
        next(cursor)
        self.c.delete_many({})
        self.assertEqual(len(list(cursor)), 999)
        self.c.insert_many([{"_id": n} for n in range(1000)])
        cursor = self.c.find(batch_size=10)
        next(cursor)
        self.client.admin.command("ping")
        address, number = cursor.address, cursor.cursor_id
        cursor.close()
        with self.assertRaises(CursorNotFound):
            self.db.command("getMore", bson.Int64(number), collection="things")
        self.assertEqual(address, self.client.address)

    def test_compression(self):
        for compressor in ["zlib", "snappy", "zstd"]:
            client = self.connect(compressors=compressor)
            c = client[self.db.name][compressor]
            c.insert_many([{"x": "long " * 1000} for _ in range(200)])
            self.assertEqual(len(list(c.find())), 200)
            client.close()

    def test_unknown_things_are_refused_by_number(self):
        for command, code in [({"nonsense": 1}, 59), ({"find": "c", "filter": {"$fly": 1}}, 2), ({"find": "c", "colour": 1}, 40415)]:
            with self.assertRaises(OperationFailure) as refused:
                self.db.command(command)
            self.assertEqual(refused.exception.code, code)

    def test_large_documents(self):
        self.c.insert_one({"_id": 1, "x": b"x" * (15 << 20)})
        self.assertEqual(len(self.c.find_one({"_id": 1})["x"]), 15 << 20)
        self.c.insert_many([{"x": b"x" * (5 << 20)} for _ in range(20)])
        self.assertEqual(sum(len(d["x"]) for d in self.c.find({"_id": {"$ne": 1}})), 100 << 20)


class Transactions(Case):
    def test_a_transaction_over_two_collections(self):
        def transfer(session):
            self.c.insert_one({"_id": 1}, session=session)
            self.db.others.insert_one({"_id": 2}, session=session)
            self.assertIsNone(self.c.find_one({"_id": 1}))
            self.assertIsNotNone(self.c.find_one({"_id": 1}, session=session))

        with self.client.start_session() as session:
            session.with_transaction(transfer)
        self.assertEqual((self.c.count_documents({}), self.db.others.count_documents({})), (1, 1))

    def test_what_is_aborted_never_was(self):
        with self.client.start_session() as session:
            with self.assertRaises(ZeroDivisionError), session.start_transaction():
                self.c.insert_one({"_id": 1}, session=session)
                1 / 0
        self.assertEqual(self.c.count_documents({}), 0)

    def test_a_transaction_over_all_models(self):
        store, metric = f"{self._testMethodName}_orders", "order_cents"
        sold = {
            "ropewalkAppend": store,
            "events": [{"type": "Sold", "tags": ["order:7"], "data": {"cents": 250}, "id": bson.Binary(b"1" * 16, 4)}],
            "conditions": [{"failIfEventsMatch": {"items": [{"tags": ["order:7"]}]}}],
        }
        now = datetime.datetime.now(datetime.timezone.utc)
        series = [{"labels": {"__name__": metric}, "samples": [[now, 250]]}]
        query = {"ropewalkSql": f"SELECT type, json FROM events.{store} WHERE type = $1", "parameters": ["Sold"]}

        def sell(session):
            self.c.insert_one({"_id": 7, "item": "pen"}, session=session)
            self.assertEqual(self.db.command(sold, session=session)["count"], 1)
            self.assertEqual(self.db.command(query, session=session)["n"], 1)
            self.db.command({"ropewalkSamples": "default", "series": series}, session=session)
            self.assertEqual(self.db.command(query)["n"], 0)

        with self.client.start_session() as session:
            session.with_transaction(sell)
            with self.assertRaises(OperationFailure) as refused:
                session.with_transaction(lambda session: self.db.command(sold, session=session))
        self.assertEqual(refused.exception.code, 940001)
        self.assertEqual(refused.exception.details["errInfo"]["position"], 1)
        self.assertEqual(self.db.command(query)["rows"], [["Sold", {"cents": 250}]])
        self.assertEqual(self.db.command({"ropewalkSql": f"SELECT value FROM metrics.{metric}"})["rows"], [[250.0]])
        self.assertIsNotNone(self.c.find_one({"_id": 7}))
        with self.assertRaises(OperationFailure) as refused:
            self.db.command({"ropewalkSql": "SELECT 1 / 0"})
        self.assertEqual((refused.exception.code, refused.exception.details["sqlstate"]), (125, "22012"))

    def test_events_are_a_collection_also_in_a_transaction(self):
        events = self.client.ropewalk[f"events.{self._testMethodName}"]

        def sell(session):
            self.c.insert_one({"_id": 7, "item": "pen"}, session=session)
            events.insert_many([{"type": "Sold", "tags": ["order:7"]}, {"type": "Packed"}], session=session)
            self.assertEqual(len(list(events.find({"tags": "order:7"}, session=session))), 1)
            self.assertIsNone(events.find_one())

        with self.client.start_session() as session:
            session.with_transaction(sell)
        self.assertEqual([event["type"] for event in events.find().sort("_id", -1)], ["Packed", "Sold"])
        self.assertEqual(len(list(events.find(batch_size=1))), 2)
        self.assertEqual(events.find_one({"type": "Sold"})["_id"], 1)
        self.assertIn(events.name, self.client.ropewalk.list_collection_names())
        self.assertIsNotNone(self.c.find_one({"_id": 7}))
        with self.assertRaises(OperationFailure) as refused:
            events.delete_many({})
        self.assertEqual(refused.exception.code, 115)

    def test_many_threads_that_transfer_lose_nothing(self):
        self.c.insert_many([{"_id": n, "money": 100} for n in range(4)])

        def run(seed):
            for step in range(10):
                a, b = (seed + step) % 4, (seed + step * 3 + 1) % 4
                with self.client.start_session() as session:
                    session.with_transaction(lambda s: (
                        self.c.update_one({"_id": a}, {"$inc": {"money": -1}}, session=s),
                        self.c.update_one({"_id": b}, {"$inc": {"money": 1}}, session=s),
                    ))

        threads = [threading.Thread(target=run, args=[n]) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sum(d["money"] for d in self.c.find()), 400)

    def test_writes_outside_of_transactions_are_retryable(self):
        commands = Commands()
        client = self.connect(event_listeners=[commands])
        c = client[self.db.name].things
        c.insert_one({"_id": 1, "n": 0})
        c.update_one({"_id": 1}, {"$inc": {"n": 1}})
        name, update = commands.sent[-1]
        self.assertTrue(name == "update" and update["txnNumber"] > 0)
        # The answer was lost, says this client, and sends the same again.
        again = {key: update[key] for key in ["update", "ordered", "lsid", "txnNumber", "updates"]}
        with client._conn_for_writes(None, "update") as connection:
            answer = connection.command(self.db.name, again)
        self.assertEqual((answer["n"], answer["nModified"]), (1, 1))
        self.assertEqual(c.find_one({"_id": 1})["n"], 1)
        client.close()

    def test_reads_after_own_writes_in_a_causal_session(self):
        with self.client.start_session(causal_consistency=True) as session:
            for n in range(20):
                self.c.insert_one({"_id": n}, session=session)
                self.assertIsNotNone(self.c.find_one({"_id": n}, session=session))
            self.assertIsNotNone(session.operation_time)


class ChangeStreams(Case):
    def test_what_happens_is_told_in_order(self):
        with self.c.watch(full_document="updateLookup") as stream:
            self.c.insert_one({"_id": 1})
            self.c.update_one({"_id": 1}, {"$set": {"a": 1}})
            self.c.replace_one({"_id": 1}, {"b": 1})
            self.c.delete_one({"_id": 1})
            events = [next(stream) for _ in range(4)]
        self.assertEqual([e["operationType"] for e in events], ["insert", "update", "replace", "delete"])
        self.assertEqual(events[1]["updateDescription"]["updatedFields"], {"a": 1})
        self.assertEqual(events[1]["fullDocument"], {"_id": 1, "a": 1})

    def test_a_stream_goes_on_where_it_was(self):
        with self.db.watch([{"$match": {"operationType": "insert"}}], max_await_time_ms=20) as stream:
            self.c.insert_one({"_id": 1})
            self.assertEqual(next(stream)["documentKey"], {"_id": 1})
            self.assertIsNone(stream.try_next())
            token = stream.resume_token
        self.c.insert_many([{"_id": 2}, {"_id": 3}])
        self.c.delete_one({"_id": 2})
        with self.db.watch([{"$match": {"operationType": "insert"}}], resume_after=token) as stream:
            self.assertEqual([next(stream)["documentKey"]["_id"] for _ in range(2)], [2, 3])

    def test_a_thread_that_waits_is_woken(self):
        heard = []
        with self.client.watch() as stream:
            thread = threading.Thread(target=lambda: heard.append(next(stream)))
            thread.start()
            self.c.insert_one({"_id": "x"})
            thread.join(timeout=60)
        self.assertEqual(heard[0]["ns"], {"db": self.db.name, "coll": "things"})


class Logins(Case):
    user = ("ann", "correct horse")

    @classmethod
    def setUpClass(cls):
        cls.options = {"username": cls.user[0], "password": cls.user[1]}
        super().setUpClass()

    def test_a_user_is_let_in_and_others_are_not(self):
        self.c.insert_one({"_id": 1})
        for options in [{"username": "ann", "password": "wrong"}, {"username": "bob", "password": "x"}]:
            with self.assertRaises(OperationFailure) as refused:
                self.ping(options)
            self.assertEqual(refused.exception.code, 18)
        with pymongo.MongoClient(self.server.mongo) as nobody, self.assertRaises(OperationFailure) as refused:
            nobody.app.c.find_one()
        self.assertEqual(refused.exception.code, 13)
        self.ping({"authMechanism": "SCRAM-SHA-1", **self.options})
        with self.assertRaises(OperationFailure):
            self.ping({"authMechanism": "SCRAM-SHA-1", **self.options, "password": "wrong"})

    def ping(self, options):
        with pymongo.MongoClient(self.server.mongo, **options) as client:
            client.admin.command("ping")


if __name__ == "__main__":
    unittest.main()
