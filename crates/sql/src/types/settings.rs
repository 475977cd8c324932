//! Session variables of SET and SHOW.
//!
//! Values that cannot be honoured are rejected: a variable with a fixed value can only be set to that value.

use std::collections::BTreeMap;

use ropewalk::{Durability, Isolation};

use crate::error::{Result, SqlError, state};
use crate::limits::budget::MEMORY_BYTES_MAX;
use crate::syntax::names::in_full;
use crate::types::executor::Executor;
use crate::types::zone::Zone;

/// Maximum size of the names and values in [`Settings::others`].
const OTHERS_BYTES_MAX: usize = 1 << 20;

/// Settings of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Isolation of single statements, and of transactions without an explicit level. Serializable.
    pub isolation: Isolation,
    /// Transactions are read-only unless they say otherwise. False.
    pub read_only: bool,
    /// The node follows another one: it only reads. The session keeps this up to date.
    pub follows: bool,
    /// When a commit is acknowledged. After the sync.
    pub durability: Durability,
    /// Bytes that one statement may hold in memory. 512 MiB.
    pub memory_bytes_max: usize,
    /// How often a single statement outside of a transaction is attempted when it conflicts with other
    /// commits. 10.
    pub attempts: usize,
    /// Timeout of a statement in milliseconds; 0, the default, disables it.
    pub statement_millis: u64,
    /// Timeout of waiting for a row lock in milliseconds; 0, the default, disables it.
    pub lock_millis: u64,
    /// Application name, set by the client.
    pub application_name: String,
    /// User of the client. `ropewalk`.
    pub user: String,
    /// Database name of the client. `ropewalk`.
    pub database: String,
    /// The session's number, which `pg_backend_pid()` returns and servers send to their clients. 1.
    pub number: i32,
    /// Time zone for reading and displaying times. UTC.
    pub zone: Zone,
    /// The executor of queries: a testing aid. By default the planner chooses.
    pub executor: Executor,
    /// Tables that statements use in place of others, by stored name. None.
    pub redirects: BTreeMap<String, String>,
    /// Database and name of collections that statements find even if a table has the same name, with the
    /// collection of the database that they use in place of each. None.
    pub collections: BTreeMap<(String, String), String>,
    /// Other variables that were set, by name; use SET to change them.
    pub others: BTreeMap<String, String>,
}

impl Settings {
    /// The name under which a statement knows a table: that of the table which it replaces, if it does.
    pub(crate) fn table_alias(&self, stored: &str) -> String {
        let replaced = self.redirects.iter().find(|(_, used)| *used == stored);
        in_full(replaced.map_or(stored, |(table, _)| table))
    }

    /// The collection that statements use for one of [`Settings::collections`].
    pub(crate) fn collection(&self, database: &str, name: &str) -> Option<&str> {
        self.collections.get(&(database.to_owned(), name.to_owned())).map(String::as_str)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            isolation: Isolation::Serializable,
            read_only: false,
            follows: false,
            durability: Durability::Sync,
            memory_bytes_max: MEMORY_BYTES_MAX,
            attempts: 10,
            statement_millis: 0,
            lock_millis: 0,
            application_name: String::new(),
            user: "ropewalk".into(),
            database: "ropewalk".into(),
            number: 1,
            zone: Zone::UTC,
            executor: Executor::Auto,
            redirects: BTreeMap::new(),
            collections: BTreeMap::new(),
            others: BTreeMap::new(),
        }
    }
}

/// Default of `search_path`.
const SEARCH_PATH: &str = "\"$user\", public";

/// The isolation level by its SQL name; repeatable read is snapshot isolation, as in PostgreSQL.
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

/// Values that a variable accepts.
enum Kind {
    /// A fixed value, in one of these spellings; SHOW returns the first one.
    Fixed(&'static [&'static str]),
    /// Read-only.
    Told(&'static str),
    /// On or off.
    Truth(&'static str),
    /// One of these; the first one is the default.
    Choice(&'static [&'static str]),
    /// Anything.
    Free(&'static str),
    /// A field of [`Settings`].
    Own,
}

use Kind::{Choice, Fixed, Free, Own, Told, Truth};

const VARIABLES: &[(&str, Kind, &str)] = &[
    ("application_name", Own, "Application name of the client."),
    ("backslash_quote", Fixed(&["safe_encoding"]), "Whether \\' is a quote in strings."),
    ("bytea_output", Fixed(&["hex"]), "How bytea is written as text."),
    ("check_function_bodies", Truth("on"), "There are no functions to check."),
    ("client_encoding", Fixed(&["UTF8", "unicode"]), "How the client writes text."),
    (
        "client_min_messages",
        Choice(&[
            "notice", "debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "info", "warning",
            "error",
        ]),
        "Notices below are not sent.",
    ),
    (
        "datestyle",
        Choice(&["ISO, MDY", "ISO", "ISO, DMY", "ISO, YMD"]),
        "How dates are written: the order is that of ISO 8601 always.",
    ),
    ("default_table_access_method", Fixed(&["heap"]), "How tables are stored."),
    ("default_tablespace", Fixed(&[""]), "Where tables are stored."),
    ("default_transaction_deferrable", Fixed(&["off", "false"]), "Whether serializable transactions wait."),
    ("default_transaction_isolation", Own, "Isolation of transactions that name none."),
    ("default_transaction_read_only", Own, "Whether transactions are read-only by default."),
    ("extra_float_digits", Choice(&["1", "2", "3"]), "Floats are written as short as they can be read back."),
    ("idle_in_transaction_session_timeout", Fixed(&["0"]), "How long a transaction may be idle."),
    ("idle_session_timeout", Fixed(&["0"]), "How long a session may be idle."),
    ("in_hot_standby", Told("off"), "Whether this follows another server."),
    ("integer_datetimes", Told("on"), "Times are whole microseconds."),
    ("intervalstyle", Fixed(&["postgres"]), "How intervals are written."),
    ("is_superuser", Told("on"), "Whether the user may do everything."),
    ("jit", Fixed(&["off", "false"]), "Whether expressions are compiled."),
    ("lc_collate", Told("C"), "Text is ordered by its bytes."),
    ("lc_ctype", Told("C"), "Classification of characters."),
    ("lc_messages", Fixed(&["C"]), "The language of messages."),
    ("lc_monetary", Fixed(&["C"]), "How money is written."),
    ("lc_numeric", Fixed(&["C"]), "How numbers are written."),
    ("lc_time", Fixed(&["C"]), "How times are written."),
    ("lock_timeout", Own, "How long to wait for a row at read committed."),
    ("max_identifier_length", Told("255"), "Bytes of a name."),
    ("max_index_keys", Told("32"), "Columns of an index."),
    ("password_encryption", Fixed(&["scram-sha-256"]), "How passwords are stored."),
    (
        "quote_all_identifiers",
        Fixed(&["off", "false"]),
        "Whether shown definitions have all names in quotes.",
    ),
    ("ropewalk.executor", Own, "The executor of queries: auto, rows, engine or nested. For tests."),
    ("row_security", Truth("on"), "There is no row security."),
    ("search_path", Free(SEARCH_PATH), "Schemas in which names without one are looked up."),
    ("server_encoding", Told("UTF8"), "How text is stored."),
    ("server_version", Told("15.0"), "The version of PostgreSQL that this is like."),
    ("server_version_num", Told("150000"), "The same as a number."),
    ("session_authorization", Own, "The user."),
    ("session_replication_role", Fixed(&["origin"]), "Whether triggers fire."),
    ("standard_conforming_strings", Fixed(&["on", "true"]), "Backslashes in strings are plain."),
    ("statement_timeout", Own, "How long a statement may run."),
    ("synchronize_seqscans", Fixed(&["off", "false"]), "Whether scans begin where others are."),
    ("synchronous_commit", Own, "Whether a commit waits for the disk."),
    ("timezone", Own, "The zone that times are shown and read in."),
    ("transaction_deferrable", Fixed(&["off", "false"]), "Whether this transaction waits."),
    ("transaction_isolation", Own, "Isolation of this transaction."),
    ("transaction_read_only", Own, "Whether this transaction only reads."),
    ("transaction_timeout", Fixed(&["0"]), "How long a transaction may run."),
    ("work_mem", Own, "Memory of one statement."),
    ("xmloption", Fixed(&["content"]), "How XML is read."),
];

fn truth(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

fn on_off(truth: bool) -> &'static str {
    if truth { "on" } else { "off" }
}

/// Parses a size in the format of PostgreSQL's settings; without a unit it is in kilobytes.
fn bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at_checked(digits)?;
    let factor = match unit.trim() {
        "B" => 1,
        "" | "kB" => 1 << 10,
        "MB" => 1 << 20,
        "GB" => 1 << 30,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(factor).filter(|bytes| (64 << 10..=64 << 30).contains(bytes))
}

/// The name of a variable for SHOW.
pub(crate) fn shown_name(variable: &[sqlparser::ast::Ident]) -> String {
    let name = variable.iter().map(crate::syntax::names::folded).collect::<Vec<_>>().join("_");
    match name.as_str() {
        "transaction_isolation_level" => "transaction_isolation".into(),
        "time_zone" => "timezone".into(),
        // The parser omits the dot of a name.
        "ropewalk_executor" => "ropewalk.executor".into(),
        _ => name,
    }
}

impl Settings {
    /// The settings of a new session of the same client.
    pub(crate) fn fresh(&self) -> Self {
        let (user, database) = (self.user.clone(), self.database.clone());
        Self { user, database, number: self.number, follows: self.follows, ..Self::default() }
    }

    /// Names, values and descriptions of all variables.
    pub(crate) fn all(&self) -> Vec<(&'static str, String, &'static str)> {
        let row = |(name, _, about): &(&'static str, Kind, &'static str)| {
            (*name, self.show(name).unwrap_or_default(), *about)
        };
        VARIABLES.iter().map(row).collect()
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let refused = |only: &str| {
            let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
            Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message).hint(format!("allowed: {only}")))
        };
        let others: usize = self.others.iter().map(|(name, value)| name.len() + value.len()).sum();
        if others.saturating_add(name.len()).saturating_add(value.len()) > OTHERS_BYTES_MAX {
            let message = format!("the settings of the session take more than {OTHERS_BYTES_MAX} bytes");
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message).hint("set shorter values"));
        }
        let lower = name.to_ascii_lowercase();
        // PostgreSQL compares only the letters and digits of an encoding's name.
        let encoding: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
        let given = if lower == "client_encoding" { &encoding } else { value };
        let same = |known: &&&str| known.eq_ignore_ascii_case(given);
        let Some((name, kind, _)) = VARIABLES.iter().find(|(known, ..)| *known == lower) else {
            // A custom variable of the client has a dot in its name.
            if lower.contains('.') {
                self.others.insert(lower, value.to_owned());
                return Ok(());
            }
            return Err(unknown(name));
        };
        match kind {
            Told(_) => {
                let message = format!("parameter \"{name}\" cannot be changed");
                return Err(SqlError::new(state::CANT_CHANGE_RUNTIME_PARAM, message));
            }
            Fixed(all) => match all.iter().find(same) {
                Some(_) => {}
                None => return refused(all.first().copied().unwrap_or_default()),
            },
            Truth(_) => match truth(value) {
                Some(truth) => drop(self.others.insert((*name).to_owned(), on_off(truth).to_owned())),
                None => return refused("on, off"),
            },
            Choice(all) => match all.iter().find(same) {
                Some(known) => drop(self.others.insert((*name).to_owned(), (*known).to_owned())),
                None => return refused(&all.join("; ")),
            },
            Free(_) => drop(self.others.insert((*name).to_owned(), value.to_owned())),
            Own => return self.set_own(name, value, &refused),
        }
        Ok(())
    }

    fn set_own(&mut self, name: &str, value: &str, refused: &dyn Fn(&str) -> Result<()>) -> Result<()> {
        match name {
            "application_name" => {
                self.application_name = value.chars().filter(|c| !c.is_control()).take(63).collect();
            }
            "default_transaction_isolation" | "transaction_isolation" => match isolation_named(value) {
                Some(isolation) => self.isolation = isolation,
                None => return refused("serializable, repeatable read, read committed"),
            },
            "default_transaction_read_only" | "transaction_read_only" => match truth(value) {
                Some(truth) => self.read_only = truth,
                None => return refused("on, off"),
            },
            "synchronous_commit" => match value.to_ascii_lowercase().as_str() {
                "on" | "true" | "local" | "remote_write" | "remote_apply" => {
                    self.durability = Durability::Sync;
                }
                "off" | "false" => self.durability = Durability::Buffered,
                _ => return refused("on, off"),
            },
            "ropewalk.executor" => match Executor::named(value) {
                Some(executor) => self.executor = executor,
                None => return refused("auto, rows, engine, nested"),
            },
            "lock_timeout" => match millis(value) {
                Some(millis) => self.lock_millis = millis,
                None => return refused("milliseconds, or a number with ms, s, min, h or d"),
            },
            "statement_timeout" => match millis(value) {
                Some(millis) => self.statement_millis = millis,
                None => return refused("milliseconds, or a number with ms, s, min, h or d"),
            },
            "timezone" => match Zone::set(value) {
                Some(zone) => self.zone = zone,
                None => return refused("names of the IANA database, offsets in hours to the east"),
            },
            "work_mem" => match bytes(value) {
                Some(bytes) => self.memory_bytes_max = bytes,
                None => return refused("64kB to 64GB, with B, kB, MB or GB"),
            },
            _ if value == self.user => {}
            _ => return refused(&self.user),
        }
        Ok(())
    }

    /// The value of a setting, by its name in lower case.
    ///
    /// # Errors
    /// 42704.
    pub fn show(&self, name: &str) -> Result<String> {
        let lower = name.to_ascii_lowercase();
        if let Some(value) = self.others.get(&lower) {
            return Ok(value.clone());
        }
        let Some((name, kind, _)) = VARIABLES.iter().find(|(known, ..)| *known == lower) else {
            return Err(unknown(name));
        };
        Ok(match (kind, *name) {
            (Told(_), "in_hot_standby") => on_off(self.follows).into(),
            (Told(value) | Truth(value) | Free(value), _) => (*value).to_owned(),
            (Fixed(all) | Choice(all), _) => all.first().copied().unwrap_or_default().to_owned(),
            (Own, "application_name") => self.application_name.clone(),
            (Own, "default_transaction_isolation" | "transaction_isolation") => {
                isolation_name(self.isolation).into()
            }
            (Own, "default_transaction_read_only") => on_off(self.read_only).into(),
            (Own, "transaction_read_only") => on_off(self.read_only || self.follows).into(),
            (Own, "synchronous_commit") => on_off(self.durability == Durability::Sync).into(),
            (Own, "ropewalk.executor") => self.executor.name().into(),
            (Own, "lock_timeout") if self.lock_millis == 0 => "0".into(),
            (Own, "lock_timeout") => format!("{}ms", self.lock_millis),
            (Own, "statement_timeout") if self.statement_millis == 0 => "0".into(),
            (Own, "statement_timeout") => format!("{}ms", self.statement_millis),
            (Own, "timezone") => self.zone.name().to_owned(),
            (Own, "work_mem") => match self.memory_bytes_max {
                bytes if bytes % (1 << 20) == 0 => format!("{}MB", bytes >> 20),
                bytes if bytes % (1 << 10) == 0 => format!("{}kB", bytes >> 10),
                bytes => format!("{bytes}B"),
            },
            (Own, _) => self.user.clone(),
        })
    }

    /// The schemas in which unqualified names are looked up, as written.
    pub(crate) fn search_path(&self) -> &str {
        self.others.get("search_path").map_or(SEARCH_PATH, String::as_str)
    }

    /// True when the client wants to receive a notice.
    pub(crate) fn wants(&self, notice: &SqlError) -> bool {
        let least = self.others.get("client_min_messages").map_or("notice", String::as_str);
        match least {
            "error" => false,
            "warning" => notice.state != state::SUCCESSFUL_COMPLETION,
            _ => true,
        }
    }
}

/// Parses a duration in the format of PostgreSQL's settings.
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
    // PostgreSQL's limit.
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|millis| *millis <= i32::MAX as u64)
}

fn unknown(name: &str) -> SqlError {
    let message = format!("unrecognized configuration parameter \"{name}\"");
    SqlError::new(state::UNDEFINED_OBJECT, message).hint("SHOW ALL lists those that are known")
}
