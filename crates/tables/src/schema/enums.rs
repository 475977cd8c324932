//! Enum types: ordered labels; new ones can be inserted anywhere.
//!
//! ```text
//! catalog     e name   number u32 │ name │ list of label: order i64 │ text       in order
//! row, key    order i64; the label is added when a row is read
//! ```
//! A label retains its order value: a label added last gets the next multiple of [`STEP`], one between two
//! others the middle, so a change of a type writes no rows. A table's definition contains copies of its
//! columns' types.
//!
//! Invariants
//! 1. The copies equal the type: a change of a type changes the definitions of the tables that use it, in the
//!    same commit.
//! 2. A type in use cannot be dropped: creating a column and a concurrent DROP write the same catalog entry,
//!    so one fails.

use std::borrow::Cow;

use ropewalk_base::{DecodeError, Decoder, put_bytes, put_u32, put_varint};

use crate::error::{Result, TablesError};
use crate::schema::names::{NAME_BYTES_MAX, check_kept_name, schema_and_name};
use crate::value::enum_value::EnumValue;
use crate::value::types::{Scalar, Type};
use crate::value::{Array, Value, ValueError};

/// Distance between labels: allows 32 successive insertions in the middle.
const STEP: i64 = 1 << 32;

/// An enum type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumType {
    number: u32,
    name: String,
    labels: Vec<(i64, String)>,
}

/// Position of a new label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnumPlace {
    /// After all others.
    Last,
    /// Before this one.
    Before(String),
    /// After this label.
    After(String),
}

/// A change of an enum type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnumChange {
    /// Adds a label.
    Add(String, EnumPlace),
    /// Renames a label: from, to.
    RenameLabel(String, String),
    /// Renames the type.
    Rename(String),
}

pub(crate) fn wrong(name: &str, what: impl Into<String>) -> TablesError {
    TablesError::EnumDefinition { name: name.to_owned(), what: what.into() }
}

impl EnumType {
    pub(crate) fn new(number: u32, name: &str, labels: &[&str]) -> Result<Self> {
        let mut made = Self { number, name: name.to_owned(), labels: Vec::with_capacity(labels.len()) };
        for label in labels {
            made.add(label, &EnumPlace::Last)?;
        }
        Ok(made)
    }

    /// The type's number, which never changes.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its stored name: see [`crate::schema::names::schema_and_name`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name in its schema.
    pub fn unqualified_name(&self) -> &str {
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

    /// Converts texts to values of the type, also in an array; other values are unchanged.
    ///
    /// # Errors
    /// [`ValueError::Label`].
    pub fn read<'a>(&self, value: Value<'a>) -> Result<Value<'a>, ValueError> {
        match value {
            Value::Text(label) => {
                let unknown = || ValueError::Label {
                    name: self.unqualified_name().to_owned(),
                    label: label.to_string(),
                };
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

    /// A stored value with its current label; `None` for one that the type does not know.
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

    fn place(&self, label: &str) -> Result<usize> {
        let found = self.labels.iter().position(|(_, known)| known == label);
        found.ok_or_else(|| TablesError::UnknownLabel { name: self.name.clone(), label: label.to_owned() })
    }

    fn add(&mut self, label: &str, place: &EnumPlace) -> Result<()> {
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
        debug_assert!(
            before < Some(order) && behind.is_none_or(|behind| order < behind),
            "label {label:?} of number {order} lies between its neighbours"
        );
        self.labels.insert(at, (order, label.to_owned()));
        Ok(())
    }

    pub(crate) fn change(&mut self, change: &EnumChange) -> Result<()> {
        match change {
            EnumChange::Add(label, place) => self.add(label, place),
            EnumChange::RenameLabel(from, to) => {
                check_label(&self.name, to)?;
                let place = self.place(from)?;
                if self.labels.iter().any(|(_, known)| known == to) {
                    return Err(TablesError::Duplicate { kind: "enum label", name: to.clone() });
                }
                let (_, label) = self.labels.get_mut(place).expect("the label was found there");
                label.clone_from(to);
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

    pub(crate) fn stored(bytes: &[u8], key: &[u8]) -> Result<Self> {
        let name = String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned();
        Self::decode(&mut Decoder::new(bytes)).map_err(TablesError::damaged(format!("type {name:?}")))
    }
}

fn check_label(name: &str, label: &str) -> Result<()> {
    if label.len() > NAME_BYTES_MAX || label.chars().any(char::is_control) {
        let cut: String = label.chars().take(64).collect();
        return Err(wrong(name, format!("the label {cut:?}: at most 255 bytes without control characters")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(of: &EnumType) -> Vec<&str> {
        of.labels().collect()
    }

    #[test]
    fn add_enum_value_before_after_places_label() {
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
    fn add_between_labels_without_gap_is_an_error() {
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
    fn enum_type_decodes_as_encoded() {
        let mood = EnumType::new(7, "mood", &["sad", "", "ü"]).unwrap();
        let mut bytes = Vec::new();
        mood.encode(&mut bytes);
        assert_eq!(EnumType::decode(&mut Decoder::new(&bytes)).unwrap(), mood);
        for length in 0..bytes.len() {
            assert!(EnumType::decode(&mut Decoder::new(&bytes[..length])).is_err());
        }
    }

    #[test]
    fn stored_values_get_current_labels() {
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
