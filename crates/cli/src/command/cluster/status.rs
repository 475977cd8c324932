//! `cluster status`.

use std::io::{self, Write as _};

use crate::command::cluster::server;
use crate::database::context::Context;
use crate::database::listed::{ListedMember, ListedNode};
use crate::database::remote::Remote;
use crate::output::cell::Cell;
use crate::output::failure::{Failure, Result};

/// Columns of a node.
const COLUMNS: &[&str] = &[
    "node",
    "role",
    "term",
    "commit",
    "lag_ms",
    "lag_commits",
    "equal_commit",
    "checkpoint",
    "checkpoint_age_ms",
    "address",
    "problem",
];

pub(crate) fn status(context: &Context) -> Result {
    let remote = server(context)?;
    let asked = remote.cluster()?;
    let mut report = context.report(COLUMNS)?;
    let mut warnings = asked.warnings.clone();
    report.row(row(&asked, String::new()))?;
    for member in asked.members.iter().filter(|member| member.node != asked.node) {
        match ask(context, member) {
            Ok(node) => {
                warnings.extend(node.warnings.iter().cloned());
                report.row(row(&node, String::new()))?;
            }
            Err(Failure::OutputClosed) => return Err(Failure::OutputClosed),
            Err(Failure::Said { what, .. }) => {
                let unknown = ListedNode { node: member.node.clone(), ..ListedNode::default() };
                report.row(row(&ListedNode { address: member.address.clone(), ..unknown }, what))?;
            }
        }
    }
    report.finish()?;
    warnings.sort();
    warnings.dedup();
    for warning in warnings {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "ropewalk: {}", crate::output::cell::printable(&warning));
    }
    Ok(())
}

fn ask(context: &Context, member: &ListedMember) -> Result<ListedNode> {
    let Some(address) = &member.address else {
        return Err(Failure::invalid("the node advertises no HTTP address"));
    };
    let remote: Remote = context.node(address)?;
    remote.cluster()
}

fn row(node: &ListedNode, problem: String) -> Vec<Cell> {
    let text = |text: &str| if text.is_empty() { Cell::None } else { text.into() };
    let number = |number: u64| if node.role.is_empty() { Cell::None } else { number.into() };
    let optional = |number: Option<u64>| number.map_or(Cell::None, Cell::from);
    let differing = match node.contents.differing.as_slice() {
        [] => None,
        nodes => Some(format!("other contents than here: {}", nodes.join(", "))),
    };
    let own = || {
        let others = || node.checkpoint_error.clone().or_else(|| node.contents.error.clone());
        differing.or_else(|| node.log_error.clone()).or_else(others).unwrap_or_default()
    };
    let problem = if problem.is_empty() { own() } else { problem };
    vec![
        text(&node.node),
        text(&node.role),
        number(node.term),
        number(node.seq),
        number(node.lag_ms),
        number(node.lag_commits),
        number(node.contents.equal_seq),
        optional(node.checkpoint),
        optional(node.checkpoint_age_ms),
        node.address.as_deref().map_or(Cell::None, text),
        text(&problem),
    ]
}
