//! `ropewalk cluster`: running nodes, through a server, and the directories of nodes that do not run.
//!
//! ```text
//! --at URL ─▶ status, check, step-down, remove   --at DIR, --from DIR ─▶ init, reseed, adopt, leave, restore
//! ```

mod check;
mod directories;
mod leadership;
mod members;
mod status;

use std::rc::Rc;

use clap::Subcommand;

use crate::command::cluster::directories::{Adopt, Init, Reseed, Restore};
use crate::database::context::Context;
use crate::database::place::Place;
use crate::database::remote::Remote;
use crate::output::failure::{Exit, Failure, Result};

#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// List the nodes: role, term, newest commit, lag and newest checkpoint of each, as each reports it
    Status,
    /// Compare all contents of the nodes, and wait until that is done; a node with other contents than most nodes stops
    Check,
    /// Let the node that leads give it up, and print the node that leads next
    StepDown,
    /// Remove a node that will not return, so that the shared log is no longer retained for it
    Remove {
        /// Its name, as `status` prints it
        node: String,
    },
    /// Make a shared log for the database in a directory, which becomes the first node of a cluster
    Init(Init),
    /// Make a new shared log from the directories of nodes, when the old one is lost; every node has to be stopped
    Reseed(Reseed),
    /// Let the database of --at, of a stopped node, follow a shared log that `reseed` has made
    Adopt(Adopt),
    /// Make the database of --at, of a stopped node, a database that is alone
    Leave,
    /// Give the directory --at, which has no database, the newest checkpoint of a cluster that is lost
    Restore(Restore),
}

pub(crate) fn cluster(context: &Context, command: &Cluster) -> Result {
    match command {
        Cluster::Status => status::status(context),
        Cluster::Check => check::check(context),
        Cluster::StepDown => leadership::step_down(context),
        Cluster::Remove { node } => members::remove(context, node),
        Cluster::Init(init) => directories::init(context, init),
        Cluster::Reseed(reseed) => directories::reseed(context, reseed),
        Cluster::Adopt(adopt) => directories::adopt(context, adopt),
        Cluster::Leave => directories::leave(context),
        Cluster::Restore(restore) => directories::restore(context, restore),
    }
}

/// The server of --at, which may be a node.
fn server(context: &Context) -> Result<Rc<Remote>> {
    match context.place()? {
        Place::Remote(remote) => Ok(remote),
        Place::Local(_) => {
            let what = format!("{} is not served, so it is no node of a running cluster", context.shown());
            Err(Failure::new(Exit::Invalid, what, "--at URL names a server"))
        }
    }
}
