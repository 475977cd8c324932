//! Change streams: changes of documents, in commit order, read from the log.
//!
//! ```text
//! log ─▶ change feed ─▶ keys and section of one commit ─▶ events ─▶ target ─▶ pipeline ─▶ caller
//! ```
//! Change streams need no storage besides the log and lose no events: a stream that resumes with the token
//! of the last event it handled continues after that event, as long as the log holds the position. An event
//! carries the document as of its commit, not a later version. The events of one commit have the order of
//! its statements. A document that a transaction wrote several times appears in its last state in each of
//! them; one that it inserted and deleted again does not appear.

use core::time::Duration;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write as _;

use ropewalk_base::{DecodeError, Seq};
use ropewalk_engine::{ChangeFeed, EngineError, KV, Keyspace, KvWrite, ReadView, decode_section};

use crate::catalog::definition::Definition;
use crate::catalog::{definition_key, gone_key, gone_rules_key, split_name};
use crate::error::{DocumentsError, Result};
use crate::lang::{Doc, DocBuf, Pipeline, Stream, Value, Writer};
use crate::model::commit_section::{self, Event, What};
use crate::model::{DOCUMENTS, Documents};
use crate::query::aggregate::Nothing;

/// Most memory that the pipeline of a stream may use for one event.
const PIPELINE_BYTES_MAX: usize = 64 << 20;

/// Collections that a stream watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// One collection.
    Collection {
        /// Its database.
        database: String,
        /// Its name.
        name: String,
    },
    /// Every collection of a database.
    Database(String),
    /// All databases.
    All,
}

impl Target {
    fn includes(&self, database: &str, name: &str) -> bool {
        match self {
            Self::Collection { database: wanted, name: collection } => {
                wanted == database && collection == name
            }
            Self::Database(wanted) => wanted == database,
            Self::All => true,
        }
    }
}

/// The position of one event: commit, and number within the commit. Ordered as the events are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResumeToken {
    /// The commit.
    pub seq: Seq,
    /// The number of the event within it, from 0.
    pub ordinal: u32,
}

/// Ordinals of events that end their stream: after all others of their commit.
const INVALIDATE: u32 = 1 << 31;

impl ResumeToken {
    /// True for the position of an event that ended its stream.
    pub fn is_of_invalidate(self) -> bool {
        self.ordinal >= INVALIDATE && self.ordinal != u32::MAX
    }
}

impl std::fmt::Display for ResumeToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}{:08x}", self.seq.0, self.ordinal)
    }
}

impl std::str::FromStr for ResumeToken {
    type Err = DocumentsError;

    fn from_str(text: &str) -> Result<Self> {
        let lost = || DocumentsError::ResumeLost { what: format!("{text:?} is no token") };
        let (seq, ordinal) = text.split_at_checked(16).ok_or_else(lost)?;
        if ordinal.len() != 8 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(lost());
        }
        Ok(Self {
            seq: Seq(u64::from_str_radix(seq, 16).map_err(|_| lost())?),
            ordinal: u32::from_str_radix(ordinal, 16).map_err(|_| lost())?,
        })
    }
}

/// Start position and options of a stream.
#[derive(Clone, Default)]
pub struct Watch {
    /// Start after this event.
    pub after: Option<ResumeToken>,
    /// Start at this commit; without this and `after`: at the next commit.
    pub from: Option<Seq>,
    /// Update events include the document.
    pub full_document: bool,
    /// Changes of definitions are reported, too: collections and indexes that are created, changed, dropped.
    /// Events have the collection's `collectionUUID`, updates their `disambiguatedPaths`.
    pub expanded: bool,
}

/// One event of a change stream.
#[derive(Debug, Clone)]
pub struct ChangeEvent {
    /// Its position.
    pub token: ResumeToken,
    /// The event in MongoDB's form: `operationType`, `ns`, `documentKey`, `fullDocument`,
    /// `updateDescription`, and so on; or the output of the stream's pipeline.
    pub document: DocBuf,
    /// The stream ends: the watched collection or database is gone.
    pub ends: bool,
    /// The collection whose document it contains.
    shows: Option<u32>,
}

/// The events of one commit.
#[derive(Debug, Clone, Default)]
pub struct CommitEvents {
    /// The events, in order.
    pub events: Vec<ChangeEvent>,
    /// True when events were left out.
    pub is_truncated: bool,
}

/// Events and bytes of events that may be built from one commit.
struct Room {
    events: usize,
    bytes: usize,
    /// True when events were left out.
    is_truncated: bool,
}

impl Room {
    fn unlimited() -> Self {
        Self { events: usize::MAX, bytes: usize::MAX, is_truncated: false }
    }

    /// Whether another event may follow `events` of them.
    fn has_place(&mut self, events: usize) -> bool {
        let has_place = events < self.events && self.bytes > 0;
        self.is_truncated |= !has_place;
        has_place
    }

    fn take(&mut self, event: &ChangeEvent) {
        self.bytes = self.bytes.saturating_sub(event.document.bytes().len());
    }
}

/// A collection's name, and its `uuid` if known.
#[derive(Clone)]
struct Named {
    collection: u32,
    database: String,
    name: String,
    uuid: Option<[u8; 16]>,
}

type Names = HashMap<u32, Named>;

/// Which collections have rules, for a stream that hides their documents.
#[derive(Default)]
struct Ruled {
    hidden: bool,
    /// Per collection: by its newest definition as of a commit; for a dropped one, by its last definition.
    known: HashMap<u32, bool>,
    at: Seq,
}

impl Ruled {
    fn may_show(&mut self, documents: &Documents, collection: u32) -> Result<bool> {
        if documents.model.last_ddl.seq() > self.at {
            let snapshot = documents.engine.snapshot();
            (self.at, self.known) = (snapshot.seq(), HashMap::new());
        }
        if let Some(ruled) = self.known.get(&collection) {
            return Ok(!ruled);
        }
        let snapshot = documents.engine.snapshot();
        let (read, catalog) = (snapshot.read(), documents.model.spaces().catalog);
        let ruled = match read.get(catalog, &definition_key(collection))? {
            Some(definition) => Definition::decode(&definition)?.rules.is_some(),
            // Earlier versions did not record it: then the collection may have had rules.
            None => read.get(catalog, &gone_rules_key(collection))?.as_deref() != Some(&[0]),
        };
        self.known.insert(collection, ruled);
        Ok(!ruled)
    }
}

/// A change stream.
pub struct ChangeStream {
    documents: Documents,
    feed: ChangeFeed,
    target: Target,
    watch: Watch,
    pipeline: Option<Pipeline>,
    names: Names,
    pending: VecDeque<ChangeEvent>,
    place: ResumeToken,
    ended: bool,
    ruled: Ruled,
}

impl Documents {
    /// Watches changes from now on, or from a position in the past. `pipeline`: stages over the events.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn watch(&self, target: Target, watch: Watch, pipeline: Option<Pipeline>) -> Result<ChangeStream> {
        let snapshot = self.engine.snapshot();
        let from = match (watch.after, watch.from) {
            (Some(token), _) => token.seq,
            (None, Some(seq)) => seq,
            (None, None) => snapshot.seq().next(),
        };
        let names = self.watched(&target, snapshot.read())?;
        let place =
            watch.after.unwrap_or(ResumeToken { seq: Seq(from.0.saturating_sub(1)), ordinal: u32::MAX });
        Ok(ChangeStream {
            documents: self.clone(),
            feed: self.engine.changes(from)?,
            target,
            watch,
            pipeline,
            names,
            pending: VecDeque::new(),
            place,
            ended: false,
            ruled: Ruled::default(),
        })
    }
}

impl Documents {
    /// The names of the watched collections at the start position: they may change before the stream reads
    /// that far.
    fn watched(&self, target: &Target, read: ReadView<'_>) -> Result<Names> {
        let mut names = Names::new();
        let databases = match target {
            Target::Collection { database, .. } | Target::Database(database) => vec![database.clone()],
            Target::All => self.databases()?,
        };
        for database in databases {
            let collections = match target {
                Target::Collection { name, .. } => vec![name.clone()],
                _ => self.collections(&database)?,
            };
            for name in collections {
                if let Some(definition) = self.collection(&database, &name)?.definition_at(read)? {
                    let uuid = Some(definition.uuid);
                    let (collection, database) = (definition.id, database.clone());
                    names.insert(collection, Named { collection, database, name, uuid });
                }
            }
        }
        Ok(names)
    }
}

impl ChangeStream {
    /// Omits events that contain documents of collections with rules, for readers whom rules restrict.
    #[must_use]
    pub fn hiding_ruled(mut self) -> Self {
        self.ruled.hidden = true;
        self
    }

    /// Whether an event may be sent now: rules may have been set since the stream returned it.
    ///
    /// # Errors
    /// Damage.
    pub fn may_show(&mut self, event: &ChangeEvent) -> Result<bool> {
        match event.shows {
            Some(collection) if self.ruled.hidden => self.ruled.may_show(&self.documents, collection),
            _ => Ok(true),
        }
    }

    /// The position to resume after: that of the last event returned, or of the last commit read if it had
    /// no events.
    pub fn token(&self) -> ResumeToken {
        self.place
    }

    /// True when no events will follow: the watched collection or database is gone.
    pub fn has_ended(&self) -> bool {
        self.ended && self.pending.is_empty()
    }

    /// The events of the next commit, possibly without any; `None` when there is no new commit. At most
    /// `events_max` are built, and none after the event that exceeds `bytes_max`; the stream continues with
    /// the commit after it.
    ///
    /// # Errors
    /// As [`ChangeStream::next`].
    pub fn next_commit(&mut self, events_max: usize, bytes_max: usize) -> Result<Option<CommitEvents>> {
        let mut room = Room { events: events_max, bytes: bytes_max, is_truncated: false };
        if !self.read(&mut room)? {
            return Ok(None);
        }
        let events: Vec<_> = self.pending.drain(..).collect();
        if let Some(last) = events.last() {
            self.place = last.token;
        }
        Ok(Some(CommitEvents { events, is_truncated: room.is_truncated }))
    }

    /// The next event, waiting at most `timeout`; `None` when none came.
    ///
    /// # Errors
    /// [`DocumentsError::ResumeLost`] when the log no longer holds the position; damage; errors of the
    /// pipeline.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<ChangeEvent>> {
        let mut waited = false;
        loop {
            while let Some(event) = self.pending.pop_front() {
                self.place = event.token;
                self.ended |= event.ends;
                if self.ended {
                    self.pending.clear();
                }
                if self.may_show(&event)?
                    && let Some(event) = self.through(event)?
                {
                    return Ok(Some(event));
                }
            }
            if self.ended || !self.read(&mut Room::unlimited())? {
                if waited || self.ended || timeout.is_zero() {
                    return Ok(None);
                }
                self.feed.wait(timeout);
                waited = true;
            }
        }
    }

    /// Applies the pipeline to an event.
    fn through(&self, mut event: ChangeEvent) -> Result<Option<ChangeEvent>> {
        let Some(pipeline) = &self.pipeline else { return Ok(Some(event)) };
        if event.ends {
            return Ok(Some(event));
        }
        let input: Stream<'_, DocumentsError> = Box::new(std::iter::once(Ok(event.document.clone())));
        match pipeline.run(input, &Nothing, PIPELINE_BYTES_MAX)?.next() {
            Some(document) => {
                event.document = document?;
                Ok(Some(event))
            }
            None => Ok(None),
        }
    }

    /// Reads one commit, as far as there is `room` for its events; false when there is no new one.
    fn read(&mut self, room: &mut Room) -> Result<bool> {
        let lost = |error: EngineError| match error {
            EngineError::FeedTrimmed { .. } => DocumentsError::ResumeLost { what: error.to_string() },
            other => other.into(),
        };
        let Some(change) = self.feed.next().map_err(lost)? else { return Ok(false) };
        let (seq, lsn, time_micros) = (change.seq, change.lsn, change.body.time_micros);
        let damaged = |source| EngineError::Record { seq, lsn, source };
        let (mut keys, mut section) = (None, None);
        for part in change.body.sections() {
            let (model, bytes) = part.map_err(damaged)?;
            if model == KV {
                keys = Some(bytes);
            } else if model == DOCUMENTS {
                section = Some(bytes);
            }
        }
        let mut events = Vec::new();
        if let Some(section) = section {
            let space = self.documents.model.spaces().documents;
            let mut parts = Vec::new();
            commit_section::decode(section, |collection, what| {
                // Each part but one has at most one event.
                if room.has_place(parts.len()) {
                    parts.push((collection, what));
                }
            })
            .map_err(damaged)?;
            let puts = match keys {
                Some(keys) => stored_documents(keys, space, &parts, room).map_err(damaged)?,
                None => Vec::new(),
            };
            let replaced = parts.iter().filter_map(|(_, what)| replaced(what)).collect();
            let mut commit = Commit {
                seq,
                time_micros,
                by_key: puts.iter().copied().collect(),
                puts,
                events: &mut events,
                renamed: None,
                replaced,
                told: None,
                names: &mut self.names,
                target: &self.target,
                watch: &self.watch,
                room,
            };
            for (collection, what) in parts {
                commit.part(&self.documents, collection, what)?;
            }
        }
        // Skip events of the commit that the caller has already handled.
        let after = self.place;
        self.pending.extend(events.into_iter().filter(|event| event.token > after));
        if self.pending.is_empty() {
            self.place = self.place.max(ResumeToken { seq, ordinal: u32::MAX });
        }
        Ok(true)
    }
}

/// Keys and documents that a commit put, in the order of its record: all, or with a limit those that the events
/// of `parts` need.
fn stored_documents<'c>(
    keys: &'c [u8],
    space: Keyspace,
    parts: &[(u32, What<'_>)],
    room: &mut Room,
) -> Result<Vec<(&'c [u8], &'c [u8])>, DecodeError> {
    let is_limited = room.events < usize::MAX;
    let (mut named, mut inserts) = (HashSet::new(), HashSet::new());
    for (collection, what) in parts.iter().filter(|_| is_limited) {
        let prefix = collection.to_be_bytes();
        match what {
            What::Insert { key, .. } | What::Replace { key, .. } | What::Update { key, .. } => {
                named.insert([&prefix[..], *key].concat());
            }
            What::Inserts { .. } => {
                inserts.insert(prefix);
            }
            What::Definition { .. } | What::Delete { .. } | What::Told { .. } => {}
        }
    }
    let (mut puts, mut inserted) = (Vec::new(), 0);
    decode_section(keys, |keyspace, write| {
        let KvWrite::Put(key, value) = write else { return };
        if keyspace != space {
            return;
        }
        if !is_limited || named.contains(key) {
            puts.push((key, value));
        } else if key.first_chunk::<4>().is_some_and(|prefix| inserts.contains(prefix))
            && room.has_place(inserted)
        {
            inserted += 1;
            puts.push((key, value));
        }
    })?;
    Ok(puts)
}

/// The collection whose name a rename takes over, if `what` is one.
fn replaced<'a>(what: &What<'a>) -> Option<(&'a str, &'a str)> {
    let What::Told { event, .. } = what else { return None };
    let description = Doc::trusted(event).get("operationDescription")?.as_document()?;
    description.get("dropTarget")?;
    let to = description.get("to")?.as_document()?;
    Some((to.get("db")?.as_str()?, to.get("coll")?.as_str()?))
}

/// The name of a collection: as the stream has seen it, else the present one, else the former one.
fn name_of(documents: &Documents, names: &mut Names, collection: u32) -> Result<Option<Named>> {
    if let Some(known) = names.get(&collection) {
        return Ok(Some(known.clone()));
    }
    let snapshot = documents.engine.snapshot();
    let read = snapshot.read();
    let catalog = documents.model.spaces().catalog;
    let found = match crate::model::handle::definition(&documents.model, read, collection, None) {
        Ok(definition) => {
            let (database, name) = (definition.database.clone(), definition.name.clone());
            Some(Named { collection, database, name, uuid: Some(definition.uuid) })
        }
        Err(_) => {
            let gone = read.get(catalog, &gone_key(collection))?;
            gone.and_then(|name| {
                let (database, name) = split_name(&name, 0)?;
                Some(Named { collection, database: database.to_owned(), name: name.to_owned(), uuid: None })
            })
        }
    };
    if let Some(found) = &found {
        names.insert(collection, found.clone());
    }
    Ok(found)
}

/// One commit being converted to events.
struct Commit<'c, 's> {
    seq: Seq,
    time_micros: i64,
    puts: Vec<(&'c [u8], &'c [u8])>,
    by_key: HashMap<&'c [u8], &'c [u8]>,
    events: &'s mut Vec<ChangeEvent>,
    /// A collection that gave up its name and does not have the new one yet.
    renamed: Option<(u32, Named)>,
    /// Collections whose names others take over: no drop is reported for them.
    replaced: Vec<(&'c str, &'c str)>,
    /// The report on the collection that is about to be renamed.
    told: Option<Doc<'c>>,
    names: &'s mut Names,
    target: &'s Target,
    watch: &'s Watch,
    room: &'s mut Room,
}

impl<'c> Commit<'c, '_> {
    fn stored(&self, collection: u32, key: &[u8]) -> Option<Doc<'c>> {
        let key = [&collection.to_be_bytes(), key].concat();
        self.by_key.get(key.as_slice()).map(|stored| Doc::trusted(stored))
    }

    fn part(&mut self, documents: &Documents, collection: u32, what: What<'c>) -> Result<()> {
        match what {
            What::Definition { event, database, name } => {
                self.definition(collection, event, database, name);
                return Ok(());
            }
            What::Told { database, name, event } => {
                self.tell(collection, database, name, Doc::trusted(event));
                return Ok(());
            }
            _ => {}
        }
        let Some(named) = name_of(documents, self.names, collection)? else { return Ok(()) };
        if !self.target.includes(&named.database, &named.name) {
            return Ok(());
        }
        match what {
            What::Definition { .. } | What::Told { .. } => {}
            What::Inserts { .. } => {
                let prefix = collection.to_be_bytes();
                let inserted: Vec<Doc<'_>> = self
                    .puts
                    .iter()
                    .filter(|(key, _)| key.starts_with(&prefix))
                    .map(|(_, stored)| Doc::trusted(stored))
                    .collect();
                for doc in inserted {
                    self.document("insert", &named, doc.get("_id"), Some(doc), None);
                }
            }
            What::Insert { key, .. } => {
                if let Some(doc) = self.stored(collection, key) {
                    self.document("insert", &named, doc.get("_id"), Some(doc), None);
                }
            }
            What::Replace { key, .. } => {
                if let Some(doc) = self.stored(collection, key) {
                    self.document("replace", &named, doc.get("_id"), Some(doc), None);
                }
            }
            What::Update { key, difference, .. } => {
                if let Some(doc) = self.stored(collection, key) {
                    let full = self.watch.full_document.then_some(doc);
                    let difference = Doc::trusted(difference);
                    let difference = if self.watch.expanded {
                        disambiguated(difference, doc)
                    } else {
                        difference.to_buf()
                    };
                    self.document("update", &named, doc.get("_id"), full, Some(difference.doc()));
                }
            }
            What::Delete { id, .. } => {
                self.document("delete", &named, Doc::trusted(id).get("_id"), None, None);
            }
        }
        Ok(())
    }

    fn begin(&self, operation: &str) -> (ResumeToken, Writer) {
        let mut ordinal = u32::try_from(self.events.len()).unwrap_or(u32::MAX).min(INVALIDATE - 1);
        if operation == "invalidate" {
            ordinal |= INVALIDATE;
        }
        let token = ResumeToken { seq: self.seq, ordinal: ordinal.min(u32::MAX - 1) };
        let mut data = String::with_capacity(24);
        // Writing to a string does not fail.
        let _ = write!(data, "{token}");
        let mut out = Writer::new();
        out.open_document("_id");
        out.put("_data", Value::String(&data));
        out.close();
        out.put("operationType", Value::String(operation));
        out.put("clusterTime", Value::Timestamp(self.seq.0));
        out.put("wallTime", Value::DateTime(self.time_micros.div_euclid(1000)));
        (token, out)
    }

    fn push(&mut self, token: ResumeToken, out: Writer, ends: bool) {
        self.add(ChangeEvent { token, document: out.finish(), ends, shows: None });
    }

    fn add(&mut self, event: ChangeEvent) {
        if self.room.has_place(self.events.len()) {
            self.room.take(&event);
            self.events.push(event);
        }
    }

    fn document(
        &mut self,
        operation: &str,
        named: &Named,
        id: Option<Value<'_>>,
        full: Option<Doc<'_>>,
        difference: Option<Doc<'_>>,
    ) {
        // Before the event is built: a document may be large.
        if !self.room.has_place(self.events.len()) {
            return;
        }
        let (token, mut out) = self.begin(operation);
        if let Some(uuid) = named.uuid.filter(|_| self.watch.expanded) {
            out.put("collectionUUID", Value::Binary(4, &uuid));
        }
        if let Some(full) = full {
            out.put("fullDocument", Value::Document(full));
        }
        put_namespace(&mut out, "ns", &named.database, &named.name);
        out.open_document("documentKey");
        out.put("_id", id.unwrap_or(Value::Null));
        out.close();
        if let Some(difference) = difference {
            out.put("updateDescription", Value::Document(difference));
        }
        let shows = Some(named.collection);
        self.add(ChangeEvent { token, document: out.finish(), ends: false, shows });
    }

    /// Handles a report on a change of a definition.
    fn tell(&mut self, collection: u32, database: &str, name: &str, event: Doc<'c>) {
        if let Some(Value::Binary(4, uuid)) = event.get("collectionUUID") {
            let (database, name) = (database.to_owned(), name.to_owned());
            self.names.insert(collection, Named { collection, database, name, uuid: uuid.try_into().ok() });
        }
        let operation = event.get("operationType").and_then(Value::as_str).unwrap_or_default();
        match operation {
            // Reported with the new name.
            "rename" => self.told = Some(event),
            "dropDatabase" => {
                let of_database = matches!(self.target, Target::Database(wanted) if wanted == database);
                if of_database || matches!(self.target, Target::All) {
                    let (token, mut out) = self.begin(operation);
                    out.open_document("ns");
                    out.put("db", Value::String(database));
                    out.close();
                    self.push(token, out, false);
                }
                if of_database {
                    self.invalidate();
                }
            }
            _ if self.watch.expanded && self.target.includes(database, name) => {
                let (token, mut out) = self.begin(operation);
                for field in ["collectionUUID", "operationDescription"] {
                    if let Some(value) = event.get(field) {
                        out.put(field, value);
                    }
                }
                put_namespace(&mut out, "ns", database, name);
                self.push(token, out, false);
            }
            _ => {}
        }
    }

    fn invalidate(&mut self) {
        let (token, out) = self.begin("invalidate");
        self.push(token, out, true);
    }

    fn definition(&mut self, collection: u32, event: Event, database: &str, name: &str) {
        let before = self.names.get(&collection).and_then(|named| named.uuid);
        if collection != 0 {
            let (database, name) = (database.to_owned(), name.to_owned());
            self.names.insert(collection, Named { collection, database, name, uuid: before });
        }
        let told = match event {
            Event::Created => return,
            Event::Renamed => {
                self.renamed = self.names.get(&collection).map(|named| (collection, named.clone()));
                return;
            }
            Event::Dropped if self.replaced.contains(&(database, name)) => return,
            Event::Dropped if self.target.includes(database, name) => {
                let (token, mut out) = self.begin("drop");
                put_namespace(&mut out, "ns", database, name);
                self.push(token, out, false);
                true
            }
            Event::Changed => {
                let renamed = self.renamed.take_if(|(renamed, _)| *renamed == collection);
                let Some((_, from)) = renamed else { return };
                let event = self.told.take().filter(|_| self.watch.expanded);
                let told =
                    self.target.includes(&from.database, &from.name) || self.target.includes(database, name);
                if told {
                    let (token, mut out) = self.begin("rename");
                    for field in ["collectionUUID", "operationDescription"] {
                        if let Some(value) = event.and_then(|event| event.get(field)) {
                            out.put(field, value);
                        }
                    }
                    put_namespace(&mut out, "ns", &from.database, &from.name);
                    put_namespace(&mut out, "to", database, name);
                    self.push(token, out, false);
                }
                told
            }
            Event::Dropped => false,
        };
        if told && matches!(self.target, Target::Collection { .. }) {
            self.invalidate();
        }
    }
}

fn put_namespace(out: &mut Writer, field: &str, database: &str, name: &str) {
    out.open_document(field);
    out.put("db", Value::String(database));
    out.put("coll", Value::String(name));
    out.close();
}

/// Ambiguous paths of a difference, where a number is a position in an array or the name of a field; `after`
/// is the new document.
fn disambiguated(difference: Doc<'_>, after: Doc<'_>) -> DocBuf {
    let mut out = Writer::new();
    difference.iter().for_each(|(name, value)| out.put(name, value));
    out.open_document("disambiguatedPaths");
    let updated = difference.get("updatedFields").and_then(Value::as_document).unwrap_or(Doc::empty());
    for (path, _) in updated.iter().filter(|(path, _)| is_ambiguous(path)) {
        out.open_array(path);
        let mut at = Some(Value::Document(after));
        for part in path.split('.') {
            match (at, part.parse::<i32>()) {
                (Some(Value::Array(_)), Ok(place)) => out.put("", Value::Int32(place)),
                _ => out.put("", Value::String(part)),
            }
            at = at.and_then(|at| at.as_document().or(at.as_array())).and_then(|at| at.get(part));
        }
        out.close();
    }
    out.close();
    out.finish()
}

fn is_ambiguous(path: &str) -> bool {
    path.split('.').skip(1).any(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}
