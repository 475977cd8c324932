//! TPC-B over four typed tables, in serializable transactions that are retried after conflicts.

use std::path::Path;

use anyhow::Result;
use ropewalk::tables::{ColumnDef, KeyRange, Row, Table, TableDef, TablesError, Type, Value};
use ropewalk::{Database, Isolation, Options};
use ropewalk_bench::workloads::tpcb::run::{BRANCHES, Bank as Shape, TELLERS, Teller, Transfer};

const MEMORY_BYTES: u64 = 3 << 30;
const ATTEMPTS: usize = 100_000;

/// `accounts`, `tellers`, `branches (id, balance)` and `history (number, account, teller, branch, delta)`
pub(crate) struct Bank {
    db: Database,
    balances: [Table; 3],
    history: Table,
}

impl Shape for Bank {
    type Session<'a> = &'a Bank;

    fn create(dir: &Path, accounts: u64) -> Result<Self> {
        let db = Options::new().memory_budget(MEMORY_BYTES).log_retention(0).open(dir)?;
        let int = |name: &str| ColumnDef::new(name, Type::INT8).not_null();
        let mut tx = db.begin();
        let mut balances = |name: &str| {
            tx.tables().create_table(
                TableDef::new(name).column(int("id")).column(int("balance")).primary_key(["id"]),
            )
        };
        let balances = [balances("accounts")?, balances("tellers")?, balances("branches")?];
        let history = ["number", "account", "teller", "branch", "delta"];
        let def = history.iter().fold(TableDef::new("history"), |def, name| def.column(int(name)));
        let history = tx.tables().create_table(def.primary_key(["number"]))?;
        tx.commit()?;
        for (table, rows) in balances.iter().zip([accounts, TELLERS, BRANCHES]) {
            let mut load = db.tables().load(table)?;
            (0..rows.cast_signed()).try_for_each(|id| load.row(&[id.into(), 0_i64.into()]))?;
            load.finish()?;
        }
        Ok(Self { db, balances, history })
    }

    fn session(&self) -> Result<&Bank> {
        Ok(self)
    }

    fn sums(&self) -> Result<([i64; 4], u64)> {
        let snapshot = self.db.snapshot();
        let mut read = snapshot.tables(&self.db);
        let [accounts, tellers, branches] = &self.balances;
        let (mut sums, mut lines) = ([0; 4], 0);
        let tables = [(accounts, 1), (tellers, 1), (branches, 1), (&self.history, 4)];
        for ((table, column), sum) in tables.into_iter().zip(&mut sums) {
            lines = 0;
            let each = &mut |row: Row<'_>| -> Result<bool, TablesError> {
                *sum += row.get(column)?.as_integer().unwrap_or_default();
                lines += 1;
                Ok(true)
            };
            read.scan(table, &KeyRange::all(), false, each)?;
        }
        Ok((sums, lines))
    }
}

impl Teller for &Bank {
    fn transfer(&mut self, transfer: Transfer) -> Result<()> {
        let Transfer { account, teller, branch, delta, number } = transfer;
        let ids = [account, teller, branch].map(u64::cast_signed);
        let absent = || ropewalk::Error::Invalid("no such row".into());
        self.db.transact(Isolation::Serializable, ATTEMPTS, |tx| {
            let mut tables = tx.tables();
            for (table, id) in self.balances.iter().zip(ids) {
                let row = tables.get(table, &[Value::Int8(id)])?.ok_or_else(absent)?;
                let balance = row.get(1)?.as_integer().unwrap_or_default();
                tables.update_row(&row, &[("balance", Value::Int8(balance + delta))])?;
            }
            let [account, teller, branch] = ids;
            let line = [number.cast_signed(), account, teller, branch, delta].map(Value::Int8);
            tables.insert_row(&self.history, &line)?;
            Ok::<_, ropewalk::Error>(())
        })?;
        Ok(())
    }
}
