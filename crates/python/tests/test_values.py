"""Values of events and documents, and errors about them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import unittest
import uuid
from collections import OrderedDict
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import ropewalk
from ropewalk import Condition, InvalidArgument, NewEvent, ObjectId, where

from support import Case


class Kind(enum.Enum):
    A = "a"


class Word(str):
    pass


@dataclasses.dataclass
class Line:
    sku: str
    price: Decimal


UTC = dt.timezone.utc


class Events(Case):
    def test_data_is_json_as_python_writes_it(self) -> None:
        for data in [
            None,
            True,
            0,
            -(2**63),
            2**64,
            1.5,
            1e300,
            -0.0,
            "",
            'ß "quoted" \\ \n\t\x01 \u2028 \U0001f600',
            [],
            [1, [2, [3]]],
            {},
            {"a": {"b": None}, "": 1, "ü": [True]},
            (1, 2),
        ]:
            with self.subTest(data=data):
                self.store.append_batch([("A", [], data)])
                last = self.store.last()
                assert last is not None
                self.assertEqual(last.data, json.loads(json.dumps(data)))

    def test_other_types_are_encoded(self) -> None:
        day = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        data: dict[Any, Any] = {
            "kind": Kind.A,
            "line": Line("rope", Decimal("1.50")),
            "at": day,
            "id": uuid.UUID(int=1),
            "word": Word("w"),
            "set": frozenset([1]),
            "map": OrderedDict(a=MappingProxyType({"b": 1})),
            "raw": b"\x00",
            3: "number as a name",
        }
        self.store.append({"type": "A", "data": data})
        last = self.store.last()
        assert last is not None
        expected = {
            "kind": "a",
            "line": {"sku": "rope", "price": "1.50"},
            "at": day.isoformat(),
            "id": str(uuid.UUID(int=1)),
            "word": "w",
            "set": [1],
            "map": {"a": {"b": 1}},
            "raw": "AA==",
            "3": "number as a name",
        }
        self.assertEqual(last.data, expected)

    def test_bytes_are_the_payload(self) -> None:
        self.store.append_batch([("A", [], b'{"n":1}'), ("A", [], b"\xff"), ("A", [], b""), ("A", [], bytearray(b"7"))])
        found = [(one.data, one.payload) for one in self.store.read()]
        self.assertEqual(found, [({"n": 1}, None), (None, b"\xff"), (None, None), (7, None)])

    def test_invalid_event_is_named(self) -> None:
        deep: list[Any] = []
        for _ in range(300):
            deep = [deep]
        for events, word in [
            ([("A", [], 1), ("A", [])], r"events\[1\].*type, tags and data"),
            ([("A", "tag", 1)], r"events\[0\].*tags: a list"),
            ([(1, [], 1)], r"events\[0\].*type: a text"),
            ([("A", [], deep)], r"events\[0\].*deeper"),
            ([{"type": "A", "dat": 1}], r"events\[0\].*unknown field 'dat'"),
            ([{"type": "A", "data": 1, "data_base64": "AA=="}], r"events\[0\].*both"),
            ([{"type": "A", "id": "x"}], r"events\[0\].*id"),
            ([{"type": "A", "metadata": {"a": 1}}], r"events\[0\].*metadata"),
            ([7], r"events\[0\].*a tuple or a dictionary"),
            ("A", r"events: a list"),
            ([("", [], b"")], "type of 0 bytes"),
            ([("A", ["a", "a"], b"")], "duplicate tag"),
        ]:
            with self.subTest(word), self.assertRaisesRegex(InvalidArgument, word):
                self.db.core.append("shop", {"events": events})
        for data, kind in [(float("nan"), ValueError), (object(), TypeError), ([float("inf")], ValueError)]:
            with self.subTest(data=data), self.assertRaises(kind):
                self.store.append_batch([("A", [], data)])
        self.assertEqual(self.store.count(), 0)

    def test_invalid_query_is_named(self) -> None:
        for body, word in [
            ({"query": {"items": [{"types": [], "tags": []}]}}, "neither types nor tags"),
            ({"query": {"item": []}}, "unknown field 'item'"),
            ({"query": 7}, "query: a dictionary"),
            ({"after": -1}, "after: a number"),
            ({"limit": "x"}, "limit: a number"),
            ({"backwards": 1}, "backwards: True or False"),
            ({"nonsense": 1}, "unknown field 'nonsense'"),
        ]:
            with self.subTest(word), self.assertRaisesRegex(InvalidArgument, word):
                self.db.core.read("shop", body)  # type: ignore[arg-type]

    def test_batch_is_appended_under_its_conditions(self) -> None:
        done = self.store.append_batch([("A", ["x:1"], {"n": n}) for n in range(1000)])
        self.assertEqual((done.first, done.last), (1, 1000))
        with self.assertRaises(ropewalk.ConditionFailed) as failed:
            self.store.append_batch([("A", [], b"")], conditions=Condition(where(tags="x:1"), after=999))
        self.assertEqual(failed.exception.conflict, {"condition": 0, "position": 1000, "item": 0})
        self.store.append_batch([("B", (), None)], conditions=Condition(where("B")), durability="async:100")
        self.assertEqual(self.store.count(), 1001)

    def test_event_has_id_metadata_and_tracking(self) -> None:
        id = uuid.UUID(int=7)
        self.store.append(NewEvent("A", id=id, metadata={"by": "ann"}), tracking=("up", 3))
        [one] = self.store.read()
        self.assertEqual((one.id, one.metadata), (str(id), {"by": "ann"}))
        self.assertEqual((one.tracking, self.store.tracking("up")), ({"source": "up", "position": 3}, 3))
        self.assertLess(abs((dt.datetime.now(UTC) - one.recorded_at).total_seconds()), 60)


class Documents(Case):
    def setUp(self) -> None:
        super().setUp()
        self.people = self.db.documents("people")

    def test_values_are_returned_as_they_were_stored(self) -> None:
        document = {
            "_id": ObjectId("0123456789abcdef01234567"),
            "at": dt.datetime(2026, 1, 2, 3, 4, 5, 678000, UTC),
            "before": dt.datetime(1900, 1, 1, tzinfo=UTC),
            "amount": Decimal("1.50"),
            "raw": b"\x00\xff",
            "uuid": uuid.UUID(int=9),
            "small": 7,
            "large": 2**40,
            "negative": -(2**63),
            "x": 1.5,
            "list": [None, True, {"a": []}],
            "text": "ß\u0000",
        }
        [id] = self.people.insert(document)
        found = self.people.get(id)
        self.assertEqual(found, document)
        assert found is not None
        self.assertEqual([type(one) for one in found.values()], [type(one) for one in document.values()])
        self.assertEqual(list(found), list(document))

    def test_other_types_are_encoded(self) -> None:
        line = Line("rope", Decimal("2"))
        given = {"_id": 1, "kind": Kind.A, "line": line, "day": dt.date(2026, 1, 2), "set": {1}, "word": Word("w")}
        self.people.insert(MappingProxyType(given))
        expected = {"_id": 1, "kind": "a", "line": {"sku": "rope", "price": Decimal("2")}, "day": "2026-01-02"}
        found = self.people.get(1)
        assert found is not None
        # A dataclass is encoded as JSON, in which a decimal is a text.
        expected["line"] = {"sku": "rope", "price": "2"}
        self.assertEqual(found, expected | {"set": [1], "word": "w"})

    def test_extended_json_is_its_value(self) -> None:
        self.people.insert({"_id": {"$oid": "0123456789abcdef01234567"}, "n": {"$numberLong": "5"}})
        found = self.people.find_one()
        self.assertEqual(found, {"_id": "0123456789abcdef01234567", "n": 5})

    def test_invalid_document_is_named(self) -> None:
        deep: dict[str, Any] = {}
        for _ in range(300):
            deep = {"a": deep}
        for document, word in [
            ({"n": 2**64}, "64 bits"),
            ({"a\0b": 1}, "zero byte"),
            ({1: 2}, "name of a field: a text"),
            (deep, "deeper"),
            ({"d": Decimal("sNaN")}, "no decimal"),
            ([1], r"documents\[0\]: a dictionary"),
        ]:
            with self.subTest(word), self.assertRaisesRegex(InvalidArgument, word):
                self.people.insert([document])  # type: ignore[list-item]
        with self.assertRaises(TypeError):
            self.people.insert({"o": object()})
        with self.assertRaises(ropewalk.TooLarge):
            self.people.insert({"text": "x" * (17 << 20)})
        with self.assertRaisesRegex(InvalidArgument, "filter: a dictionary"):
            self.people.count([1])  # type: ignore[arg-type]
        with self.assertRaisesRegex(InvalidArgument, r"unknown operator|\$nonsense"):
            self.people.insert({"_id": 1})
            list(self.people.find({"a": {"$nonsense": 1}}))

    def test_large_result_is_read_in_batches(self) -> None:
        self.people.insert([{"_id": n, "text": "x" * 100} for n in range(5000)])
        found = self.people.find({"_id": {"$gte": 10}}, sort={"_id": 1})
        self.people.delete({}, many=True)
        # The cursor reads the snapshot of its beginning.
        self.assertEqual([one["_id"] for one in found], list(range(10, 5000)))

    def test_references_and_rules_of_a_collection(self) -> None:
        self.people.insert({"_id": 1})
        orders = self.db.documents("orders")
        orders.configure(references={"person": {"collection": "people", "on_delete": "restrict"}})
        orders.insert({"_id": 1, "person": 1})
        with self.assertRaises(ropewalk.ValidationFailed):
            orders.insert({"_id": 2, "person": 9})
        with self.assertRaisesRegex(InvalidArgument, "on_delete"):
            orders.configure(references={"person": {"collection": "people", "on_delete": "explode"}})
        with self.assertRaisesRegex(InvalidArgument, "unknown field 'nonsense'"):
            orders.configure(nonsense=1)


if __name__ == "__main__":
    unittest.main()
