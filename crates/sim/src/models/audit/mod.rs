//! A bank with its accounts in all four models, and its auditors, on a disk that fails.
//!
//!   transfer ─▶ two rows, two documents, one event, two samples ─▶ one commit, by the facade or by SQL
//!   auditor  ─▶ a snapshot or a transaction ─▶ all models agree, and no money was made or lost
//!   crash, backup ─▶ open ─▶ the books are a state of the model, no acknowledged transfer is lost
//!
//! Auditors judge by themselves: the row and the document of an account, the sum of its events and its last
//! sample are equal at every commit, and all accounts together have the money of the beginning. In addition
//! the books are compared with the model of the run, which stores the state after every commit. Several
//! transfers and audits are open at the same time, on the same few accounts; some are rolled back, entirely
//! or to a savepoint, some conflict, and some repeat a number, which must happen once.

pub(crate) mod books;
pub(crate) mod transfer;

use std::time::Duration;

use ropewalk::tables::Value;
use ropewalk::{AppendOptions, Class, Database, Error, Event, Isolation, Snapshot, Transaction};
use ropewalk_sql::Session;

use crate::Run;
use crate::events::rng::Dice;
use crate::events::scenario::{Bug, Check, ensure};
use crate::models::audit::books::{ACCOUNTS, AUDITED, Bank, Books, MODELS, Model, START_MS};
use crate::models::audit::transfer::{Side, Transfer, balance, balance_by_sql, run};
use crate::runs::crash_everywhere::Exhausted;
use crate::runs::restarts;
use crate::runs::restarts::{Boots, World};
use crate::runs::states::{States, Trouble};

/// Open transactions.
const OPEN_MAX: usize = 4;
const SNAPSHOTS_MAX: usize = 3;
/// Most money of one transfer.
const AMOUNT_MAX: u64 = 40;

/// A bug to plant, which the run has to find.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Plant {
    /// No bug.
    #[default]
    Nothing,
    /// In every boot one sync returns Ok and does nothing.
    LostSync,
    /// Some transfers do not write their documents.
    ForgottenDocument,
}

/// A transaction in progress.
struct Open {
    transaction: Transaction,
    isolation: Isolation,
    /// The commit of its snapshot.
    since: u64,
    /// Models that it has not written or read yet.
    left: Vec<Model>,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Transfer { transfer: Transfer, by_sql: bool },
    Audit(Books),
}

struct AuditWorld {
    boots: Boots,
    plant: Plant,
    open: Vec<Open>,
    held: Vec<Snapshot>,
    sql: Option<Session>,
    states: States<Books>,
    /// Number of the next transfer, and time of its samples.
    next: i64,
    next_ms: i64,
}

/// Runs one seed: so many boots, each with one kind of injected fault.
pub fn run_audit(seed: u64, boots: u64, plant: Plant) -> Run {
    restarts::run(AuditWorld::new(Boots::new(seed, 0xa0d17), plant), boots)
}

/// Runs the first `steps` steps of a seed once for each operation of the disk and each of `tears` outcomes: with a power
/// cut there, and once with a kill there.
pub fn exhaust_audit(seed: u64, steps: u64, tears: u64) -> Exhausted {
    let world = |disk_seed| AuditWorld::new(Boots::on_disk(seed, disk_seed), Plant::Nothing);
    restarts::exhaust(world, steps, tears)
}

impl World for AuditWorld {
    fn boots(&mut self) -> &mut Boots {
        &mut self.boots
    }

    fn leave(&mut self) {
        self.open.clear();
        self.held.clear();
        self.sql = None;
    }

    fn create(db: &Database) -> Result<(), Error> {
        if db.tables().names()?.is_empty() {
            Bank::create(db)?;
        }
        Ok(())
    }

    fn reconcile(&mut self, db: &Database) -> Check {
        let found = Books::at(db, &db.snapshot())?;
        self.states.reopen(db.seq().0, found);
        self.compare(db)
    }

    fn compare(&mut self, db: &Database) -> Check {
        let snapshot = db.snapshot();
        let found = Books::at(db, &snapshot)?;
        found.agree(snapshot.seq().0)?;
        self.states.check(&mut self.boots, snapshot.seq().0, &found)?;
        restarts::verify(db)
    }

    fn step(&mut self) -> Check {
        match self.boots.dice.below(40) {
            0..26 => self.use_transaction(),
            26..31 => self.boots.housekeeping(12),
            31..33 => self.hold(),
            33 => {
                self.boots.clock.advance(Duration::from_millis(self.boots.dice.below(300)));
                Ok(())
            }
            34..36 => self.audit_rows_by_sql(),
            _ => self.audit_snapshots(),
        }
    }
}

impl AuditWorld {
    fn new(mut boots: Boots, plant: Plant) -> Self {
        if plant == Plant::LostSync {
            boots.plant_lost_sync();
        }
        Self {
            boots,
            plant,
            open: Vec::new(),
            held: Vec::new(),
            sql: None,
            states: States::default(),
            next: 1,
            next_ms: START_MS + 1,
        }
    }

    /// Begins a transaction, continues one, or ends one.
    fn use_transaction(&mut self) -> Check {
        let db = self.boots.db()?;
        if (self.open.is_empty() || self.open.len() < OPEN_MAX && self.boots.dice.one_in(3))
            && let Err(trouble) = self.begin(&db)
        {
            return trouble.excuse(&mut self.boots);
        }
        if self.open.is_empty() {
            return Ok(());
        }
        let mut open = self.open.swap_remove(self.boots.dice.index(self.open.len()));
        for _ in 0..self.boots.dice.between(1, 3) {
            if self.boots.dice.one_in(25) {
                self.boots.note("roll back");
                open.transaction.rollback();
                return Ok(());
            }
            let Some(model) = open.left.pop() else { return self.commit(&db, open) };
            if let Err(trouble) = self.use_model(&db, &mut open, model) {
                return trouble.excuse(&mut self.boots);
            }
        }
        self.open.push(open);
        Ok(())
    }

    fn begin(&mut self, db: &Database) -> Result<(), Trouble> {
        let isolation = self.boots.dice.weighted(&[(3, Isolation::Serializable), (2, Isolation::Snapshot)]);
        let mut transaction = db.begin_with(isolation);
        let since = transaction.snapshot().seq().0;
        let work = match self.boots.dice.one_in(4) {
            true => Some(Work::Audit(Books::unread())),
            false => self.transfer(db, &mut transaction)?,
        };
        self.boots.note(format!("begin {isolation:?} at {since}: {work:?}"));
        // Without money for the transfer it is rolled back.
        let Some(work) = work else { return Ok(()) };
        let left = shuffled(&self.boots.dice);
        self.open.push(Open { transaction, isolation, since, left, work });
        Ok(())
    }

    /// Chooses a transfer that the payer can pay in this transaction.
    fn transfer(&mut self, db: &Database, tx: &mut Transaction) -> Result<Option<Work>, Trouble> {
        let dice = &self.boots.dice;
        let accounts = ACCOUNTS.cast_unsigned();
        let payer = dice.below(accounts).cast_signed();
        let payee = (payer + dice.between(1, accounts - 1).cast_signed()) % ACCOUNTS;
        let (payer, payee) = (payer + 1, payee + 1);
        let amount = dice.between(1, AMOUNT_MAX).cast_signed();
        let is_repeated = self.next > 1 && dice.one_in(6);
        let number = match is_repeated {
            true => dice.between(1, self.next.cast_unsigned() - 1).cast_signed(),
            false => self.next,
        };
        let by_sql = dice.one_in(3);
        let has = match by_sql {
            true => {
                let session = self.sql.get_or_insert_with(|| Session::new(db.clone()));
                [balance_by_sql(session, tx, payer)?, balance_by_sql(session, tx, payee)?]
            }
            false => {
                let bank = Bank::of(db)?;
                [balance(&bank, tx, payer)?, balance(&bank, tx, payee)?]
            }
        };
        let [payer_has, payee_has] = has;
        if payer_has < amount {
            return Ok(None);
        }
        let payer = Side { account: payer, change: -amount, balance: payer_has - amount };
        let payee = Side { account: payee, change: amount, balance: payee_has + amount };
        self.next = self.next.max(number + 1);
        self.next_ms += 1;
        let transfer = Transfer { number, amount, sides: [payer, payee], time_ms: self.next_ms };
        Ok(Some(Work::Transfer { transfer, by_sql }))
    }

    /// Writes or reads one model, sometimes twice because of a savepoint.
    fn use_model(&mut self, db: &Database, open: &mut Open, model: Model) -> Result<(), Trouble> {
        let bank = Bank::of(db)?;
        let tx = &mut open.transaction;
        let (transfer, by_sql) = match &mut open.work {
            Work::Audit(found) => return Ok(found.read(model, &bank, tx)?),
            Work::Transfer { transfer, by_sql } => (*transfer, *by_sql),
        };
        let is_planted = self.plant == Plant::ForgottenDocument && model == Model::Documents;
        if is_planted && self.boots.dice.one_in(8) {
            return Ok(());
        }
        let is_taken_back = self.boots.dice.one_in(8);
        if is_taken_back {
            tx.savepoint();
        }
        match by_sql {
            true => {
                let session = self.sql.get_or_insert_with(|| Session::new(db.clone()));
                transfer.write_by_sql(model, session, tx)?;
            }
            false => transfer.write(model, &bank, tx)?,
        }
        if is_taken_back {
            if !tx.rollback_to_savepoint() {
                return Err(Bug("the savepoint is gone".to_owned()).into());
            }
            open.left.push(model);
        }
        Ok(())
    }

    fn commit(&mut self, db: &Database, open: Open) -> Check {
        match open.work {
            Work::Transfer { transfer, .. } => self.commit_transfer(open.transaction, open.since, &transfer),
            Work::Audit(found) => self.end_audit(db, open.transaction, (open.isolation, open.since), found),
        }
    }

    fn commit_transfer(&mut self, transaction: Transaction, since: u64, transfer: &Transfer) -> Check {
        let durability = self.boots.durability();
        self.boots.note(format!("commit transfer {} of {since}, {durability:?}", transfer.number));
        let before = self.states.latest()?.clone();
        let after = before.after(transfer);
        let has_happened = before.transfers.contains(&transfer.number);
        match transaction.commit_with(durability) {
            Ok(None) => return Err(Bug("a transfer answers that it wrote nothing".to_owned())),
            Ok(Some(done)) => {
                ensure!(!has_happened, "transfer {} happens twice", transfer.number);
                let seen = self.states.at(since)?;
                for Side { account, .. } in &transfer.sides {
                    let (seen, now) = (seen.rows.get(account), before.rows.get(account));
                    ensure!(seen == now, "account {account} was read as {seen:?}, and was {now:?}");
                }
                self.states.commit(&mut self.boots, done.seq.0, durability, after);
            }
            Err(error) if error.class() == Class::Refused => {
                let may_have_happened = has_happened || self.states.may_exceed(since);
                ensure!(may_have_happened, "transfer {} never happened: {error}", transfer.number);
                self.boots.counts.refusals += 1;
            }
            Err(error) => self.fail(since, &error, after)?,
        }
        Ok(())
    }

    /// The end of an audit: its books agree. It may record that, which at serializable needs them unchanged.
    fn end_audit(
        &mut self,
        db: &Database,
        mut transaction: Transaction,
        (isolation, since): (Isolation, u64),
        mut found: Books,
    ) -> Check {
        found.agree(since)?;
        found.audits = self.states.at(since)?.audits;
        self.states.check(&mut self.boots, since, &found)?;
        if self.boots.dice.one_in(2) {
            return match transaction.commit() {
                Ok(None) => Ok(()),
                Ok(Some(done)) => Err(Bug(format!("a reader made commit {}", done.seq.0))),
                Err(error) => self.boots.excuse("end of an audit", &error),
            };
        }
        let recorded = Bank::of(db).and_then(|bank| {
            transaction.append(&bank.events, &[Event::new(AUDITED)], AppendOptions::default())
        });
        if let Err(error) = recorded {
            return self.boots.excuse("record of an audit", &error);
        }
        let durability = self.boots.durability();
        self.boots.note(format!("commit the {isolation:?} audit of {since}, {durability:?}"));
        let before = self.states.latest()?.clone();
        let after = before.clone().with_audits(before.audits + 1);
        match transaction.commit_with(durability) {
            Ok(None) => return Err(Bug("an audit answers that it recorded nothing".to_owned())),
            Ok(Some(done)) => {
                let now = before.with_audits(found.audits);
                let is_valid = isolation != Isolation::Serializable || now == found;
                ensure!(is_valid, "an audit of {since} was recorded although the books are {now:?}");
                self.states.commit(&mut self.boots, done.seq.0, durability, after);
            }
            Err(error) => self.fail(since, &error, after)?,
        }
        Ok(())
    }

    /// A commit that was rejected or got no response.
    fn fail(&mut self, since: u64, error: &Error, after: Books) -> Check {
        let has_reason = !error.is_conflict() || self.states.may_exceed(since);
        ensure!(has_reason, "a conflict, though no commit has followed {since}: {error}");
        self.states.fail(&mut self.boots, "commit", error, after)
    }

    fn hold(&mut self) -> Check {
        if self.held.len() == SNAPSHOTS_MAX {
            self.held.remove(0);
        }
        self.held.push(self.boots.db()?.snapshot());
        Ok(())
    }

    /// Audits the newest commit, and those of the snapshots that are held.
    fn audit_snapshots(&mut self) -> Check {
        let db = self.boots.db()?;
        let held = std::mem::take(&mut self.held);
        for snapshot in held.iter().chain([&db.snapshot()]) {
            let at = snapshot.seq().0;
            match Books::at(&db, snapshot) {
                Ok(found) => {
                    found.agree(at)?;
                    self.states.check(&mut self.boots, at, &found)?;
                }
                Err(error) => self.boots.excuse("audit", &error)?,
            }
        }
        self.held = held;
        Ok(())
    }

    /// SQL sees the rows of the model.
    fn audit_rows_by_sql(&mut self) -> Check {
        let db = self.boots.db()?;
        let mut transaction = db.begin();
        let at = transaction.snapshot().seq().0;
        let session = self.sql.get_or_insert_with(|| Session::new(db.clone()));
        let query = "SELECT id, balance FROM accounts ORDER BY id";
        match run(session, &mut transaction, query) {
            Ok(outcome) => {
                let number = |row: &[Value<'_>], place: usize| row.get(place)?.as_integer();
                let rows = outcome.rows.iter();
                let found: Vec<_> = rows.map(|row| number(row, 0).zip(number(row, 1))).collect();
                let expected = &self.states.at(at)?.rows;
                let balances = expected.iter().map(|(account, balance)| Some((*account, *balance)));
                let is_same = balances.eq(found.iter().copied());
                ensure!(is_same, "at commit {at} SQL found {found:?}, not {expected:?}");
                self.boots.counts.reads += 1;
                Ok(())
            }
            Err(trouble) => trouble.excuse(&mut self.boots),
        }
    }
}

/// The models in any order.
pub(crate) fn shuffled(dice: &Dice) -> Vec<Model> {
    let (mut models, mut order) = (MODELS.to_vec(), Vec::new());
    while !models.is_empty() {
        order.push(models.swap_remove(dice.index(models.len())));
    }
    order
}
