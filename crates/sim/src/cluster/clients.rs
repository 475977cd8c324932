//! Clients: transfers and loads through the leader, reads on every node.

use std::time::Duration;

use ropewalk::cluster::Role;
use ropewalk::engine::KeyspaceOptions;
use ropewalk::tables::{ColumnDef, LoadOptions, TableDef, Type};
use ropewalk::transaction::Committed;
use ropewalk::{Class, Database, Durability, Error, Transaction};
use ropewalk_cluster::BarrierError;
use ropewalk_sql::Session;

use crate::cluster::history::{Contents, KEYSPACES, LAST, LOADED};
use crate::cluster::member::{Member, Process, Use};
use crate::cluster::world::{SESSIONS, World};
use crate::events::scenario::{Bug, Check, ensure};
use crate::models::audit::books::{ACCOUNTS, Bank, TABLE};
use crate::models::audit::shuffled;
use crate::models::audit::transfer::{Side, Transfer, balance};
use crate::runs::states::Trouble;

/// Most money of one transfer.
const AMOUNT_MAX: u64 = 40;
/// Most transactions that are committed as one group.
const GROUP_MAX: u64 = 6;

/// A transfer whose transaction is open.
struct Begun {
    transaction: Transaction,
    transfer: Transfer,
    /// No client has sent this transfer before.
    is_first: bool,
}

impl World {
    /// The member that says that it leads, or any.
    fn likely_leader(&self) -> &Member {
        let leads = |member: &&Member| {
            !member.is_busy()
                && member.process().is_some_and(|process| matches!(process.db.role(), Role::Leader { .. }))
        };
        let leaders: Vec<&Member> = self.members().iter().filter(leads).collect();
        match self.dice.pick(&leaders) {
            Some(leader) if !self.dice.one_in(6) => leader,
            _ => self.any_member(),
        }
    }

    /// Sends a write to a node.
    pub(super) fn write(&self) -> Check {
        let member = self.likely_leader();
        if self.now() < member.trouble.lock().paused_until {
            return Ok(());
        }
        let Some(used) = member.begin() else { return Ok(()) };
        let db = &used.process.db;
        let leads = matches!(db.role(), Role::Leader { .. });
        let names = match db.tables().names() {
            Ok(names) => names,
            Err(error) => return self.excuse(member, &used.process, "names", &error.into()),
        };
        let has = |name: &str| names.iter().any(|found| found == name);
        match (has(TABLE), has(LOADED)) {
            (false, _) if leads => self.define(&used, "bank", Bank::create),
            (_, false) if leads => self.define(&used, "table of loads", create_loaded),
            (true, true) if leads && self.dice.one_in(12) => self.load(&used),
            (true, _) => self.transfers(&used, if self.dice.one_in(4) { GROUP_MAX } else { 1 }),
            (false, _) => Ok(()),
        }
    }

    fn define(
        &self,
        used: &Use<'_>,
        what: &str,
        create: impl FnOnce(&Database) -> Result<(), Error>,
    ) -> Check {
        let member = used.member();
        self.note(format!("node {}: create the {what}", member.number));
        create(&used.process.db).or_else(|error| self.excuse(member, &used.process, what, &error))
    }

    /// Several transfers, which the leader commits as one group.
    fn transfers(&self, used: &Use<'_>, most: u64) -> Check {
        let (member, process) = (used.member(), &used.process);
        let mut begun = Vec::new();
        for _ in 0..self.dice.between(1, most) {
            match self.begin(&process.db) {
                Ok(Some(one)) => begun.push(one),
                Ok(None) => {}
                Err(trouble) => return self.excuse_statement(member, process, trouble),
            }
        }
        let interval = Duration::from_millis(self.dice.between(1, 200));
        let durability = self.dice.weighted(&[
            (4, Durability::Sync),
            (1, Durability::Buffered),
            (1, Durability::Async { interval }),
        ]);
        used.let_read();
        let is_group = begun.len() > 1;
        let mut sent = Vec::new();
        for Begun { transaction, transfer, is_first } in begun {
            self.note(format!("node {}: commit transfer {}, {durability:?}", member.number, transfer.number));
            self.record.lock().history.begin(transfer.number);
            let outcome = match is_group {
                true => transaction.submit_with(durability).map(|pending| (pending, None)),
                false => transaction.commit_with(durability).map(|done| (None, done)),
            };
            sent.push((transfer, is_first, outcome));
        }
        for (transfer, is_first, outcome) in sent {
            let outcome = match outcome {
                Ok((Some(pending), _)) => pending.wait().map(Some),
                Ok((None, done)) => Ok(done),
                Err(error) => Err(error),
            };
            self.record.lock().history.end(transfer.number);
            self.told(used, &transfer, (is_first, is_group), outcome)?;
        }
        Ok(())
    }

    /// Begins a transfer that the payer can pay, and writes it to all models.
    fn begin(&self, db: &Database) -> Result<Option<Begun>, Trouble> {
        let accounts = ACCOUNTS.cast_unsigned();
        let payer = self.dice.below(accounts).cast_signed();
        let payee = (payer + self.dice.between(1, accounts - 1).cast_signed()) % ACCOUNTS;
        let (payer, payee) = (payer + 1, payee + 1);
        let amount = self.dice.between(1, AMOUNT_MAX).cast_signed();
        let doubtful = self.record.lock().history.doubtful();
        let again = if self.dice.one_in(4) { self.dice.pick(&doubtful).copied() } else { None };
        let bank = Bank::of(db)?;
        let mut tx = db.begin();
        let [payer_has, payee_has] = [balance(&bank, &mut tx, payer)?, balance(&bank, &mut tx, payee)?];
        if payer_has < amount {
            return Ok(None);
        }
        let (number, time_ms) = {
            let mut next = self.next.lock();
            next.2 += 1;
            let number = again.unwrap_or(next.0);
            next.0 = next.0.max(number + 1);
            (number, next.2)
        };
        let payer = Side { account: payer, change: -amount, balance: payer_has - amount };
        let payee = Side { account: payee, change: amount, balance: payee_has + amount };
        let transfer = Transfer { number, amount, sides: [payer, payee], time_ms };
        let mut session = if self.dice.one_in(4) { Some(Session::new(db.clone())) } else { None };
        for model in shuffled(&self.dice) {
            match &mut session {
                Some(session) => transfer.write_by_sql(model, session, &mut tx)?,
                None => transfer.write(model, &bank, &mut tx)?,
            }
        }
        if self.dice.one_in(3) {
            let name = self.dice.pick(&KEYSPACES).copied().unwrap_or_default();
            // A node that does not lead refuses to define one; then the transfer writes none.
            if let Ok(keyspace) = db.keyspace(name, KeyspaceOptions::default()) {
                tx.put(keyspace, LAST, &number.to_le_bytes());
            }
        }
        Ok(Some(Begun { transaction: tx, transfer, is_first: again.is_none() }))
    }

    /// Records the outcome of a transfer that its client received.
    fn told(
        &self,
        used: &Use<'_>,
        transfer: &Transfer,
        (is_first, is_group): (bool, bool),
        outcome: Result<Option<Committed>, Error>,
    ) -> Check {
        let (member, process, number) = (used.member(), &used.process, transfer.number);
        if !used.is_alive() {
            self.note(format!("node {}: no answer about transfer {number}", member.number));
            self.count(|counts| counts.unknown += 1);
            return Ok(());
        }
        let seen = process.db.seq().0;
        let mut record = self.record.lock();
        record.history.read_log(&self.log)?;
        match outcome {
            Ok(None) => Err(Bug(format!("transfer {number} is said to have written nothing"))),
            Ok(Some(done)) => {
                record.history.committed(done.seq.0, transfer)?;
                record.counts.commits += 1;
                drop(record);
                self.note(format!("node {}: transfer {number} is commit {}", member.number, done.seq));
                ensure!(done.seq.0 <= seen, "commit {} was acknowledged and is not visible", done.seq);
                let mut sessions = self.sessions.lock();
                if let Some(session) = sessions.get_mut(self.dice.index(SESSIONS)) {
                    *session = done.seq.0.max(*session);
                }
                Ok(())
            }
            Err(error) => {
                record.counts.refusals += 1;
                match error.class() {
                    Class::Refused => {
                        ensure!(!is_first, "transfer {number} never happened: {error}");
                        record.history.happened(member.number, number, seen)
                    }
                    Class::Conflict => {
                        ensure!(is_group, "transfer {number} has a conflict, and is alone: {error}");
                        record.history.refused(number, is_first);
                        Ok(())
                    }
                    Class::NotLeader | Class::Busy => {
                        record.history.refused(number, is_first);
                        drop(record);
                        self.note(format!("node {}: transfer {number}: {error}", member.number));
                        Ok(())
                    }
                    _ => {
                        record.counts.unknown += 1;
                        drop(record);
                        self.excuse(member, process, &format!("transfer {number}"), &error)
                    }
                }
            }
        }
    }

    fn excuse_statement(&self, member: &Member, process: &Process, trouble: Trouble) -> Check {
        match trouble {
            Trouble::Bug(bug) => Err(bug),
            Trouble::Disk(error) => self.excuse(member, process, "statement", &error),
            Trouble::Sql(error) => {
                let is_disk = member.disk.is_off() || member.trouble.lock().disk;
                let has_reason =
                    is_disk || process.db.stopped().is_some() || !member.is_alive(process.incarnation);
                ensure!(has_reason, "statement failed without a reason: {error} ({})", error.state);
                Ok(())
            }
        }
    }

    /// Loads many rows into the table of loads, which takes several commits; or empties it.
    fn load(&self, used: &Use<'_>) -> Check {
        let (member, db) = (used.member(), &used.process.db);
        let is_empty = match Contents::at(db, &db.snapshot()) {
            Ok(contents) => contents.loaded.is_none(),
            Err(error) => return self.excuse(member, &used.process, "read", &error),
        };
        let rows = self.dice.between(1, 400).cast_signed();
        let number = {
            let mut next = self.next.lock();
            next.1 += 1;
            next.1
        };
        let log_bytes_max = if self.dice.one_in(3) { 1 << 20 } else { 0 };
        let options = LoadOptions { log_bytes_max, memory_bytes: Some(64 << 10) };
        let done = match is_empty {
            true => {
                self.note(format!("node {}: load {number} of {rows} rows", member.number));
                self.record.lock().history.loads(number, rows);
                load(db, options, number, rows)
            }
            false => {
                self.note(format!("node {}: truncate what was loaded", member.number));
                truncate(db)
            }
        };
        done.or_else(|error| self.excuse(member, &used.process, "load", &error))
    }

    /// A node is read as of now, and compared with everything that was read before.
    fn read(&self, member: &Member, process: &Process, least: u64) -> Check<u64> {
        let snapshot = process.db.snapshot();
        let seq = snapshot.seq().0;
        ensure!(seq >= least, "node {} shows commit {seq}, after commit {least}", member.number);
        if member.trouble.lock().differs {
            return Ok(seq);
        }
        match Contents::at(&process.db, &snapshot) {
            Ok(contents) => {
                let mut record = self.record.lock();
                record.counts.reads += 1;
                record.history.observe(member.number, seq, &contents)?;
            }
            Err(error) => self.excuse(member, process, "read", &error)?,
        }
        Ok(seq)
    }

    /// A node is compared with the others.
    pub(super) fn compare(&self, member: &Member) -> Check {
        let Some(process) = member.readable() else { return Ok(()) };
        self.read(member, &process, 0).map(|_| ())
    }

    /// A session reads on any node that has what it has seen.
    pub(super) fn read_session(&self) -> Check {
        let (session, member) = (self.dice.index(SESSIONS), self.any_member());
        let token = self.sessions.lock().get(session).copied().unwrap_or(0);
        let Some(process) = member.readable() else { return Ok(()) };
        // The clock of the machine does not move while this waits.
        if self.record.lock().history.is_damaged()
            || !process.db.engine().wait_visible(token.into(), Duration::ZERO)
        {
            return Ok(());
        }
        let seq = self.read(member, &process, token)?;
        let mut sessions = self.sessions.lock();
        if let Some(token) = sessions.get_mut(session) {
            ensure!(seq >= *token, "a session reads commit {seq} after commit {token}");
            *token = seq;
        }
        Ok(())
    }

    /// A reader asks a node that says that it leads, and then reads any node that has that commit.
    pub(super) fn read_linearizably(&self) -> Check {
        let least = self.record.lock().history.acknowledged();
        let leader = self.likely_leader();
        let Some(used) = leader.begin() else { return Ok(()) };
        used.let_read();
        let deadline = self.local_nanos(leader.number) + 2_000_000_000;
        let proven = used.process.node.barrier(deadline);
        if !used.is_alive() {
            return Ok(());
        }
        let seq = match proven {
            Ok(seq) => seq.0,
            Err(BarrierError::NotLeader { .. } | BarrierError::Late) => return Ok(()),
            Err(BarrierError::Engine(error)) => {
                return self.excuse(leader, &used.process, "barrier", &error.into());
            }
            Err(error) => return Err(Bug(format!("barrier: {error}"))),
        };
        drop(used);
        if !self.record.lock().history.is_damaged() {
            ensure!(seq >= least, "a barrier of node {} is commit {seq}, after {least}", leader.number);
        }
        let reader = self.any_member();
        match reader.readable().filter(|process| process.db.seq().0 >= seq) {
            Some(process) => self.read(reader, &process, seq).map(|_| ()),
            None => Ok(()),
        }
    }
}

fn create_loaded(db: &Database) -> Result<(), Error> {
    let mut tx = db.begin();
    let column = |name: &str, ty| ColumnDef::new(name, ty);
    let table = TableDef::new(LOADED)
        .column(column("id", Type::INT8))
        .column(column("load", Type::INT8))
        .column(column("pad", Type::TEXT))
        .primary_key(["id"]);
    tx.tables().create_table(table)?;
    tx.commit().map(|_| ())
}

fn load(db: &Database, options: LoadOptions, number: i64, rows: i64) -> Result<(), Error> {
    let mut load = db.tables().load_with(&db.table(LOADED)?, options)?;
    for id in 0..rows {
        let pad = format!("{:0>60}", id % 97);
        load.row(&[id.into(), number.into(), pad.into()])?;
    }
    load.finish()?;
    Ok(())
}

fn truncate(db: &Database) -> Result<(), Error> {
    let mut tx = db.begin();
    tx.tables().truncate(LOADED, false)?;
    tx.commit().map(|_| ())
}
