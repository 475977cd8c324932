//! Table of all commands: who may send them, and how each is run.

use std::sync::atomic::Ordering;

use ropewalk::documents::lang::{DocBuf, Value, Writer};
use ropewalk_wire::{Code as WireCode, blocking};

use crate::call::{Call, Client, Line, unsatisfied};
use crate::failpoint::Ordered;
use crate::failure::{
    self, Code, Failure, NOT_RESUMABLE, Outcome, RESUMABLE, RETRYABLE, TRANSIENT, is_retriable, is_transient,
    shutting_down,
};
use crate::frame::Request;
use crate::write::Change;
use crate::{
    Mongo, Shared, changes, failpoint, hello, login, operations, read, rights, schema, server, transaction,
    users, write,
};

/// How a command is run.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// At once: it takes less time than sending a reply.
    Quick(fn(&mut Call<'_>) -> Outcome<Writer>),
    /// A read: at once when it is for one document by its `_id`, else as blocking work.
    Read(fn(&mut Call<'_>) -> Outcome<Writer>),
    /// A write that may wait for the disk.
    Write(fn(&mut Call<'_>) -> Outcome<Writer>),
    /// Changes documents, and awaits durability.
    Change(for<'a> fn(&mut Call<'a>) -> Outcome<Change<'a>>),
    /// The end of a transaction, which awaits durability.
    Commit,
    /// The next batch of a cursor, which may have to be awaited.
    GetMore,
    /// Changes users, and awaits durability.
    Users,
}

/// One command.
pub(crate) struct Command {
    /// Its name.
    pub(crate) name: &'static str,
    /// How it is run.
    pub(crate) run: Run,
    /// It may be sent before a login.
    pub(crate) before_login: bool,
    /// It may be part of a transaction.
    pub(crate) in_transaction: bool,
    /// Help text.
    pub(crate) help: &'static str,
}

const fn command(name: &'static str, run: Run, help: &'static str) -> Command {
    Command { name, run, before_login: false, in_transaction: false, help }
}

const fn open(name: &'static str, run: Run, help: &'static str) -> Command {
    Command { before_login: true, ..command(name, run, help) }
}

const fn inside(name: &'static str, run: Run, help: &'static str) -> Command {
    Command { in_transaction: true, ..command(name, run, help) }
}

impl Command {
    /// True if lists of operations may show its document: it holds no secret.
    pub(crate) fn shows_itself(&self) -> bool {
        !self.before_login && !matches!(self.run, Run::Users)
    }
}

/// Every command.
pub(crate) static COMMANDS: &[Command] = &[
    open("hello", Run::Quick(hello::hello), "describes the server"),
    open("isMaster", Run::Quick(hello::hello), "hello, for old drivers"),
    open("ismaster", Run::Quick(hello::hello), "hello, for old drivers"),
    open("ping", Run::Quick(server::ping), "checks that the server responds"),
    open("buildInfo", Run::Quick(server::build_info), "reports the server's version"),
    open("buildinfo", Run::Quick(server::build_info), "reports the server's version"),
    open("saslStart", Run::Quick(login::sasl_start), "begins a login"),
    open("saslContinue", Run::Quick(login::sasl_continue), "continues a login"),
    open("logout", Run::Quick(login::logout), "ends the login of the connection"),
    open("whatsmyuri", Run::Quick(server::whats_my_uri), "reports the client's address"),
    open("connectionStatus", Run::Quick(server::connection_status), "reports the authenticated user"),
    command("hostInfo", Run::Quick(server::host_info), "describes the host"),
    command("getParameter", Run::Quick(server::get_parameter), "reports parameters"),
    command("getCmdLineOpts", Run::Quick(server::get_cmd_line_opts), "reports how the server was started"),
    command("configureFailPoint", Run::Quick(failpoint::configure), "makes commands fail, for tests"),
    command("getLog", Run::Quick(server::get_log), "shows the newest lines of the log"),
    command("serverStatus", Run::Read(server::server_status), "reports the server's metrics"),
    command("currentOp", Run::Quick(operations::current_op), "lists running operations"),
    command("killOp", Run::Quick(operations::kill_op), "ends a running operation"),
    command("listCommands", Run::Quick(server::list_commands), "lists all commands"),
    command("startSession", Run::Quick(transaction::start_session), "starts a session"),
    command("refreshSessions", Run::Quick(transaction::refresh_sessions), "extends sessions"),
    command("endSessions", Run::Read(transaction::end_sessions), "ends sessions"),
    command("killSessions", Run::Read(transaction::end_sessions), "ends sessions"),
    command("killAllSessions", Run::Read(transaction::kill_all_sessions), "ends all sessions"),
    inside("commitTransaction", Run::Commit, "commits a transaction"),
    inside("abortTransaction", Run::Write(transaction::abort), "aborts a transaction"),
    inside("insert", Run::Change(write::insert), "adds documents"),
    inside("update", Run::Change(write::update), "changes documents"),
    inside("delete", Run::Change(write::delete), "removes documents"),
    inside("findAndModify", Run::Change(write::find_and_modify), "changes and returns a document"),
    inside("findandmodify", Run::Change(write::find_and_modify), "changes and returns a document"),
    inside("find", Run::Read(read::find), "shows documents"),
    inside("getMore", Run::GetMore, "returns the next batch of a cursor"),
    inside("killCursors", Run::Quick(read::kill_cursors), "closes cursors"),
    command("count", Run::Read(read::count), "counts documents"),
    inside("distinct", Run::Read(read::distinct), "lists distinct values"),
    inside("aggregate", Run::Write(read::aggregate), "runs a pipeline"),
    command("explain", Run::Read(read::explain), "explains a query plan"),
    inside("create", Run::Write(schema::create), "makes a collection"),
    command("drop", Run::Write(schema::drop), "drops a collection"),
    command("dropDatabase", Run::Write(schema::drop_database), "drops a database"),
    command("renameCollection", Run::Write(schema::rename_collection), "renames a collection"),
    command("convertToCapped", Run::Write(schema::convert_to_capped), "makes a collection capped"),
    command("collMod", Run::Write(schema::coll_mod), "changes a collection's rules or indexes"),
    inside("createIndexes", Run::Write(schema::create_indexes), "makes indexes"),
    command("dropIndexes", Run::Write(schema::drop_indexes), "drops indexes"),
    command("deleteIndexes", Run::Write(schema::drop_indexes), "drops indexes"),
    command("listIndexes", Run::Read(schema::list_indexes), "lists indexes"),
    command("listCollections", Run::Read(schema::list_collections), "lists collections"),
    command("listDatabases", Run::Read(schema::list_databases), "lists databases"),
    command("validate", Run::Read(schema::validate), "checks a collection and its indexes"),
    command("usersInfo", Run::Quick(users::info), "lists users"),
    command("createUser", Run::Users, "makes a user"),
    command("updateUser", Run::Users, "changes a user's password or roles"),
    command("dropUser", Run::Users, "drops a user"),
    command("grantRolesToUser", Run::Users, "gives a user roles"),
    command("revokeRolesFromUser", Run::Users, "takes roles from a user"),
    command("createSearchIndexes", Run::Quick(schema::search_indexes), "is of MongoDB Atlas"),
    command("updateSearchIndex", Run::Quick(schema::search_indexes), "is of MongoDB Atlas"),
    command("dropSearchIndex", Run::Quick(schema::search_indexes), "is of MongoDB Atlas"),
    command("collStats", Run::Read(schema::coll_stats), "reports the size of a collection"),
    command("dbStats", Run::Read(schema::db_stats), "reports the size of a database"),
    command("dbstats", Run::Read(schema::db_stats), "reports the size of a database"),
];

/// Commands of version 1 of the API that are offered here.
const API_VERSION_1: &[&str] = &[
    "abortTransaction",
    "aggregate",
    "collMod",
    "commitTransaction",
    "count",
    "create",
    "createIndexes",
    "delete",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "endSessions",
    "explain",
    "find",
    "findAndModify",
    "getMore",
    "insert",
    "killCursors",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "refreshSessions",
    "update",
];
/// Commands that accept document sequences next to the body.
const TAKES_SEQUENCES: &[&str] = &["insert", "update", "delete"];
/// Commands that may read one snapshot outside of a transaction.
const SNAPSHOT_READS: &[&str] = &["find", "aggregate", "distinct", "getMore"];

/// Finds a command by its name.
pub(crate) fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

/// Runs the command of a request; returns the reply, or `None` where a fail point disconnects.
pub(crate) async fn run(
    mongo: &Mongo,
    client: &mut Client,
    request: &Request,
    line: &dyn Line,
) -> Option<DocBuf> {
    let shared = &*mongo.0;
    let name = request.body().first().map_or("", |(name, _)| name);
    let found = find(name);
    if client.application.is_none() {
        client.application = hello::application(request);
    }
    let ordered = shared.fail_points.meet(client, request).unwrap_or_default();
    if let Some(block) = ordered.block {
        tokio::time::sleep(block).await;
    }
    if ordered.close {
        return None;
    }
    let timer = shared.service.metrics().request("mongo", found.map_or("unknown", |command| command.name));
    let outcome = match (&ordered.failure, found) {
        (Some(failure), _) => Err(ordered_failure(shared, failure, &ordered, request)),
        (None, Some(command)) => checked(mongo, client, request, line, command).await,
        (None, None) => Err(Failure::new(Code::CommandNotFound, format!("no such command: '{name}'"))),
    };
    let mut out;
    let done = match outcome {
        Ok(answer) => {
            out = answer;
            put_concern_error(&ordered, request, &mut out);
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
            Err(wire_code(&failure))
        }
    };
    timer.done(done);
    shared.put_times(&mut out);
    // A write whose stored result is repeated writes nothing.
    let written = !client.answered_again.swap(false, Ordering::Relaxed);
    if ordered.close_behind && written { None } else { Some(out.finish()) }
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
fn put_concern_error(ordered: &Ordered, request: &Request, out: &mut Writer) {
    if let Some(error) = &ordered.write_concern_error {
        out.put("writeConcernError", Value::Document(error.doc()));
        let code = error.doc().get("code").and_then(Value::as_integer);
        let again = code.is_some_and(|code| is_retriable(code as i32)) && may_come_again(request);
        let own = if again { vec![RETRYABLE.into()] } else { Vec::new() };
        failure::put_labels(ordered.labels.as_ref().unwrap_or(&own), out);
    } else if let Some(unsatisfied) = unsatisfied(request) {
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
        112 | 251 => WireCode::KeyConflict,
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
    mongo: &Mongo,
    client: &mut Client,
    request: &Request,
    line: &dyn Line,
    command: &'static Command,
) -> Outcome<Writer> {
    let shared: &Shared = &mongo.0;
    if shared.service.stop().stopping() {
        return Err(shutting_down());
    }
    client.look_again(shared).await?;
    if client.caller.is_none() && !command.before_login {
        let message = format!("Command {} requires authentication", command.name);
        return Err(Failure::new(Code::Unauthorized, message));
    }
    let mut call = Call::new(shared, client, request, line, command)?;
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
    rights::check(&call, command.name)?;
    match command.run {
        Run::Quick(run) => in_budget(&mut call, run),
        Run::Read(run) if read::is_point(&call) => in_budget(&mut call, run),
        Run::Read(run) | Run::Write(run) => {
            // Never closed; if it were, running without a permit would still be correct.
            let _turn = shared.writes.acquire().await.ok();
            blocking(|| in_budget(&mut call, run))
        }
        Run::Change(prepare) => {
            let change = in_budget(&mut call, prepare)?;
            write::commit(&call, change).await
        }
        Run::Commit => transaction::commit(&call).await,
        Run::GetMore => changes::get_more(&mut call).await,
        Run::Users => users::change(&mut call).await,
    }
}

/// Runs a part of a command within its budget.
fn in_budget<'a, R>(call: &mut Call<'a>, run: impl FnOnce(&mut Call<'a>) -> R) -> R {
    let budget = call.budget().clone();
    budget.run(|| run(call))
}
