//! `cluster init`, `reseed`, `adopt`, `leave` and `restore`: directories of nodes that do not run.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Args, ValueHint};
use ropewalk_server::directories::{self, DirectoryError, NewLog};
use ropewalk_server::{Effective, Settings, Sources};

use crate::database::context::Context;
use crate::output::cell::Cell;
use crate::output::failure::{Failure, Result};

/// The shared log, as `serve` takes it: flags before variables before the settings file.
#[derive(Debug, Args)]
pub(crate) struct LogService {
    /// The shared log: nats://HOST,HOST,HOST/NAME or postgres://USER@HOST/DATABASE [default: the setting cluster.log]
    #[arg(long = "cluster", value_name = "URL")]
    log: Option<String>,
    /// File with one line USER:PASSWORD for the log service
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    cluster_credentials: Option<String>,
    /// PEM file with the certificates by which those of the log service are checked
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    cluster_log_ca: Option<String>,
    /// Accept a log service of one server
    #[arg(long)]
    cluster_allow_one_server: bool,
    /// Settings file [default: ./ropewalk.toml, if it exists]
    #[arg(long, env = "ROPEWALK_CONFIG", value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Directory of the database
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    from: PathBuf,
    #[command(flatten)]
    log: LogService,
    #[command(flatten)]
    checkpoints: CheckpointStore,
}

#[derive(Debug, Args)]
pub(crate) struct Reseed {
    /// Directory of a node, or a copy of one; the one with the most commits is used, and all are compared
    #[arg(long, value_name = "DIR", required = true, value_hint = ValueHint::DirPath)]
    from: Vec<PathBuf>,
    /// Give up commits that another node is known to have
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    log: LogService,
    #[command(flatten)]
    checkpoints: CheckpointStore,
}

#[derive(Debug, Args)]
pub(crate) struct Adopt {
    #[command(flatten)]
    log: LogService,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    #[command(flatten)]
    checkpoints: CheckpointStore,
    /// Settings file [default: ./ropewalk.toml, if it exists]
    #[arg(long, env = "ROPEWALK_CONFIG", value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
}

/// Where the checkpoints are.
#[derive(Debug, Args)]
pub(crate) struct CheckpointStore {
    /// Where the checkpoints of the cluster are, as a directory or s3://BUCKET/PREFIX [default: the setting cluster.checkpoints]
    #[arg(long = "cluster-checkpoints", value_name = "PLACE", value_hint = ValueHint::DirPath)]
    place: Option<String>,
}

impl CheckpointStore {
    fn flag(&self) -> Option<(String, String)> {
        flag("cluster.checkpoints", self.place.as_ref())
    }
}

fn flag(name: &str, value: Option<&String>) -> Option<(String, String)> {
    value.map(|value| (name.to_owned(), value.clone()))
}

/// The settings by these flags, the variables and the settings file.
fn settings(flags: impl IntoIterator<Item = (String, String)>, file: Option<&PathBuf>) -> Result<Settings> {
    let environment =
        std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    let sources = Sources {
        flags: flags.into_iter().collect(),
        environment: environment.collect(),
        file: file.cloned(),
    };
    Ok(Effective::resolve(&sources)?.settings)
}

impl LogService {
    /// The settings, with a shared log.
    fn settings(&self, checkpoints: Option<&CheckpointStore>) -> Result<Settings> {
        let allows = self.cluster_allow_one_server.then(|| "true".to_owned());
        let flags = [
            flag("cluster.log", self.log.as_ref()),
            flag("cluster.credentials", self.cluster_credentials.as_ref()),
            flag("cluster.log_ca", self.cluster_log_ca.as_ref()),
            flag("cluster.allow_one_server", allows.as_ref()),
            checkpoints.and_then(CheckpointStore::flag),
        ];
        let settings = settings(flags.into_iter().flatten(), self.config.as_ref())?;
        if settings.cluster.log.is_none() {
            return Err(Failure::invalid(
                "no shared log is named: --cluster URL, or the setting cluster.log",
            ));
        }
        Ok(settings)
    }
}

pub(crate) fn init(context: &Context, init: &Init) -> Result {
    let new = NewLog { copies: vec![init.from.clone()], is_alone: true, accepts_loss: false };
    make_log(context, &init.log.settings(Some(&init.checkpoints))?, &new)
}

pub(crate) fn reseed(context: &Context, reseed: &Reseed) -> Result {
    let new = NewLog { copies: reseed.from.clone(), is_alone: false, accepts_loss: reseed.accept_loss };
    make_log(context, &reseed.log.settings(Some(&reseed.checkpoints))?, &new)
}

fn make_log(context: &Context, settings: &Settings, new: &NewLog) -> Result {
    let made = directories::make_log(settings, new)?;
    context.print_row(
        &["from", "commit", "base", "entries", "lost"],
        vec![
            made.from.display().to_string().into(),
            made.seq.into(),
            made.base.into(),
            made.entries.into(),
            made.lost.map_or(Cell::None, Cell::from),
        ],
    )
}

pub(crate) fn adopt(context: &Context, adopt: &Adopt) -> Result {
    context.must_exist()?;
    let seq = directories::adopt(&adopt.log.settings(None)?, &context.at)?;
    context.print_row(&["path", "commit"], vec![context.at.display().to_string().into(), seq.into()])
}

pub(crate) fn leave(context: &Context) -> Result {
    context.must_exist()?;
    let left = directories::leave(&context.at)?;
    let entry = left.entry.map_or(Cell::None, Cell::from);
    context.print_row(
        &["path", "commit", "entry"],
        vec![context.at.display().to_string().into(), left.seq.into(), entry],
    )
}

pub(crate) fn restore(context: &Context, restore: &Restore) -> Result {
    context.needs_directory()?;
    let settings = settings(restore.checkpoints.flag(), restore.config.as_ref())?;
    let Some(store) = settings.cluster.checkpoints else {
        let what =
            "no checkpoints are named: --cluster-checkpoints PLACE, or the setting cluster.checkpoints";
        return Err(Failure::invalid(what));
    };
    let mut notice = |rejected: String| {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "ropewalk: {}", crate::output::cell::printable(&rejected));
    };
    let restored = directories::restore(&store, &context.at, &mut notice)?;
    context.print_row(
        &["path", "checkpoint", "commit", "bytes"],
        vec![
            context.at.display().to_string().into(),
            restored.checkpoint.into(),
            restored.seq.into(),
            restored.bytes.into(),
        ],
    )
}

impl From<DirectoryError> for Failure {
    fn from(error: DirectoryError) -> Self {
        Self::new(error.class().into(), error.to_string(), error.remedy())
    }
}
