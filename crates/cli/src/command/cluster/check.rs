//! `cluster check`.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::command::cluster::server;
use crate::database::context::Context;
use crate::database::remote::Remote;
use crate::output::failure::{Exit, Failure, Result};

/// Pause between two questions how far it is.
const ASK_PAUSE: Duration = Duration::from_millis(500);
/// Time for a leader that does not answer, such as one that has stopped because its contents differ.
const ANSWER_TIME: Duration = Duration::from_secs(30);

pub(crate) fn check(context: &Context) -> Result {
    let leader = leader(context)?;
    let before = leader.check_contents()?;
    let mut answered = Instant::now();
    loop {
        std::thread::sleep(ASK_PAUSE);
        let node = match leader.cluster() {
            Ok(node) => node,
            Err(failure) if answered.elapsed() > ANSWER_TIME => return Err(failure),
            Err(_) => continue,
        };
        answered = Instant::now();
        if node.role != "leader" {
            return Err(unfinished("the node no longer leads".to_owned()));
        }
        let contents = node.contents;
        if contents.checks == before.checks {
            continue;
        }
        if let Some(error) = contents.error {
            return Err(unfinished(error));
        }
        if let Some(check) = contents.last_check {
            return context.print_row(
                &["bytes", "commit", "differing"],
                vec![check.bytes.into(), check.seq.into(), contents.differing.join(",").as_str().into()],
            );
        }
    }
}

/// The node that leads.
fn leader(context: &Context) -> Result<Rc<Remote>> {
    let remote = server(context)?;
    let node = remote.cluster()?;
    match node.leader.filter(|_| node.role == "follower") {
        Some(address) => Ok(Rc::new(context.node(&address)?)),
        None => Ok(remote),
    }
}

fn unfinished(cause: String) -> Failure {
    let what = format!("the check of the contents has not ended: {cause}");
    Failure::new(Exit::Busy, what, "`ropewalk cluster status` shows the nodes and their problems")
}
