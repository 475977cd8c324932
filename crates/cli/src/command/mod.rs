//! The command line as it is typed, and turned into values of the database.

pub(crate) mod accounts;
pub(crate) mod bench;
pub(crate) mod demo;
pub(crate) mod doc;
pub(crate) mod events;
pub(crate) mod groups;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod maintain;
pub(crate) mod manual;
pub(crate) mod metrics;
pub(crate) mod serve;
pub(crate) mod sql;
pub(crate) mod tail;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use ropewalk::{AppendCondition, Durability, Position, Query, QueryItem, ReadOptions, Tracking};
use serde::Deserialize;
use uuid::Uuid;

use crate::command::accounts::{Token, User};
use crate::command::metrics::{ListSeries, Promql};
use crate::command::serve::Serve;
use crate::command::sql::Sql;
use crate::output::report::Mode;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  internal error, or a check of the demo failed
  2  the command line or the data breaks a rule
  3  not found: database, store, event, commit, file
  4  conflict: a condition, a tracking position or a key stands against it; nothing was written
  5  busy: another process has the database open, or the memory budget is spent
  6  damaged or foreign bytes, or a format from the future
  7  the operating system refused, or no server can be reached
  8  the server wants a password or a token, or its user lacks the right

Everything but the data goes to standard error. The whole manual: docs/cli.md, or `ropewalk man`.";

/// An embedded, durable database: append events under conditions, read, follow, import, verify and repair them.
#[derive(Debug, Parser)]
#[command(name = "ropewalk", version, after_help = EXIT_CODES, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Database directory, or http[s]://[USER@]HOST[:PORT] of a server [default: $ROPEWALK_AT, else ./ropewalk.db]
    #[arg(long, global = true, value_name = "PATH|URL", value_hint = ValueHint::DirPath)]
    pub(crate) at: Option<PathBuf>,
    /// Event store inside the database [default: default]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) store: Option<String>,
    /// Form of the output [default: table on a terminal, ndjson elsewhere]
    #[arg(long, global = true, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// Bytes for memtables and caches together, such as 256MiB [default: 512MiB]
    #[arg(long, global = true, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory: Option<u64>,
    /// Seconds to wait while another process has the database open
    #[arg(long, global = true, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) wait: Duration,
    /// API token for the server of --at; better kept in the variable, which other users cannot see
    #[arg(long, global = true, value_name = "TOKEN", env = "ROPEWALK_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Trust the certificates in this PEM file instead of the system's
    #[arg(long, global = true, value_name = "FILE", env = "ROPEWALK_CA", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a database; does nothing where there is one
    Init,
    /// Append one event, durable when the command ends
    Append(Append),
    /// Print the events that match, in order
    Read(Read),
    /// Print the newest event that matches
    Last(Select),
    /// Print how many events match
    Count(Select),
    /// Print the last position of the store, 0 when it is empty
    Head,
    /// List the event stores
    Stores,
    /// Manage the consumer groups of a store: list, make, look at what is parked
    #[command(subcommand)]
    Group(Group),
    /// Print commits as they were made, and with -f as they are made: the change feed over all stores
    Tail(Tail),
    /// Evaluate a PromQL query over the time series, at one time or at steps
    Promql(Promql),
    /// List time series, or with --top what makes the most of them
    Series(ListSeries),
    /// Run SQL over tables, events, documents and metrics: statements, a script, or what is typed
    Sql(Sql),
    /// Bring events or samples in from elsewhere; interrupted, it goes on where it stopped, repeated, it brings only what is new
    #[command(subcommand)]
    Import(Import),
    /// Bring documents in and out
    #[command(subcommand)]
    Doc(Doc),
    /// Serve the database to others: HTTP and gRPC, each on its own port, until SIGTERM or SIGINT
    Serve(Serve),
    /// Manage the users that a server lets in
    #[command(subcommand)]
    User(User),
    /// Manage API tokens
    #[command(subcommand)]
    Token(Token),
    /// Print what the engine holds and has done
    Stats,
    /// Read every byte and check every checksum and invariant
    Verify,
    /// Say what can be saved of a log that is refused as damaged, and with --yes save it
    Recover {
        /// Act: give up what cannot be read. The damaged files are kept beside the log
        #[arg(long)]
        yes: bool,
        /// End the log in front of this commit at the latest, for a record that is whole and cannot be applied
        #[arg(long, value_name = "COMMIT")]
        cut_before: Option<u64>,
    },
    /// Write memory out as sorted files, so that the next opening is quick
    Checkpoint,
    /// Checkpoint, then merge all files of a keyspace into one sorted level
    Compact,
    /// Copy the database as of this moment, while others may use it; the copy is a database
    Backup {
        /// Directory to make; through a server, a name below its directory of backups [default there: the time]
        #[arg(value_hint = ValueHint::DirPath)]
        target: Option<PathBuf>,
    },
    /// Run a benchmark report with `ropewalk-bench`
    Bench {
        /// Handed on: NAME [--quick] [--json FILE] [--only ROW]
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "NAME")]
        arguments: Vec<String>,
    },
    /// Show in a minute what this database is for, on the git history of the directory it runs in
    Demo(Demo),
    /// Print the manual page, or write those of all commands into DIR
    #[command(hide = true)]
    Man {
        /// Directory for one page per command
        dir: Option<PathBuf>,
    },
    /// Print the completions for a shell
    Completions {
        /// Which
        shell: Shell,
    },
    /// The load that the demo kills: appends for ever and prints each acknowledged position
    #[command(hide = true)]
    DemoWriter {
        /// Threads that append
        #[arg(long, default_value_t = 8)]
        threads: u32,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Append {
    /// What happened, such as CourseDefined
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) event_type: String,
    /// What it concerns, such as course:c1; repeat for more
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,
    /// The payload
    #[arg(long, value_name = "TEXT", conflicts_with = "data_file")]
    pub(crate) data: Option<String>,
    /// File that holds the payload, any bytes; - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) data_file: Option<PathBuf>,
    /// A fact about the event itself; repeat for more
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) metadata: Vec<(String, String)>,
    /// Your own id of the event
    #[arg(long, value_name = "UUID")]
    pub(crate) id: Option<Uuid>,
    /// Append only if no event matches: `type=A,type=B,tag=x`, JSON, or `any` for every event. Several are joined by OR
    #[arg(long, value_name = "ITEM", value_parser = item)]
    pub(crate) if_none: Vec<Item>,
    /// Of the events that --if-none means, look only at those after this position
    #[arg(long, value_name = "POSITION", requires = "if_none")]
    pub(crate) after: Option<u64>,
    /// Store with the event how far a source was read; refused unless the position rises
    #[arg(long, value_name = "SOURCE:POSITION", value_parser = tracking)]
    pub(crate) tracking: Option<Tracking>,
    /// Idempotency key: the same append with the same key is written once
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// When the append counts as done: sync, buffered, or async:MILLISECONDS
    #[arg(long, default_value = "sync", value_parser = durability)]
    pub(crate) durability: SpelledDurability,
}

impl Append {
    /// The one condition of the append, if it has any.
    pub(crate) fn condition(&self) -> Option<AppendCondition> {
        if self.if_none.is_empty() {
            return None;
        }
        let fail_if_events_match = query(self.if_none.iter().cloned());
        Some(AppendCondition { fail_if_events_match, after: self.after.map(Position) })
    }
}

/// Which events a command is about. Without any option: all.
#[derive(Debug, Args)]
pub(crate) struct Select {
    /// Events of this type; repeat for "any of these"
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) types: Vec<String>,
    /// Events with this tag; repeat for "all of these"
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,
    /// Events whose type begins so; repeat for "or one of these"
    #[arg(long = "type-prefix", value_name = "TEXT")]
    pub(crate) type_prefixes: Vec<String>,
    /// Events with a tag that begins so; repeat for "and one of these"
    #[arg(long = "tag-prefix", value_name = "TEXT")]
    pub(crate) tag_prefixes: Vec<String>,
    /// OR events that match this: `type=A,type=B,tag=x` or {"types":["A"],"tags":["x"]}; repeat for more
    #[arg(long = "item", value_name = "ITEM", value_parser = item)]
    pub(crate) items: Vec<Item>,
}

impl Select {
    pub(crate) fn query(&self) -> Query {
        let own = QueryItem {
            types: self.types.clone(),
            tags: self.tags.clone(),
            type_prefixes: self.type_prefixes.clone(),
            tag_prefixes: self.tag_prefixes.clone(),
        };
        let own = (!own.is_empty()).then_some(Item::Matching(own));
        query(own.into_iter().chain(self.items.iter().cloned()))
    }
}

#[derive(Debug, Args)]
pub(crate) struct Read {
    #[command(flatten)]
    pub(crate) select: Select,
    /// Start at this position, inclusive, in the direction of reading
    #[arg(long, value_name = "POSITION")]
    from: Option<u64>,
    /// Only events after this position
    #[arg(long, value_name = "POSITION")]
    after: Option<u64>,
    /// Only events before this position
    #[arg(long, value_name = "POSITION")]
    before: Option<u64>,
    /// Newest first
    #[arg(long)]
    backwards: bool,
    /// At most so many events
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

impl Read {
    pub(crate) fn options(&self) -> ReadOptions {
        ReadOptions {
            from: self.from.map(Position),
            after: self.after.map(Position),
            before: self.before.map(Position),
            backwards: self.backwards,
            limit: self.limit,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Go on for ever: wait for commits of other processes whenever they let go of the database
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// First commit to print [default: the last 10]
    #[arg(long, value_name = "SEQ")]
    pub(crate) from: Option<u64>,
    /// Only events of this type; repeat for "any of these"
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) types: Vec<String>,
    /// Only events with this tag; repeat for "all of these"
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    /// The history of a git repository: CommitAuthored, FileAdded, FileChanged, FileRemoved
    Git {
        /// Directory of the repository, or any directory inside it
        #[arg(value_hint = ValueHint::DirPath)]
        path: PathBuf,
        /// Import the history of this branch, tag or commit
        #[arg(long = "ref", value_name = "REF", default_value = "HEAD")]
        reference: String,
    },
    /// One event per line, as `read --mode ndjson` prints them
    Ndjson {
        /// The file; - is standard input
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Name under which to remember how far it was read [default: the file's path; standard input is not remembered]
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
    },
    /// The samples of blocks that Prometheus wrote, into the series store of --store
    Prometheus {
        /// A block, or a directory of blocks, such as the data directory of Prometheus or a snapshot of it
        #[arg(value_hint = ValueHint::DirPath)]
        path: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Group {
    /// List the groups: what was handed out, what waits, is out, is parked
    List,
    /// Make a group, or give one that is there other settings; it stays where it is then
    Create(CreateGroup),
    /// Delete a group with what is out and parked in it
    Delete {
        /// Its name
        name: String,
    },
    /// List the parked events of a group
    Parked {
        /// The group
        name: String,
    },
    /// Hand parked events out again, at once and with all their tries
    Replay {
        /// The group
        name: String,
        /// These events [default: all that are parked]
        positions: Vec<u64>,
    },
    /// Forget parked events
    Discard {
        /// The group
        name: String,
        /// These events [default: all that are parked]
        positions: Vec<u64>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateGroup {
    /// Its name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) select: Select,
    /// A new group begins behind this position [default: with the first event]
    #[arg(long, value_name = "POSITION")]
    pub(crate) after: Option<u64>,
    /// Seconds that a consumer has for what it takes [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) lease: Option<Duration>,
    /// Seconds before an event comes again whose consumer asks for a retry [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) pause: Option<Duration>,
    /// How often an event is handed out before it is parked [default: 10]
    #[arg(long, value_name = "N")]
    pub(crate) tries: Option<u32>,
    /// One batch at a time: nothing overtakes
    #[arg(long)]
    pub(crate) in_order: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Doc {
    /// Add the documents of a file to a collection; ends at the first whose _id is there already
    Import {
        /// DATABASE.COLLECTION
        collection: String,
        /// The file: JSON, one document per line, or BSON as mongodump writes it; - is standard input
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// What the file holds [default: bson if its name ends so, else ndjson]
        #[arg(long, value_enum)]
        form: Option<DocForm>,
    },
    /// Write all documents of a collection, as of one moment
    Export {
        /// DATABASE.COLLECTION
        collection: String,
        /// The file, written anew; - is standard output
        #[arg(value_hint = ValueHint::FilePath, default_value = "-")]
        file: PathBuf,
        /// What the file is to hold [default: bson if its name ends so, else ndjson]
        #[arg(long, value_enum)]
        form: Option<DocForm>,
        /// JSON with the type of every number, so that all come back as they were
        #[arg(long)]
        canonical: bool,
    },
    /// List databases and collections
    Collections,
}

/// Form of a file of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DocForm {
    /// Extended JSON, one document per line
    Ndjson,
    /// BSON documents, one behind the other
    Bson,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Run the checks, clean up, and end; for scripts
    #[arg(long)]
    pub(crate) once: bool,
    /// Import this repository too; repeat for more
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub(crate) repo: Vec<PathBuf>,
}

/// One part of a query as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// Every event.
    Any,
    /// Types and tags.
    Matching(QueryItem),
}

fn query(items: impl Iterator<Item = Item>) -> Query {
    let mut query = Query::all();
    for item in items {
        match item {
            Item::Any => return Query::all(),
            Item::Matching(item) => query.items.push(item),
        }
    }
    query
}

fn item(text: &str) -> Result<Item, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Json {
        #[serde(default)]
        types: Vec<String>,
        #[serde(default)]
        tags: Vec<String>,
        #[serde(default)]
        type_prefixes: Vec<String>,
        #[serde(default)]
        tag_prefixes: Vec<String>,
    }
    if text == "any" {
        return Ok(Item::Any);
    }
    let mut found = QueryItem::default();
    if text.starts_with('{') {
        let json: Json = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Json { types, tags, type_prefixes, tag_prefixes } = json;
        found = QueryItem { types, tags, type_prefixes, tag_prefixes };
    } else {
        for term in text.split(',') {
            match term.split_once('=') {
                Some(("type", value)) => found.types.push(value.to_owned()),
                Some(("tag", value)) => found.tags.push(value.to_owned()),
                Some(("type-prefix", value)) => found.type_prefixes.push(value.to_owned()),
                Some(("tag-prefix", value)) => found.tag_prefixes.push(value.to_owned()),
                _ => {
                    return Err(format!(
                        "{term:?} is neither type=… nor tag=…, type-prefix=… nor tag-prefix=…"
                    ));
                }
            }
        }
    }
    if found.is_empty() {
        return Err("names neither a type nor a tag; `any` means every event".to_owned());
    }
    Ok(Item::Matching(found))
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("has no `=`")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn tracking(text: &str) -> Result<Tracking, String> {
    let (source, position) = text.rsplit_once(':').ok_or("has no `:` before the position")?;
    let position = position.parse().map_err(|_| format!("{position:?} is not a position"))?;
    Ok(Tracking { source: source.to_owned(), position })
}

/// A durability with the name it was given by.
#[derive(Debug, Clone)]
pub(crate) struct SpelledDurability(pub(crate) Durability);

fn durability(text: &str) -> Result<SpelledDurability, String> {
    let wrong = || "is none of sync, buffered, async:MILLISECONDS".to_owned();
    Ok(SpelledDurability(match text {
        "sync" => Durability::Sync,
        "buffered" => Durability::Buffered,
        _ => {
            let millis = text.strip_prefix("async:").ok_or_else(wrong)?;
            Durability::Async { interval: Duration::from_millis(millis.parse().map_err(|_| wrong())?) }
        }
    }))
}

pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: u64 = match text.strip_prefix(digits).unwrap_or_default() {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        other => return Err(format!("unit {other:?} is none of B, KiB, MiB, GiB")),
    };
    let number: u64 = digits.parse().map_err(|_| "is not a number of bytes".to_owned())?;
    let bytes = number.checked_mul(unit).ok_or("is too large")?;
    if bytes < 1 << 20 { Err("is below the least, 1MiB".to_owned()) } else { Ok(bytes) }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "is not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn items_are_read_in_both_spellings() {
        let expected = Item::Matching(QueryItem::new(["A", "B"], ["k:1"]));
        assert_eq!(item("type=A,type=B,tag=k:1").unwrap(), expected);
        assert_eq!(item(r#"{"types":["A","B"],"tags":["k:1"]}"#).unwrap(), expected);
        assert_eq!(item("any").unwrap(), Item::Any);
        for wrong in ["", "A", "type=A,x=1", "{}", r#"{"type":["A"]}"#, "{"] {
            assert!(item(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_item_that_means_all_makes_the_query_mean_all() {
        let some = item("type=A").unwrap();
        assert!(query([some.clone(), Item::Any].into_iter()).is_all());
        assert_eq!(query([some.clone(), some].into_iter()).items.len(), 2);
    }

    #[test]
    fn numbers_with_units() {
        assert_eq!(bytes("4MiB").unwrap(), 4 << 20);
        assert_eq!(bytes("2097152").unwrap(), 2 << 20);
        for wrong in ["", "MiB", "1", "12 MB", "99999999999999999999", "99999999999GiB", "-5MiB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds("0.25").unwrap(), Duration::from_millis(250));
        assert!(seconds("-1").is_err() && seconds("NaN").is_err() && seconds("1e300").is_err());
    }

    #[test]
    fn tracking_splits_at_the_last_colon() {
        assert_eq!(tracking("git:/a:7").unwrap(), Tracking { source: "git:/a".into(), position: 7 });
        assert!(tracking("7").is_err() && tracking("a:x").is_err());
    }
}
