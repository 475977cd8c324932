//! Definition of a benchmark: steps, each one task for some systems, and the result rows of its figures.

use serde::{Deserialize, Serialize};

use crate::harness::table::number;
use crate::harness::worker::Task;

/// Peers that are not databases: they show the machine's limits, and no ratio is computed for them.
pub const REFERENCES: &[&str] = &["btreemap"];

/// A benchmark.
#[derive(Debug)]
pub struct Plan {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its steps, in order.
    pub steps: Vec<Step>,
}

/// One task, measured on ours and on peers in turn.
#[derive(Debug)]
pub struct Step {
    /// The task; the harness fills in the directory.
    pub task: Task,
    /// Runs before the task in the same directory, until it prints `ready`; then it is killed.
    pub victim: Option<Task>,
    /// Peers that take part.
    pub peers: &'static [&'static str],
    /// How often every peer runs; ours runs once more (A/B/A).
    pub rounds: usize,
    /// The result rows of its figures.
    pub rows: Vec<Row>,
}

/// Whether more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// A rate.
    Higher,
    /// A time or a size.
    Lower,
}

/// A line of the result.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its stable id.
    pub id: String,
    /// Description in plain words.
    pub what: String,
    /// Unit of every value in the row.
    pub unit: &'static str,
    /// Direction of improvement.
    pub better: Better,
    /// The worker's name of the figure.
    pub figure: String,
    /// Durability of the figure, for rows that write.
    pub durability: Option<&'static str>,
    /// The figure in a predecessor's report, in the row's unit.
    pub report: Option<f64>,
    /// The value to reach, in the row's unit: at least for rates, at most for times and sizes.
    pub goal: Option<f64>,
}

impl Row {
    /// A row with neither durability nor a report.
    pub fn new(
        id: impl Into<String>,
        what: impl Into<String>,
        unit: &'static str,
        better: Better,
        figure: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            what: what.into(),
            unit,
            better,
            figure: figure.into(),
            durability: None,
            report: None,
            goal: None,
        }
    }

    /// The same row with a durability.
    pub fn durable(mut self, durability: &'static str) -> Self {
        self.durability = Some(durability);
        self
    }

    /// The same row with a report's figure.
    pub fn reported(mut self, value: f64) -> Self {
        self.report = Some(value);
        self
    }

    /// The same row with a value to reach.
    pub fn with_goal(mut self, value: f64) -> Self {
        self.goal = Some(value);
        self
    }

    /// States the goal and whether `reached` meets it; `None` without a goal.
    pub fn judge(&self, reached: Option<f64>) -> Option<String> {
        let (goal, reached) = (self.goal?, reached?);
        let (bound, is_met) = match self.better {
            Better::Higher => ("at least", reached >= goal),
            Better::Lower => ("at most", reached <= goal),
        };
        let [shown, goal] = [reached, goal].map(|value| number(Some(value)));
        let verdict = if is_met { "met" } else { "missed" };
        Some(format!("goal of {}: {bound} {goal} {}, {verdict} with {shown}", self.id, self.unit))
    }
}

impl Plan {
    /// Retains the rows whose id is `only` or below it (`point/hit` retains `point/hit/1M/rand`), and their
    /// steps.
    pub fn retain(&mut self, only: &str) {
        for step in &mut self.steps {
            step.rows.retain(|row| is_below(&row.id, only));
        }
        self.steps.retain(|step| !step.rows.is_empty());
    }
}

/// True when the row `id` is `only` or below it.
pub fn is_below(id: &str, only: &str) -> bool {
    id.strip_prefix(only).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
}

/// `1000000` as `1M`, `100000` as `100K`.
pub fn short(n: u64) -> String {
    match n {
        n if n > 0 && n.is_multiple_of(1_000_000) => format!("{}M", n / 1_000_000),
        n if n > 0 && n.is_multiple_of(1000) => format!("{}K", n / 1000),
        n => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::worker::Group;

    #[test]
    fn retain_keeps_whole_path_elements() {
        let row = |id: &str| Row::new(id, "", "", Better::Lower, "");
        let rows = vec![row("tag/100"), row("tag/100@100K"), row("tag/1000"), row("type/miss")];
        let step = Step { task: Task::new(Group::Queries), victim: None, peers: &[], rounds: 1, rows };
        let mut plan = Plan { name: "p", steps: vec![step] };
        plan.retain("tag/100");
        let ids: Vec<_> = plan.steps[0].rows.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(ids, ["tag/100", "tag/100@100K"]);
        plan.retain("nothing");
        assert!(plan.steps.is_empty());
    }

    #[test]
    fn goal_is_a_floor_for_rates_and_a_ceiling_for_times() {
        let row = |better| Row::new("id", "", "x", better, "");
        let judged = |better, reached| row(better).with_goal(2.0).judge(Some(reached)).unwrap();
        assert!(judged(Better::Higher, 2.5).contains("at least 2.00 x, met with 2.50"));
        assert!(judged(Better::Higher, 1.5).contains("missed"));
        assert!(judged(Better::Lower, 1.5).contains("at most 2.00 x, met with 1.50"));
        assert!(judged(Better::Lower, 2.5).contains("missed"));
        assert_eq!(row(Better::Lower).judge(Some(1.0)), None);
        assert_eq!(row(Better::Lower).with_goal(1.0).judge(None), None);
    }

    #[test]
    fn sizes_read_as_in_the_ids() {
        assert_eq!(
            (short(1_000_000), short(100_000), short(2500)),
            ("1M".into(), "100K".into(), "2500".into())
        );
        assert_eq!(short(1_500_000), "1500K");
    }
}
