//! Table of all commands: who may send them, and how each is run.

use ropewalk::documents::lang::{Value, Writer};

use crate::auth::{login, roles, users};
use crate::call::Call;
use crate::crud::write::Change;
use crate::crud::{definitions, read, write};
use crate::models::change::Change as ModelChange;
use crate::models::{events, samples, sql};
use crate::protocol::failure::Outcome;
use crate::server::{current_ops, fail_points, hello, profile, status};
use crate::session::{sessions, transaction};

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
    /// Writes events, rows or samples, and awaits durability.
    Models(for<'a> fn(&mut Call<'a>) -> Outcome<ModelChange<'a>>),
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
    open("ping", Run::Quick(status::ping), "checks that the server responds"),
    open("buildInfo", Run::Quick(status::build_info), "reports the server's version"),
    open("buildinfo", Run::Quick(status::build_info), "reports the server's version"),
    open("saslStart", Run::Quick(login::sasl_start), "begins a login"),
    open("saslContinue", Run::Quick(login::sasl_continue), "continues a login"),
    open("logout", Run::Quick(login::logout), "ends the login of the connection"),
    open("whatsmyuri", Run::Quick(status::whats_my_uri), "reports the client's address"),
    open("connectionStatus", Run::Quick(status::connection_status), "reports the authenticated user"),
    command("hostInfo", Run::Quick(status::host_info), "describes the host"),
    command("getParameter", Run::Quick(status::get_parameter), "reports parameters"),
    command("getCmdLineOpts", Run::Quick(status::get_cmd_line_opts), "reports how the server was started"),
    command("configureFailPoint", Run::Quick(fail_points::configure), "makes commands fail, for tests"),
    command("getLog", Run::Quick(status::get_log), "shows the newest lines of the log"),
    command("serverStatus", Run::Read(status::server_status), "reports the server's metrics"),
    command("top", Run::Quick(profile::top), "reports the use of each collection"),
    command("profile", Run::Quick(profile::profile), "reports the profiling level"),
    command("currentOp", Run::Quick(current_ops::current_op), "lists running operations"),
    command("killOp", Run::Quick(current_ops::kill_op), "ends a running operation"),
    command("listCommands", Run::Quick(list_commands), "lists all commands"),
    command("startSession", Run::Quick(sessions::start_session), "starts a session"),
    command("refreshSessions", Run::Quick(sessions::refresh_sessions), "extends sessions"),
    command("endSessions", Run::Read(sessions::end_sessions), "ends sessions"),
    command("killSessions", Run::Read(sessions::end_sessions), "ends sessions"),
    command("killAllSessions", Run::Read(sessions::kill_all_sessions), "ends all sessions"),
    inside("commitTransaction", Run::Commit, "commits a transaction"),
    inside("abortTransaction", Run::Write(transaction::abort), "aborts a transaction"),
    inside("insert", Run::Change(write::insert), "adds documents"),
    inside("update", Run::Change(write::update), "changes documents"),
    inside("delete", Run::Change(write::delete), "removes documents"),
    inside("findAndModify", Run::Change(write::find_and_modify), "changes and returns a document"),
    inside("findandmodify", Run::Change(write::find_and_modify), "changes and returns a document"),
    inside("ropewalkAppend", Run::Models(events::append), "appends events"),
    inside("ropewalkSql", Run::Models(sql::run), "runs an SQL statement"),
    inside("ropewalkSamples", Run::Models(samples::append), "appends samples"),
    inside("find", Run::Read(read::find), "shows documents"),
    inside("getMore", Run::GetMore, "returns the next batch of a cursor"),
    inside("killCursors", Run::Quick(read::kill_cursors), "closes cursors"),
    command("count", Run::Read(read::count), "counts documents"),
    inside("distinct", Run::Read(read::distinct), "lists distinct values"),
    inside("aggregate", Run::Write(read::aggregate), "runs a pipeline"),
    command("explain", Run::Read(read::explain), "explains a query plan"),
    inside("create", Run::Write(definitions::create), "makes a collection"),
    command("drop", Run::Write(definitions::drop), "drops a collection"),
    command("dropDatabase", Run::Write(definitions::drop_database), "drops a database"),
    command("renameCollection", Run::Write(definitions::rename_collection), "renames a collection"),
    command("convertToCapped", Run::Write(definitions::convert_to_capped), "makes a collection capped"),
    command("collMod", Run::Write(definitions::coll_mod), "changes a collection's rules or indexes"),
    inside("createIndexes", Run::Write(definitions::create_indexes), "makes indexes"),
    command("dropIndexes", Run::Write(definitions::drop_indexes), "drops indexes"),
    command("deleteIndexes", Run::Write(definitions::drop_indexes), "drops indexes"),
    command("listIndexes", Run::Read(definitions::list_indexes), "lists indexes"),
    command("listCollections", Run::Read(definitions::list_collections), "lists collections"),
    command("listDatabases", Run::Read(definitions::list_databases), "lists databases"),
    command("validate", Run::Read(definitions::validate), "checks a collection and its indexes"),
    command("usersInfo", Run::Read(users::info), "lists users"),
    command("rolesInfo", Run::Quick(roles::info), "lists roles"),
    command("createUser", Run::Users, "makes a user"),
    command("updateUser", Run::Users, "changes a user's password or roles"),
    command("dropUser", Run::Users, "drops a user"),
    command("grantRolesToUser", Run::Users, "gives a user roles"),
    command("revokeRolesFromUser", Run::Users, "takes roles from a user"),
    command("createSearchIndexes", Run::Quick(definitions::search_indexes), "is of MongoDB Atlas"),
    command("updateSearchIndex", Run::Quick(definitions::search_indexes), "is of MongoDB Atlas"),
    command("dropSearchIndex", Run::Quick(definitions::search_indexes), "is of MongoDB Atlas"),
    command("collStats", Run::Read(definitions::coll_stats), "reports the size of a collection"),
    command("dbStats", Run::Read(definitions::db_stats), "reports the size of a database"),
    command("dbstats", Run::Read(definitions::db_stats), "reports the size of a database"),
];

/// Commands of version 1 of the API that are offered here.
pub(crate) const API_VERSION_1: &[&str] = &[
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
/// Commands on the collections of a database.
pub(crate) const OF_DATABASES: &[&str] = &[
    "aggregate",
    "collMod",
    "collStats",
    "convertToCapped",
    "count",
    "create",
    "createIndexes",
    "dbStats",
    "dbstats",
    "delete",
    "deleteIndexes",
    "distinct",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "explain",
    "find",
    "findAndModify",
    "findandmodify",
    "insert",
    "listCollections",
    "listIndexes",
    "profile",
    "update",
    "validate",
];
/// Commands that accept document sequences next to the body.
pub(crate) const TAKES_SEQUENCES: &[&str] = &["insert", "update", "delete"];
/// Commands that may read one snapshot outside of a transaction.
pub(crate) const SNAPSHOT_READS: &[&str] = &["find", "aggregate", "distinct", "getMore"];

/// Finds a command by its name.
pub(crate) fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

/// `listCommands`
pub(crate) fn list_commands(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["listCommands"])?;
    let mut out = Writer::new();
    out.open_document("commands");
    for command in COMMANDS {
        out.open_document(command.name);
        out.put("help", Value::String(command.help));
        out.put("requiresAuth", Value::Bool(!command.before_login));
        out.put("secondaryOk", Value::Bool(false));
        out.close();
    }
    out.close();
    Ok(out)
}
