"""An order service: place, pay and ship orders; a read model; e-mails; metrics.

    place ──► decision over the events of the product and the order ──► event and metric, one commit
                                                                           │
              board (table, checkpoint in the same commit) ◄───────────────┤
              e-mails (consumer group)                     ◄───────────────┘

Run it against a server: `python orders.py http://127.0.0.1:4780`
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import ropewalk
from ropewalk import Event, Model, Park, Refused, Tag, event, where


@event
class StockAdded:
    sku: Annotated[str, Tag]
    n: int


@event
class OrderPlaced:
    order: Annotated[str, Tag]
    sku: Annotated[str, Tag]
    n: int
    cents: int
    email: str


@event
class OrderPaid:
    order: Annotated[str, Tag]


@event
class OrderShipped:
    order: Annotated[str, Tag]


EVENTS = [StockAdded, OrderPlaced, OrderPaid, OrderShipped]


@dataclass(frozen=True)
class State:
    """Stock of a product, and state of an order (`None` if it does not exist)."""

    left: int = 0
    order: str | None = None


def state_of(order: str, sku: str | None = None) -> Model[State]:
    """Returns the events that a decision about an order depends on: a later one is a conflict."""

    def apply(state: State, one: Event) -> State:
        match one.value:
            case StockAdded(n=n):
                return replace(state, left=state.left + n)
            case OrderPlaced(order=placed, sku=of, n=n):
                left = state.left - n if of == sku else state.left
                return State(left, "placed" if placed == order else state.order)
            case OrderPaid():
                return replace(state, order="paid")
            case OrderShipped():
                return replace(state, order="shipped")
        return state

    query = where(OrderPlaced, OrderPaid, OrderShipped, tags=f"order:{order}")
    if sku is not None:
        query |= where(StockAdded, OrderPlaced, tags=f"sku:{sku}")
    return Model(query, State, apply)


class Orders:
    """The commands. Each decides on the current events, and again if these change meanwhile."""

    def __init__(self, db: ropewalk.Database, store: str = "shop") -> None:
        self.db = db
        self.shop = db.events(store, EVENTS)

    def add_stock(self, sku: str, n: int) -> None:
        self.shop.append(StockAdded(sku, n))

    def place(self, order: str, sku: str, n: int, cents: int, email: str) -> None:
        """Places an order. Raises `Refused` if it exists, or if the stock is too small."""

        def decide(state: State, tx: ropewalk.Transaction) -> None:
            if state.order is not None:
                raise Refused(f"order {order} exists")
            if state.left < n:
                raise Refused(f"{state.left} of {sku} left, {n} ordered")
            tx.append(self.shop, OrderPlaced(order, sku, n, cents, email))
            tx.sample("order_cents", cents, {"sku": sku, "order": order}, at=time.time())

        self.shop.decide_in_transaction(state_of(order, sku), decide)

    def pay(self, order: str) -> None:
        """Pays an order. Raises `Refused` if it is not placed, or already paid."""

        def decide(state: State) -> OrderPaid:
            if state.order != "placed":
                raise Refused(f"order {order} is {state.order or 'unknown'}")
            return OrderPaid(order)

        self.shop.decide(state_of(order), decide)

    def ship(self, order: str) -> None:
        """Ships an order. Raises `Refused` if it is not paid, or already shipped."""

        def decide(state: State) -> OrderShipped:
            if state.order != "paid":
                raise Refused(f"order {order} is {state.order or 'unknown'}")
            return OrderShipped(order)

        self.shop.decide(state_of(order), decide)


class Board:
    """The read model: a table of orders, written by a worker that follows the events."""

    NAME = "board"

    def __init__(self, orders: Orders) -> None:
        self.db, self.shop = orders.db, orders.shop
        self.db.sql("CREATE TABLE IF NOT EXISTS board (id text PRIMARY KEY, sku text, n int, state text NOT NULL)")
        self._events: ropewalk.Subscription | None = None

    def run(self) -> None:
        """Applies events until `stop`.

        The row and the checkpoint are one commit, so that each event is applied once. Raises
        `PreconditionFailed` if another worker has moved the checkpoint.
        """
        position = self.shop.checkpoint(self.NAME)
        with self.shop.subscribe(where(*EVENTS), after=position) as self._events:
            for one in self._events:
                with self.db.transaction() as tx:
                    # First, so that a second worker fails here and not at a duplicate row.
                    tx.checkpoint(self.shop, self.NAME, one.position, expect=position)
                    self._apply(tx, one)
                position = one.position

    def _apply(self, tx: ropewalk.Transaction, one: Event) -> None:
        match one.value:
            case OrderPlaced(order=order, sku=sku, n=n):
                tx.sql("INSERT INTO board VALUES (%s, %s, %s, 'placed')", [order, sku, n], expect=1)
            case OrderPaid(order=order):
                tx.sql("UPDATE board SET state = 'paid' WHERE id = %s", [order], expect=1)
            case OrderShipped(order=order):
                tx.sql("UPDATE board SET state = 'shipped' WHERE id = %s", [order], expect=1)

    def stop(self) -> None:
        if self._events is not None:
            self._events.close()


def mailer(orders: Orders, send: Callable[[str, str], None], workers: int = 2) -> ropewalk.Workers:
    """Sends an e-mail for each placed order; a failure is retried, an unusable address is parked."""

    def handle(one: Event) -> None:
        placed: OrderPlaced = one.value
        if "@" not in placed.email:
            raise Park(f"no address: {placed.email}")
        send(placed.email, f"order {placed.order}: {placed.n} of {placed.sku}")

    return orders.shop.group("mailer").create(where(OrderPlaced), pause=0.1, tries=5).start(handle, workers=workers)


def revenue(db: ropewalk.Database) -> dict[str, float]:
    """Returns the revenue of the last day by product, in cents."""
    return {one.labels["sku"]: one.value for one in db.promql("sum by (sku) (sum_over_time(order_cents[1d]))")}


def main(url: str) -> None:
    db = ropewalk.connect(url)
    orders = Orders(db)
    board = Board(orders)
    threading.Thread(target=board.run, daemon=True).start()
    with mailer(orders, lambda to, text: print(f"to {to}: {text}")):
        order = f"o{time.time_ns()}"
        orders.add_stock("rope", 5)
        orders.place(order, "rope", 2, 1990, "ann@example.org")
        orders.pay(order)
        orders.ship(order)
        time.sleep(1)
    board.stop()
    print([tuple(row) for row in db.sql("SELECT * FROM board WHERE id = %s", [order])], revenue(db))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:4780")
