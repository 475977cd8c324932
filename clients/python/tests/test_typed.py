"""Typed events and their JSON form; no server."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import unittest
import uuid
from decimal import Decimal
from typing import Annotated, Any, Optional

from ropewalk import NewEvent, Tag, event, where
from ropewalk._typed import decode, encode, tags_of


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclasses.dataclass(frozen=True)
class Line:
    sku: str
    n: int
    price: Decimal = Decimal("1.50")


@event
class OrderPlaced:
    order: Annotated[str, Tag]
    customer: Annotated[str, Tag("buyer")]
    lines: list[Line]
    at: dt.datetime
    size: Size = Size.SMALL
    coupon: Annotated[Optional[str], Tag()] = None
    labels: Annotated[tuple[str, ...], Tag("label")] = ()
    notes: dict[str, int] = dataclasses.field(default_factory=dict)
    id: uuid.UUID | None = None
    ratio: float = 0.0
    raw: bytes = b""

    def tags(self) -> list[str]:
        return [f"product:{line.sku}" for line in self.lines]


@event(name="order-paid")
class OrderPaid:
    order: Annotated[str, Tag]


AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678, dt.timezone.utc)
PLACED = OrderPlaced(
    order="o1", customer="ann", lines=[Line("rope", 2), Line("hook", 1, Decimal("0.10"))], at=AT, size=Size.LARGE,
    labels=("a", "b"), notes={"x": 1}, id=uuid.UUID(int=7), ratio=2, raw=b"\x00\xff",
)


class TypedEvents(unittest.TestCase):
    def test_event_encoded_and_decoded_is_equal(self) -> None:
        self.assertEqual(decode(OrderPlaced, encode(PLACED)), PLACED)

    def test_tags_come_from_fields_and_method(self) -> None:
        expected = ["order:o1", "buyer:ann", "label:a", "label:b", "product:rope", "product:hook"]
        self.assertEqual(tags_of(PLACED), expected)
        made = NewEvent.of(OrderPaid("o1"), metadata={"by": "ann"}).to_json()
        self.assertEqual((made["type"], made["tags"], made["data"]), ("order-paid", ["order:o1"], {"order": "o1"}))
        self.assertEqual(made["metadata"], {"by": "ann"})

    def test_unknown_fields_are_ignored_and_absent_ones_are_defaults(self) -> None:
        raw = {"order": "o2", "customer": "bob", "lines": [], "at": "2026-01-02T03:04:05Z", "later": True}
        found: Any = decode(OrderPlaced, raw)
        self.assertEqual((found.order, found.coupon, found.at.year), ("o2", None, 2026))
        with self.assertRaises(TypeError):
            decode(OrderPlaced, {"order": 1})

    def test_where_takes_classes_and_joins_queries(self) -> None:
        query = where(OrderPlaced, OrderPaid, tags="order:o1") | where("Other")
        items = [{"types": ["OrderPlaced", "order-paid"], "tags": ["order:o1"]}, {"types": ["Other"]}]
        self.assertEqual(query.to_json(), {"items": items})
        self.assertEqual((query | where()).to_json(), {"items": []})
        with self.assertRaises(TypeError):
            where(int)
