//! Prepared handles: a collection by name, with its newest definition cached.
//!
//! A snapshot may use the cached definition when no definition changed between the commit it was loaded at
//! and the snapshot, whichever is older: one comparison with the newest change of any definition. Otherwise
//! the catalog is read, as of the snapshot.
//!
//! All handles on a name share the definition that one of them has loaded, so that a handle may be as
//! short-lived as a request.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use parking_lot::RwLock;
use ropewalk_base::Seq;
use ropewalk_engine::ReadView;

use crate::catalog::definition::Definition;
use crate::catalog::{
    after_database, check_collection, check_database, database_key, definition_key, glob_matches, name_key,
    number, split_name,
};
use crate::error::{DocumentsError, Result};
use crate::index::verify::{self, Validated};
use crate::lang::{Doc, Value};
use crate::model::counts::Count;
use crate::model::{Documents, DocumentsModel};

/// Loaded definitions that stay cached without a handle on their collections.
const SLOTS_MAX: usize = 1024;

pub(crate) struct Loaded {
    pub(crate) definition: Option<Arc<Definition>>,
    /// The snapshot it was loaded at.
    pub(crate) at: Seq,
}

/// Cache slot of a name's definition, empty until first loaded.
type Slot = Arc<ArcSwapOption<Loaded>>;

/// The cache slots, by the key of the name.
#[derive(Default)]
pub(crate) struct Slots(RwLock<HashMap<Vec<u8>, Slot>>);

impl Slots {
    fn slot(&self, database: &str, name: &str) -> Slot {
        let key = name_key(database, name);
        if let Some(slot) = self.0.read().get(&key) {
            return slot.clone();
        }
        let mut slots = self.0.write();
        if slots.len() >= SLOTS_MAX {
            slots.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        slots.entry(key).or_default().clone()
    }
}

struct Inner {
    documents: Documents,
    database: String,
    name: String,
    loaded: Slot,
}

/// A prepared handle on a collection, which need not exist yet: its first document creates it. Cheap to
/// clone. Refers to the name: after a rename it refers to the collection that has the name then.
#[derive(Clone)]
pub struct Collection(Arc<Inner>);

impl std::fmt::Debug for Collection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Collection({:?} in {:?})", self.0.name, self.0.database)
    }
}

impl Collection {
    /// Its database.
    pub fn database(&self) -> &str {
        &self.0.database
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn documents(&self) -> &Documents {
        &self.0.documents
    }

    /// Adds the collection's name to the error of a write.
    pub(crate) fn named(&self, error: DocumentsError) -> DocumentsError {
        match error {
            DocumentsError::Language(source) => {
                DocumentsError::InCollection { collection: self.0.name.clone(), source }
            }
            other => other,
        }
    }

    pub(crate) fn unknown(&self) -> DocumentsError {
        DocumentsError::UnknownCollection {
            database: self.0.database.clone(),
            collection: self.0.name.clone(),
        }
    }

    /// The definition as of the newest commit; `None` when it does not exist.
    ///
    /// # Errors
    /// Damage.
    pub fn definition(&self) -> Result<Option<Arc<Definition>>> {
        self.definition_at(self.0.documents.engine.snapshot().read())
    }

    /// The definition as `read` sees it.
    pub(crate) fn definition_at(&self, read: ReadView<'_>) -> Result<Option<Arc<Definition>>> {
        let loaded = self.0.loaded.load();
        let last = &self.0.documents.model.last_ddl;
        match &*loaded {
            Some(loaded) if last.is_current(loaded.at, read) => Ok(loaded.definition.clone()),
            _ => Ok(self.load(read)?.definition.clone()),
        }
    }

    /// The definition as of the newest visible commit, and that commit.
    pub(crate) fn newest(&self) -> Result<Arc<Loaded>> {
        let loaded = self.0.loaded.load();
        match &*loaded {
            Some(loaded) if self.0.documents.model.last_ddl.seq() <= loaded.at => Ok(loaded.clone()),
            _ => self.load(self.0.documents.engine.snapshot().read()),
        }
    }

    /// The collection's number as of the newest visible commit.
    #[inline]
    pub(crate) fn newest_id(&self) -> Result<Option<u32>> {
        let loaded = self.0.loaded.load();
        let id = |loaded: &Loaded| loaded.definition.as_ref().map(|definition| definition.id);
        match &*loaded {
            Some(loaded) if self.0.documents.model.last_ddl.seq() <= loaded.at => Ok(id(loaded)),
            _ => Ok(id(&*self.load(self.0.documents.engine.snapshot().read())?)),
        }
    }

    #[cold]
    fn load(&self, read: ReadView<'_>) -> Result<Arc<Loaded>> {
        let loaded = self.0.loaded.load();
        let model = &self.0.documents.model;
        let found = match find(model, read, &self.0.database, &self.0.name)? {
            Some(id) => {
                let old = loaded.as_ref().and_then(|loaded| loaded.definition.as_ref());
                Some(definition(model, read, id, old)?)
            }
            None => None,
        };
        let newest = Arc::new(Loaded { definition: found, at: read.at() });
        if loaded.as_ref().is_none_or(|loaded| loaded.at < read.at()) {
            self.0.loaded.store(Some(newest.clone()));
        }
        Ok(newest)
    }

    /// Documents and bytes in the collection, as of the newest commits. The first call after a start scans
    /// the collection; later calls only read the counts.
    ///
    /// # Errors
    /// Damage.
    pub fn estimated_count(&self) -> Result<Count> {
        match self.newest()?.definition.as_ref() {
            Some(definition) => self.0.documents.model.count(&self.0.documents.engine, definition.id),
            None => Ok(Count::default()),
        }
    }

    /// As [`Collection::estimated_count`]; `None` for a collection with access rules, whose count would tell
    /// callers whom they bind about hidden documents.
    ///
    /// # Errors
    /// Damage.
    pub fn unruled_count(&self) -> Result<Option<Count>> {
        match self.newest()?.definition.as_ref() {
            Some(definition) if definition.options.rules.is_some() => Ok(None),
            _ => self.estimated_count().map(Some),
        }
    }
}

impl Collection {
    /// Checks every document and every index entry of the collection, as of now. Reads all of it.
    ///
    /// # Errors
    /// [`DocumentsError::UnknownCollection`]; the engine's.
    pub fn validate(&self) -> Result<Validated> {
        let documents_model = self.documents();
        let snapshot = documents_model.engine.snapshot();
        let definition = self.definition_at(snapshot.read())?.ok_or_else(|| self.unknown())?;
        let (mut lines, spaces) = (verify::Lines::default(), documents_model.model.spaces());
        let (count, found) = verify::documents(spaces, snapshot.read(), &definition, &mut lines)?;
        let named = definition.indexes.iter().zip(found).filter(|(index, _)| index.ready);
        let indexes = named.map(|(index, entries)| (index.name.clone(), entries)).collect();
        Ok(Validated { documents: count, indexes, problems: lines.done() })
    }
}

/// The number of a collection.
pub(crate) fn find(
    model: &DocumentsModel,
    read: ReadView<'_>,
    database: &str,
    name: &str,
) -> Result<Option<u32>> {
    let Some(stored) = read.get(model.spaces().catalog, &name_key(database, name))? else { return Ok(None) };
    number(&stored).map(Some).ok_or_else(|| DocumentsError::damaged(format!("name {name:?}"), "a number"))
}

/// The definition of collection `id`; reuses `old` when its version is the newest.
pub(crate) fn definition(
    model: &DocumentsModel,
    read: ReadView<'_>,
    id: u32,
    old: Option<&Arc<Definition>>,
) -> Result<Arc<Definition>> {
    let stored = read
        .get(model.spaces().catalog, &definition_key(id))?
        .ok_or_else(|| DocumentsError::damaged(format!("collection {id}"), "its definition is missing"))?;
    let mut definition = Definition::decode(&stored)?;
    definition.quota = quota(model, read, &definition.database)?;
    Ok(match old {
        Some(old) if (old.id, old.version, old.quota) == (id, definition.version, definition.quota) => {
            old.clone()
        }
        _ => Arc::new(definition),
    })
}

/// Most bytes of documents of a database.
pub(crate) fn quota(model: &DocumentsModel, read: ReadView<'_>, database: &str) -> Result<Option<u64>> {
    let Some(stored) = read.get(model.spaces().catalog, &database_key(database))? else { return Ok(None) };
    Ok(quota_of(&stored))
}

pub(crate) fn quota_of(settings: &[u8]) -> Option<u64> {
    match Doc::trusted(settings).get("quota") {
        Some(Value::Int64(bytes)) => Some(bytes.max(0) as u64),
        _ => None,
    }
}

impl Documents {
    /// A prepared handle on a collection, which need not exist.
    ///
    /// # Errors
    /// Names that no database or collection may have.
    pub fn collection(&self, database: &str, name: &str) -> Result<Collection> {
        check_database(database)?;
        check_collection(name)?;
        Ok(self.handle(database, name))
    }

    /// A handle with names that were checked before.
    pub(crate) fn handle(&self, database: &str, name: &str) -> Collection {
        Collection(Arc::new(Inner {
            documents: self.clone(),
            database: database.to_owned(),
            name: name.to_owned(),
            loaded: self.model.slots.slot(database, name),
        }))
    }

    /// Most bytes of documents that a database may hold; `None`: any. It is set by
    /// [`crate::DocumentsTx::set_quota`].
    ///
    /// # Errors
    /// Damage.
    pub fn quota(&self, database: &str) -> Result<Option<u64>> {
        quota(&self.model, self.engine.snapshot().read(), database)
    }

    /// Names of all databases that have a collection, sorted.
    ///
    /// # Errors
    /// Damage.
    pub fn databases(&self) -> Result<Vec<String>> {
        self.databases_after(None, usize::MAX, |_| true)
    }

    /// Names of databases with a collection, sorted: the first `max` that come after `after` and that `is_wanted`
    /// accepts.
    ///
    /// # Errors
    /// Damage.
    pub fn databases_after(
        &self,
        after: Option<&str>,
        max: usize,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>> {
        let snapshot = self.engine.snapshot();
        let mut cursor = snapshot.read().cursor(self.model.spaces().catalog);
        let mut names = Vec::new();
        cursor.seek(&after.map_or_else(|| b"n".to_vec(), after_database))?;
        while names.len() < max && cursor.valid() && cursor.key().first() == Some(&b'n') {
            let Some((database, _)) = split_name(cursor.key(), 1) else { break };
            // Names of the next database sort after all names of this one.
            let next = after_database(database);
            if is_wanted(database) {
                names.push(database.to_owned());
            }
            cursor.seek(&next)?;
        }
        Ok(names)
    }

    /// Names of the collections of a database, sorted.
    ///
    /// # Errors
    /// Damage.
    pub fn collections(&self, database: &str) -> Result<Vec<String>> {
        self.names_after(self.engine.snapshot().read(), (database, None), None, usize::MAX)
    }

    /// Names of collections of a database, sorted: the first `max` that come after `after` and match `glob`, a
    /// collection group: `users/*/posts` is the posts of every user. `*` and `?` stop at slashes, `**` does not.
    ///
    /// # Errors
    /// Damage.
    pub fn collections_after(
        &self,
        database: &str,
        glob: Option<&str>,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<String>> {
        self.names_after(self.engine.snapshot().read(), (database, glob), after, max)
    }

    fn names_after(
        &self,
        read: ReadView<'_>,
        (database, glob): (&str, Option<&str>),
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<String>> {
        let literal = glob.and_then(|glob| glob.split(['*', '?']).next()).unwrap_or_default();
        let prefix = name_key(database, literal);
        // The first key after that of the name.
        let first = after.map(|name| [name_key(database, name).as_slice(), b"\0"].concat());
        let is_wanted = |name: &&str| glob.is_none_or(|glob| glob_matches(glob, name));
        let mut cursor = read.cursor(self.model.spaces().catalog);
        let mut names = Vec::new();
        cursor.seek(first.as_deref().unwrap_or_default().max(prefix.as_slice()))?;
        while names.len() < max && cursor.valid() && cursor.key().starts_with(&prefix) {
            let name = split_name(cursor.key(), 1).map(|(_, name)| name);
            names.extend(name.filter(is_wanted).map(str::to_owned));
            cursor.next()?;
        }
        Ok(names)
    }

    /// Bytes of documents that a database holds, as of the newest commits.
    ///
    /// # Errors
    /// Damage.
    pub fn database_bytes(&self, database: &str) -> Result<u64> {
        let mut bytes = 0;
        for name in self.collections(database)? {
            bytes += self.handle(database, &name).estimated_count()?.bytes;
        }
        Ok(bytes)
    }

    /// As [`Documents::database_bytes`], without collections that have access rules.
    ///
    /// # Errors
    /// Damage.
    pub fn unruled_bytes(&self, database: &str) -> Result<u64> {
        let mut bytes = 0;
        for name in self.collections(database)? {
            bytes += self.handle(database, &name).unruled_count()?.map_or(0, |count| count.bytes);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shared_by_name_and_bounded() {
        let slots = Slots::default();
        let used = slots.slot("app", "c");
        for number in 0..2 * SLOTS_MAX {
            slots.slot("app", &number.to_string());
        }
        assert!(Arc::ptr_eq(&used, &slots.slot("app", "c")));
        assert!(!Arc::ptr_eq(&used, &slots.slot("other", "c")));
        assert!(slots.0.read().len() <= SLOTS_MAX);
    }
}
