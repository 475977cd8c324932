//! `cluster step-down`.

use std::time::{Duration, Instant};

use crate::command::cluster::server;
use crate::database::context::Context;
use crate::database::listed::ListedNode;
use crate::database::remote::{Remote, SteppedDown};
use crate::output::cell::Cell;
use crate::output::failure::{Exit, Failure, Result};

/// Time for the node to open its database again, in addition to that for another node to lead.
const REOPEN_TIME: Duration = Duration::from_secs(60);
/// Pause between two questions which node leads.
const ASK_PAUSE: Duration = Duration::from_millis(250);

pub(crate) fn step_down(context: &Context) -> Result {
    let remote = server(context)?;
    let stepped = remote.step_down()?;
    let next = next_leader(&remote, &stepped)?;
    let leader = next.leader.map_or(Cell::None, Cell::from);
    context.print_row(
        &["node", "ended_term", "leader", "term"],
        vec![stepped.node.into(), stepped.term.into(), leader, next.term.into()],
    )
}

/// Asks the node that has stepped down, which opens its database again, until a node leads in a later term.
fn next_leader(remote: &Remote, stepped: &SteppedDown) -> Result<ListedNode> {
    let time = Duration::from_millis(stepped.leads_within_ms) + REOPEN_TIME;
    let until = Instant::now() + time;
    while Instant::now() < until {
        // It does not respond while it opens its database.
        if let Ok(node) = remote.cluster()
            && node.term > stepped.term
        {
            return Ok(node);
        }
        std::thread::sleep(ASK_PAUSE);
    }
    let SteppedDown { node, term, .. } = stepped;
    let what = format!("node {node} has stepped down from term {term}, and no node leads after {time:?}");
    Err(Failure::new(Exit::Busy, what, "`ropewalk cluster status` shows the nodes and their problems"))
}
