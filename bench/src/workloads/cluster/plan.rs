//! `bench cluster`: three nodes that share a log in three servers of NATS, all on one machine.
//!
//! Peers: a server without a cluster, the servers of NATS without nodes, and PostgreSQL 15 with a synchronous standby.
//! Everything shares the processors and the disk, so the figures are lower bounds for separate machines.

use crate::harness::plan::Better::{self, Higher, Lower};
use crate::harness::plan::{Plan, Row, Step, short};
use crate::harness::worker::{Group, Task};

/// A server of ours without a cluster.
pub const SINGLE_NODE: &str = "single_node";
/// Three servers of NATS, without nodes: one message for each commit.
pub const JETSTREAM: &str = "jetstream_bare";
/// PostgreSQL 15, whose standby has each commit on disk before it is acknowledged.
pub const STANDBY: &str = "postgres15_sync_standby";

/// Clients of the rows `commit/…`, in this order on one cluster.
pub const CLIENTS: [usize; 3] = [1, 32, 256];
/// Bytes of the text that a commit inserts.
pub const TEXT_BYTES: usize = 256;
/// Messages in flight where appends to NATS are compared with the nodes' entries: one, as the leader has, and many.
pub const WINDOWS: [usize; 2] = [1, 16];
/// Clients of the rows `read/session/…`.
pub const READERS: usize = 32;
/// Processors from which on each node of the rows about reads has one to itself.
pub const SPARE_PROCESSORS: usize = 8;
/// `cluster.lease` in seconds where a row does not name another.
pub const LEASE_S: usize = 1;
/// The default of `cluster.lease`.
const DEFAULT_LEASE_S: usize = 3;

/// Goals: milliseconds of one client, commits a second of 256 clients, percent of bare NATS.
const P50_GOAL: f64 = 1.5;
const P99_GOAL: f64 = 5.0;
const RATE_GOAL: f64 = 40_000.0;
const JETSTREAM_GOAL: f64 = 70.0;
/// Milliseconds of a linearizable read; rate of three nodes relative to one.
const LINEARIZABLE_GOAL: f64 = 2.0;
const READS_GOAL: f64 = 1.7;
/// Commits a second; seconds of a new node.
const CATCH_UP_GOAL: f64 = 200_000.0;
const NEW_NODE_GOAL: f64 = 30.0;
/// Seconds without writes.
const OUR_LEADER_GOAL: f64 = 2.0;
const LOG_LEADER_GOAL: f64 = 6.0;

fn row(id: &str, what: impl Into<String>, unit: &'static str, better: Better, figure: &str) -> Row {
    Row::new(id, what, unit, better, figure)
}

fn step(task: Task, rounds: usize, rows: Vec<Row>) -> Step {
    Step { task, victim: None, peers: &[], rounds, rows }
}

/// Commits of one row each, over PostgreSQL's protocol.
fn commits(quick: bool) -> Step {
    let mut rows = Vec::new();
    for clients in CLIENTS {
        let by = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
        let of = |name: &str, what: &str, unit, better| {
            let figure = format!("c{clients}/{name}");
            let what = format!("{what}, {TEXT_BYTES} bytes of text, {by}");
            row(&format!("commit/{figure}"), what, unit, better, &figure).durable("sync")
        };
        let rate = of("commits_per_s", "commits of one row", "commits/s", Higher);
        let p50 = of("p50", "time of a commit, median", "ms", Lower);
        let p99 = of("p99", "time of a commit, 99th percentile", "ms", Lower);
        rows.extend(match clients {
            1 => [rate, p50.with_goal(P50_GOAL), p99.with_goal(P99_GOAL)],
            256 => [rate.with_goal(RATE_GOAL), p50, p99],
            _ => [rate, p50, p99],
        });
    }
    let each = "commits in an entry of the shared log, 256 clients";
    rows.push(row("commit/c256/commits_per_entry", each, "commits", Higher, "commits_per_entry"));
    for window in WINDOWS {
        let figure = format!("of_jetstream/window{window}");
        let what = format!(
            "commits by 256 clients, relative to bare messages with the bytes of our entries, {window} in flight"
        );
        let share = row(&format!("commit/c256/{figure}"), what, "%", Higher, &figure).durable("sync");
        rows.push(share.with_goal(JETSTREAM_GOAL));
    }
    let (seconds, rounds) = if quick { (3.0, 1) } else { (10.0, 2) };
    let task = Task { seconds, ..Task::new(Group::ClusterCommits) };
    Step { peers: &[SINGLE_NODE, JETSTREAM, STANDBY], ..step(task, rounds, rows) }
}

/// Reads of a document by its id, over HTTP. `processors`: those of this machine.
fn reads(quick: bool, processors: usize) -> Step {
    let time = |id: &str, what: &str| {
        row(&format!("read/{id}/p50"), format!("{what}, 1 client, median"), "ms", Lower, id)
    };
    let place = if processors >= SPARE_PROCESSORS {
        "each on its processor".to_owned()
    } else {
        format!("all on the same {processors} processors")
    };
    let rate = |id: &str, what: &str| {
        row(&format!("read/session/{id}"), format!("{what}, {READERS} clients"), "reads/s", Higher, id)
    };
    let cpu = |id: &str, what: &str| {
        let what = format!("processor time of the nodes for each of these reads, {what}");
        row(&format!("read/session/{id}"), what, "µs", Lower, id)
    };
    let ratio = format!("session reads of three nodes relative to those of one, nodes {place}");
    let ratio = row("read/session/ratio", ratio, "x", Higher, "ratio");
    let rows = vec![
        time("local", "local read at a follower"),
        time("session", "read at a follower after a commit that the client names"),
        time("linearizable", "linearizable read at a follower").with_goal(LINEARIZABLE_GOAL),
        time("linearizable_leader", "linearizable read at the leader").with_goal(LINEARIZABLE_GOAL),
        rate("nodes1", "session reads at the leader"),
        rate("nodes3", "session reads at the leader and two followers"),
        if processors >= SPARE_PROCESSORS { ratio.with_goal(READS_GOAL) } else { ratio },
        cpu("cpu1", "at the leader"),
        cpu("cpu3", "at three nodes"),
    ];
    let (seconds, passes) = if quick { (1.0, 2) } else { (5.0, 5) };
    let task = Task { threads: READERS, rows: 1000, seconds, passes, ..Task::new(Group::ClusterReads) };
    step(task, 0, rows)
}

/// A new node over a log of commits, and over one of large events.
fn new_nodes(quick: bool) -> [Step; 2] {
    let (commits, megabytes, passes) = if quick { (100_000, 100, 2) } else { (1_000_000, 1000, 3) };
    let task = |rows, batch| Task { rows, batch, passes, ..Task::new(Group::ClusterNew) };
    let size = short(commits);
    let small = vec![
        row(
            "follower/catch_up",
            format!("a new node applies {size} commits of one row, its start included"),
            "commits/s",
            Higher,
            "commits_per_s",
        )
        .with_goal(CATCH_UP_GOAL),
        row("follower/catch_up/bytes", "the same in bytes of the shared log", "MB/s", Higher, "mb_per_s"),
    ];
    let name = if megabytes == 1000 { "1GB".to_owned() } else { format!("{megabytes}MB") };
    let seconds = row(
        &format!("node/new_{name}"),
        format!("start of a new node until it serves, {name} in the shared log"),
        "s",
        Lower,
        "seconds",
    );
    // The goal is for a gigabyte.
    let seconds = if quick { seconds } else { seconds.with_goal(NEW_NODE_GOAL) };
    let large = vec![
        seconds,
        row(&format!("node/new_{name}/bytes"), "the same as a rate", "MB/s", Higher, "mb_per_s"),
    ];
    [step(task(commits, 0), 0, small), step(task(0, megabytes), 0, large)]
}

/// Time without writes after SIGKILL.
fn gaps(quick: bool) -> Vec<Step> {
    let what = |lost: &str, lease: usize| {
        format!("kill of {lost} until a remaining node acknowledges a write, lease of {lease} s")
    };
    let both = "the leader and of the server of NATS that leads the stream";
    let task = |lease, passes| Task { batch: lease, passes, ..Task::new(Group::ClusterGap) };
    let rows = |place: &str, lease: usize| {
        let of = |id: &str, lost: &str| {
            let row = row(&format!("gap/{id}{place}"), what(lost, lease), "s", Lower, id);
            row.durable("sync")
        };
        (of("our_leader", "the leader"), of("log_leader", both))
    };
    let (ours, both) = rows("", LEASE_S);
    let goals = vec![ours.with_goal(OUR_LEADER_GOAL), both.with_goal(LOG_LEADER_GOAL)];
    let mut steps = vec![step(task(LEASE_S, if quick { 1 } else { 5 }), 0, goals)];
    if !quick {
        let (ours, both) = rows("/default_lease", DEFAULT_LEASE_S);
        steps.push(step(task(DEFAULT_LEASE_S, 5), 0, vec![ours, both]));
    }
    steps
}

/// The plan; `quick` has shorter loads, fewer commits and one failure of each kind.
pub fn plan(quick: bool) -> Plan {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut steps = vec![commits(quick), reads(quick, processors)];
    steps.extend(new_nodes(quick));
    steps.extend(gaps(quick));
    Plan { name: "cluster", steps }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goals(steps: &[Step]) -> Vec<(&str, f64)> {
        let rows = steps.iter().flat_map(|step| &step.rows);
        rows.filter_map(|row| Some((row.id.as_str(), row.goal?))).collect()
    }

    #[test]
    fn plan_states_the_goals_of_its_rows() {
        let plan = plan(false);
        let goals = goals(&plan.steps);
        for wanted in [
            ("commit/c1/p50", 1.5),
            ("commit/c1/p99", 5.0),
            ("commit/c256/commits_per_s", 40_000.0),
            ("commit/c256/of_jetstream/window1", 70.0),
            ("commit/c256/of_jetstream/window16", 70.0),
            ("read/linearizable/p50", 2.0),
            ("follower/catch_up", 200_000.0),
            ("node/new_1GB", 30.0),
            ("gap/our_leader", 2.0),
            ("gap/log_leader", 6.0),
        ] {
            assert!(goals.contains(&wanted), "{wanted:?} is not in {goals:?}");
        }
        assert!(goals.iter().all(|(id, _)| !id.ends_with("default_lease")));
    }

    #[test]
    fn reads_of_three_nodes_have_a_goal_only_with_processors_to_spare() {
        let goal = |processors| goals(&[reads(true, processors)]).contains(&("read/session/ratio", 1.7));
        assert_eq!((goal(2), goal(7), goal(8)), (false, false, true));
    }

    #[test]
    fn ids_are_unique() {
        for quick in [true, false] {
            let plan = plan(quick);
            let mut ids: Vec<&str> =
                plan.steps.iter().flat_map(|step| &step.rows).map(|row| row.id.as_str()).collect();
            let all = ids.len();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), all);
        }
    }
}
