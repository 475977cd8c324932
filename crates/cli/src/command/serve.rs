//! `ropewalk serve`: runs the server. Its flags are generated from the definition of its settings.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use ropewalk::Class;
use ropewalk_server::{Address, Effective, Key, ServeError, SettingsError, Sources};

use crate::database::context::{Context, Global, RETRY};
use crate::database::remote::Url;
use crate::output::cell::Cell;
use crate::output::failure::{Exit, Failure, Result};

/// Settings whose flag is an argument of every command.
const GLOBAL: &[&str] = &["dir", "memory"];

/// Flags with a second, shorter name.
const SHORT: &[(&str, &str)] = &[("cluster.log", "cluster"), ("cluster.advertise", "advertise")];

/// The arguments of `serve`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Serve {
    dir: Option<PathBuf>,
    config: Option<PathBuf>,
    ready_file: Option<PathBuf>,
    check: bool,
    /// Key and text of each flag.
    flags: Vec<(String, String)>,
}

fn own_keys() -> impl Iterator<Item = Key> {
    ropewalk_server::keys().into_iter().filter(|key| !GLOBAL.contains(&key.name.as_str()))
}

impl Args for Serve {
    fn augment_args(command: Command) -> Command {
        let path = |name: &'static str| Arg::new(name).value_parser(clap::value_parser!(PathBuf));
        let mut command = command
            .arg(
                path("serve-dir")
                    .value_name("DIR")
                    .value_hint(ValueHint::DirPath)
                    .help("Database directory, created if absent [default: --at]"),
            )
            .arg(
                path("config")
                    .long("config")
                    .env("ROPEWALK_CONFIG")
                    .value_name("FILE")
                    .value_hint(ValueHint::FilePath)
                    .help("Settings file [default: ./ropewalk.toml, if it exists]"),
            )
            .arg(
                path("ready-file")
                    .long("ready-file")
                    .env("ROPEWALK_READY_FILE")
                    .value_name("FILE")
                    .value_hint(ValueHint::FilePath)
                    .help("Write the addresses to FILE as JSON once all ports are open; removed at exit"),
            )
            .arg(
                Arg::new("check")
                    .long("check")
                    .action(ArgAction::SetTrue)
                    .help("Print all settings with their values and origins, and exit"),
            );
        for key in own_keys() {
            let default = if key.default.is_empty() { "none" } else { &key.default };
            let help = format!("{} [default: {default}] [env: {}]", key.help, key.variable);
            let mut arg =
                Arg::new(key.name.clone()).long(key.flag.clone()).help(help).overrides_with(key.name.clone());
            if let Some((_, short)) = SHORT.iter().find(|(name, _)| *name == key.name) {
                arg = arg.visible_alias(*short);
            }
            command = command.arg(if key.switch {
                arg.value_name("true|false")
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
            } else {
                arg.value_name("VALUE")
            });
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Serve {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = own_keys()
            .filter_map(|key| Some((key.name.clone(), matches.get_one::<String>(&key.name)?.clone())));
        Ok(Self {
            dir: matches.get_one("serve-dir").cloned(),
            config: matches.get_one("config").cloned(),
            ready_file: matches.get_one("ready-file").cloned(),
            check: matches.get_flag("check"),
            flags: flags.collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Serves until a signal.
pub(crate) fn serve(global: Global, serve: Serve) -> Result {
    let mut flags = serve.flags;
    match (&serve.dir, &global.at) {
        (Some(_), Some(_)) => {
            return Err(Failure::invalid("DIR and --at both name the database directory; one is enough"));
        }
        (Some(dir), None) if dir.to_str().is_some_and(Url::is_meant) => {
            let what = format!("{} is a server, and `serve` takes a database directory", dir.display());
            return Err(Failure::invalid(what));
        }
        (Some(dir), None) | (None, Some(dir)) => flags.push(("dir".to_owned(), dir.display().to_string())),
        (None, None) => {}
    }
    flags.extend(global.memory.map(|bytes| ("memory".to_owned(), format!("{bytes}B"))));
    let environment =
        std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    let sources = Sources { flags, environment: environment.collect(), file: serve.config };
    let effective = Effective::resolve(&sources)?;
    let context = Context::new(global)?;
    context.needs_directory()?;
    if serve.check {
        let mut report = context.report(&["setting", "value", "from"])?;
        for (name, value, origin) in effective.rows() {
            let value = if value.is_empty() { Cell::None } else { value.into() };
            report.row(vec![name.into(), value, origin.to_string().into()])?;
        }
        return Ok(report.finish()?);
    }
    let deadline = Instant::now() + context.wait;
    loop {
        match ropewalk_server::serve(&effective, serve.ready_file.as_deref(), &mut announce) {
            // A command that holds the directory briefly, such as `tail -f`, will release it.
            Err(ServeError::Database(error)) if error.class() == Class::Busy && Instant::now() < deadline => {
                std::thread::sleep(RETRY);
            }
            result => return Ok(result?),
        }
    }
}

/// Prints the addresses of the server. Standard output may be closed.
fn announce(addresses: &[Address]) {
    let mut out = std::io::stdout().lock();
    for place in addresses {
        let store = place.store.as_ref().map(|store| format!(" {store}")).unwrap_or_default();
        let _ = writeln!(out, "listening {} {}{store}", place.protocol, place.address);
    }
    let _ = out.flush();
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        let exit = match &error {
            SettingsError::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Exit::NotFound
            }
            SettingsError::File { .. } => Exit::Io,
            SettingsError::Invalid { .. } => Exit::Invalid,
        };
        Self::new(
            exit,
            error.to_string(),
            "`ropewalk serve --help` lists the settings, --check prints their current values",
        )
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Settings(error) => error.into(),
            ServeError::Database(error) => error.into(),
            ServeError::Tls(_) | ServeError::Prometheus(_) | ServeError::Exposed { .. } => {
                Self::new(Exit::Invalid, error.to_string(), "")
            }
            ServeError::Io { .. } | ServeError::Cluster { .. } => Self::new(Exit::Io, error.to_string(), ""),
            _ => Self::new(Exit::Internal, error.to_string(), ""),
        }
    }
}
