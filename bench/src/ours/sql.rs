//! Our SQL through the library: sessions over one database.

use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use ropewalk::tables::Value;
use ropewalk::{Database, Options};
use ropewalk_bench::harness::worker::{Figure, Outcome, Task};
use ropewalk_bench::workloads::sql::copying::{Copies, PIECE_BYTES, TABLE as LINES};
use ropewalk_bench::workloads::sql::tpch;
use ropewalk_bench::workloads::sql::tpch::{TABLES, Tables, questions};
use ropewalk_bench::workloads::tpcb::accounts::{Accounts, Client, TABLE, name};
use ropewalk_sql::{Prepared, Session, SqlError, state, to_text};

const MEMORY_BYTES: u64 = 3 << 30;

fn open(dir: &Path) -> Result<Database> {
    Ok(Options::new().memory_budget(MEMORY_BYTES).log_retention(0).open(dir)?)
}

/// Copies the rows that `rows` supplies into a table.
fn load(
    session: &mut Session,
    table: &str,
    rows: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<u64>,
) -> Result<u64> {
    let mut prepared = session.prepare(&format!("COPY {table} FROM STDIN"))?;
    let mut copy = session.copy_in(&mut prepared)?;
    let count = rows(&mut |bytes| Ok(session.copy_data(&mut copy, bytes)?))?;
    session.copy_end(copy)?;
    Ok(count)
}

pub(crate) struct Bank(Database);

impl Accounts for Bank {
    type Session<'a> = Teller;

    fn create(dir: &Path, rows: u64, _durable: bool) -> Result<Self> {
        let db = open(dir)?;
        let mut session = Session::new(db.clone());
        session.execute(TABLE, &[])?;
        load(&mut session, "accounts", |give| {
            (0..rows).try_for_each(|id| give(format!("{id}\t0\t{}\n", name(id)).as_bytes()))?;
            Ok(rows)
        })?;
        Ok(Self(db))
    }

    fn session(&self) -> Result<Teller> {
        let mut session = Session::new(self.0.clone());
        let get = session.prepare("SELECT balance, name FROM accounts WHERE id = $1")?;
        let add = session.prepare("UPDATE accounts SET balance = balance + $2 WHERE id = $1")?;
        Ok(Teller { session, get, add })
    }

    fn sum(&self) -> Result<i64> {
        let answer =
            Session::new(self.0.clone()).execute("SELECT sum(balance)::bigint FROM accounts", &[])?;
        let sum = answer.rows.first().and_then(|row| row.first()).and_then(Value::as_integer);
        sum.context("no sum")
    }
}

/// One thread's session and its two statements.
pub(crate) struct Teller {
    session: Session,
    get: Prepared,
    add: Prepared,
}

impl Client for Teller {
    fn get(&mut self, id: i64) -> Result<(i64, usize)> {
        let answer = self.session.run(&mut self.get, &[Value::Int8(id)])?;
        match answer.rows.first().map(Vec::as_slice) {
            Some([Value::Int8(balance), Value::Text(name)]) => Ok((*balance, name.len())),
            other => bail!("account {id} is {other:?}"),
        }
    }

    fn add(&mut self, id: i64, amount: i64) -> Result<()> {
        loop {
            match self.session.run(&mut self.add, &[Value::Int8(id), Value::Int8(amount)]) {
                Err(SqlError { state: state::SERIALIZATION_FAILURE, .. }) => {}
                answer => return answer.map(drop).map_err(Into::into),
            }
        }
    }
}

pub(crate) struct Lines(Session);

impl Copies for Lines {
    fn create(dir: &Path) -> Result<Self> {
        let mut session = Session::new(open(dir)?);
        session.execute(LINES, &[])?;
        Ok(Self(session))
    }

    fn copy_in(&mut self, from: &Path) -> Result<()> {
        let mut file = File::open(from)?;
        let mut piece = vec![0; PIECE_BYTES];
        load(&mut self.0, "lines", |give| {
            loop {
                let read = file.read(&mut piece)?;
                match piece.get(..read) {
                    Some(bytes) if read > 0 => give(bytes)?,
                    _ => return Ok(0),
                }
            }
        })?;
        Ok(())
    }

    fn copy_out(&mut self, to: &Path) -> Result<()> {
        let mut file = BufWriter::with_capacity(PIECE_BYTES, File::create(to)?);
        let mut prepared = self.0.prepare("COPY lines TO STDOUT")?;
        let written = |error: std::io::Error| SqlError::new(state::IO_ERROR, error.to_string());
        self.0.copy_out(&mut prepared, &mut |bytes| file.write_all(bytes).map_err(written))?;
        Ok(file.flush()?)
    }
}

/// TPC-H: load, then each query so many times.
pub(crate) fn analytic(task: &Task) -> Result<Outcome> {
    let tables = Tables::new(task.rows)?;
    let db = open(&task.dir)?;
    ropewalk_sql::limit_columns(&db, MEMORY_BYTES as usize);
    let mut session = Session::new(db);
    let mut outcome = Outcome::default();
    let (mut rows, started) = (0, Instant::now());
    for (name, columns) in TABLES {
        session.execute(&format!("CREATE TABLE {name} ({columns})"), &[])?;
        rows += load(&mut session, name, |give| tables.rows(name, give))?;
    }
    outcome.figure("load", Figure::one(rows as f64 / started.elapsed().as_secs_f64()));
    let mut totals = vec![0.0; task.passes];
    for (question, number) in questions(task.rows).iter().zip(1..) {
        let mut figure = Figure::default();
        let mut answer = Vec::new();
        for total in &mut totals {
            let started = Instant::now();
            answer = session.execute(question, &[]).with_context(|| format!("question {number}"))?.rows;
            figure.per(started, 1, 1e3);
            *total += figure.samples.last().copied().unwrap_or_default();
        }
        outcome.figure(format!("q{number}"), figure);
        outcome.digest(format!("q{number}"), tpch::digest(answer.iter().map(|row| line(row)).collect()));
    }
    outcome.figure("total", Figure { samples: totals, ..Figure::default() });
    Ok(outcome)
}

fn line(row: &[Value<'_>]) -> String {
    let field = |value: &Value<'_>| match (value, to_text(value)) {
        (_, None) => "NULL".to_owned(),
        (Value::Text(_) | Value::Date(_), Some(text)) => text.to_string(),
        (_, Some(text)) => text.parse().map_or_else(|_| text.to_string(), tpch::number),
    };
    row.iter().map(field).collect::<Vec<_>>().join("|")
}
