//! The commands: one file or folder for each group, with its arguments; here their list and the dispatch.

mod accounts;
mod bench;
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
  2  the command line or the data breaks a rule
  3  not found: database, store, event, commit, file
  4  conflict: a condition, a tracking position or a key stands against it; nothing was written
  5  busy: another process has the database open, or the memory budget is spent
  6  damaged or foreign bytes, or a format from the future
  7  the operating system refused, or no server can be reached
  8  the server wants a password or a token, or its user lacks the right

Everything but the data goes to standard error. The whole manual: docs/cli.md, or `ropewalk man`.";

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
    /// Create a database; does nothing where there is one
    Init,
    /// Append one event, durable when the command ends
    Append(Append),
    /// Print the events that match, in order
    Read(Read),
    /// Print the newest event that matches
    Last(Select),
    /// Print how many events match
    Count(Select),
    /// Print the last position of the store, 0 when it is empty
    Head,
    /// List the event stores
    Stores,
    /// Manage the consumer groups of a store: list, make, look at what is parked
    #[command(subcommand)]
    Group(Group),
    /// Print commits as they were made, and with -f as they are made: the change feed over all stores
    Tail(Tail),
    /// Evaluate a PromQL query over the time series, at one time or at steps
    Promql(Promql),
    /// List time series, or with --top what makes the most of them
    Series(ListSeries),
    /// Run SQL over tables, events, documents and metrics: statements, a script, or what is typed
    Sql(Sql),
    /// Import events or samples; an interrupted import resumes, and a repeated one imports only new data
    #[command(subcommand)]
    Import(Import),
    /// Bring documents in and out
    #[command(subcommand)]
    Doc(Doc),
    /// Serve the database to others: HTTP and gRPC, each on its own port, until SIGTERM or SIGINT
    Serve(Serve),
    /// Manage the users that a server lets in
    #[command(subcommand)]
    User(User),
    /// Manage API tokens
    #[command(subcommand)]
    Token(Token),
    /// Print what the engine holds and has done
    Stats,
    /// Read every byte and check every checksum and invariant
    Verify,
    /// Say what can be saved of a log that is refused as damaged, and with --yes save it
    Recover(Recover),
    /// Write memory out as sorted files, so that the next opening is quick
    Checkpoint,
    /// Checkpoint, then merge all files of a keyspace into one sorted level
    Compact,
    /// Copy the database as of this moment, while others may use it; the copy is a database
    Backup(Backup),
    /// Run a benchmark report with `ropewalk-bench`
    Bench(Bench),
    /// Show in a minute what this database is for, on the git history of the directory it runs in
    Demo(Demo),
    /// Print the manual page, or write those of all commands into DIR
    #[command(hide = true)]
    Man(Man),
    /// Print the completions for a shell
    Completions(Completions),
    /// The load that the demo kills: appends for ever and prints each acknowledged position
    #[command(hide = true)]
    DemoWriter(demo::Writer),
}

/// Runs the command that was typed.
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
        Command::DemoWriter(writer) => demo::writer(&context, &writer),
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
