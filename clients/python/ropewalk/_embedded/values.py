"""Values of documents that BSON has and JSON lacks. The native module calls these functions."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from .._documents import ObjectId
from .._typed import encode

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_MILLISECOND = dt.timedelta(milliseconds=1)


def simplified(value: Any) -> tuple[str, Any]:
    """Returns the kind of a value, and its form for the native module.

    Kinds: `oid` (24 hexadecimal digits), `date` (milliseconds since 1970), `uuid` (16 bytes),
    `decimal` (text), `binary` (bytes), `value` (a value of JSON). Raises `TypeError` for a type
    without a form.
    """
    if isinstance(value, ObjectId):
        return "oid", str(value)
    if isinstance(value, dt.datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=dt.timezone.utc)
        return "date", (zoned - _EPOCH) // _MILLISECOND
    if isinstance(value, uuid.UUID):
        return "uuid", value.bytes
    if isinstance(value, Decimal):
        return "decimal", str(value)
    if isinstance(value, (bytes, bytearray)):
        return "binary", bytes(value)
    if isinstance(value, Mapping):
        return "value", {str(name): one for name, one in value.items()}
    encoded = encode(value)
    if encoded is not value:
        return "value", encoded
    # A subclass of a plain type.
    for plain in (str, bool, int, float):
        if isinstance(value, plain):
            return "value", plain(value)
    raise TypeError(f"{type(value).__name__} has no form in a document")


def date_of(milliseconds: int) -> Any:
    """Returns the time of milliseconds since 1970, in UTC; Extended JSON where Python has no date."""
    try:
        return _EPOCH + milliseconds * _MILLISECOND
    except OverflowError:
        return {"$date": {"$numberLong": str(milliseconds)}}


def uuid_of(data: bytes) -> uuid.UUID:
    """Returns the UUID of 16 bytes."""
    return uuid.UUID(bytes=data)
