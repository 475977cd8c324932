//! Rows about the state of the server: locks, settings, sessions.

use ropewalk::hooks::{LockHolder, LockMode};
use ropewalk::tables::Value;

use super::row;
use crate::access::peers::SessionInfo;
use crate::catalog::{Catalog, DATABASE, OWNER, table_oid};
use crate::expr::Record;
use crate::types::names::FIRST_OID;

/// Holders of row locks, and waiters. A transaction is identified by the number of its locks.
pub(super) fn locks(catalog: &Catalog) -> Vec<Record> {
    let of_object = |object: u32| {
        let rows = catalog.tables.iter().find(|schema| schema.rows_object() == object);
        rows.map_or(FIRST_OID + i64::from(object), |schema| table_oid(schema))
    };
    let row = |lock: LockHolder| {
        let object = catalog.db.tables().object_of(lock.keyspace, &lock.key);
        let mode = match lock.mode {
            LockMode::KeyShare => "AccessShareLock",
            LockMode::Share => "RowShareLock",
            LockMode::NoKeyUpdate => "ExclusiveLock",
            LockMode::Update => "AccessExclusiveLock",
        };
        let nothing = Value::Null;
        row![
            "tuple",
            DATABASE,
            object.map(of_object),
            nothing.clone(),
            nothing.clone(),
            nothing.clone(),
            nothing.clone(),
            nothing.clone(),
            nothing.clone(),
            nothing.clone(),
            lock.owner.to_string(),
            (lock.label != 0).then_some(i64::from(lock.label)),
            mode,
            lock.is_granted,
            false,
            nothing,
        ]
    };
    catalog.db.engine().locks().into_iter().map(row).collect()
}

pub(super) fn settings(catalog: &Catalog) -> Vec<Record> {
    let row = |(name, value, about): (&str, String, &str)| {
        row![
            name.to_owned(),
            value.clone(),
            Value::Null,
            "",
            about.to_owned(),
            Value::Null,
            "user",
            "string",
            "session",
            Value::Null,
            Value::Null,
            Value::Null,
            value.clone(),
            value,
            Value::Null,
            Value::Null,
            false,
        ]
    };
    catalog.settings.all().into_iter().map(row).collect()
}

/// A row of `pg_stat_activity`.
pub(super) fn activity_row(activity: SessionInfo) -> Record {
    let SessionInfo { number, user, database, application, doing } = activity;
    let time = |micros: Option<i64>| micros.map_or(Value::Null, Value::Timestamptz);
    let word = |word: Option<&'static str>| word.map_or(Value::Null, Value::text);
    let own = doing.as_ref();
    let waits = own.is_some_and(|doing| doing.waits);
    let address = own.and_then(|doing| doing.client.as_ref()).map(|(address, _)| address.clone());
    // PostgreSQL reports port -1 for a client that is not connected by TCP.
    let port = own.map(|doing| doing.client.as_ref().map_or(-1, |(_, port)| i32::from(*port)));
    vec![
        Value::Int8(DATABASE),
        Value::text(database),
        Value::Int4(number),
        Value::Null,
        Value::Int8(OWNER),
        Value::text(user),
        Value::text(application),
        address.map_or(Value::Null, Value::text),
        Value::Null,
        port.map_or(Value::Null, Value::Int4),
        time(own.map(|doing| doing.since)),
        time(own.and_then(|doing| doing.transaction_since)),
        time(own.and_then(|doing| doing.query_since)),
        time(own.map(|doing| doing.state_since)),
        word(waits.then_some("Lock")),
        word(waits.then_some("tuple")),
        word(own.map(|doing| doing.state)),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::text(own.map_or("<insufficient privilege>".to_owned(), |doing| doing.query.to_string())),
        word(own.map(|_| "client backend")),
    ]
}
