//! Enum types: labels in an order that may grow at any place.
//!
//! ```text
//! catalog     e name   number u32 │ name │ list of label: order i64 │ text       in order
//! row, key    order i64; the label is put to it where a row is read
//! ```
//! A label keeps its order for life: a new one behind all gets the next multiple of [`STEP`], one between two the middle, so no
//! change of a type writes a row. A table holds a copy of the types of its columns in its definition.
//!
//! Invariants
//! 1. The copies are the type as it is: whoever changes a type changes the definitions of the tables that use it, in the same commit.
//! 2. A type that a column has stays: a column and a DROP that meet write the same entry of the catalog, so one of them fails.

use std::borrow::Cow;
use std::sync::Arc;

use ropewalk_base::{DecodeError, Decoder, put_bytes, put_u32, put_varint};

use crate::catalog::{enum_key, table_key};
use crate::ddl::check_kept_name;
use crate::error::TablesError;
use crate::read::TablesRead;
use crate::schema::names::schema_and_name;
use crate::schema::{DEFINITION_BYTES_MAX, Parts};
use crate::value::types::{Scalar, Type};
use crate::value::{Array, Value, ValueError};
use crate::write::tx::TablesTx;

/// From a label to the next one: room for 32 labels one in the middle of the other.
const STEP: i64 = 1 << 32;

/// A value of an enum type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumValue<'a> {
    /// Number of the type.
    pub(crate) number: u32,
    pub(crate) order: i64,
    pub(crate) label: Cow<'a, str>,
}

impl EnumValue<'_> {
    /// Its label.
    pub fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn borrowed(&self) -> EnumValue<'_> {
        EnumValue { number: self.number, order: self.order, label: Cow::Borrowed(&self.label) }
    }

    pub(crate) fn into_owned(self) -> EnumValue<'static> {
        EnumValue { number: self.number, order: self.order, label: self.label.into_owned().into() }
    }

    pub(crate) fn put_row(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.order.to_le_bytes());
        out.extend_from_slice(self.label.as_bytes());
    }
}

impl<'a> EnumValue<'a> {
    pub(crate) fn from_row(number: u32, bytes: &'a [u8]) -> Option<Self> {
        let (order, label) = bytes.split_first_chunk()?;
        let label = std::str::from_utf8(label).ok()?.into();
        Some(Self { number, order: i64::from_le_bytes(*order), label })
    }
}

/// An enum type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumType {
    number: u32,
    name: String,
    labels: Vec<(i64, String)>,
}

/// Where a new label goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnumPlace {
    /// Behind all others.
    Last,
    /// Before this one.
    Before(String),
    /// Behind this one.
    After(String),
}

/// A change of an enum type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnumChange {
    /// Another label.
    Add(String, EnumPlace),
    /// Another name for a label: from, to.
    RenameLabel(String, String),
    /// Another name for the type.
    Rename(String),
}

fn wrong(name: &str, what: impl Into<String>) -> TablesError {
    TablesError::EnumDefinition { name: name.to_owned(), what: what.into() }
}

impl EnumType {
    fn new(number: u32, name: &str, labels: &[&str]) -> Result<Self, TablesError> {
        let mut made = Self { number, name: name.to_owned(), labels: Vec::with_capacity(labels.len()) };
        for label in labels {
            made.add(label, &EnumPlace::Last)?;
        }
        Ok(made)
    }

    /// The type's number, for life.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its name, as it is kept: see [`crate::schema::names::schema_and_name`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name in its schema.
    pub fn own_name(&self) -> &str {
        schema_and_name(&self.name).1
    }

    /// The type of its columns.
    pub fn column_type(&self) -> Type {
        Type::Scalar(Scalar::Enum(self.number))
    }

    /// Its labels in order.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.labels.iter().map(|(_, label)| label.as_str())
    }

    /// Its values in order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = Value<'_>> + ExactSizeIterator {
        self.labels.iter().map(|(order, label)| self.value(*order, label))
    }

    fn value<'a>(&self, order: i64, label: &'a str) -> Value<'a> {
        Value::Enum(EnumValue { number: self.number, order, label: Cow::Borrowed(label) })
    }

    /// The value of this label.
    pub fn value_of(&self, label: &str) -> Option<Value<'_>> {
        let (order, label) = self.labels.iter().find(|(_, known)| known == label)?;
        Some(self.value(*order, label))
    }

    /// Texts as values of the type, also in an array; anything else stays what it is.
    ///
    /// # Errors
    /// [`ValueError::Label`].
    pub fn read<'a>(&self, value: Value<'a>) -> Result<Value<'a>, ValueError> {
        match value {
            Value::Text(label) => {
                let unknown =
                    || ValueError::Label { name: self.own_name().to_owned(), label: label.to_string() };
                self.value_of(&label).map(Value::into_owned).ok_or_else(unknown)
            }
            Value::Array(array) if array.element() == Scalar::Text => {
                let mut items = Vec::new();
                for item in array.iter() {
                    let item = item.map_err(|_| ValueError::Type {
                        expected: self.column_type().array(),
                        found: Type::TEXT.array(),
                    })?;
                    items.push(self.read(item)?.into_owned());
                }
                Array::new(Scalar::Enum(self.number), items).map(Value::Array)
            }
            other => Ok(other),
        }
    }

    /// A value as it was stored, with the labels that it has now; `None` for one that the type does not know.
    pub(crate) fn named<'a>(&'a self, value: Value<'a>) -> Option<Value<'a>> {
        match value {
            Value::Enum(found) => {
                let place = self.labels.binary_search_by_key(&found.order, |(order, _)| *order).ok()?;
                let (order, label) = self.labels.get(place)?;
                Some(self.value(*order, label))
            }
            Value::Array(array) if matches!(array.element(), Scalar::Enum(_)) => {
                let mut items = Vec::new();
                for item in array.iter() {
                    items.push(self.named(item.ok()?)?.into_owned());
                }
                Array::new(array.element(), items).ok().map(Value::Array)
            }
            other => Some(other),
        }
    }

    fn place(&self, label: &str) -> Result<usize, TablesError> {
        let found = self.labels.iter().position(|(_, known)| known == label);
        found.ok_or_else(|| TablesError::UnknownLabel { name: self.name.clone(), label: label.to_owned() })
    }

    fn add(&mut self, label: &str, place: &EnumPlace) -> Result<(), TablesError> {
        check_label(&self.name, label)?;
        if self.labels.iter().any(|(_, known)| known == label) {
            return Err(TablesError::Duplicate { kind: "enum label", name: label.to_owned() });
        }
        let at = match place {
            EnumPlace::Last => self.labels.len(),
            EnumPlace::Before(label) => self.place(label)?,
            EnumPlace::After(label) => self.place(label)? + 1,
        };
        let before = at.checked_sub(1).and_then(|at| self.labels.get(at)).map(|(order, _)| *order);
        let behind = self.labels.get(at).map(|(order, _)| *order);
        let order = match (before, behind) {
            (None, None) => Some(0),
            (Some(before), None) => before.checked_add(STEP),
            (None, Some(behind)) => behind.checked_sub(STEP),
            (Some(before), Some(behind)) => {
                let middle = before.midpoint(behind);
                (before < middle && middle < behind).then_some(middle)
            }
        };
        let order = order.ok_or_else(|| {
            wrong(&self.name, format!("no label fits at the place of {label:?} any more; make a new type"))
        })?;
        self.labels.insert(at, (order, label.to_owned()));
        Ok(())
    }

    fn change(&mut self, change: &EnumChange) -> Result<(), TablesError> {
        match change {
            EnumChange::Add(label, place) => self.add(label, place),
            EnumChange::RenameLabel(from, to) => {
                check_label(&self.name, to)?;
                let place = self.place(from)?;
                if self.labels.iter().any(|(_, known)| known == to) {
                    return Err(TablesError::Duplicate { kind: "enum label", name: to.clone() });
                }
                if let Some((_, label)) = self.labels.get_mut(place) {
                    label.clone_from(to);
                }
                Ok(())
            }
            EnumChange::Rename(name) => {
                check_kept_name("type", name)?;
                self.name.clone_from(name);
                Ok(())
            }
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u32(out, self.number);
        put_bytes(out, self.name.as_bytes());
        put_varint(out, self.labels.len() as u64);
        for (order, label) in &self.labels {
            out.extend_from_slice(&order.to_le_bytes());
            put_bytes(out, label.as_bytes());
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let number = decoder.u32("number of a type")?;
        let name = decoder.str("name of a type")?.to_owned();
        let count = decoder.varint("count of labels")?;
        let label = |_| {
            let order = i64::from_le_bytes(decoder.array("order of a label")?);
            Ok((order, decoder.str("label")?.to_owned()))
        };
        let labels: Vec<(i64, String)> = (0..count).map(label).collect::<Result<_, DecodeError>>()?;
        if !labels.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Err(DecodeError { what: "labels in order", offset: decoder.offset() });
        }
        Ok(Self { number, name, labels })
    }

    fn stored(bytes: &[u8], key: &[u8]) -> Result<Self, TablesError> {
        let name = String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned();
        Self::decode(&mut Decoder::new(bytes)).map_err(TablesError::damaged(format!("type {name:?}")))
    }
}

fn check_label(name: &str, label: &str) -> Result<(), TablesError> {
    if label.len() > crate::ddl::NAME_BYTES_MAX || label.chars().any(char::is_control) {
        let cut: String = label.chars().take(64).collect();
        return Err(wrong(name, format!("the label {cut:?}: at most 255 bytes without control characters")));
    }
    Ok(())
}

/// The number of the enum type of a column, or of its elements.
pub(crate) fn number_of(ty: Type) -> Option<u32> {
    match ty {
        Type::Scalar(Scalar::Enum(number)) | Type::Array(Scalar::Enum(number)) => Some(number),
        _ => None,
    }
}

/// The enum types from one key of the catalog up to another.
pub(crate) fn between<R: TablesRead + ?Sized>(
    read: &mut R,
    start: &[u8],
    end: &[u8],
) -> Result<Vec<EnumType>, TablesError> {
    let mut all = Vec::new();
    read.walk_catalog(start, end, &mut |key, bytes| all.push(EnumType::stored(bytes, key)))?;
    all.into_iter().collect()
}

impl Parts {
    fn uses(&self, number: u32) -> bool {
        self.columns.iter().any(|column| number_of(column.ty) == Some(number))
    }

    /// Puts a changed type in the place of what was known of it.
    fn renew_enum(&mut self, changed: &Arc<EnumType>) {
        let mut renamed = |value: &mut Value<'static>| {
            let is_of_type = value.value_type().and_then(number_of) == Some(changed.number());
            let named = changed.named(value.borrowed()).map(Value::into_owned);
            if let Some(named) = named.filter(|_| is_of_type) {
                *value = named;
            }
        };
        for column in &mut self.columns {
            if number_of(column.ty) == Some(changed.number()) {
                column.labels = Some(changed.clone());
            }
            if let crate::schema::define::DefaultValue::Value(value) = &mut column.default {
                renamed(value);
            }
            renamed(&mut column.missing);
        }
        let indexed = self.indexes.iter_mut().flat_map(|index| {
            index.columns.iter_mut().map(|column| &mut column.expr).chain(&mut index.filter)
        });
        let checked = self.checks.iter_mut().map(|check| &mut check.expr);
        indexed.chain(checked).for_each(|expr| expr.for_literals(&mut renamed));
    }
}

impl TablesTx<'_> {
    /// Creates an enum type.
    ///
    /// # Errors
    /// The name is taken; a label is given twice.
    pub fn create_enum(&mut self, name: &str, labels: &[&str]) -> Result<EnumType, TablesError> {
        check_kept_name("type", name)?;
        self.ddl(|tx| {
            if tx.enum_named(name)?.is_some() {
                return Err(TablesError::Duplicate { kind: "type", name: name.to_owned() });
            }
            let made = EnumType::new(tx.tables.model.new_object(&tx.tables.engine)?, name, labels)?;
            tx.put_enum(&made)?;
            Ok(made)
        })
    }

    /// Changes an enum type, and with it the definition of every table that has columns of it. Cost: none per row.
    ///
    /// # Errors
    /// [`TablesError::UnknownType`], [`TablesError::UnknownLabel`]; the new name or label is taken; no label fits in between.
    pub fn alter_enum(&mut self, name: &str, change: &EnumChange) -> Result<EnumType, TablesError> {
        self.ddl(|tx| {
            let mut changed = tx.known_enum(name)?;
            changed.change(change)?;
            if changed.name != name {
                if tx.enum_named(&changed.name)?.is_some() {
                    return Err(TablesError::Duplicate { kind: "type", name: changed.name });
                }
                tx.delete_enum(name);
            }
            tx.put_enum(&changed)?;
            let shared = Arc::new(changed.clone());
            for mut parts in tx.users(changed.number)? {
                parts.renew_enum(&shared);
                tx.put_parts(parts, false)?;
            }
            Ok(changed)
        })
    }

    /// Drops an enum type.
    ///
    /// # Errors
    /// [`TablesError::UnknownType`]; [`TablesError::Dependent`] while a column has it.
    pub fn drop_enum(&mut self, name: &str) -> Result<(), TablesError> {
        self.ddl(|tx| {
            let known = tx.known_enum(name)?;
            if let Some(parts) = tx.users(known.number)?.first() {
                let column = parts.columns.iter().find(|column| number_of(column.ty) == Some(known.number));
                let column = column.map_or("", |column| &column.name);
                let dependent = format!("column {column:?} of table {:?}", parts.name);
                return Err(TablesError::Dependent { what: format!("type {name:?}"), dependent });
            }
            tx.delete_enum(name);
            Ok(())
        })
    }

    fn known_enum(&mut self, name: &str) -> Result<EnumType, TablesError> {
        self.enum_named(name)?.ok_or_else(|| TablesError::UnknownType { name: name.to_owned() })
    }

    fn put_enum(&mut self, made: &EnumType) -> Result<(), TablesError> {
        let mut bytes = Vec::new();
        made.encode(&mut bytes);
        if bytes.len() > DEFINITION_BYTES_MAX {
            return Err(wrong(&made.name, format!("more than {DEFINITION_BYTES_MAX} bytes of labels")));
        }
        let catalog = self.spaces().catalog;
        self.kv.guard_key(catalog, &enum_key(&made.name));
        self.kv.put(catalog, &enum_key(&made.name), &bytes);
        self.kv.stay();
        Ok(())
    }

    fn delete_enum(&mut self, name: &str) {
        let catalog = self.spaces().catalog;
        self.kv.guard_key(catalog, &enum_key(name));
        self.kv.delete(catalog, &enum_key(name));
        self.kv.stay();
    }

    /// The definitions of the tables that have columns of a type.
    fn users(&mut self, number: u32) -> Result<Vec<Parts>, TablesError> {
        let mut found = Vec::new();
        self.walk_catalog(&table_key(0), b"u", &mut |_, bytes| match Parts::decode(bytes) {
            Ok(parts) if !parts.uses(number) => {}
            other => found.push(other.map_err(TablesError::damaged("a definition"))),
        })?;
        found.into_iter().collect()
    }

    /// The type of a column that is to be, if that is an enum. It is written as it is: whoever changes or drops it meanwhile is met
    /// at the commit.
    pub(crate) fn labels_of(&mut self, table: &str, ty: Type) -> Result<Option<Arc<EnumType>>, TablesError> {
        let Some(number) = number_of(ty) else { return Ok(None) };
        let unknown = || crate::ddl::invalid(table, format!("there is no enum type of number {number}"));
        let known = self.enum_numbered(number)?.ok_or_else(unknown)?;
        self.put_enum(&known)?;
        Ok(Some(Arc::new(known)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(of: &EnumType) -> Vec<&str> {
        of.labels().collect()
    }

    #[test]
    fn labels_go_where_they_are_told() {
        let mut mood = EnumType::new(7, "mood", &["sad", "happy"]).unwrap();
        mood.add("ok", &EnumPlace::After("sad".into())).unwrap();
        mood.add("awful", &EnumPlace::Before("sad".into())).unwrap();
        mood.add("best", &EnumPlace::Last).unwrap();
        assert_eq!(labels(&mood), ["awful", "sad", "ok", "happy", "best"]);
        let orders: Vec<i64> = mood.labels.iter().map(|(order, _)| *order).collect();
        assert_eq!(orders, [-STEP, 0, STEP / 2, STEP, 2 * STEP]);
        assert!(matches!(mood.add("ok", &EnumPlace::Last), Err(TablesError::Duplicate { .. })));
        let nowhere = mood.add("x", &EnumPlace::Before("y".into()));
        assert!(matches!(nowhere, Err(TablesError::UnknownLabel { .. })));
    }

    #[test]
    fn a_gap_ends_with_an_error() {
        let mut narrow = EnumType::new(7, "narrow", &["a", "b"]).unwrap();
        let mut added = 0;
        while narrow.add(&format!("l{added}"), &EnumPlace::Before("b".into())).is_ok() {
            added += 1;
        }
        assert_eq!(added, 32);
        assert!(narrow.labels.is_sorted_by(|(a, _), (b, _)| a < b));
        narrow.add("last", &EnumPlace::Last).unwrap();
    }

    #[test]
    fn types_come_back() {
        let mood = EnumType::new(7, "mood", &["sad", "", "ü"]).unwrap();
        let mut bytes = Vec::new();
        mood.encode(&mut bytes);
        assert_eq!(EnumType::decode(&mut Decoder::new(&bytes)).unwrap(), mood);
        for length in 0..bytes.len() {
            assert!(EnumType::decode(&mut Decoder::new(&bytes[..length])).is_err());
        }
    }

    #[test]
    fn stored_values_take_the_labels_of_today() {
        let mut mood = EnumType::new(7, "mood", &["sad", "happy"]).unwrap();
        let happy = mood.value_of("happy").unwrap().into_owned();
        mood.change(&EnumChange::RenameLabel("happy".into(), "glad".into())).unwrap();
        assert_eq!(mood.named(happy.borrowed()).unwrap().to_string(), "glad");
        let both = Array::new(Scalar::Enum(7), [happy, Value::Null]).unwrap();
        let mut stored = Vec::new();
        Value::Array(both).put_stored(&mut stored);
        assert_eq!(stored, [2, 1, 8, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        let read = Value::from_row(Type::Array(Scalar::Enum(7)), &stored).unwrap();
        assert_eq!(mood.named(read).unwrap().to_string(), "{glad,NULL}");
        assert!(mood.read(Value::text("happy")).is_err());
    }
}
