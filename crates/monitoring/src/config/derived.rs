//! Derived metrics: recording rules that clients set at run time.

use std::collections::BTreeMap;
use std::time::Duration;

use ropewalk::promql::{Options, Query};
use serde::{Deserialize, Serialize};

use super::rules::{Rule, RuleGroup};

/// A derived metric, which is recorded under its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DerivedMetric {
    /// The expression.
    pub query: String,
    /// Time between two evaluations.
    pub interval_ms: u64,
}

impl DerivedMetric {
    /// Converts the metric to a group of one recording rule.
    ///
    /// # Errors
    /// The name is empty, or the expression is invalid.
    pub fn group(&self, name: &str) -> Result<RuleGroup, String> {
        if name.is_empty() {
            return Err("a derived metric needs a name".to_owned());
        }
        let query = Query::parse(&self.query, Options::default()).map_err(|error| error.to_string())?;
        let rule = Rule { name: name.to_owned(), query, labels: BTreeMap::new(), alert: None };
        Ok(RuleGroup {
            name: name.to_owned(),
            file: "derived-metrics".to_owned(),
            interval: Duration::from_millis(self.interval_ms),
            offset_ms: 0,
            limit: 0,
            rules: vec![rule],
        })
    }
}
