//! The commands, one file or folder per group with its arguments; this module lists and dispatches them.

mod accounts;
mod bench;
mod cluster;
mod demo;
mod doc;
mod events;
mod groups;
mod import;
mod inspect;
mod maintain;
mod manual;
mod metrics;
mod serve;
mod sql;
mod tail;

use clap::{CommandFactory as _, Parser, Subcommand};

use self::accounts::{Token, User};
use self::bench::Bench;
use self::cluster::Cluster;
use self::demo::Demo;
use self::doc::Doc;
use self::events::{Append, Read, Select};
use self::groups::Group;
use self::import::Import;
use self::maintain::{Backup, Recover};
use self::manual::{Completions, Man};
use self::metrics::{ListSeries, Promql};
use self::serve::Serve;
use self::sql::Sql;
use self::tail::Tail;
use crate::database::context::{Context, Global};
use crate::output::failure::Result;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  internal error, or a check of the demo failed
  2  invalid command line or data
  3  not found: database, store, event, commit, file
  4  conflict with a condition, a tracking position or a key; nothing was written
  5  busy: another process has the database open, or the memory budget is exhausted
  6  corrupt or foreign data, or an unsupported newer format
  7  error of the operating system, or no server at the URL
  8  the server requires a password or a token, or its user lacks the right

Messages go to standard error. Full manual: docs/cli.md, or `ropewalk man`.";

/// An embedded, durable database: append events under conditions, read, follow, import, verify and repair them.
#[derive(Debug, Parser)]
#[command(name = "ropewalk", version, after_help = EXIT_CODES, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a database; does nothing if it exists
    Init,
    /// Append one event, durable when the command ends
    Append(Append),
    /// Print matching events, in order
    Read(Read),
    /// Print the newest matching event
    Last(Select),
    /// Print the number of matching events
    Count(Select),
    /// Print the last position of the store, 0 if it is empty
    Head,
    /// List the event stores
    Stores,
    /// Manage the consumer groups of a store and their parked events
    #[command(subcommand)]
    Group(Group),
    /// Print the commits of all stores from the change feed; -f follows new ones
    Tail(Tail),
    /// Evaluate a PromQL query over the time series, at one time or over a range
    Promql(Promql),
    /// List time series, or with --top the metrics and labels with the most series
    Series(ListSeries),
    /// Run SQL over tables, events, documents and metrics: statements, a script, or a prompt
    Sql(Sql),
    /// Import events or samples; an interrupted import resumes, and a repeated one imports only new data
    #[command(subcommand)]
    Import(Import),
    /// Import and export documents
    #[command(subcommand)]
    Doc(Doc),
    /// Serve the database over HTTP and gRPC, on separate ports, until SIGTERM or SIGINT
    Serve(Serve),
    /// Show and manage the nodes of a cluster
    #[command(subcommand)]
    Cluster(Cluster),
    /// Manage the users of a server
    #[command(subcommand)]
    User(User),
    /// Manage API tokens
    #[command(subcommand)]
    Token(Token),
    /// Print statistics of the engine
    Stats,
    /// Read all data and check all checksums and invariants
    Verify,
    /// Report what can be recovered of a damaged log, and with --yes recover it
    Recover(Recover),
    /// Flush memory to sorted files, so that the next open is fast
    Checkpoint,
    /// Checkpoint, then merge all files of a keyspace into one sorted level
    Compact,
    /// Copy the database at one commit while it is in use; the copy is a database
    Backup(Backup),
    /// Run a benchmark report with `ropewalk-bench`
    Bench(Bench),
    /// Show the purpose of this database in a minute, on the git history of the current directory
    Demo(Demo),
    /// Print the manual page, or write those of all commands into DIR
    #[command(hide = true)]
    Man(Man),
    /// Print the completions for a shell
    Completions(Completions),
}

/// Runs the parsed command.
pub(crate) fn run(arguments: Arguments) -> Result {
    let global = arguments.global;
    let context = Context::new(global.clone())?;
    match arguments.command {
        Command::Init => maintain::init(&context),
        Command::Append(append) => events::append(&context, append),
        Command::Read(read) => events::read(&context, &read),
        Command::Last(select) => events::last(&context, &select),
        Command::Count(select) => events::count(&context, &select),
        Command::Head => events::head(&context),
        Command::Stores => events::stores(&context),
        Command::Group(group) => groups::group(&context, group),
        Command::Tail(tail) => tail::tail(&context, &tail),
        Command::Promql(promql) => metrics::promql(&context, &promql),
        Command::Series(list) => metrics::series(&context, &list),
        Command::Import(import) => import::import(&context, import),
        Command::Sql(sql) => sql::sql(&context, &sql),
        Command::Doc(doc) => doc::doc(&context, doc),
        Command::Serve(serve) => serve::serve(global, serve),
        Command::Cluster(command) => cluster::cluster(&context, &command),
        Command::User(user) => accounts::user(&context, user),
        Command::Token(token) => accounts::token(&context, token),
        Command::Stats => inspect::stats(&context),
        Command::Verify => inspect::verify(&context),
        Command::Recover(recover) => maintain::recover(&context, &recover),
        Command::Checkpoint => maintain::checkpoint(&context),
        Command::Compact => maintain::compact(&context),
        Command::Backup(backup) => maintain::backup(&context, &backup),
        Command::Bench(bench) => bench::bench(&bench),
        Command::Demo(demo) => demo::demo(global.at, &demo),
        Command::Man(man) => manual::man(&man, Arguments::command()),
        Command::Completions(completions) => manual::completions(&completions, Arguments::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_consistent() {
        Arguments::command().debug_assert();
    }
}
