//! Checks the invariants of documents on all stored data: every document is BSON and stored under the key of
//! its `_id`; every complete index has exactly the entries of the documents; every key belongs to an object.
//! References are not checked: documents older than a reference need not have their parents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ropewalk_engine::{EngineError, ReadView};

use crate::catalog::definition::Definition;
use crate::catalog::{Spaces, object_range};
use crate::error::{DocumentsError, Result};
use crate::index::entry::{document_key, document_of, entries, id_of, id_part};
use crate::index::order;
use crate::lang::Doc;
use crate::lang::display;

/// Most reported lines; the rest is counted.
const LINES_MAX: usize = 100;

pub(crate) fn verify(spaces: Spaces, read: ReadView<'_>) -> Result<Vec<String>, EngineError> {
    let mut lines = Lines::default();
    match all(spaces, read, &mut lines) {
        Ok(()) => {}
        Err(DocumentsError::Engine(error)) => return Err(error),
        Err(other) => lines.add(other.to_string()),
    }
    Ok(lines.done())
}

#[derive(Default)]
pub(crate) struct Lines {
    told: Vec<String>,
    more: usize,
}

impl Lines {
    fn add(&mut self, line: String) {
        if self.told.len() < LINES_MAX { self.told.push(line) } else { self.more += 1 }
    }

    pub(crate) fn done(mut self) -> Vec<String> {
        if self.more > 0 {
            self.told.push(format!("and {} more", self.more));
        }
        self.told
    }
}

fn all(spaces: Spaces, read: ReadView<'_>, lines: &mut Lines) -> Result<()> {
    let mut definitions = BTreeMap::new();
    let mut cursor = read.cursor(spaces.catalog);
    cursor.seek(b"c")?;
    while cursor.valid() && cursor.key().first() == Some(&b'c') {
        match Definition::decode(cursor.value()) {
            Ok(definition) => {
                definitions.insert(definition.id, Arc::new(definition));
            }
            Err(error) => lines.add(error.to_string()),
        }
        cursor.next()?;
    }
    let mut objects = BTreeSet::new();
    for definition in definitions.values() {
        objects.insert(definition.id);
        objects.extend(definition.objects());
        documents(spaces, read, definition, lines)?;
    }
    let mut cursor = read.cursor(spaces.documents);
    cursor.first()?;
    while cursor.valid() {
        let Some(object) = cursor.key().first_chunk().copied().map(u32::from_be_bytes) else {
            lines.add("a key is shorter than the number of its object".into());
            cursor.next()?;
            continue;
        };
        if !objects.contains(&object) {
            lines.add(format!("object {object} has keys and belongs to no collection"));
        }
        // Skip to the next object.
        cursor.seek(&object_range(object).1)?;
    }
    Ok(())
}

/// Result of [`crate::Collection::validate`].
#[derive(Debug, Clone, Default)]
pub struct Validated {
    /// Documents.
    pub documents: u64,
    /// Complete indexes, with the number of their entries.
    pub indexes: Vec<(String, u64)>,
    /// Descriptions of the problems; empty if no problem was found.
    pub problems: Vec<String>,
}

/// Checks one collection; returns the numbers of its documents and of the entries of each index.
pub(crate) fn documents(
    spaces: Spaces,
    read: ReadView<'_>,
    definition: &Definition,
    lines: &mut Lines,
) -> Result<(u64, Vec<u64>)> {
    let name = &definition.name;
    let (start, end) = object_range(definition.id);
    let mut cursor = read.cursor(spaces.documents);
    cursor.seek(&start)?;
    let mut expected = vec![0_u64; definition.indexes.len()];
    let (mut count, mut counts) = (0, Vec::new());
    while cursor.valid() && cursor.key() < end.as_slice() {
        let (key, stored) = (cursor.key(), cursor.value());
        count += 1;
        match Doc::check(stored) {
            Ok(doc) => {
                let shown = display::value(id_of(doc));
                if document_key(definition.id, id_of(doc))? != key {
                    lines.add(format!("collection {name:?}: document {shown} lies under another key"));
                }
                for (index, expected) in definition.indexes.iter().zip(&mut expected) {
                    let of = entries(definition, index, doc, id_part(key))?;
                    *expected += of.entries.len() as u64;
                    for entry in &of.entries {
                        let there = read.get(spaces.documents, &entry.key)?;
                        if index.ready && there.as_deref() != Some(entry.value.as_slice()) {
                            lines.add(format!(
                                "collection {name:?}, index {:?}: the entry of document {shown} is missing",
                                index.name
                            ));
                        }
                    }
                }
            }
            Err(error) => {
                lines.add(format!("collection {name:?}, key {}: {error}", display::key(key)));
            }
        }
        cursor.next()?;
    }
    for (index, expected) in definition.indexes.iter().zip(expected) {
        let (start, end) = object_range(index.object);
        let mut cursor = read.cursor(spaces.documents);
        cursor.seek(&start)?;
        let mut found = 0;
        while cursor.valid() && cursor.key() < end.as_slice() {
            found += 1;
            let document = document_of(definition, index, cursor.key(), cursor.value())?;
            if read.get(spaces.documents, &document)?.is_none() {
                let at = display::key(cursor.key());
                lines.add(format!(
                    "collection {name:?}, index {:?}: entry {at} refers to a missing document",
                    index.name
                ));
            }
            cursor.next()?;
        }
        if index.ready && found != expected {
            lines.add(format!(
                "collection {name:?}, index {:?}: {found} entries, the documents have {expected}",
                index.name
            ));
        }
        counts.push(found);
    }
    if let Some(object) = definition.order {
        order::verify(spaces, read, (definition, object), count, |line| lines.add(line))?;
    }
    Ok((count, counts))
}
