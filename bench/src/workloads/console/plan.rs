//! `bench console`: appends by 8 clients without and with a web console that displays its pages Now and Commits.
//!
//! Goal: the open console costs at most a hundredth of the rate.

use crate::harness::plan::Better::{Higher, Lower};
use crate::harness::plan::{Plan, Row, Step};
use crate::harness::worker::{Group, Task};

const CLIENTS: usize = 8;
/// Remaining rate of appends, in percent.
const GOAL: f64 = 99.0;

/// The plan; `quick` has fewer and shorter passes.
pub fn plan(quick: bool) -> Plan {
    let rate = |id: &str, what: &str| {
        let what = format!("append 1 event, {CLIENTS} clients, {what}");
        Row::new(format!("idle/{id}"), what, "ev/s", Higher, id).durable("sync")
    };
    let cpu = |id: &str, what: &str| {
        let what = format!("the server's processor time for each append {what}");
        Row::new(format!("idle/{id}"), what, "µs", Lower, id)
    };
    let rows = vec![
        rate("append", "with an open console"),
        rate("append_without", "before and after"),
        Row::new("idle/share", "remaining rate of appends with an open console", "%", Higher, "share")
            .durable("sync")
            .with_goal(GOAL),
        Row::new(
            "idle/delivered",
            "commits that the open console received, of those that the clients made",
            "%",
            Higher,
            "delivered",
        ),
        cpu("cpu", "with an open console"),
        cpu("cpu_without", "before and after"),
    ];
    let (passes, seconds) = if quick { (4, 3.0) } else { (8, 20.0) };
    let task = Task { threads: CLIENTS, batch: 1, passes, seconds, ..Task::new(Group::ConsoleIdle) };
    Plan { name: "console", steps: vec![Step { task, victim: None, peers: &[], rounds: 0, rows }] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_states_the_goal_of_the_remaining_rate() {
        for quick in [true, false] {
            let plan = plan(quick);
            let rows: Vec<&Row> = plan.steps.iter().flat_map(|step| &step.rows).collect();
            let goals: Vec<_> = rows.iter().filter_map(|row| Some((row.id.as_str(), row.goal?))).collect();
            assert_eq!(goals, [("idle/share", GOAL)]);
        }
    }
}
