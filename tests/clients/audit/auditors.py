"""Auditors: each reads all four models at one snapshot by one protocol. `AUDITORS` lists them.

A snapshot auditor has `protocol`, `view`, which returns a `View` or raises `Gone`, and `close`. `Promql` is not one: a
PromQL request reads the samples only.
"""

import datetime
import json
import random
import time

import bson
import grpc
import grpc_client
import psycopg
import pymongo
import ropewalk
from bank import NO_BOOT, View
from place import PATIENCE
from pymongo.read_concern import ReadConcern
from writers import PostgresConnection, mongo_client

ROWS = "SELECT id, balance, transfers FROM accounts"
#: Events of one page of an audit of all boots.
PAGE = 10_000


class Gone(Exception):
    """The server was killed during the audit."""


def samples_of(base):
    """The query for sum and number of the samples by account."""
    boots = f"boot <> '{NO_BOOT}'" if base.boot is None else f"boot = '{base.boot}'"
    return f"SELECT account, sum(value), count(*) FROM metrics.moved WHERE {boots} GROUP BY account"


def promql_of(base):
    """The query for the sums by PromQL, in the snapshot of the SQL statement."""
    # After the newest sample, which has the time of this machine.
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=2)
    expression = f"sum by (account) (sum_over_time(moved{{{matcher(base)}}}[1d]))"
    return f"SELECT labels->>'account', value FROM promql('{expression}', '{at:%F %T}+00', '{at:%F %T}+00', 1)"


def matcher(base):
    """The matcher for the samples of an audit."""
    return f'boot!="{NO_BOOT}"' if base.boot is None else f'boot="{base.boot}"'


def events_of(base):
    """The query for a page of events after a position, which is the parameter."""
    return f"SELECT position, json FROM events.transfers WHERE position > $1 ORDER BY position LIMIT {PAGE}"


def pages(read, after):
    """All events after a position; `read` returns a page of positions and data."""
    found = []
    while page := read(after):
        found += [(position, data) for position, data in page]
        after = found[-1][0]
    return found


class Http:
    """One read-only request; for an audit of all boots an open transaction, because the results have many pages."""

    protocol = "HTTP"

    def __init__(self, place):
        self._db = ropewalk.connect(place.http, retry_for=PATIENCE)

    def view(self, base):
        try:
            return self._complete(base) if base.boot is None else self._at_once(base)
        except ropewalk.ConnectionBroken as error:
            raise Gone from error

    def _at_once(self, base):
        # A transaction that only reads conflicts with no other at any isolation.
        isolation = random.choice(["serializable", "snapshot"])
        with self._db.transaction(isolation=isolation, automatic_key=False) as tx:
            rows = tx.sql(ROWS)
            documents = tx.documents("accounts", "bank").find()
            events = tx.read("transfers", after=base.position)
            samples, promql = tx.sql(samples_of(base)), tx.sql(promql_of(base))
        read = ((one.position, one.data) for one in events.result)
        return View.of(rows.result, documents.result, read, samples.result, promql.result)

    def _complete(self, base):
        with self._db.begin(isolation="snapshot") as tx:

            def read(after):
                return [(one.position, one.data) for one in tx.read("transfers", after=after, limit=PAGE)]

            return View.of(
                tx.sql(ROWS), tx.documents("accounts", "bank").find(), pages(read, base.position),
                tx.sql(samples_of(base)), tx.sql(promql_of(base)),
            )

    def close(self):
        self._db.close()


class Postgres:
    """A read-only transaction, in which every model is a relation."""

    protocol = "PostgreSQL"

    def __init__(self, place):
        self._connection = PostgresConnection(place)

    def view(self, base):
        db = self._connection.get()
        levels = [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE]
        db.isolation_level, db.read_only = random.choice(levels), True
        try:
            with db.transaction():
                def rows(text, *parameters):
                    return db.execute(text, parameters or None).fetchall()

                documents = [doc for (doc,) in rows("SELECT doc FROM bank.accounts")]
                events = pages(lambda after: rows(events_of(base), after), base.position)
                return View.of(rows(ROWS), documents, events, rows(samples_of(base)), rows(promql_of(base)))
        except psycopg.OperationalError as error:
            # A lost connection has no SQLSTATE.
            if error.sqlstate is not None:
                raise
            self._connection.close()
            raise Gone from error

    def close(self):
        self._connection.close()


class Mongo:
    """A session's transaction with read concern `snapshot`: documents by find, the other models by `ropewalkSql`."""

    protocol = "MongoDB"

    def __init__(self, place):
        self._client = mongo_client(place)

    def view(self, base):
        bank = self._client.bank
        try:
            with self._client.start_session() as session, session.start_transaction(ReadConcern("snapshot")):
                def rows(text, *parameters):
                    command = {"ropewalkSql": text, "parameters": list(parameters)}
                    return bank.command(command, session=session)["rows"]

                documents = list(bank.accounts.find({}, session=session))
                events = pages(lambda after: rows(events_of(base), after), base.position)
                return View.of(rows(ROWS), documents, events, rows(samples_of(base)), rows(promql_of(base)))
        except pymongo.errors.ConnectionFailure as error:
            raise Gone from error
        except pymongo.errors.OperationFailure as error:
            # A new server does not know the transaction.
            if not error.has_error_label("TransientTransactionError"):
                raise
            raise Gone from error

    def close(self):
        self._client.close()


class Grpc:
    """One call; for an audit of all boots an open transaction, and calls that read the events at its commit."""

    protocol = "gRPC"

    def __init__(self, place):
        self._transactions = grpc_client.Transactions(place.grpc)

    def view(self, base):
        gone = {grpc.StatusCode.UNAVAILABLE}
        if base.boot is None:
            # A new server knows neither the token nor, until then, the commit.
            gone |= {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.OUT_OF_RANGE}
        try:
            return self._complete(base) if base.boot is None else self._at_once(base)
        except grpc.RpcError as error:
            if error.code() not in gone:
                raise
            raise Gone from error

    def _at_once(self, base):
        operations = [{"read": {"store": "transfers", "after": base.position}}, *self._models(base)]
        isolation = random.choice(["SERIALIZABLE", "SNAPSHOT"])
        events, *models = self._transactions.commit(operations, isolation=isolation).results
        return self._view(self._events(events), models)

    def _complete(self, base):
        begun = self._transactions.begin(isolation="SNAPSHOT")
        models = self._transactions.execute(begun.transaction, self._models(base))

        def read(after):
            operations = [{"read": {"store": "transfers", "after": after, "limit": PAGE}}]
            return self._events(*self._transactions.commit(operations, at=begun.snapshot).results)

        events = pages(read, base.position)
        self._transactions.rollback(begun.transaction)
        return self._view(events, models)

    @staticmethod
    def _models(base):
        statements = [{"sql": {"sql": text}} for text in (ROWS, samples_of(base), promql_of(base))]
        return [{"documents": {"database": "bank", "collection": "accounts", "find": {}}}, *statements]

    @staticmethod
    def _events(result):
        return [(one.position, json.loads(one.event.data)) for one in result.events.events]

    @staticmethod
    def _view(events, models):
        documents, *tables = models
        found = [bson.decode(one.bson) for one in documents.documents.documents]
        rows, samples, promql = map(grpc_client.rows, tables)
        return View.of(rows, found, events, samples, promql)

    def close(self):
        self._transactions.close()


class Promql:
    """PromQL over HTTP. Each transfer moves nothing in sum, and its two samples become visible together."""

    protocol = "PromQL"

    def __init__(self, place):
        self._db = ropewalk.connect(place.http, retry_for=PATIENCE)

    def disagreements(self, base):
        """Compares one query with the numbers of transfers before and after it."""
        transfers = self._db.events("transfers")
        ours = ropewalk.where(tags=f"boot:{base.boot}")
        before = transfers.count(ours)
        queried = f"moved{{{matcher(base)}}}[1d]"
        # Both from one snapshot: the labels tell them apart.
        query = " or ".join(
            f'label_replace(sum({function}({queried})), "what", "{function}", "", "")'
            for function in ("sum_over_time", "count_over_time")
        )
        found = {one.labels["what"]: one.value for one in self._db.promql(query, at=time.time() + 2)}
        after = transfers.count(ours)
        total, number = found.get("sum_over_time", 0), found.get("count_over_time", 0)
        problems = []
        if total != 0:
            problems.append(f"PromQL of boot {base.boot}: the samples of all accounts add up to {total}, not 0")
        if not (number % 2 == 0 and 2 * before <= number <= 2 * after):
            problems.append(f"PromQL of boot {base.boot}: {number} samples, with {before} to {after} transfers")
        return problems

    def close(self):
        self._db.close()


#: One class per protocol that reads all four models.
AUDITORS = [Http, Postgres, Mongo, Grpc]
