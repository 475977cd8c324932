//! A transfer of money, written to each model by the facade or by SQL.
//!
//! SQL only writes, and reads rows by key: queries of other relations run on the threads of the query engine,
//! whose order is not that of the seed.

use ropewalk::documents::lang::{Filter, Options as Language, Update, Value as Bson, Writer};
use ropewalk::documents::{DocumentsError, UpdateSpec};
use ropewalk::series::SampleBatch;
use ropewalk::{AppendCondition, AppendOptions, Event, Query, Transaction};
use ropewalk_sql::{Outcome, Session};

use crate::events::scenario::{Bug, ensure};
use crate::models::audit::books::{Bank, METRIC, MOVED, Model, labels};
use crate::runs::states::Trouble;

/// One account of a transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side {
    pub(crate) account: i64,
    /// The money that it gets; negative if it pays.
    pub(crate) change: i64,
    /// The balance afterwards.
    pub(crate) balance: i64,
}

/// Money that moves from one account to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    /// A number that happens once: the append has a condition.
    pub(crate) number: i64,
    pub(crate) amount: i64,
    /// Payer and payee.
    pub(crate) sides: [Side; 2],
    /// Time of its samples; rises with each transfer.
    pub(crate) time_ms: i64,
}

impl Transfer {
    /// Writes one model by the facade.
    pub(crate) fn write(&self, model: Model, bank: &Bank, tx: &mut Transaction) -> Result<(), Trouble> {
        match model {
            Model::Rows => {
                for Side { account, balance, .. } in self.sides {
                    let change = [("balance", balance.into())];
                    let is_there = tx.tables().update(&bank.rows, &[account.into()], &change)?;
                    found(is_there, "row", account)?;
                }
            }
            Model::Documents => {
                for Side { account, change, .. } in self.sides {
                    let done = tx.documents().update_one(&bank.documents, &increment(account, change)?)?;
                    found(done.modified == 1, "document", account)?;
                }
            }
            Model::Events => {
                let event = self.tags().into_iter().fold(Event::new(MOVED), |event, tag| event.tag(tag));
                let event = event.data(self.amount.to_string());
                let unused = AppendCondition::none_match(Query::from_tags([self.number_tag()]));
                tx.append(&bank.events, &[event], AppendOptions::condition(unused))?;
            }
            Model::Samples => {
                let mut batch = SampleBatch::new();
                for Side { account, balance, .. } in self.sides {
                    batch.push(&labels(account)?, self.time_ms, balance as f64);
                }
                tx.append_samples(&bank.samples, &batch)?;
            }
        }
        Ok(())
    }

    /// Writes one model by SQL statements in the same transaction.
    pub(crate) fn write_by_sql(
        &self,
        model: Model,
        session: &mut Session,
        tx: &mut Transaction,
    ) -> Result<(), Trouble> {
        for (statement, expected) in self.statements(model) {
            let outcome = run(session, tx, &statement)?;
            let count = outcome.count;
            if count != Some(expected) {
                return Err(Bug(format!("{statement}: {count:?} rows, not {expected}")).into());
            }
        }
        Ok(())
    }

    /// The statements that write one model, each with the number of rows that it writes.
    fn statements(&self, model: Model) -> Vec<(String, u64)> {
        let sides = self.sides.iter();
        match model {
            Model::Rows => sides
                .map(|Side { account, change, .. }| {
                    let set = format!("SET balance = balance + ({change})");
                    (format!("UPDATE accounts {set} WHERE id = {account}"), 1)
                })
                .collect(),
            Model::Documents => sides
                .map(|Side { account, balance, .. }| {
                    let document = format!(r#"{{"_id": "{account}", "balance": {balance}}}"#);
                    let replace = "ON CONFLICT (_id) DO UPDATE SET doc = excluded.doc";
                    (format!("INSERT INTO bank.accounts (doc) VALUES ('{document}') {replace}"), 1)
                })
                .collect(),
            Model::Events => {
                let (tags, number, amount) = (self.tags().join("', '"), self.number_tag(), self.amount);
                let append = format!(
                    "SELECT append_event('{MOVED}', ARRAY['{tags}'], '{amount}', store => 'transfers', \
                     fail_if_tags => ARRAY['{number}'])"
                );
                vec![(append, 1)]
            }
            Model::Samples => {
                let time = timestamp(self.time_ms);
                let rows: Vec<String> = sides
                    .map(|Side { account, balance, .. }| format!("('{time}', {balance}, '{account}')"))
                    .collect();
                let into = format!("metrics.{METRIC} (time, value, account)");
                vec![(format!("INSERT INTO {into} VALUES {}", rows.join(", ")), 2)]
            }
        }
    }

    fn tags(&self) -> [String; 3] {
        let [payer, payee] = &self.sides;
        [format!("from:{}", payer.account), format!("to:{}", payee.account), self.number_tag()]
    }

    fn number_tag(&self) -> String {
        format!("transfer:{}", self.number)
    }
}

/// The balance of an account in a transaction, by the facade.
pub(crate) fn balance(bank: &Bank, tx: &mut Transaction, account: i64) -> Result<i64, Trouble> {
    let row = tx.tables().get(&bank.rows, &[account.into()])?;
    let balance = row.map(|row| row.get_as::<i64>("balance")).transpose()?;
    balance.ok_or_else(|| Bug(format!("the row of account {account} is gone")).into())
}

/// The balance of an account in a transaction, by SQL.
pub(crate) fn balance_by_sql(
    session: &mut Session,
    tx: &mut Transaction,
    account: i64,
) -> Result<i64, Trouble> {
    let outcome = run(session, tx, &format!("SELECT balance FROM accounts WHERE id = {account}"))?;
    let balance = outcome.rows.first().and_then(|row| row.first()?.as_integer());
    balance.ok_or_else(|| Bug(format!("SQL does not find account {account}: {outcome:?}")).into())
}

/// Runs a SQL statement in a transaction.
pub(crate) fn run(session: &mut Session, tx: &mut Transaction, text: &str) -> Result<Outcome, Trouble> {
    let mut prepared = session.prepare(text).map_err(Trouble::Sql)?;
    session.execute_in(tx, &mut prepared, &[]).map_err(Trouble::Sql)
}

fn found(is_there: bool, what: &str, account: i64) -> Result<(), Bug> {
    ensure!(is_there, "the {what} of account {account} is gone");
    Ok(())
}

/// `{ $inc: { balance: change } }`
fn increment(account: i64, change: i64) -> Result<UpdateSpec, DocumentsError> {
    let mut operators = Writer::new();
    operators.open_document("$inc");
    operators.put("balance", Bson::Int64(change));
    operators.close();
    let operators = operators.finish();
    let update = Update::parse(Bson::Document(operators.doc()), None, &Language::default())?;
    Ok(UpdateSpec::new(Filter::equals("_id", Bson::String(&account.to_string())), update))
}

/// A time of the first day of 1970, as a literal of SQL.
fn timestamp(ms: i64) -> String {
    let (seconds, minutes) = (ms / 1_000, ms / 60_000);
    format!("1970-01-01 {:02}:{:02}:{:02}.{:03}Z", minutes / 60 % 24, minutes % 60, seconds % 60, ms % 1_000)
}
