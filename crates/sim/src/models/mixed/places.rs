//! Places of all models that a history reads and writes, as registers, lists and sets of versions.
//!
//! | Place | Read as | Written by |
//! |---|---|---|
//! | a row | register | replacing the version that the transaction has read |
//! | the rows with one prefix of the key | set | inserting a row |
//! | an array in a document | list | `$push`, without reading it |
//! | the events with one tag | list; set at snapshot isolation | appending an event, also with a condition |
//! | the samples of one series | set | appending a sample at an unused time |
//!
//! Appends of events do not conflict at snapshot isolation, so the order of events says nothing about what
//! their writers had seen.

use ropewalk::documents::lang::{Filter, Options as Language, Update, Value as Bson, Writer};
use ropewalk::documents::{Collection, CollectionOptions, DocumentsError, UpdateSpec};
use ropewalk::events::ReadOptions;
use ropewalk::series::{Labels, Matcher, SampleBatch, Samples, SeriesStore};
use ropewalk::tables::{ColumnDef, KeyRange, Row, Table, TableDef, Type, Value};
use ropewalk::{
    AppendCondition, AppendOptions, Database, Error, Event, EventStore, Position, Query, Transaction,
};

use crate::checker::{Seen, Version};
use crate::events::rng::Dice;

/// Places of each kind that are in use at the same time.
const PLACES: u64 = 2;
/// Versions after which a history moves on to new places, so that lists stay short.
const VERSIONS_OF_PLACES: u64 = 64;
const METRIC: &str = "mixed";

/// A place, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Row(i64),
    Rows(i64),
    Document(i64),
    Events(i64),
    Samples(i64),
}

impl Place {
    /// One of the places in use when so many versions exist.
    pub(super) fn any(dice: &Dice, versions: Version) -> Self {
        let number = Self::round(versions) * PLACES + dice.below(PLACES);
        let number = number.cast_signed();
        match dice.below(5) {
            0 => Self::Row(number),
            1 => Self::Rows(number),
            2 => Self::Document(number),
            3 => Self::Events(number),
            _ => Self::Samples(number),
        }
    }

    /// All places that were in use when so many versions exist.
    pub(super) fn all(versions: Version) -> impl Iterator<Item = Self> {
        let numbers = 0..((Self::round(versions) + 1) * PLACES).cast_signed();
        let kinds: [fn(i64) -> Self; 5] =
            [Self::Row, Self::Rows, Self::Document, Self::Events, Self::Samples];
        numbers.flat_map(move |number| kinds.map(|kind| kind(number)))
    }

    fn round(versions: Version) -> u64 {
        versions / VERSIONS_OF_PLACES
    }

    /// Its key in the history.
    pub(super) fn key(self) -> String {
        match self {
            Self::Row(number) => format!("row:{number}"),
            Self::Rows(number) => format!("rows:{number}"),
            Self::Document(number) => format!("document:{number}"),
            Self::Events(number) => format!("events:{number}"),
            Self::Samples(number) => format!("samples:{number}"),
        }
    }
}

/// Handles on all models.
pub(super) struct Stores {
    row: Table,
    rows: Table,
    documents: Collection,
    events: EventStore,
    samples: SeriesStore,
}

impl Stores {
    pub(super) fn create(db: &Database) -> Result<(), Error> {
        let number = |name| ColumnDef::new(name, Type::INT8);
        let mut tx = db.begin();
        let row = TableDef::new("row").column(number("place")).column(number("version"));
        tx.tables().create_table(row.primary_key(["place"]))?;
        let rows = TableDef::new("rows").column(number("place")).column(number("version"));
        tx.tables().create_table(rows.primary_key(["place", "version"]))?;
        tx.documents().create_collection(&db.collection("lists")?, CollectionOptions::default())?;
        tx.commit().map(|_| ())
    }

    pub(super) fn of(db: &Database) -> Result<Self, Error> {
        Ok(Self {
            row: db.table("row")?,
            rows: db.table("rows")?,
            documents: db.collection("lists")?,
            events: db.events("mixed")?,
            samples: db.series("mixed")?,
        })
    }

    /// Reads the versions of a place, own writes included.
    pub(super) fn read(&self, tx: &mut Transaction, place: Place) -> Result<Seen, Error> {
        Ok(match place {
            Place::Row(number) => {
                let row = tx.tables().get(&self.row, &[number.into()])?;
                let version = row.map(|row| row.get_as::<i64>("version")).transpose()?;
                Seen::Newest(version.map(i64::cast_unsigned))
            }
            Place::Rows(number) => {
                let mut versions = Vec::new();
                let range = KeyRange::prefix([Value::Int8(number)]);
                tx.tables().scan(&self.rows, &range, false, &mut |row: Row<'_>| {
                    versions.push(row.get_as::<i64>("version")?.cast_unsigned());
                    Ok(true)
                })?;
                Seen::Set(versions.into_iter().collect())
            }
            Place::Document(number) => {
                let document = tx.documents().get(&self.documents, Bson::Int64(number))?;
                let items = document.as_ref().and_then(|document| document.doc().get("versions")?.as_array());
                let items = items.into_iter().flat_map(|items| items.values());
                Seen::List(items.filter_map(Bson::as_integer).map(i64::cast_unsigned).collect())
            }
            Place::Events(number) => self.read_events(tx, number)?.0,
            Place::Samples(number) => {
                let series =
                    [Matcher::equal("__name__", METRIC), Matcher::equal("place", number.to_string())];
                let at = tx.series(&self.samples)?;
                let mut selection = at.select(&series, i64::MIN, i64::MAX)?;
                let mut samples = Samples::default();
                while selection.next().is_some() {
                    selection.samples(&mut samples)?;
                }
                Seen::Set(samples.bits().map(|(_, bits)| f64::from_bits(bits) as Version).collect())
            }
        })
    }

    /// Reads the events of a place; also returns the last position of the store.
    pub(super) fn read_events(&self, tx: &mut Transaction, number: i64) -> Result<(Seen, Position), Error> {
        let events = tx.read_events(&self.events, &tagged(number), ReadOptions::default())?;
        let head = events.head().unwrap_or(Position::ZERO);
        let mut versions = Vec::new();
        for event in events {
            let event = event?;
            let text = String::from_utf8_lossy(event.data()).into_owned();
            let version = text.parse::<Version>();
            versions.push(version.map_err(|_| Error::Invalid(format!("an event has the data {text:?}")))?);
        }
        Ok((Seen::List(versions), head))
    }

    /// Writes a version to a place. Events are appended on the condition that no other follows `unless_after`.
    pub(super) fn write(
        &self,
        tx: &mut Transaction,
        place: Place,
        version: Version,
        unless_after: Option<Position>,
    ) -> Result<(), Error> {
        let stored = version.cast_signed();
        match place {
            Place::Row(number) => {
                tx.tables().upsert(&self.row, &[("place", number.into()), ("version", stored.into())])?;
            }
            Place::Rows(number) => {
                tx.tables().insert(&self.rows, &[("place", number.into()), ("version", stored.into())])?;
            }
            Place::Document(number) => {
                tx.documents().update_one(&self.documents, &push(number, stored)?)?;
            }
            Place::Events(number) => {
                let event = Event::new("Written").tag(tag(number)).data(version.to_string());
                let condition =
                    unless_after.map(|head| AppendCondition::none_match(tagged(number)).after(head));
                let options = condition.map_or_else(AppendOptions::default, AppendOptions::condition);
                tx.append(&self.events, &[event], options)?;
            }
            Place::Samples(number) => {
                let labels = Labels::new([("__name__", METRIC.to_owned()), ("place", number.to_string())])?;
                let mut batch = SampleBatch::new();
                batch.push(&labels, stored, version as f64);
                tx.append_samples(&self.samples, &batch)?;
            }
        }
        Ok(())
    }
}

fn tag(number: i64) -> String {
    format!("place:{number}")
}

fn tagged(number: i64) -> Query {
    Query::from_tags([tag(number)])
}

/// `{ $push: { versions: version } }`, as an upsert.
fn push(number: i64, version: i64) -> Result<UpdateSpec, DocumentsError> {
    let mut operators = Writer::new();
    operators.open_document("$push");
    operators.put("versions", Bson::Int64(version));
    operators.close();
    let operators = operators.finish();
    let update = Update::parse(Bson::Document(operators.doc()), None, &Language::default())?;
    Ok(UpdateSpec::new(Filter::equals("_id", Bson::Int64(number)), update).upsert())
}
