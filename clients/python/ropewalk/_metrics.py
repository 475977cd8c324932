"""Time series: results of PromQL."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Any, Union

#: A time: seconds since 1970, or a `datetime` (without a zone: UTC).
Time = Union[float, dt.datetime]


@dataclasses.dataclass(frozen=True)
class Sample:
    """A value of a series at a time, in seconds since 1970."""

    labels: Mapping[str, str]
    time: float
    value: float


@dataclasses.dataclass(frozen=True)
class Series:
    """The values of a series: pairs of a time in seconds since 1970 and a value."""

    labels: Mapping[str, str]
    points: list[tuple[float, float]]


class SampleList(list[Sample]):
    """The result of an instant query."""

    def to_pandas(self) -> Any:
        """Returns a `DataFrame` with a column per label, `time` and `value`."""
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return pandas.DataFrame([{**one.labels, "time": one.time, "value": one.value} for one in self])


class SeriesList(list[Series]):
    """The result of a range query."""

    def to_pandas(self) -> Any:
        """Returns a `DataFrame` with a column per label, `time` and `value`; a row per point."""
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

        rows = [{**one.labels, "time": time, "value": value} for one in self for time, value in one.points]
        return pandas.DataFrame(rows)


def seconds(time: Time) -> float:
    """Returns a time as seconds since 1970."""
    if isinstance(time, dt.datetime):
        return (time if time.tzinfo else time.replace(tzinfo=dt.timezone.utc)).timestamp()
    return float(time)


def milliseconds(time: Time) -> int:
    """Returns a time as milliseconds since 1970."""
    return round(seconds(time) * 1000)


def samples_of(data: Mapping[str, Any]) -> SampleList:
    """Returns the samples of an instant query; those that are histograms are left out."""
    if data["resultType"] in ("scalar", "string"):
        time, value = data["result"]
        return SampleList([Sample({}, float(time), float(value))])
    if data["resultType"] == "matrix":
        return SampleList(
            Sample(one["metric"], float(time), float(value))
            for one in data["result"]
            for time, value in one.get("values", ())
        )
    return SampleList(
        Sample(one["metric"], float(one["value"][0]), float(one["value"][1]))
        for one in data["result"]
        if "value" in one
    )


def series_of(data: Mapping[str, Any]) -> SeriesList:
    """Returns the series of a range query; points that are histograms are left out."""
    return SeriesList(
        Series(one["metric"], [(float(time), float(value)) for time, value in one.get("values", ())])
        for one in data["result"]
    )
