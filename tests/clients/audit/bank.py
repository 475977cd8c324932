"""Accounts that exist in all four models, and the check that one snapshot of all models agrees.

    row       accounts (id, balance, transfers)
    document  bank.accounts {_id, balance, transfers}
    samples   moved{account, boot}: the change of each account, at the time of the transfer
    event     Transferred in the store `transfers`, with the id of the transfer

A transfer writes one event, and two rows, documents and samples, in one commit. So the events give the balance
and the number of transfers of every account. Rows, documents and samples have to equal them.
"""

import collections
import dataclasses

#: Balance of every account at the beginning; rows and documents are created with it.
INITIAL = 100
ACCOUNTS = [f"a{number:02}" for number in range(24)]
#: Changes the row of an account. The constraint `enough` rejects a negative balance.
CHANGE_ROW = "UPDATE accounts SET balance = balance + $1, transfers = transfers + 1 WHERE id = $2"
#: SQLSTATE of a violated check.
CHECK_VIOLATION = "23514"
#: The boot of the samples that create the series before the first transfer.
NO_BOOT = 0
#: Most accounts that the description of a disagreement lists.
LISTED_MAX = 3


@dataclasses.dataclass(frozen=True)
class Transfer:
    """A transfer. `at` is in milliseconds and unique; `boot` is the number of the round in which it was issued."""

    id: str
    source: str
    target: str
    amount: int
    at: int
    boot: int

    def data(self):
        """The payload of the event."""
        return dict(vars(self))

    def tags(self):
        """The tags of the event."""
        return [f"transfer:{self.id}", f"account:{self.source}", f"account:{self.target}", f"boot:{self.boot}"]

    def changes(self):
        """Accounts and their changes. The change that the constraint may reject is the last one."""
        return [(self.target, self.amount), (self.source, -self.amount)]


@dataclasses.dataclass(frozen=True)
class Base:
    """A known state from which an audit starts, at a position.

    The audit reads the events after the position, and the samples of one boot that began later; `None`: of all.
    """

    position: int
    boot: "int | None"
    #: Balance and number of transfers by account.
    accounts: dict
    #: Sum and number of the samples by account, if the audit reads those of all boots.
    samples: dict = dataclasses.field(default_factory=dict)
    #: The ids of the transfers up to the position.
    ids: frozenset = frozenset()

    def after(self, view):
        """The state of a view, from which an audit of the next events and of the samples of all boots starts."""
        ids = self.ids.union(data["id"] for _, data in view.events)
        return Base(self.position + len(view.events), None, view.rows, view.samples, ids)

    def of_boot(self, boot):
        """The same state for audits that read the samples of one boot, which begins now."""
        return dataclasses.replace(self, boot=boot, samples={})


@dataclasses.dataclass(frozen=True)
class View:
    """All models at one snapshot, as one client read them."""

    #: Balance and number of transfers by account.
    rows: dict
    documents: dict
    #: Position and data, in order.
    events: list
    #: Sum and number of the samples by account; the sum as PromQL in the same snapshot gives it.
    samples: dict
    promql: dict

    @classmethod
    def of(cls, rows, documents, events, samples, promql):
        """Makes a view of the rows and documents that a client returns."""
        return cls(
            {id: (balance, transfers) for id, balance, transfers in rows},
            {one["_id"]: (one["balance"], one["transfers"]) for one in documents},
            list(events),
            {account: (total, number) for account, total, number in samples},
            dict(tuple(one) for one in promql),
        )


def start(initial):
    """The state before the first transfer."""
    return Base(0, None, {account: (initial, 0) for account in ACCOUNTS})


def create(db, initial):
    """Creates the accounts in all models, over HTTP."""
    db.script(
        "CREATE TABLE accounts (id text PRIMARY KEY, balance bigint NOT NULL, transfers bigint NOT NULL,"
        " CONSTRAINT enough CHECK (balance >= 0));"
        + ";".join(f"INSERT INTO accounts VALUES ('{account}', {initial}, 0)" for account in ACCOUNTS)
    )
    db.documents("accounts", "bank").insert(
        [{"_id": account, "balance": initial, "transfers": 0} for account in ACCOUNTS]
    )
    # A label becomes a column with its first sample.
    with db.transaction() as tx:
        labels = [{"account": account, "boot": str(NO_BOOT)} for account in ACCOUNTS]
        tx.samples([("moved", one, [(1, 0)]) for one in labels])


def disagreements(base, view):
    """Describes every way in which the models of a view differ from its events; an empty list if they agree."""
    found = []
    positions = [position for position, _ in view.events]
    if positions != list(range(base.position + 1, base.position + 1 + len(positions))):
        found.append(f"positions after {base.position} have gaps or repetitions: {positions[:LISTED_MAX]} …")
    counts = collections.Counter(data["id"] for _, data in view.events)
    twice = [id for id, count in counts.items() if count > 1 or id in base.ids]
    if twice:
        found.append(f"{len(twice)} transfers were applied twice: {twice[:LISTED_MAX]}")
    accounts, samples = _by_events(base, view.events)
    found += _differences("rows", accounts, view.rows)
    found += _differences("documents", accounts, view.documents)
    found += _differences("samples", samples, view.samples)
    found += _differences("PromQL", {account: total for account, (total, _) in samples.items()}, view.promql)
    sums = [sum(balance for balance, _ in accounts.values()) for accounts in (base.accounts, view.rows)]
    if sums[0] != sums[1]:
        found.append(f"the sum of all balances is {sums[1]}, not {sums[0]}")
    return found


def _by_events(base, events):
    """Balances and samples by account, as the events give them."""
    accounts, samples = dict(base.accounts), dict(base.samples)
    for _, data in events:
        for account, change in Transfer(**data).changes():
            balance, transfers = accounts[account]
            accounts[account] = (balance + change, transfers + 1)
            if base.boot in (None, data["boot"]):
                total, number = samples.get(account, (0, 0))
                samples[account] = (total + change, number + 1)
    return accounts, samples


def _differences(model, expected, read):
    different = sorted(account for account in expected.keys() | read if expected.get(account) != read.get(account))
    if not different:
        return []
    listed = [f"{account}: {read.get(account)}, by the events {expected.get(account)}" for account in different]
    return [f"{model} of {len(different)} accounts: {'; '.join(listed[:LISTED_MAX])}"]
