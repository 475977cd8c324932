"""Writers: each transfers by one protocol. `WRITERS` lists them.

A writer has `protocol` (for the figures), `name` (the beginning of its transfers' ids), `transfer`, which returns an
`Outcome`, and `close`. It repeats a transfer that conflicts with others, and waits for a server that was killed.
"""

import datetime
import json
import random
import time

import grpc
import grpc_client
import psycopg
import pymongo
import pymongo.common
import ropewalk
from bank import CHANGE_ROW, CHECK_VIOLATION
from ledger import Outcome
from place import PATIENCE
from psycopg import errors

#: Longest pause before a transfer is repeated after a conflict, seconds.
PAUSE_MAX = 0.02
#: Pause of MongoDB's driver between two attempts to reach a killed server, seconds; by default 0.5, more than a round.
MONGO_PAUSE = 0.05
CHANGE_DOCUMENT = (
    "UPDATE bank.accounts SET doc = doc::jsonb || jsonb_build_object("
    "'balance', (doc->>'balance')::bigint + $1, 'transfers', (doc->>'transfers')::bigint + 1) WHERE _id = $2"
)
#: Both ways to append an event by SQL.
APPEND = [
    "INSERT INTO events.transfers (type, tags, json) VALUES ('Transferred', $1, $2)",
    "SELECT append_event('Transferred', $1, $2, store => 'transfers')",
]
ADD_SAMPLE = "INSERT INTO metrics.moved (time, value, account, boot) VALUES ($1, $2, $3, $4)"


def pause():
    """Waits before a repetition."""
    time.sleep(random.uniform(0, PAUSE_MAX))


def write(tx, transfer):
    """Writes a transfer to a transaction of the Python client: one that is collected, or an open one."""
    tx.append("transfers", {"type": "Transferred", "tags": transfer.tags(), "data": transfer.data()})
    accounts, boot = tx.documents("accounts", "bank"), str(transfer.boot)
    for account, change in transfer.changes():
        accounts.update({"_id": account}, {"$inc": {"balance": change, "transfers": 1}}, expect=1)
    point = transfer.at / 1000
    tx.samples(
        [("moved", {"account": account, "boot": boot}, [(point, change)]) for account, change in transfer.changes()]
    )
    for account, change in transfer.changes():
        tx.sql(CHANGE_ROW, [change, account], expect=1)


class Http:
    """`POST /v1/transactions` with an idempotency key: repeated until the server has responded."""

    protocol = "HTTP"

    def __init__(self, place, name, url=None):
        self.name = name
        self.db = ropewalk.connect(url or place.http, retry_for=PATIENCE)
        #: Transfers that an earlier request with the same key had written.
        self.repeated = 0

    def transfer(self, transfer):
        try:
            with self.db.transaction(idempotency_key=transfer.id) as tx:
                write(tx, transfer)
        except ropewalk.InvalidArgument as error:
            if error.sqlstate != CHECK_VIOLATION:
                raise
            return Outcome.ABSENT
        self.repeated += tx.is_repeated
        return Outcome.ACKNOWLEDGED

    def close(self):
        self.db.close()


class HttpOpen:
    """A transaction over several HTTP requests."""

    protocol = "HTTP, open"

    def __init__(self, place, name):
        self.name = name
        self.db = ropewalk.connect(place.http, retry_for=PATIENCE)

    def transfer(self, transfer):
        while True:
            is_committing = False
            try:
                tx = self.db.begin()
                write(tx, transfer)
                is_committing = True
                tx.commit()
                return Outcome.ACKNOWLEDGED
            except ropewalk.Conflict:
                pause()
            except ropewalk.ConnectionBroken:
                return Outcome.UNKNOWN if is_committing else Outcome.ABSENT
            except ropewalk.NotFound:
                # A new server does not know the token of the killed one, which never got this request.
                return Outcome.ABSENT
            except ropewalk.InvalidArgument as error:
                if error.sqlstate != CHECK_VIOLATION:
                    raise
                return Outcome.ABSENT

    def close(self):
        self.db.close()


class PostgresConnection:
    """A connection to the PostgreSQL port, opened again after a kill. Statements have `$1`."""

    def __init__(self, place):
        self._host, self._port = place.postgres.split(":")
        self._db = None

    def get(self):
        """Returns the open connection; waits for the server."""
        end = time.monotonic() + PATIENCE
        while self._db is None or self._db.closed:
            try:
                self._db = psycopg.connect(
                    host=self._host, port=self._port, user="audit", dbname="ropewalk",
                    connect_timeout=20, cursor_factory=psycopg.RawCursor,
                )
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                pause()
        return self._db

    def close(self):
        if self._db is not None:
            self._db.close()


class Postgres:
    """A serializable transaction of SQL statements over all models."""

    protocol = "PostgreSQL"

    def __init__(self, place, name):
        self.name = name
        self._connection = PostgresConnection(place)

    def transfer(self, transfer):
        while True:
            outcome = self._attempt(transfer)
            if outcome is not None:
                return outcome
            pause()

    def _attempt(self, transfer):
        """Returns the outcome; `None` after a conflict."""
        db, is_committing = self._connection.get(), False
        db.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        try:
            try:
                for statement, parameters in self._statements(transfer):
                    db.execute(statement, parameters)
                is_committing = True
                db.commit()
                return Outcome.ACKNOWLEDGED
            except errors.SerializationFailure:
                db.rollback()
                return None
            except errors.CheckViolation:
                db.rollback()
                return Outcome.ABSENT
        except psycopg.OperationalError as error:
            # A lost connection has no SQLSTATE.
            if error.sqlstate is not None:
                raise
            self._connection.close()
            return Outcome.UNKNOWN if is_committing else Outcome.ABSENT

    @staticmethod
    def _statements(transfer):
        yield random.choice(APPEND), [transfer.tags(), json.dumps(transfer.data())]
        for account, change in transfer.changes():
            yield CHANGE_DOCUMENT, [change, account]
        at = datetime.datetime.fromtimestamp(transfer.at / 1000, datetime.timezone.utc)
        for account, change in transfer.changes():
            yield ADD_SAMPLE, [at, float(change), account, str(transfer.boot)]
        for account, change in transfer.changes():
            yield CHANGE_ROW, [change, account]

    def close(self):
        self._connection.close()


def mongo_client(place):
    """Returns a client of the MongoDB port, which waits for the server."""
    # A constant of the driver, which its own tests change as well.
    pymongo.common.MIN_HEARTBEAT_INTERVAL = MONGO_PAUSE
    return pymongo.MongoClient(f"mongodb://{place.mongo}/", serverSelectionTimeoutMS=PATIENCE * 1000)


class Mongo:
    """A session's transaction of documents and of the commands for the other models.

    `with_transaction` repeats the commit until the server has reported its result, also across restarts.
    """

    protocol = "MongoDB"

    def __init__(self, place, name):
        self.name = name
        self._client = mongo_client(place)

    def transfer(self, transfer):
        try:
            with self._client.start_session() as session:
                session.with_transaction(lambda session: self._write(session, transfer))
        except pymongo.errors.OperationFailure as error:
            if (error.details or {}).get("sqlstate") != CHECK_VIOLATION:
                raise
            return Outcome.ABSENT
        return Outcome.ACKNOWLEDGED

    def _write(self, session, transfer):
        bank, boot = self._client.bank, str(transfer.boot)
        for account, change in transfer.changes():
            update = {"$inc": {"balance": change, "transfers": 1}}
            bank.accounts.update_one({"_id": account}, update, session=session)
        event = {"type": "Transferred", "tags": transfer.tags(), "data": transfer.data()}
        bank.command({"ropewalkAppend": "transfers", "events": [event]}, session=session)
        series = []
        for account, change in transfer.changes():
            labels = {"__name__": "moved", "account": account, "boot": boot}
            series.append({"labels": labels, "samples": [[transfer.at, float(change)]]})
        bank.command({"ropewalkSamples": "default", "series": series}, session=session)
        for account, change in transfer.changes():
            bank.command({"ropewalkSql": CHANGE_ROW, "parameters": [change, account]}, session=session)

    def close(self):
        self._client.close()


class Grpc:
    """`Commit` with an idempotency key: repeated until the server has responded."""

    protocol = "gRPC"

    #: After these codes the transfer may be present or absent. The key makes a repetition safe.
    REPEATED = {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
    }

    def __init__(self, place, name, address=None):
        self.name = name
        self._transactions = grpc_client.Transactions(address or place.grpc)
        #: Transfers that an earlier call with the same key had written.
        self.repeated = 0

    def transfer(self, transfer):
        operations, end = list(self._operations(transfer)), time.monotonic() + PATIENCE
        while True:
            try:
                committed = self._transactions.commit(operations, idempotency_key=transfer.id)
            except grpc.RpcError as error:
                if grpc_client.sqlstate(error) == CHECK_VIOLATION:
                    return Outcome.ABSENT
                if error.code() not in self.REPEATED or time.monotonic() > end:
                    raise
                pause()
                continue
            self.repeated += committed.is_repetition
            return Outcome.ACKNOWLEDGED

    @staticmethod
    def _operations(transfer):
        event = {"type": "Transferred", "tags": transfer.tags(), "data": json.dumps(transfer.data()).encode()}
        yield {"append": {"store": "transfers", "events": [event]}}
        for account, change in transfer.changes():
            update = {
                "filter": {"extended_json": json.dumps({"_id": account})},
                "update": {"extended_json": json.dumps({"$inc": {"balance": change, "transfers": 1}})},
            }
            yield {"documents": {"database": "bank", "collection": "accounts", "update": update, "expect": 1}}
        series = []
        for account, change in transfer.changes():
            labels = {"__name__": "moved", "account": account, "boot": str(transfer.boot)}
            labels = [{"name": name, "value": value} for name, value in labels.items()]
            series.append({"labels": labels, "samples": [{"timestamp_millis": transfer.at, "value": change}]})
        yield {"samples": {"series": series}}
        for account, change in transfer.changes():
            yield {"sql": {"sql": CHANGE_ROW, "parameters": [{"int64_value": change}, {"text_value": account}], "expect": 1}}

    def close(self):
        self._transactions.close()


#: One class per protocol.
WRITERS = [Http, HttpOpen, Postgres, Mongo, Grpc]
