//! The command `ropewalk`. Read `args` for what can be typed, then one module per group of commands.
//!
//!   args ─▶ Context (where, which store, which form) ─▶ events, tail, import, maintain, inspect, demo ─▶ output, failure
//!
//! Standard output carries data only; everything said to a person goes to standard error, but for the demo, which is a
//! story from beginning to end.
#![allow(clippy::print_stderr)] // a command speaks

mod command;
mod database;
mod output;

use std::process::ExitCode;

use clap::Parser;

use crate::command::{
    Arguments, Command, Import, accounts, bench, demo, doc, events, groups, import, inspect, maintain,
    manual, metrics, serve, sql, tail,
};
use crate::database::context::Context;
use crate::output::failure::Result;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(arguments: Arguments) -> Result {
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
        Command::Group(command) => groups::group(&context, command),
        Command::Tail(tail) => tail::tail(&context, &tail),
        Command::Promql(asked) => metrics::promql(&context, &asked),
        Command::Series(asked) => metrics::series(&context, &asked),
        Command::Import(Import::Git { path, reference }) => import::git(&context, &path, &reference),
        Command::Import(Import::Prometheus { path }) => import::prometheus(&context, &path),
        Command::Import(Import::Ndjson { file, source }) => import::ndjson(&context, &file, source),
        Command::Sql(asked) => sql::sql(&context, &asked),
        Command::Doc(command) => doc::doc(&context, command),
        Command::Serve(serve) => serve::serve(global, serve),
        Command::User(user) => accounts::user(&context, user),
        Command::Token(token) => accounts::token(&context, token),
        Command::Stats => inspect::stats(&context),
        Command::Verify => inspect::verify(&context),
        Command::Recover { yes, cut_before } => maintain::recover(&context, yes, cut_before),
        Command::Checkpoint => maintain::checkpoint(&context),
        Command::Compact => maintain::compact(&context),
        Command::Backup { target } => maintain::backup(&context, target.as_deref()),
        Command::Bench { arguments } => bench::bench(&arguments),
        Command::Demo(arguments) => demo::demo(global.at, &arguments),
        Command::Man { dir } => manual::man(dir.as_deref()),
        Command::Completions { shell } => manual::completions(shell),
        Command::DemoWriter { threads } => demo::writer(&context, threads),
    }
}
