//! Commands on one event store.

use std::io::Read as _;
use std::path::Path;

use ropewalk::{AppendOptions, Event, SequencedEvent};

use crate::command::{Append, Read, Select};
use crate::database::context::Context;
use crate::output::failure::{Exit, Failure, Result};
use crate::output::report::{Cell, payload, time};

/// An event as a row; `import ndjson` reads the same fields.
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
        durability: append.durability.0,
    };
    let place = context.place()?;
    let appended = place.store(context)?.append(&[event], options)?;
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
    let store = context.place()?.existing_store(context)?;
    let mut report = context.report(COLUMNS)?;
    store.read(&read.select.query(), read.options(), |event| Ok(report.row(row(event))?))?;
    Ok(report.finish()?)
}

pub(crate) fn last(context: &Context, select: &Select) -> Result {
    let store = context.place()?.existing_store(context)?;
    match store.last(&select.query())? {
        Some(event) => context.print_row(COLUMNS, row(event)),
        None => {
            Err(Failure::new(Exit::NotFound, format!("no event of store {:?} matches", store.name()), ""))
        }
    }
}

pub(crate) fn count(context: &Context, select: &Select) -> Result {
    let store = context.place()?.existing_store(context)?;
    context.print_number(&["count"], store.count(&select.query())?)
}

pub(crate) fn head(context: &Context) -> Result {
    let store = context.place()?.existing_store(context)?;
    context.print_number(&["position"], store.events()?)
}

pub(crate) fn stores(context: &Context) -> Result {
    let mut report = context.report(&["store", "events", "newest"])?;
    for store in context.place()?.stores()? {
        report.row(vec![store.name.into(), store.events.into(), store.newest.map_or(Cell::None, time)])?;
    }
    Ok(report.finish()?)
}
