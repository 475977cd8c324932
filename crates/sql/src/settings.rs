//! What a session may be told by SET, and answers to SHOW. Few things can be set; what cannot be honoured is refused.

use ropewalk::{Durability, Isolation};

use crate::budget::MEMORY_BYTES_MAX;
use crate::error::{Result, SqlError, state};

/// How a session runs its statements.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Isolation of statements outside of a transaction, and of transactions that name none. Serializable.
    pub isolation: Isolation,
    /// When a commit is answered. After the sync.
    pub durability: Durability,
    /// Bytes that one statement may hold in memory. 256 MiB.
    pub memory_bytes_max: usize,
    /// How often a single statement outside of a transaction is run when other commits get there first. 10.
    pub attempts: usize,
    /// Milliseconds that one statement may take; 0 is for ever, the default.
    pub statement_millis: u64,
    /// What the client calls itself.
    pub application_name: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            isolation: Isolation::Serializable,
            durability: Durability::Sync,
            memory_bytes_max: MEMORY_BYTES_MAX,
            attempts: 10,
            statement_millis: 0,
            application_name: String::new(),
        }
    }
}

/// The isolation by its name in SQL; repeatable read is our snapshot isolation, as it is in PostgreSQL.
pub(crate) fn isolation_named(name: &str) -> Option<Isolation> {
    match name.to_ascii_lowercase().as_str() {
        "serializable" => Some(Isolation::Serializable),
        "repeatable read" => Some(Isolation::Snapshot),
        "read committed" | "read uncommitted" => Some(Isolation::ReadCommitted),
        _ => None,
    }
}

pub(crate) fn isolation_name(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Serializable => "serializable",
        Isolation::Snapshot => "repeatable read",
        Isolation::ReadCommitted => "read committed",
    }
}

/// Variables with one value, which may be set to that.
const FIXED: [(&str, &str); 7] = [
    ("client_encoding", "UTF8"),
    ("server_encoding", "UTF8"),
    ("timezone", "UTC"),
    ("datestyle", "ISO, MDY"),
    ("intervalstyle", "postgres"),
    ("standard_conforming_strings", "on"),
    ("integer_datetimes", "on"),
];

/// The name of a variable as SHOW says it.
pub(crate) fn shown_name(variable: &[sqlparser::ast::Ident]) -> String {
    let name = variable.iter().map(crate::scope::folded).collect::<Vec<_>>().join("_");
    match name.as_str() {
        "transaction_isolation_level" => "transaction_isolation".into(),
        "time_zone" => "timezone".into(),
        _ => name,
    }
}

impl Settings {
    /// Names, values and meanings of all variables.
    pub(crate) fn all(&self) -> Vec<(&'static str, String, &'static str)> {
        let known = [
            "application_name",
            "default_transaction_isolation",
            "synchronous_commit",
            "server_version",
            "search_path",
        ];
        let names = known.into_iter().chain(FIXED.iter().map(|(name, _)| *name));
        names.map(|name| (name, self.show(name).unwrap_or_default(), "")).collect()
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let refused = |only: &str| {
            let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
            Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message).hint(format!("allowed: {only}")))
        };
        match name {
            "application_name" => {
                self.application_name = value.chars().filter(|c| !c.is_control()).take(63).collect()
            }
            "default_transaction_isolation" => match isolation_named(value) {
                Some(isolation) => self.isolation = isolation,
                None => return refused("serializable, repeatable read, read committed"),
            },
            "synchronous_commit" => match value.to_ascii_lowercase().as_str() {
                "on" | "true" | "local" | "remote_write" | "remote_apply" => {
                    self.durability = Durability::Sync
                }
                "off" | "false" => self.durability = Durability::Buffered,
                _ => return refused("on, off"),
            },
            "statement_timeout" => match millis(value) {
                Some(millis) => self.statement_millis = millis,
                None => return refused("milliseconds, or a number with ms, s, min, h or d"),
            },
            _ => match FIXED.iter().find(|(known, _)| *known == name) {
                Some((_, only)) => {
                    let plain = |text: &str| text.to_ascii_lowercase().replace(['-', ' '], "");
                    let first = only.split(',').next().unwrap_or_default();
                    if plain(value) != plain(only) && plain(value) != plain(first) {
                        return refused(only);
                    }
                }
                None => return Err(unknown(name)),
            },
        }
        Ok(())
    }

    /// The value of a setting, by its name in lower case.
    ///
    /// # Errors
    /// 42704.
    pub fn show(&self, name: &str) -> Result<String> {
        Ok(match name {
            "application_name" => self.application_name.clone(),
            "default_transaction_isolation" => isolation_name(self.isolation).into(),
            "synchronous_commit" => if self.durability == Durability::Sync { "on" } else { "off" }.into(),
            "statement_timeout" if self.statement_millis == 0 => "0".into(),
            "statement_timeout" => format!("{}ms", self.statement_millis),
            "server_version" => "15.0".into(),
            "search_path" => "public".into(),
            _ => match FIXED.iter().find(|(known, _)| *known == name) {
                Some((_, value)) => (*value).into(),
                None => return Err(unknown(name)),
            },
        })
    }
}

/// A time as PostgreSQL's settings say it.
fn millis(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at_checked(digits)?;
    let factor = match unit.trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    // PostgreSQL's own bound.
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|millis| *millis <= i32::MAX as u64)
}

fn unknown(name: &str) -> SqlError {
    let message = format!("unrecognized configuration parameter \"{name}\"");
    SqlError::new(state::UNDEFINED_OBJECT, message).hint(
        "known are application_name, default_transaction_isolation, synchronous_commit, and those with one value, such as timezone",
    )
}
