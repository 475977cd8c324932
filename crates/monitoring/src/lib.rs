//! Monitoring by the server itself: it scrapes targets, evaluates rules and sends alerts.
//!
//!   Config ─▶ Monitoring ─┬─▶ scrape: GET ─▶ exposition ─▶ relabel ─┬─▶ Host: the series store of the server
//!                         └─▶ rules: query ─▶ samples, alerts ──────┘        alerts ─▶ Alertmanager
//!
//! The crate is a client and a scheduler. It has no routes: the crate for Prometheus' protocol shows the state
//! of [`Monitoring`], implements [`Host`], and uses the same parser of the exposition formats for imports.
#![deny(missing_docs)]

mod client;
mod clock;
mod config;
pub mod exposition;
mod host;
pub mod notation;
mod rules;
mod schedule;
mod scrape;

pub use config::derived::DerivedMetric;
pub use config::rules::{AlertRule, Rule, RuleGroup};
pub use config::{Alertmanager, Config, ConfigError, ScrapeJob};
pub use host::Host;
pub use rules::alerts::{Alert, AlertState};
pub use rules::group::{GroupState, RuleHealth};
pub use schedule::Monitoring;
pub use scrape::pool::ScrapePool;
pub use scrape::target::{Target, TargetHealth};
