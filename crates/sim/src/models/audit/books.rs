//! The books of the bank: the balance of each account as each model has it, read at a snapshot or in a
//! transaction.

use std::collections::{BTreeMap, BTreeSet};

use ropewalk::documents::lang::{DocBuf, Value as Bson, Writer};
use ropewalk::documents::{Collection, Find};
use ropewalk::events::{EventReader, ReadOptions, SequencedEvent};
use ropewalk::series::{Labels, Matcher, SampleBatch, Samples, SeriesAt, SeriesStore};
use ropewalk::tables::{ColumnDef, KeyRange, Row, Table, TableDef, TablesError, Type};
use ropewalk::{Database, Error, EventStore, Query, Snapshot, Transaction};

use crate::events::scenario::{Check, ensure};
use crate::models::audit::transfer::Transfer;

/// Number of accounts.
pub(crate) const ACCOUNTS: i64 = 6;
/// Money of each account at the beginning.
pub(crate) const INITIAL: i64 = 100;
/// Time of the first samples, milliseconds since 1970.
pub(crate) const START_MS: i64 = 1_000;
/// Names in the database. SQL finds them as `accounts`, `bank.accounts`, `events.transfers`, `metrics.balance`.
pub(crate) const TABLE: &str = "accounts";
const COLLECTION: (&str, &str) = ("bank", "accounts");
const EVENTS: &str = "transfers";
const SERIES: &str = "default";
pub(crate) const METRIC: &str = "balance";
pub(crate) const MOVED: &str = "Moved";
pub(crate) const AUDITED: &str = "Audited";
/// The balance or account of stored data that is not valid, which no model agrees with.
const INVALID: i64 = i64::MIN / 4;

/// A data model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Model {
    Rows,
    Documents,
    Events,
    Samples,
}

pub(crate) const MODELS: [Model; 4] = [Model::Rows, Model::Documents, Model::Events, Model::Samples];

/// Handles on the accounts in each model.
pub(crate) struct Bank {
    pub(crate) rows: Table,
    pub(crate) documents: Collection,
    pub(crate) events: EventStore,
    pub(crate) samples: SeriesStore,
}

impl Bank {
    pub(crate) fn of(db: &Database) -> Result<Self, Error> {
        let (database, collection) = COLLECTION;
        Ok(Self {
            rows: db.table(TABLE)?,
            documents: db.documents().collection(database, collection)?,
            events: db.events(EVENTS)?,
            samples: db.series(SERIES)?,
        })
    }

    /// Opens all accounts, in one commit.
    pub(crate) fn create(db: &Database) -> Result<(), Error> {
        let (database, collection) = COLLECTION;
        let documents = db.documents().collection(database, collection)?;
        let mut tx = db.begin();
        let table = TableDef::new(TABLE)
            .column(ColumnDef::new("id", Type::INT8))
            .column(ColumnDef::new("balance", Type::INT8).not_null())
            .primary_key(["id"]);
        let table = tx.tables().create_table(table)?;
        let mut batch = SampleBatch::new();
        for account in 1..=ACCOUNTS {
            tx.tables().insert_row(&table, &[account.into(), INITIAL.into()])?;
            let mut document = Writer::new();
            document.put("_id", Bson::String(&account.to_string()));
            document.put("balance", Bson::Int64(INITIAL));
            tx.documents().insert_one(&documents, document.finish().bytes())?;
            batch.push(&labels(account)?, START_MS, INITIAL as f64);
        }
        tx.append_samples(&db.series(SERIES)?, &batch)?;
        tx.commit().map(|_| ())
    }
}

pub(crate) fn labels(account: i64) -> Result<Labels, Error> {
    Ok(Labels::new([("__name__", METRIC.to_owned()), ("account", account.to_string())])?)
}

type Balances = BTreeMap<i64, i64>;

/// The balance of each account, by model, and the transfers that led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Books {
    pub(crate) rows: Balances,
    documents: Balances,
    /// The initial balance and the sum of the events.
    events: Balances,
    /// The last sample of each account.
    samples: Balances,
    /// The numbers of the transfers, in the order of their events.
    pub(crate) transfers: Vec<i64>,
    sampled: usize,
    /// Audits that were recorded as events. Transactions do not read them.
    pub(crate) audits: u64,
}

impl Books {
    /// The same books with another number of audits.
    pub(crate) fn with_audits(self, audits: u64) -> Self {
        Self { audits, ..self }
    }
}

impl Default for Books {
    /// The books before the first transfer.
    fn default() -> Self {
        let initial: Balances = (1..=ACCOUNTS).map(|account| (account, INITIAL)).collect();
        Self {
            rows: initial.clone(),
            documents: initial.clone(),
            events: initial.clone(),
            samples: initial,
            transfers: Vec::new(),
            sampled: ACCOUNTS as usize,
            audits: 0,
        }
    }
}

impl Books {
    /// Books of which no model has been read.
    pub(crate) fn unread() -> Self {
        let nothing = Balances::new;
        let (rows, documents, events, samples) = (nothing(), nothing(), nothing(), nothing());
        Self { rows, documents, events, samples, transfers: Vec::new(), sampled: 0, audits: 0 }
    }

    /// Reads all models at a snapshot.
    pub(crate) fn at(db: &Database, snapshot: &Snapshot) -> Result<Self, Error> {
        let (bank, mut books) = (Bank::of(db)?, Self::unread());
        snapshot
            .tables(db)
            .scan(&bank.rows, &KeyRange::all(), false, &mut |row: Row<'_>| books.add_row(row))?;
        snapshot.documents(db).visit(&bank.documents, &Find::all(), &mut |document: DocBuf| {
            books.add_document(&document);
            Ok(true)
        })?;
        let events = |name| snapshot.events(&bank.events, &Query::from_types([name]), ReadOptions::default());
        books.add_events(events(MOVED)?)?;
        books.add_samples(&snapshot.series(&bank.samples))?;
        for event in events(AUDITED)? {
            event?;
            books.audits += 1;
        }
        Ok(books)
    }

    /// Reads one model in a transaction.
    pub(crate) fn read(&mut self, model: Model, bank: &Bank, tx: &mut Transaction) -> Result<(), Error> {
        match model {
            Model::Rows => {
                let each = &mut |row: Row<'_>| self.add_row(row);
                tx.tables().scan(&bank.rows, &KeyRange::all(), false, each)?;
            }
            Model::Documents => {
                for document in tx.documents().find(&bank.documents, &Find::all())? {
                    self.add_document(&document);
                }
            }
            Model::Events => {
                let moved = Query::from_types([MOVED]);
                self.add_events(tx.read_events(&bank.events, &moved, ReadOptions::default())?)?;
            }
            Model::Samples => self.add_samples(&tx.series(&bank.samples)?)?,
        }
        Ok(())
    }

    fn add_row(&mut self, row: Row<'_>) -> Result<bool, TablesError> {
        let account = row.column("id")?.as_integer().unwrap_or(INVALID);
        self.rows.insert(account, row.column("balance")?.as_integer().unwrap_or(INVALID));
        Ok(true)
    }

    fn add_document(&mut self, document: &DocBuf) {
        let id = document.doc().get("_id").and_then(Bson::as_str).and_then(|id| id.parse().ok());
        let balance = document.doc().get("balance").and_then(Bson::as_integer);
        self.documents.insert(id.unwrap_or(INVALID), balance.unwrap_or(INVALID));
    }

    fn add_events(&mut self, events: EventReader) -> Result<(), Error> {
        self.events = Self::default().events;
        for event in events {
            let event = event?;
            let amount = std::str::from_utf8(event.data()).ok().and_then(|amount| amount.parse().ok());
            let amount = amount.unwrap_or(INVALID);
            *self.events.entry(tagged(&event, "from:")).or_default() -= amount;
            *self.events.entry(tagged(&event, "to:")).or_default() += amount;
            self.transfers.push(tagged(&event, "transfer:"));
        }
        Ok(())
    }

    fn add_samples(&mut self, at: &SeriesAt<'_>) -> Result<(), Error> {
        let mut selection = at.select(&[Matcher::equal("__name__", METRIC)], i64::MIN, i64::MAX)?;
        let mut samples = Samples::default();
        while selection.next().is_some() {
            samples.clear();
            self.sampled += selection.samples(&mut samples)?;
            let account = selection.labels().and_then(|labels| labels.get("account").parse().ok());
            let last = samples.bits().max_by_key(|(time, _)| *time);
            let balance = last.map(|(_, bits)| f64::from_bits(bits)).filter(|balance| balance.fract() == 0.0);
            self.samples
                .insert(account.unwrap_or(INVALID), balance.map_or(INVALID, |balance| balance as i64));
        }
        Ok(())
    }

    /// The books after a transfer.
    pub(crate) fn after(&self, transfer: &Transfer) -> Self {
        let mut books = self.clone();
        for balances in [&mut books.rows, &mut books.documents, &mut books.events, &mut books.samples] {
            for side in &transfer.sides {
                *balances.entry(side.account).or_default() += side.change;
            }
        }
        books.transfers.push(transfer.number);
        books.sampled += transfer.sides.len();
        books
    }

    /// Checks that all models agree and that no money was made or lost; needs no model of the run.
    pub(crate) fn agree(&self, at: u64) -> Check {
        let Self { rows, documents, events, samples, transfers, sampled, .. } = self;
        ensure!(
            rows == documents && rows == events && rows == samples,
            "at commit {at} the models disagree: rows {rows:?}, documents {documents:?}, sums of events {events:?}, \
             last samples {samples:?}"
        );
        let money: i64 = rows.values().sum();
        let accounts = rows.len() as i64;
        ensure!(
            accounts == ACCOUNTS && money == ACCOUNTS * INITIAL,
            "at commit {at} {accounts} accounts have {money}: {rows:?}"
        );
        ensure!(
            rows.values().all(|balance| *balance >= 0),
            "at commit {at} an account is overdrawn: {rows:?}"
        );
        let numbers: BTreeSet<i64> = transfers.iter().copied().collect();
        ensure!(
            numbers.len() == transfers.len(),
            "at commit {at} a transfer has happened twice: {transfers:?}"
        );
        let expected = ACCOUNTS as usize + 2 * transfers.len();
        ensure!(*sampled == expected, "at commit {at} there are {sampled} samples, not {expected}");
        Ok(())
    }
}

/// The number in the tag of an event that begins with `name`.
fn tagged(event: &SequencedEvent, name: &str) -> i64 {
    event.tags().find_map(|tag| tag.strip_prefix(name)?.parse().ok()).unwrap_or(INVALID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::audit::transfer::Side;

    #[test]
    fn books_disagree_when_one_model_misses_a_transfer() {
        let [payer, payee] =
            [(1, -7), (2, 7)].map(|(account, change)| Side { account, change, balance: 100 + change });
        let transfer = Transfer { number: 1, amount: 7, sides: [payer, payee], time_ms: 2 };
        let (before, after) = (Books::default(), Books::default().after(&transfer));
        assert!(before.agree(1).is_ok() && after.agree(2).is_ok());
        for wrong in [
            Books { rows: before.rows.clone(), ..after.clone() },
            Books { documents: before.documents.clone(), ..after.clone() },
            Books { events: before.events.clone(), ..after.clone() },
            Books { samples: before.samples.clone(), ..after.clone() },
            Books { transfers: vec![1, 1], ..after.clone() },
            Books { sampled: before.sampled, ..after.clone() },
        ] {
            assert!(wrong.agree(2).is_err(), "{wrong:?}");
        }
    }
}
