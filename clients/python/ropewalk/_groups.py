"""Consumer groups: each matching event is processed by one of the group's consumers.

    take ──► handler returns ──► acknowledge
                     raises  ──► retry, with the text of the exception (parked after the last try)
                     Park    ──► park

An event is processed at least once: a consumer that dies keeps its events until the lease expires.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ._events import Event, Query, time_of
from ._http import pause, segment
from .errors import ConnectionBroken, Error, NotFound, Park, ResourceExhausted, ServerError, TimedOut, Unavailable

if TYPE_CHECKING:
    from ._events import EventStore

log = logging.getLogger("ropewalk")
#: Longest wait of a take for its first event, seconds; the server's limit is 20.
WAIT = 5.0
#: Errors after which a worker takes events again.
TRANSIENT = (ConnectionBroken, ResourceExhausted, ServerError, TimedOut, Unavailable)


@dataclasses.dataclass(frozen=True)
class Delivery:
    """An event of a lease. `tries` counts its deliveries, this one included."""

    event: Event
    tries: int


@dataclasses.dataclass(frozen=True)
class Lease:
    """Events that a consumer holds until the time `until`. `number` is `None` without events."""

    number: int | None
    until: dt.datetime | None
    deliveries: list[Delivery]


@dataclasses.dataclass(frozen=True)
class Settled:
    """Result of settling events. `lost` are positions that were settled or delivered elsewhere."""

    done: int
    parked: int
    lost: list[int]


@dataclasses.dataclass(frozen=True)
class Parked:
    """An event that was set aside."""

    event: Event
    tries: int
    parked_at: dt.datetime
    reason: str


class Group:
    """A consumer group of an event store. Thread-safe."""

    def __init__(self, store: EventStore, name: str) -> None:
        self.store = store
        self.name = name
        self._path = f"/v1/stores/{segment(store.name)}/groups/{segment(name)}"

    def create(
        self,
        query: Query | None = None,
        *,
        after: int | str | None = None,
        lease: float | None = None,
        pause: float | None = None,
        tries: int | None = None,
        pending: int | None = None,
        in_order: bool | None = None,
    ) -> Group:
        """Creates the group, or changes the settings of an existing one, which keeps its position.

        `lease` (default 30) and `pause` before a retry (default 1) are in seconds, `tries`
        (default 10) are deliveries before an event is parked, `pending` (default 1,000) is the
        number of unsettled events. `in_order` delivers one batch at a time. Needs `admin`.
        """
        body: dict[str, Any] = {
            "query": None if query is None else query.to_json(),
            "after": after,
            "lease_ms": _milliseconds(lease),
            "pause_ms": _milliseconds(pause),
            "tries": tries,
            "pending": pending,
            "in_order": in_order,
        }
        self._call("put", body)
        return self

    def delete(self) -> None:
        """Deletes the group with its pending and parked events. Needs `admin`."""
        self._call("delete")

    def state(self) -> dict[str, Any]:
        """Returns the settings and `cursor`, `head`, `waiting`, `pending`, `leased`, `parked`."""
        found: dict[str, Any] = self._call("get")
        return found

    def take(self, most: int = 100, *, lease: float | None = None, wait: float = 0.0) -> Lease:
        """Takes up to `most` events (1 to 1,000); waits up to `wait` seconds (20) for the first.

        A take whose response is lost is not repeated: its events return when the lease expires.
        """
        body = {"max": most, "wait_ms": _milliseconds(wait), "lease_ms": _milliseconds(lease)}
        raw = self._call("take", body)
        deliveries = [Delivery(self.store.event_of(one["event"]), one["tries"]) for one in raw["events"]]
        until = None if raw["until"] is None else time_of(raw["until"])
        return Lease(raw["lease"], until, deliveries)

    def acknowledge(self, lease: int, positions: Iterable[int] | None = None) -> Settled:
        """Marks events of a lease as processed; all of them without positions."""
        return self._settle("acknowledge", lease, positions, {})

    def retry(
        self,
        lease: int,
        positions: Iterable[int] | None = None,
        *,
        pause: float | None = None,
        reason: str | None = None,
    ) -> Settled:
        """Delivers events again after the pause (seconds); parks those on their last try."""
        return self._settle("retry", lease, positions, {"pause_ms": _milliseconds(pause), "reason": reason})

    def park(self, lease: int, positions: Iterable[int] | None = None, *, reason: str | None = None) -> Settled:
        """Sets events aside."""
        return self._settle("park", lease, positions, {"reason": reason})

    def extend(self, lease: int, seconds: float | None = None) -> dt.datetime | None:
        """Extends the lease of its unsettled events, from now; returns its new end."""
        until = self._call("extend", {"lease": lease, "lease_ms": _milliseconds(seconds)})["until"]
        return None if until is None else time_of(until)

    def parked(self, *, after: int | None = None, limit: int | None = None) -> list[Parked]:
        """Returns the parked events by position; at most `limit` (default 100, at most 1,000)."""
        raw = self._call("parked", {"after": after, "limit": limit})
        return [
            Parked(self.store.event_of(one["event"]), one["tries"], time_of(one["parked_at"]), one["reason"] or "")
            for one in raw["parked"]
        ]

    def replay(self, positions: Iterable[int] | None = None) -> None:
        """Delivers parked events again, with all their tries; all of them without positions."""
        self._call("parked/replay", {"positions": _list(positions)})

    def discard(self, positions: Iterable[int] | None = None) -> None:
        """Deletes parked events; all of them without positions."""
        self._call("parked/discard", {"positions": _list(positions)})

    def work(
        self,
        handler: Callable[[Event], object],
        *,
        workers: int = 1,
        batch: int = 1,
        until_idle: bool = False,
    ) -> None:
        """Processes events until the process is interrupted; see `start`.

        With `until_idle` it returns when every event of the group is acknowledged or parked.
        """
        running = self.start(handler, workers=workers, batch=batch, until_idle=until_idle)
        try:
            running.join()
        finally:
            running.stop()

    def start(
        self,
        handler: Callable[[Event], object],
        *,
        workers: int = 1,
        batch: int = 1,
        until_idle: bool = False,
    ) -> Workers:
        """Starts threads that process events, and returns them.

        `handler(event)` acknowledges the event by returning. If it raises `Park`, the event is
        parked; any other exception delivers it again, with the exception as the reason. Each of the
        `workers` takes `batch` events at a time. Leases are extended while handlers run.
        """
        return Workers(self, handler, workers, batch, until_idle)

    def _settle(
        self, route: str, lease: int, positions: Iterable[int] | None, options: Mapping[str, Any]
    ) -> Settled:
        # Events that were settled by the first attempt are `lost` in its repetition.
        raw = self._call(route, {"lease": lease, "positions": _list(positions), **options})
        return Settled(raw["done"], raw["parked"], raw["lost"])

    def _call(self, action: str, body: Mapping[str, Any] | None = None) -> Any:
        """Carries out an action; fields that are `None` are absent."""
        fields = {name: value for name, value in (body or {}).items() if value is not None}
        request = self.store.db.transport.request
        if action == "put":
            return request("PUT", self._path, body=fields, is_safe=True).json()
        if action == "get":
            return request("GET", self._path).json()
        if action == "delete":
            return request("DELETE", self._path)
        if action == "parked":
            return request("GET", f"{self._path}/parked", query=fields).json()
        # A second take would lease further events.
        return request("POST", f"{self._path}/{action}", body=fields, is_safe=action != "take").json()


class Workers:
    """Threads that process the events of a group, see `Group.start`."""

    def __init__(
        self, group: Group, handler: Callable[[Event], object], workers: int, batch: int, until_idle: bool
    ) -> None:
        self._group = group
        self._handler = handler
        self._batch = batch
        self._until_idle = until_idle
        self._stopping = threading.Event()
        self._failed: BaseException | None = None
        self._leases: set[int] = set()
        self._lock = threading.Lock()
        settings = group.state()
        self._lease_seconds = float(settings["lease_ms"]) / 1000
        self._in_order = bool(settings["in_order"])
        self._threads = [
            threading.Thread(target=self._run, name=f"ropewalk-{group.name}-{number}", daemon=True)
            for number in range(workers)
        ]
        self._extender = threading.Thread(target=self._extend, name=f"ropewalk-{group.name}-leases", daemon=True)
        for thread in [*self._threads, self._extender]:
            thread.start()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Lets the handlers finish their batches, and waits for them."""
        self._stopping.set()
        for thread in [*self._threads, self._extender]:
            thread.join()

    def join(self, timeout: float | None = None) -> bool:
        """Waits for the threads; reports whether they have ended. Raises the error that ended them."""
        end = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            # A wait without an end could not be interrupted on every platform.
            while thread.is_alive() and (end is None or time.monotonic() < end):
                thread.join(0.2 if end is None else max(0.0, min(0.2, end - time.monotonic())))
        if self._failed is not None:
            raise self._failed
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                lease = self._group.take(self._batch, wait=0 if self._until_idle else WAIT)
                if lease.number is not None:
                    self._process(lease.number, lease.deliveries)
                elif self._until_idle:
                    state = self._group.state()
                    if state["waiting"] == 0 and state["pending"] == 0:
                        return
                    self._stopping.wait(0.02)
                failures = 0
            except TRANSIENT as error:
                failures += 1
                log.warning("worker_failed group=%s error=%s", self._group.name, error)
                self._stopping.wait(pause(failures))
            except BaseException as error:
                self._failed = error
                self._stopping.set()

    def _process(self, lease: int, deliveries: list[Delivery]) -> None:
        done: list[int] = []
        with self._lock:
            self._leases.add(lease)
        try:
            for delivery in deliveries:
                position = delivery.event.position
                try:
                    self._handler(delivery.event)
                    done.append(position)
                except Park as error:
                    reason = str(error) or "Park"
                    self._settle(partial(self._group.park, lease, [position], reason=reason), lease)
                except Exception as error:
                    reason = f"{type(error).__name__}: {error}"
                    log.info("handler_failed group=%s position=%d", self._group.name, position, exc_info=True)
                    self._settle(partial(self._group.retry, lease, [position], reason=reason), lease)
                    if self._in_order:
                        # The later events of the lease come again after this one.
                        break
        finally:
            with self._lock:
                self._leases.discard(lease)
            if done:
                self._settle(lambda: self._group.acknowledge(lease, done), lease)

    def _settle(self, settle: Callable[[], Settled], lease: int) -> None:
        try:
            settle()
        except NotFound:
            # The group was deleted, or created again: its events are delivered to others.
            log.warning("lease_lost group=%s lease=%d", self._group.name, lease)

    def _extend(self) -> None:
        every = self._lease_seconds / 3
        while any(thread.is_alive() for thread in self._threads):
            end = time.monotonic() + every
            while time.monotonic() < end and any(thread.is_alive() for thread in self._threads):
                time.sleep(min(0.1, every))
            with self._lock:
                leases = list(self._leases)
            for lease in leases:
                try:
                    self._group.extend(lease)
                except Error as error:
                    log.warning("lease_not_extended group=%s lease=%d error=%s", self._group.name, lease, error)


def _list(positions: Iterable[int] | None) -> list[int] | None:
    return None if positions is None else list(positions)


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
