//! SQLite for the SQL benchmarks; see `sqlite` for the settings of each name.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use ropewalk_bench::workloads::sql::copying::{Copies, PIECE_BYTES, TABLE as LINES};
use ropewalk_bench::workloads::tpcb::accounts::{Accounts, Client, TABLE, name};
use rusqlite::Connection;

const GET: &str = "SELECT balance, name FROM accounts WHERE id = ?1";
const ADD: &str = "UPDATE accounts SET balance = balance + ?2 WHERE id = ?1";

/// `integer` makes the key the rowid.
fn own_key(definition: &str) -> String {
    definition.replace("bigint PRIMARY KEY", "integer PRIMARY KEY")
}

fn connect(dir: &Path, synchronous: &str) -> Result<Connection> {
    let connection = Connection::open(dir.join("rows.sqlite"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "cache_size", -3_000_000)?;
    connection.pragma_update(None, "mmap_size", 4i64 << 30)?;
    Ok(connection)
}

/// One connection; under a lock where threads update, which is faster than a connection each.
pub(crate) struct Bank(Mutex<Connection>);

impl Accounts for Bank {
    type Session<'a> = &'a Bank;

    fn create(dir: &Path, rows: u64, durable: bool) -> Result<Self> {
        let mut connection = connect(dir, if durable { "FULL" } else { "NORMAL" })?;
        connection.execute(&own_key(TABLE), ())?;
        let transaction = connection.transaction()?;
        let mut insert = transaction.prepare("INSERT INTO accounts VALUES (?1, 0, ?2)")?;
        (0..rows).try_for_each(|id| insert.execute((id.cast_signed(), name(id))).map(drop))?;
        drop(insert);
        transaction.commit()?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
        Ok(Self(Mutex::new(connection)))
    }

    fn session(&self) -> Result<&Bank> {
        Ok(self)
    }

    fn sum(&self) -> Result<i64> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(connection.query_row("SELECT sum(balance) FROM accounts", (), |row| row.get(0))?)
    }
}

impl Client for &Bank {
    fn get(&mut self, id: i64) -> Result<(i64, usize)> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut get = connection.prepare_cached(GET)?;
        Ok(get.query_row((id,), |row| Ok((row.get(0)?, row.get::<_, String>(1)?.len())))?)
    }

    fn add(&mut self, id: i64, amount: i64) -> Result<()> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        connection.prepare_cached(ADD)?.execute((id, amount))?;
        Ok(())
    }
}

/// One connection, one transaction for all rows, one statement.
pub(crate) struct Lines(Connection);

impl Copies for Lines {
    fn create(dir: &Path) -> Result<Self> {
        let connection = connect(dir, "FULL")?;
        connection.execute(&own_key(LINES), ())?;
        Ok(Self(connection))
    }

    fn copy_in(&mut self, from: &Path) -> Result<()> {
        let transaction = self.0.transaction()?;
        let mut insert = transaction.prepare("INSERT INTO lines VALUES (?1, ?2, ?3, ?4)")?;
        let mut file = BufReader::with_capacity(PIECE_BYTES, File::open(from)?);
        let mut line = String::new();
        while file.read_line(&mut line)? > 0 {
            let mut fields = line.trim_end_matches('\n').split('\t');
            let mut field = || fields.next().context("a field is missing");
            let (id, account, amount) =
                (field()?.parse::<i64>()?, field()?.parse::<i64>()?, field()?.parse::<i64>()?);
            insert.execute((id, account, amount, field()?))?;
            line.clear();
        }
        drop(insert);
        Ok(transaction.commit()?)
    }

    fn copy_out(&mut self, to: &Path) -> Result<()> {
        let mut file = BufWriter::with_capacity(PIECE_BYTES, File::create(to)?);
        let mut select = self.0.prepare("SELECT id, account, amount, note FROM lines")?;
        let mut rows = select.query(())?;
        while let Some(row) = rows.next()? {
            let [id, account, amount]: [i64; 3] = [row.get(0)?, row.get(1)?, row.get(2)?];
            writeln!(file, "{id}\t{account}\t{amount}\t{}", row.get_ref(3)?.as_str()?)?;
        }
        Ok(file.flush()?)
    }
}
