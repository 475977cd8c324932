//! `ropewalk cluster`: the nodes of the cluster of a server, and who leads.

mod leadership;
mod members;
mod status;

use std::rc::Rc;

use clap::Subcommand;

use crate::database::context::Context;
use crate::database::place::Place;
use crate::database::remote::Remote;
use crate::output::failure::{Exit, Failure, Result};

#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// List the nodes: role, term, newest commit, lag and newest checkpoint of each, as each reports it
    Status,
    /// Let the node that leads give it up, and print the node that leads next
    StepDown,
    /// Remove a node that will not return, so that the shared log is no longer retained for it
    Remove {
        /// Its name, as `status` prints it
        node: String,
    },
}

pub(crate) fn cluster(context: &Context, command: &Cluster) -> Result {
    match command {
        Cluster::Status => status::status(context),
        Cluster::StepDown => leadership::step_down(context),
        Cluster::Remove { node } => members::remove(context, node),
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
