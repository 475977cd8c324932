//! `ropewalkSql`: runs an SQL statement.

use std::time::Duration;

use ropewalk::Transaction;
use ropewalk::documents::lang::{DocBuf, Value, Writer};
use ropewalk_auth::Right;
use ropewalk_sql::{
    Canceller, Outcome as SqlOutcome, Rights, Session, Settings, SqlError, StatementKind, state, type_name,
};
use ropewalk_transactions::{code_of, told};
use ropewalk_wire::Code as WireCode;
use tokio::task::JoinHandle;

use crate::call::Call;
use crate::crud::write::int;
use crate::models::change::Change;
use crate::models::sql_values::{parameters, put};
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::protocol::reply::check_list;

/// Memory of one statement, as over HTTP.
const STATEMENT_BYTES_MAX: usize = 64 << 20;
/// Interval of the checks whether a running statement must end.
const CANCEL_PAUSE: Duration = Duration::from_millis(50);

/// `ropewalkSql`
pub(crate) fn run<'a>(call: &mut Call<'a>) -> Outcome<Change<'a>> {
    let args = call.args;
    args.only(&["ropewalkSql", "parameters"])?;
    let text = args.needed("ropewalkSql", args.text("ropewalkSql")?)?;
    let given: Vec<Value<'a>> =
        args.array("parameters")?.map(|given| given.values().collect()).unwrap_or_default();
    Ok(Change::new(args.doc().bytes().len(), move |call, tx| {
        let mut session = session(call);
        let _watch = Watch::new(call, session.canceller());
        let outcome = statement(&mut session, tx, text, &given).map_err(|error| failed(call, &error))?;
        answer(&outcome)
    }))
}

/// A session with the rights of the caller.
pub(super) fn session(call: &Call<'_>) -> Session {
    let settings = Settings {
        user: call.user().to_owned(),
        memory_bytes_max: STATEMENT_BYTES_MAX,
        ..Settings::default()
    };
    let mut session = Session::with_settings(call.shared.service.database().clone(), settings);
    let may = |right| call.may(right, None).is_ok();
    let rights = Rights { read: may(Right::Read), append: may(Right::Append), admin: may(Right::Admin) };
    session.act_for(rights, call.user());
    session
}

/// Runs the statement in the transaction.
fn statement(
    session: &mut Session,
    tx: &mut Transaction,
    text: &str,
    given: &[Value<'_>],
) -> Result<SqlOutcome, SqlError> {
    let located = |error: SqlError| error.located_in(text);
    let mut prepared = session.prepare(text).map_err(located)?;
    if prepared.kind() == Some(StatementKind::LockingQuery) {
        let message = "FOR UPDATE and FOR SHARE are not supported over the MongoDB port";
        let hint = "a write of the same row by another transaction is a conflict at the commit";
        return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message).hint(hint));
    }
    let values = parameters(&prepared, given)?;
    session.execute_in(tx, &mut prepared, &values).map_err(located)
}

/// Cancels the statement when its command must end. Dropped with the command.
pub(super) struct Watch(JoinHandle<()>);

impl Watch {
    pub(super) fn new(call: &Call<'_>, canceller: Canceller) -> Self {
        let stop = call.stop();
        Self(tokio::spawn(async move {
            loop {
                tokio::time::sleep(CANCEL_PAUSE).await;
                if stop().is_err() {
                    canceller.cancel();
                }
            }
        }))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The failure of a statement, with PostgreSQL's fields.
pub(super) fn failed(call: &Call<'_>, error: &SqlError) -> Failure {
    if error.state == state::QUERY_CANCELED
        && let Err(why) = call.may_go_on()
    {
        return why.into();
    }
    let code = match code_of(error) {
        WireCode::KeyConflict => Code::WriteConflict,
        WireCode::PermissionDenied => Code::Unauthorized,
        WireCode::Corrupt | WireCode::Io | WireCode::Internal => Code::InternalError,
        _ => Code::CommandFailed,
    };
    let error = told(error, call.shared.service.database().engine().dir());
    let mut detail = Writer::new();
    detail.put("sqlstate", Value::String(error.state.0));
    let about = error.about.as_deref();
    for (name, text) in [
        ("detail", error.detail.as_deref()),
        ("hint", error.hint.as_deref()),
        ("schema", about.and_then(|about| about.schema.as_deref())),
        ("table", about.and_then(|about| about.table.as_deref())),
        ("column", about.and_then(|about| about.column.as_deref())),
        ("constraint", about.and_then(|about| about.constraint.as_deref())),
    ] {
        if let Some(text) = text {
            detail.put(name, Value::String(text));
        }
    }
    if let Some(position) = error.location.as_deref().and_then(|location| location.position) {
        detail.put("position", int(position as i64));
    }
    Failure::new(code, error.message.as_str()).detailed(detail)
}

/// The result as a document.
fn answer(outcome: &SqlOutcome) -> Outcome<DocBuf> {
    let mut out = Writer::new();
    if let Some(columns) = &outcome.columns {
        out.open_array("columns");
        for column in columns.iter() {
            out.open_document("");
            out.put("name", Value::String(&column.name));
            out.put("type", Value::String(&type_name(column.ty)));
            out.close();
        }
        out.close();
        out.open_array("rows");
        for row in &outcome.rows {
            out.open_array("");
            row.iter().for_each(|value| put(&mut out, "", value));
            out.close();
            check_list(&out, "rows", "read fewer at a time")?;
        }
        out.close();
    }
    out.put("command", Value::String(&outcome.tag().to_string()));
    out.put("n", int(outcome.count.unwrap_or_default() as i64));
    Ok(out.finish())
}
