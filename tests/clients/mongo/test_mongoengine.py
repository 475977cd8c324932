"""A small application on MongoEngine, as it comes from its project, against `ropewalk serve --mongo-listen`: a shop with references,
embedded documents, indexes, atomic updates, aggregation.
"""

import datetime
import sys
import unittest
from pathlib import Path

import mongoengine
from mongoengine import (
    CASCADE, DateTimeField, DecimalField, Document, EmbeddedDocument, EmbeddedDocumentListField, IntField, ListField,
    NotUniqueError, Q, ReferenceField, StringField, ValidationError,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import Server, binary  # noqa: E402


class Customer(Document):
    email = StringField(required=True, unique=True)
    name = StringField(max_length=40)
    tags = ListField(StringField())
    meta = {"indexes": ["tags", ("name", "-email")]}


class Line(EmbeddedDocument):
    item = StringField(required=True)
    count = IntField(min_value=1, default=1)
    price = DecimalField(precision=2)


class Order(Document):
    customer = ReferenceField(Customer, reverse_delete_rule=CASCADE, required=True)
    lines = EmbeddedDocumentListField(Line)
    state = StringField(choices=["new", "paid", "sent"], default="new")
    at = DateTimeField(default=datetime.datetime.now)
    meta = {"indexes": [{"fields": ["at"], "expireAfterSeconds": 3600}, "customer"], "ordering": ["-at"]}


class Application(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(binary(), options=["--mongo-listen", "127.0.0.1:0"])
        mongoengine.connect("shop", host=cls.server.mongo, uuidRepresentation="standard")

    @classmethod
    def tearDownClass(cls):
        mongoengine.disconnect()
        cls.server.stop()

    def setUp(self):
        mongoengine.connection.get_connection().drop_database("shop")
        Customer.ensure_indexes()
        Order.ensure_indexes()
        self.ann = Customer(email="ann@example.org", name="Ann", tags=["a", "b"]).save()
        self.bob = Customer(email="bob@example.org", name="Bob", tags=["b"]).save()

    def test_what_is_unique_stays_unique_and_what_is_wrong_is_not_written(self):
        with self.assertRaises(NotUniqueError):
            Customer(email="ann@example.org").save()
        with self.assertRaises(ValidationError):
            Customer(name="x" * 41).save()
        self.assertEqual(Customer.objects.count(), 2)
        self.assertIn("email_1", Customer.objects._collection.index_information())

    def test_queries(self):
        names = [c.name for c in Customer.objects(Q(tags="b") & Q(name__istartswith="a"))]
        self.assertEqual(names, ["Ann"])
        self.assertEqual(Customer.objects(tags__all=["a", "b"]).first().email, "ann@example.org")
        self.assertEqual([c.name for c in Customer.objects.order_by("-name").only("name")], ["Bob", "Ann"])
        self.assertEqual(sorted(Customer.objects.distinct("tags")), ["a", "b"])
        self.assertEqual(Customer.objects(name="Ann").explain()["queryPlanner"]["namespace"], "shop.customer")

    def test_orders_with_their_lines(self):
        order = Order(customer=self.ann, lines=[Line(item="rope", count=2, price="1.50")]).save()
        Order.objects(id=order.id).update_one(push__lines=Line(item="hook", price="0.50"), set__state="paid")
        order.reload()
        self.assertEqual([(line.item, line.count) for line in order.lines], [("rope", 2), ("hook", 1)])
        self.assertEqual(order.customer.name, "Ann")
        self.assertEqual(Order.objects(lines__match={"item": "rope", "count": 2}, state="paid").count(), 1)
        changed = Order.objects(id=order.id, lines__item="rope").modify(inc__lines__S__count=1, new=True)
        self.assertEqual(changed.lines[0].count, 3)
        totals = Order.objects.aggregate([
            {"$unwind": "$lines"},
            {"$group": {"_id": "$customer", "n": {"$sum": "$lines.count"}}},
            {"$lookup": {"from": "customer", "localField": "_id", "foreignField": "_id", "as": "customer"}},
        ])
        self.assertEqual([(t["n"], t["customer"][0]["name"]) for t in totals], [(4, "Ann")])
        self.ann.delete()
        self.assertEqual(Order.objects.count(), 0)


if __name__ == "__main__":
    unittest.main()
