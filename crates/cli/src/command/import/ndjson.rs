//! Events from a file with one JSON object per line, in the form that `ropewalk read --mode ndjson` prints.
//!
//! Lines are appended in batches. Each append also stores the number of its last line as the tracking
//! position of the file, so an import resumes at the exact line.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk::events::Tracking;
use ropewalk::{AppendOptions, Event};
use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{Imported, Progress};
use crate::database::context::canonical;
use crate::database::metadata::Metadata;
use crate::database::place::Store;
use crate::output::failure::{Failure, Result};

/// Most lines of one append, …
const BATCH_LINES: u64 = 1000;
/// … and bytes after which it is full.
const BATCH_BYTES: usize = 1 << 20;

/// An input line. `position`, `seq`, `time` and `store` are ignored: the store assigns its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(rename = "type")]
    event_type: String,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    data_encoding: Option<String>,
    id: Option<Uuid>,
    #[serde(default)]
    metadata: Metadata,
    #[serde(rename = "position")]
    _position: Option<u64>,
    #[serde(rename = "seq")]
    _seq: Option<u64>,
    #[serde(rename = "time")]
    _time: Option<String>,
    #[serde(rename = "store")]
    _store: Option<String>,
}

impl Line<'_> {
    fn event(self) -> Result<Event, String> {
        let data = match self.data {
            None => Vec::new(),
            // A JSON string yields its bytes, any other JSON its source text.
            Some(raw) if raw.get().starts_with('"') => {
                serde_json::from_str::<String>(raw.get()).map_err(|error| error.to_string())?.into_bytes()
            }
            Some(raw) => raw.get().as_bytes().to_vec(),
        };
        let data = match self.data_encoding.as_deref() {
            None => data,
            Some("base64") => {
                STANDARD.decode(data).map_err(|error| format!("data is not base64: {error}"))?
            }
            Some(other) => {
                return Err(format!("data_encoding {other:?} is unknown; there is base64, or none"));
            }
        };
        Ok(Event {
            event_type: self.event_type,
            tags: self.tags,
            data,
            id: self.id,
            metadata: self.metadata.0,
        })
    }
}

/// Lines to read, and the tracking source.
pub(super) struct Input {
    lines: Box<dyn BufRead>,
    source: Option<String>,
    bytes: u64,
}

impl Input {
    /// Opens `file`; `-` is standard input.
    pub(super) fn open(file: &Path, source: Option<String>) -> Result<Self> {
        if file == Path::new("-") {
            return Ok(Self { lines: Box::new(io::stdin().lock()), source, bytes: 0 });
        }
        let failed = |error: io::Error| Failure::file("read", file, &error);
        let opened = File::open(file).map_err(failed)?;
        let bytes = opened.metadata().map_err(failed)?.len();
        let source = match source {
            Some(source) => source,
            None => format!("ndjson:{}", canonical(file)?.display()),
        };
        Ok(Self { lines: Box::new(BufReader::with_capacity(1 << 20, opened)), source: Some(source), bytes })
    }
}

/// Imports the lines that the store does not have yet; also returns the name of the source.
pub(super) fn import(store: &Store, mut input: Input, progress: &Progress) -> Result<(Imported, String)> {
    let mut imported = Imported::default();
    let name = input.source.clone().unwrap_or_else(|| "-".to_owned());
    let known = match &input.source {
        Some(source) => store.tracking(source)?.unwrap_or(0),
        None => 0,
    };
    let mut batch = Batch::default();
    let (mut number, mut read_bytes, mut line) = (0, 0, Vec::new());
    loop {
        line.clear();
        let read = input.lines.read_until(b'\n', &mut line);
        read_bytes += read.map_err(|error| Failure::file("read", Path::new(&name), &error))? as u64;
        let full = batch.bytes >= BATCH_BYTES || batch.events.len() as u64 >= BATCH_LINES;
        if full || line.is_empty() {
            batch.append(store, input.source.as_deref(), number, &mut imported)?;
            progress.at(read_bytes, input.bytes.max(read_bytes), "bytes");
        }
        if line.is_empty() {
            break;
        }
        number += 1;
        if number <= known {
            imported.before += 1;
            continue;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let parsed = serde_json::from_slice::<Line<'_>>(&line).map_err(|error| error.to_string());
        match parsed.and_then(Line::event) {
            Ok(event) => batch.push(event, number, line.len()),
            Err(what) => {
                // Earlier lines are valid and imported; the next run starts with this line.
                batch.append(store, input.source.as_deref(), number - 1, &mut imported)?;
                return Err(Failure::invalid(format!(
                    "{name}, line {number}: {what}; the lines before it were imported"
                )));
            }
        }
    }
    imported.took = progress.elapsed();
    Ok((imported, name))
}

#[derive(Default)]
struct Batch {
    events: Vec<Event>,
    bytes: usize,
    /// Number of the first line.
    first: u64,
}

impl Batch {
    fn push(&mut self, event: Event, line: u64, bytes: usize) {
        if self.events.is_empty() {
            self.first = line;
        }
        self.events.push(event);
        self.bytes += bytes;
    }

    /// Appends the gathered events, up to line `last`.
    fn append(&mut self, store: &Store, source: Option<&str>, last: u64, imported: &mut Imported) -> Result {
        if self.events.is_empty() {
            return Ok(());
        }
        let tracking = source.map(|source| Tracking { source: source.to_owned(), position: last });
        store
            .append(&self.events, AppendOptions { tracking, ..AppendOptions::default() })
            .map_err(|failure| failure.at(&format!("lines {} to {last}", self.first)))?;
        imported.items += self.events.len() as u64;
        imported.events += self.events.len() as u64;
        self.events.clear();
        self.bytes = 0;
        Ok(())
    }
}
