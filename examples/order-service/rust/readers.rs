//! Readers of the events: a table of orders, and e-mails.

use std::time::Duration;

use ropewalk::events::{FromEvent, SequencedEventRef};
use ropewalk::groups::{ConsumerGroup, GroupSettings};
use ropewalk::projections::{ApplyError, MaterializedProjection, Output, ProjectionRun};
use ropewalk::tables::{ColumnDef, TableDef, Type};
use ropewalk::{Database, Error, Query};

use crate::service::{STORE, Shop};

/// The read model. Its rows and its checkpoint are one commit.
pub(crate) struct Board;

impl MaterializedProjection for Board {
    fn query(&self) -> Query {
        Shop::query()
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::table("board")]
    }

    fn prepare(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        let columns = [("id", Type::TEXT), ("sku", Type::TEXT), ("n", Type::INT8), ("state", Type::TEXT)];
        let columns = columns.map(|(name, kind)| ColumnDef::new(name, kind));
        let table = columns.into_iter().fold(TableDef::new(run.name("board")?), TableDef::column);
        run.tx().tables().create_table(table.primary_key(["id"]))?;
        Ok(())
    }

    fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        let board = run.table("board")?;
        let mut tables = run.tx().tables();
        let (order, state) = match event.decode()? {
            Shop::StockAdded { .. } => return Ok(()),
            Shop::OrderPlaced { order, sku, n, .. } => {
                let key = ("id", order.clone().into());
                tables.insert(&board, &[key, ("sku", sku.into()), ("n", i64::from(n).into())])?;
                (order, "placed")
            }
            Shop::OrderPaid { order } => (order, "paid"),
            Shop::OrderShipped { order } => (order, "shipped"),
        };
        tables.update(&board, &[order.into()], &[("state", state.into())])?;
        Ok(())
    }
}

/// The group that sends an e-mail for each order.
pub(crate) fn mailer(db: &Database) -> Result<ConsumerGroup, Error> {
    let groups = db.consumer_groups(STORE)?;
    groups.create("mailer", GroupSettings::new(Query::from_types(["OrderPlaced"])), None)?;
    groups.group("mailer")
}

/// Sends the e-mails of new orders, for which it waits; a failure is retried, an unusable address is parked.
pub(crate) fn send_mails(
    mailer: &ConsumerGroup,
    wait: Duration,
    send: impl Fn(&str, &str) -> Result<(), String>,
) -> Result<usize, Error> {
    let lease = mailer.take_waiting(100, None, wait)?;
    for taken in &lease.events {
        let position = [taken.event.position];
        let Shop::OrderPlaced { order, sku, n, email, .. } = taken.event.decode()? else { continue };
        if !email.contains('@') {
            mailer.park(lease.id, Some(&position), &format!("no address: {email}"))?;
        } else if let Err(reason) = send(&email, &format!("order {order}: {n} of {sku}")) {
            mailer.retry(lease.id, Some(&position), Some(Duration::from_millis(100)), &reason)?;
        } else {
            mailer.acknowledge(lease.id, Some(&position))?;
        }
    }
    Ok(lease.events.len())
}
