//! Runs the command of a request: found in the table, checked, executed, and its failure labelled.

mod member;
pub(crate) mod rights;
pub(crate) mod table;

use std::sync::atomic::Ordering;
use std::time::Instant;

use ropewalk::documents::lang::{DocBuf, Value, Writer};
use ropewalk_auth::Caller;
use ropewalk_wire::{Code as WireCode, run_unpinned};

use crate::auth::users;
use crate::call::client::{Client, Line};
use crate::call::concerns::unsatisfied;
use crate::call::{Call, RESERVED};
use crate::command::table::{API_VERSION_1, Command, OF_DATABASES, Run, SNAPSHOT_READS, TAKES_SEQUENCES};
use crate::crud::{change_streams, read, write};
use crate::models::{change, collections};
use crate::protocol::failure::{
    self, Code, Failure, NOT_RESUMABLE, Outcome, RESUMABLE, RETRYABLE, TRANSIENT, is_retriable, is_transient,
    shutting_down,
};
use crate::protocol::frame::Request;
use crate::server::hello;
use crate::session::transaction;
use crate::state::Shared;
use crate::state::fail_points::Ordered;
use crate::state::usage::Kind;

/// Runs the command of a request; returns the reply, or `None` where a fail point disconnects.
pub(crate) async fn run(
    shared: &Shared,
    client: &mut Client,
    request: &Request,
    line: &dyn Line,
) -> Option<DocBuf> {
    let name = request.body().first().map_or("", |(name, _)| name);
    let found = table::find(name);
    if client.application.is_none() {
        client.application = hello::application(request);
    }
    let ordered = shared.fail_points.meet(client.application.as_deref(), request).unwrap_or_default();
    if let Some(block) = ordered.block {
        tokio::time::sleep(block).await;
    }
    if ordered.close {
        return None;
    }
    let began = Instant::now();
    let timer = shared.service.metrics().request("mongo", found.map_or("unknown", |command| command.name));
    let outcome = match (&ordered.failure, found) {
        (Some(failure), _) => Err(ordered_failure(shared, failure, &ordered, request)),
        (None, Some(command)) => checked(shared, client, request, line, command).await,
        (None, None) => Err(Failure::new(Code::CommandNotFound, format!("no such command: '{name}'"))),
    };
    let mut out;
    let done = match outcome {
        Ok(answer) => {
            count_use(shared, request, name, began);
            out = answer;
            put_concern_error(shared, &ordered, request, &mut out);
            out.put("ok", Value::Double(1.0));
            Ok(())
        }
        Err(mut failure) => {
            match &ordered.labels {
                Some(labels) => failure.labels.clone_from(labels),
                None => failure = labelled(failure, request),
            }
            out = Writer::new();
            failure.put(&mut out);
            if failure.is_about_role() {
                hello::put_topology(shared, &mut out);
            }
            Err(wire_code(&failure))
        }
    };
    timer.done(done);
    shared.put_times(&mut out);
    // A write whose stored result is repeated writes nothing.
    let written = !client.answered_again.swap(false, Ordering::Relaxed);
    if ordered.close_behind && written { None } else { Some(out.finish()) }
}

/// Counts a command on a collection.
fn count_use(shared: &Shared, request: &Request, name: &str, began: Instant) {
    let field = if name == "getMore" { "collection" } else { name };
    let Some(database) = request.database().filter(|database| *database != RESERVED) else { return };
    let collection = request.body().get(field).and_then(Value::as_str);
    match (name, Kind::of(name), collection) {
        (_, Some(kind), Some(collection)) => shared.usage.add(database, collection, kind, began.elapsed()),
        ("drop", _, Some(collection)) => shared.usage.forget(database, Some(collection)),
        ("dropDatabase", ..) => shared.usage.forget(database, None),
        _ => {}
    }
}

/// The failure of a fail point, with its labels.
fn ordered_failure(shared: &Shared, failure: &Failure, ordered: &Ordered, request: &Request) -> Failure {
    let failure = failure.clone();
    let cursor = request.body().get("getMore").and_then(Value::as_integer).filter(|_| ordered.lose_cursor);
    match cursor.map(|id| shared.cursors.lose(id)) {
        Some(true) if is_retriable(failure.code) || [63, 133, 150, 234, 13_388].contains(&failure.code) => {
            failure.label(RESUMABLE)
        }
        _ => failure,
    }
}

/// Adds a write concern error: too few members, or that of a fail point.
fn put_concern_error(shared: &Shared, ordered: &Ordered, request: &Request, out: &mut Writer) {
    if let Some(error) = &ordered.write_concern_error {
        out.put("writeConcernError", Value::Document(error.doc()));
        let code = error.doc().get("code").and_then(Value::as_integer);
        let again = code.is_some_and(|code| is_retriable(code as i32)) && may_come_again(request);
        let own = if again { vec![RETRYABLE.into()] } else { Vec::new() };
        failure::put_labels(ordered.labels.as_ref().unwrap_or(&own), out);
    } else if let Some(unsatisfied) = unsatisfied(request, shared.members()) {
        out.open_document("writeConcernError");
        out.put("code", Value::Int32(unsatisfied.code));
        out.put("codeName", Value::String(&unsatisfied.name));
        out.put("errmsg", Value::String(&unsatisfied.message));
        out.close();
    }
}

/// True for a command that drivers retry when its reply is lost: a retryable write, and the end of a
/// transaction.
fn may_come_again(request: &Request) -> bool {
    let body = request.body();
    let ends = matches!(body.first(), Some(("commitTransaction" | "abortTransaction", _)));
    body.get("txnNumber").is_some() && (ends || body.get("autocommit").is_none())
}

/// Outcome for the metrics.
fn wire_code(failure: &Failure) -> WireCode {
    match failure.code {
        13 => WireCode::PermissionDenied,
        18 => WireCode::Unauthenticated,
        26 | 27 | 43 => WireCode::NotFound,
        48 | 85 | 86 | 11000 => WireCode::AlreadyExists,
        50 => WireCode::Timeout,
        91 | 11_600 => WireCode::Stopping,
        10_107 | 13_435 => WireCode::NotLeader,
        112 | 251 => WireCode::KeyConflict,
        940_001 => WireCode::ConditionFailed,
        146 | 365 => WireCode::ResourceExhausted,
        257 | 10_334 => WireCode::TooLarge,
        1 => WireCode::Internal,
        _ => WireCode::InvalidArgument,
    }
}

/// Adds the labels that say what drivers may do after a failure.
fn labelled(failure: Failure, request: &Request) -> Failure {
    let body = request.body();
    let ends = matches!(body.first(), Some(("commitTransaction" | "abortTransaction", _)));
    let in_transaction = body.get("autocommit").is_some();
    match failure.code {
        280 | 286 => failure.label(NOT_RESUMABLE),
        code if is_retriable(code) && may_come_again(request) => failure.label(RETRYABLE),
        code if in_transaction && is_transient(code) => failure.label(TRANSIENT),
        code if in_transaction && !ends && is_retriable(code) => failure.label(TRANSIENT),
        _ => failure,
    }
}

async fn checked(
    shared: &Shared,
    client: &mut Client,
    request: &Request,
    line: &dyn Line,
    command: &'static Command,
) -> Outcome<Writer> {
    if shared.service.stop().stopping() {
        return Err(shutting_down());
    }
    client.look_again(shared).await?;
    if client.caller.is_none() && !command.before_login {
        let message = format!("Command {} requires authentication", command.name);
        return Err(Failure::new(Code::Unauthorized, message));
    }
    let user = client.caller.as_ref().map_or("", Caller::name);
    let application = client.application.as_ref();
    let running = client.seat.begin(command.shows_itself(), user, application, request.body());
    let mut call = Call::new(shared, client, request, line, command.name, running)?;
    if !TAKES_SEQUENCES.contains(&command.name)
        && let Some(name) = request.sequence_names().next()
    {
        let message = format!("BSON field '{}.{name}' is an unknown field.", command.name);
        return Err(Failure::new(Code::UnknownField, message));
    }
    if call.is_strict() && !API_VERSION_1.contains(&command.name) && !command.before_login {
        let message =
            format!("Provided apiStrict:true, but the command {} is not in API Version 1.", command.name);
        return Err(Failure::new(Code::APIStrictError, message));
    }
    if call.read_level() == Some("snapshot")
        && !call.in_transaction
        && !SNAPSHOT_READS.contains(&command.name)
    {
        let message = format!("Cannot satisfy a snapshot read concern for command {}", command.name);
        return Err(Failure::new(Code::InvalidOptions, message));
    }
    if call.in_transaction && !command.in_transaction {
        let message = format!("Cannot run '{}' in a multi-document transaction.", command.name);
        if let Ok(Some(transaction)) = call.transaction() {
            transaction.abort();
        }
        return Err(Failure::new(Code::OperationNotSupportedInTransaction, message));
    }
    member::check(&call, command)?;
    member::wait(&call).await?;
    let outcome = executed(&mut call, command).await;
    // The client must not commit the rest. Statements end their transaction themselves; invalid arguments are
    // found before that, and a reply is built after it.
    if outcome.is_err()
        && call.in_transaction
        && !matches!(command.name, "commitTransaction" | "abortTransaction")
        && let Ok(Some(transaction)) = call.transaction()
    {
        transaction.abort();
    }
    outcome
}

/// Executes a command if the caller has the rights that it needs.
async fn executed(call: &mut Call<'_>, command: &'static Command) -> Outcome<Writer> {
    let shared = call.shared;
    let is_reserved = call.database == RESERVED && OF_DATABASES.contains(&command.name);
    if is_reserved {
        rights::check_reserved(call, command.name)?;
    } else {
        rights::check(call, command.name)?;
    }
    let _turn = call.turn().await?;
    if is_reserved {
        return on_reserved(call, command.name).await;
    }
    match command.run {
        Run::Quick(run) => in_budget(call, run),
        Run::Read(run) if read::is_point(call) => in_budget(call, run),
        Run::Read(run) | Run::Write(run) => {
            // Never closed; if it were, running without a permit would still be correct.
            let _permit = shared.writes.acquire().await.ok();
            run_unpinned(|| in_budget(call, run))
        }
        Run::Change(prepare) => {
            let change = in_budget(call, prepare)?;
            write::commit(call, change).await
        }
        Run::Models(prepare) => {
            let change = in_budget(call, prepare)?;
            change::commit(call, change).await
        }
        Run::Commit => transaction::commit(call).await,
        Run::GetMore => change_streams::get_more(call).await,
        Run::Users => users::change(call).await,
    }
}

/// Runs a command on the database of events and tables.
async fn on_reserved(call: &mut Call<'_>, command: &str) -> Outcome<Writer> {
    if command == "insert" {
        let change = in_budget(call, collections::insert)?;
        return change::commit(call, change).await;
    }
    let run: fn(&mut Call<'_>) -> Outcome<Writer> =
        if command == "find" { collections::find } else { collections::list };
    // Never closed; if it were, running without a permit would still be correct.
    let _permit = call.shared.writes.acquire().await.ok();
    run_unpinned(|| in_budget(call, run))
}

/// Runs a part of a command within its budget.
fn in_budget<'a, R>(call: &mut Call<'a>, run: impl FnOnce(&mut Call<'a>) -> R) -> R {
    let budget = call.budget().clone();
    budget.run(|| run(call))
}
