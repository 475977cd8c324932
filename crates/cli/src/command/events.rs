//! Commands on one event store: `append`, `read`, `last`, `count`, `head`; and `stores`, which lists them.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use ropewalk::events::{QueryItem, ReadOptions, SequencedEvent, Tracking};
use ropewalk::{AppendCondition, AppendOptions, Durability, Event, Position, Query};
use uuid::Uuid;

use crate::database::context::Context;
use crate::output::cell::{Cell, payload, time};
use crate::output::failure::{Exit, Failure, Result};
use crate::values::{Item, durability, item, pair, query, tracking};

#[derive(Debug, Args)]
pub(crate) struct Append {
    /// Type of the event, such as CourseDefined
    #[arg(long = "type", value_name = "TYPE")]
    event_type: String,
    /// Tag, such as course:c1; repeat for more
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// The payload
    #[arg(long, value_name = "TEXT", conflicts_with = "data_file")]
    data: Option<String>,
    /// File that holds the payload, any bytes; - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    data_file: Option<PathBuf>,
    /// Metadata of the event; repeat for more
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// Id of the event
    #[arg(long, value_name = "UUID")]
    id: Option<Uuid>,
    /// Append only if no event matches: `type=A,type=B,tag=x`, JSON, or `any` for every event. Several are joined by OR
    #[arg(long, value_name = "ITEM", value_parser = item)]
    if_none: Vec<Item>,
    /// Check --if-none only against events after this position
    #[arg(long, value_name = "POSITION", requires = "if_none")]
    after: Option<u64>,
    /// Store the position reached in a source with the event; rejected unless it increases
    #[arg(long, value_name = "SOURCE:POSITION", value_parser = tracking)]
    tracking: Option<Tracking>,
    /// Idempotency key: the same append with the same key is written once
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// When the append is acknowledged: sync, buffered, or async:MILLISECONDS
    #[arg(long, default_value = "sync", value_parser = durability)]
    durability: Durability,
}

impl Append {
    /// The one condition of the append, if it has any.
    fn condition(&self) -> Option<AppendCondition> {
        if self.if_none.is_empty() {
            return None;
        }
        let fail_if_events_match = query(self.if_none.iter().cloned());
        Some(AppendCondition { fail_if_events_match, after: self.after.map(Position) })
    }
}

/// The selected events; without options, all.
#[derive(Debug, Args)]
pub(crate) struct Select {
    /// Events of this type; repeat for "any of these"
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Events with this tag; repeat for "all of these"
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Events whose type has this prefix; repeat for "or one of these"
    #[arg(long = "type-prefix", value_name = "TEXT")]
    type_prefixes: Vec<String>,
    /// Events with a tag that has this prefix; repeat for "and one of these"
    #[arg(long = "tag-prefix", value_name = "TEXT")]
    tag_prefixes: Vec<String>,
    /// OR events that match this: `type=A,type=B,tag=x` or {"types":["A"],"tags":["x"]}; repeat for more
    #[arg(long = "item", value_name = "ITEM", value_parser = item)]
    items: Vec<Item>,
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
    select: Select,
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
    /// Maximum number of events
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

impl Read {
    fn options(&self) -> ReadOptions {
        ReadOptions {
            from: self.from.map(Position),
            after: self.after.map(Position),
            before: self.before.map(Position),
            backwards: self.backwards,
            limit: self.limit,
        }
    }
}

/// Columns of an event; `import ndjson` reads the same fields.
pub(crate) const COLUMNS: &[&str] =
    &["position", "seq", "time", "type", "tags", "id", "metadata", "data", "data_encoding"];

pub(crate) fn row(event: SequencedEvent) -> Vec<Cell> {
    let SequencedEvent { position, seq, time_micros, event, tracking: _ } = event;
    let (data, encoding) = payload(&event.data);
    vec![
        position.0.into(),
        seq.0.into(),
        time(time_micros),
        event.event_type.into(),
        Cell::List(event.tags),
        event.id.map_or(Cell::None, |id| id.to_string().into()),
        if event.metadata.is_empty() { Cell::None } else { Cell::Pairs(event.metadata) },
        data,
        encoding,
    ]
}

pub(crate) fn append(context: &Context, append: Append) -> Result {
    let conditions: Vec<_> = append.condition().into_iter().collect();
    let data = match (append.data, append.data_file) {
        (Some(text), _) => text.into_bytes(),
        (None, Some(file)) => read_file(&file)?,
        (None, None) => Vec::new(),
    };
    let event = Event {
        event_type: append.event_type,
        tags: append.tags,
        data,
        id: append.id,
        metadata: append.metadata,
    };
    let options = AppendOptions {
        conditions,
        tracking: append.tracking,
        repeat_by_id: false,
        idempotency_key: append.key,
        durability: append.durability,
    };
    let place = context.place()?;
    let appended = place.store(context.store_name())?.append(&[event], options)?;
    place.close()?;
    let cells = vec![context.store_name().into(), appended.last.0.into(), appended.seq.0.into()];
    context.print_row(&["store", "position", "seq"], cells)
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map_err(|error| Failure::file("read", path, &error))?;
    Ok(bytes)
}

pub(crate) fn read(context: &Context, read: &Read) -> Result {
    let store = context.existing_store(&context.place()?)?;
    let mut report = context.report(COLUMNS)?;
    store.read(&read.select.query(), read.options(), |event| Ok(report.row(row(event))?))?;
    Ok(report.finish()?)
}

pub(crate) fn last(context: &Context, select: &Select) -> Result {
    let store = context.existing_store(&context.place()?)?;
    match store.last(&select.query())? {
        Some(event) => context.print_row(COLUMNS, row(event)),
        None => {
            Err(Failure::new(Exit::NotFound, format!("no event of store {:?} matches", store.name()), ""))
        }
    }
}

pub(crate) fn count(context: &Context, select: &Select) -> Result {
    let store = context.existing_store(&context.place()?)?;
    context.print_number(&["count"], store.count(&select.query())?)
}

pub(crate) fn head(context: &Context) -> Result {
    let store = context.existing_store(&context.place()?)?;
    context.print_number(&["position"], store.events()?)
}

pub(crate) fn stores(context: &Context) -> Result {
    let mut report = context.report(&["store", "events", "newest"])?;
    for store in context.place()?.stores()? {
        report.row(vec![store.name.into(), store.events.into(), store.newest.map_or(Cell::None, time)])?;
    }
    Ok(report.finish()?)
}
