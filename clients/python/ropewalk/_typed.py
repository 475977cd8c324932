"""Typed events: dataclasses with tags, written as JSON and read back.

`encode` and `decode` convert dataclasses, lists, tuples, dictionaries, enumerations, `datetime`,
`date`, `Decimal`, `UUID` and `bytes` (base64); other values are JSON already.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import enum
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Marks `event` for type checkers only."""
        return lambda function: function


T = TypeVar("T")
_NAME, _TAGS = "__ropewalk_type__", "__ropewalk_tags__"


@dataclasses.dataclass(frozen=True)
class Tag:
    """Annotation of a field whose value is a tag: `order: Annotated[str, Tag()]` gives `order:o1`.

    `name` replaces the name of the field. A list gives a tag per element, `None` gives no tag.
    """

    name: str | None = None


@overload
def event(cls: type[T], /) -> type[T]: ...
@overload
def event(*, name: str | None = None) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True)
def event(cls: type[Any] | None = None, /, *, name: str | None = None) -> Any:
    """Makes a class an event type: a frozen dataclass whose `Tag` fields are its tags.

    The type of the event is `name`, or the name of the class. A method `tags(self)` may return
    further tags. Raises `TypeError` if a tagged field does not exist in the class.
    """

    def apply(cls: type[Any]) -> type[Any]:
        made = cls if "__dataclass_fields__" in cls.__dict__ else dataclasses.dataclass(frozen=True)(cls)
        setattr(made, _NAME, name or cls.__name__)
        return made

    return apply if cls is None else apply(cls)


def type_name(cls: type[Any] | str) -> str:
    """Returns the event type of a class, or the string itself."""
    if isinstance(cls, str):
        return cls
    found = getattr(cls, _NAME, None)
    if not isinstance(found, str):
        raise TypeError(f"{cls.__name__} is not an event type: it has no @event")
    return found


def is_event(value: object) -> bool:
    """Reports whether a value is an instance of an event type."""
    return hasattr(type(value), _NAME)


def tags_of(value: Any) -> list[str]:
    """Returns the tags of a typed event, in the order of its fields, without duplicates."""
    found: dict[str, None] = {}
    for field, name in _tag_fields(type(value)):
        content = getattr(value, field)
        for one in content if isinstance(content, (list, tuple, set, frozenset)) else [content]:
            if one is not None:
                found[f"{name}:{encode(one)}"] = None
    more = getattr(value, "tags", None)
    if callable(more):
        for tag in more():
            found[str(tag)] = None
    return list(found)


def _tag_fields(cls: type[Any]) -> list[tuple[str, str]]:
    known: list[tuple[str, str]] | None = cls.__dict__.get(_TAGS)
    if known is None:
        known = []
        for field, hint in _hints(cls).items():
            for extra in getattr(hint, "__metadata__", ()):
                if extra is Tag:
                    known.append((field, field))
                elif isinstance(extra, Tag):
                    known.append((field, extra.name or field))
        setattr(cls, _TAGS, known)
    return known


_HINTS: dict[type[Any], dict[str, Any]] = {}


def _hints(cls: type[Any]) -> dict[str, Any]:
    """Returns the annotations of the dataclass's fields, which a decode needs for each event."""
    if cls not in _HINTS:
        every = typing.get_type_hints(cls, include_extras=True)
        _HINTS[cls] = {field.name: every[field.name] for field in dataclasses.fields(cls)}
    return _HINTS[cls]


def encode(value: Any) -> Any:
    """Returns `value` as values of JSON. Raises `TypeError` for a type that is not supported."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return encode(value.value)
    if isinstance(value, Mapping):
        return {str(encode(key)): encode(one) for key, one in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (Decimal, uuid.UUID)):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, Iterable):
        return [encode(one) for one in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def decode(hint: Any, value: Any) -> Any:
    """Returns the value of type `hint` for values of JSON. Unknown fields of an object are ignored.

    Raises `ValueError` or `TypeError` if the value does not fit.
    """
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return decode(typing.get_args(hint)[0], value)
    if origin is typing.Union or origin is types.UnionType:
        return _decode_union(typing.get_args(hint), value)
    if origin in (list, set, frozenset) or hint in (list, set, frozenset):
        element = (typing.get_args(hint) or (Any,))[0]
        return (origin or hint)(decode(element, one) for one in value)
    if origin is tuple:
        elements = typing.get_args(hint)
        if len(elements) == 2 and elements[1] is Ellipsis:
            return tuple(decode(elements[0], one) for one in value)
        return tuple(decode(element, one) for element, one in zip(elements, value, strict=True))
    if origin is dict or origin is Mapping or origin is typing.get_origin(typing.Mapping[str, int]):
        key, content = typing.get_args(hint)
        return {decode(key, name): decode(content, one) for name, one in value.items()}
    if isinstance(hint, type):
        return _decode_class(hint, value)
    return value


def _decode_union(choices: tuple[Any, ...], value: Any) -> Any:
    if value is None and type(None) in choices:
        return None
    failed: Exception | None = None
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return decode(choice, value)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            failed = error
    raise TypeError(f"{value!r} fits none of {choices}") from failed


def _decode_class(cls: type[Any], value: Any) -> Any:
    if dataclasses.is_dataclass(cls):
        if not isinstance(value, Mapping):
            raise TypeError(f"{cls.__name__} is an object, not {value!r}")
        hints = _hints(cls)
        fields = [field.name for field in dataclasses.fields(cls) if field.init and field.name in value]
        return cls(**{name: decode(hints[name], value[name]) for name in fields})
    if issubclass(cls, enum.Enum):
        return cls(value)
    if cls in (dt.datetime, dt.date, dt.time):
        return cls.fromisoformat(value.replace("Z", "+00:00"))
    if cls in (Decimal, uuid.UUID):
        return cls(str(value))
    if cls is bytes:
        return base64.b64decode(value)
    if cls is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if cls in (str, int, float, bool) and (type(value) is not cls):
        raise TypeError(f"{value!r} is not of type {cls.__name__}")
    return value
