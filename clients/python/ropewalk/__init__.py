"""The Ropewalk database: in this process, or on a server.

    import ropewalk

    db = ropewalk.connect("http://127.0.0.1:4780")      # or ropewalk.open("shop.db")
    shop = db.events("shop")
    with db.transaction() as tx:
        tx.append(shop, {"type": "OrderPlaced", "tags": ["order:o1"], "data": {"n": 2}})
        tx.sql("UPDATE stock SET n = n - %s WHERE sku = %s", [2, "rope"], expect=1)

`ropewalk.dbapi` is a DB-API 2 driver, `ropewalk.aio` the same interface for asyncio,
`ropewalk.testing` starts a server for tests. `open` needs the package with the native module.
"""

from ._client import Database, connect
from ._documents import Collection, ObjectId, Updated
from ._events import (
    Appended,
    Condition,
    Decided,
    Decision,
    Event,
    EventStore,
    EventStream,
    Model,
    NewEvent,
    Query,
    Subscription,
    where,
)
from ._groups import Delivery, Group, Lease, Parked, Settled, Workers
from ._metrics import Sample, SampleList, Series, SeriesList
from ._open import open, open_in_memory
from ._sql import Column, Json, Result, Row
from ._transactions import OpenTransaction, Pending, Transaction
from ._typed import Tag, event
from .errors import (
    AlreadyExists,
    ConditionFailed,
    Conflict,
    ConnectionBroken,
    Error,
    IdempotencyMismatch,
    InvalidArgument,
    KeyConflict,
    NotFound,
    Park,
    PermissionDenied,
    PreconditionFailed,
    Refused,
    ResourceExhausted,
    ServerError,
    TimedOut,
    TooLarge,
    TrackingConflict,
    Unauthenticated,
    Unavailable,
    ValidationFailed,
)

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "Appended",
    "Collection",
    "Column",
    "Condition",
    "ConditionFailed",
    "Conflict",
    "ConnectionBroken",
    "Database",
    "Decided",
    "Decision",
    "Delivery",
    "Error",
    "Event",
    "EventStore",
    "EventStream",
    "Group",
    "IdempotencyMismatch",
    "InvalidArgument",
    "Json",
    "KeyConflict",
    "Lease",
    "Model",
    "NewEvent",
    "NotFound",
    "ObjectId",
    "OpenTransaction",
    "Park",
    "Parked",
    "Pending",
    "PermissionDenied",
    "PreconditionFailed",
    "Query",
    "Refused",
    "ResourceExhausted",
    "Result",
    "Row",
    "Sample",
    "SampleList",
    "Series",
    "SeriesList",
    "ServerError",
    "Settled",
    "Subscription",
    "Tag",
    "TimedOut",
    "TooLarge",
    "TrackingConflict",
    "Transaction",
    "Unauthenticated",
    "Unavailable",
    "Updated",
    "ValidationFailed",
    "Workers",
    "connect",
    "event",
    "open",
    "open_in_memory",
    "where",
]
