"""Collections of documents."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import ropewalk
from ropewalk import ObjectId

from .support import Case


class Documents(Case):
    def setUp(self) -> None:
        super().setUp()
        self.people = self.db.documents("a/b" + self.name, database="shop")

    def test_values_without_a_json_form_are_returned_as_they_were_stored(self) -> None:
        document = {
            "_id": ObjectId("0123456789abcdef01234567"),
            "at": dt.datetime(2026, 1, 2, 3, 4, 5, 678000, dt.timezone.utc),
            "amount": Decimal("1.50"),
            "raw": b"\x00\xff",
            "uuid": uuid.UUID(int=9),
            "n": 2**40,
            "x": 1.5,
            "list": [None, True, {"a": 1}],
        }
        [id] = self.people.insert(document)
        self.assertEqual((id, type(id)), (document["_id"], ObjectId))
        self.assertEqual(self.people.get(id), document)
        self.assertEqual(self.people.find_one({"amount": Decimal("1.50")}), document)

    def test_documents_are_found_changed_and_deleted(self) -> None:
        self.people.insert([{"_id": n, "age": n * 10, "city": "Oslo" if n % 2 else "Bergen"} for n in range(6)])
        self.assertEqual([one["_id"] for one in self.people.find({"city": "Oslo"}, sort={"age": -1}, limit=2)], [5, 3])
        self.assertEqual(list(self.people.find({"_id": 1}, projection={"city": 1, "_id": 0})), [{"city": "Oslo"}])
        self.assertEqual(self.people.count({"age": {"$gte": 30}}), 3)
        self.assertEqual(self.people.distinct("city"), ["Bergen", "Oslo"])
        groups = self.people.aggregate([{"$group": {"_id": "$city", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}])
        self.assertEqual(groups[1]["n"], 3)
        done = self.people.update({"city": "Oslo"}, {"$inc": {"age": 1}}, many=True)
        self.assertEqual((done.matched, done.modified, done.upserted), (3, 3, None))
        self.assertEqual(self.people.update({"_id": 99}, {"$set": {"age": 1}}, upsert=True).upserted, 99)
        modified = self.people.modify({"_id": 1}, {"$set": {"age": 0}}, after=True)
        self.assertEqual(modified, {"_id": 1, "age": 0, "city": "Oslo"})
        self.people.put(1, {"_id": 1, "new": True})
        self.assertEqual(self.people.get(1), {"_id": 1, "new": True})
        self.people.put("a/b", {"x": 1})
        self.assertEqual(self.people.get("a/b"), {"_id": "a/b", "x": 1})
        self.assertEqual((self.people.delete({"city": "Oslo"}), self.people.delete({}, many=True)), (1, 7))
        self.assertIsNone(self.people.get(1))
        self.assertIsNone(self.people.find_one())

    def test_violations_raise_their_exception(self) -> None:
        self.people.configure(validator={"age": {"$gte": 0}})
        name = self.people.create_index("email", unique=True, sparse=True)
        self.people.insert({"_id": 1, "age": 1, "email": "a"})
        with self.assertRaises(ropewalk.AlreadyExists):
            self.people.insert([{"_id": 2, "age": 1}, {"_id": 1, "age": 1}])
        with self.assertRaises(ropewalk.AlreadyExists):
            self.people.insert({"_id": 3, "age": 1, "email": "a"})
        with self.assertRaises(ropewalk.ValidationFailed):
            self.people.insert({"_id": 4, "age": -1})
        self.assertEqual(self.people.count(), 1)
        self.assertIn(name, [one["name"] for one in self.people.indexes()])
        self.people.drop_index(name)
        self.people.drop()
        with self.assertRaises(ropewalk.NotFound):
            list(self.people.find())

    def test_promql_returns_samples_and_series(self) -> None:
        metric = f"m_{self.name}"
        with self.db.transaction() as tx:
            tx.samples([(metric, {"sku": "rope"}, [(1000, 1), (1060, 3)]), (metric, {"sku": "hook"}, [(1060, 5)])])
        at = dt.datetime.fromtimestamp(1060, dt.timezone.utc)
        found = sorted((one.labels["sku"], one.time, one.value) for one in self.db.promql(metric, at=at))
        self.assertEqual(found, [("hook", 1060.0, 5.0), ("rope", 1060.0, 3.0)])
        [series] = self.db.promql(f'{metric}{{sku="rope"}}', (1000, 1060, 30.0))
        self.assertEqual(series.points, [(1000.0, 1.0), (1030.0, 1.0), (1060.0, 3.0)])
        self.assertEqual(self.db.promql("1 + 1")[0].value, 2)
        with self.assertRaises(ropewalk.InvalidArgument):
            self.db.promql("m(")
