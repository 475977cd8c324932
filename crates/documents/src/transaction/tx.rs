//! Documents inside a transaction: visible definitions, guards of writes, and the section of its changes, in
//! order.
//!
//! A transaction that writes documents depends on the collection's definition as it knows it, at any
//! isolation: the definition is guarded. So a commit after another transaction's new index cannot leave that
//! index without its documents. A read committed transaction that changes a definition reads one snapshot
//! from then on.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use ropewalk_engine::{EachEntry, Isolation, KeyConflict, KeySpan, KvTransaction, Operation, Reading};

use crate::catalog::definition::Definition;
use crate::catalog::view::{View, not_on_view, view_key};
use crate::catalog::{Spaces, check_unreserved, definition_key, name_key, number, object_key, split_name};
use crate::error::{DocumentsError, Result};
use crate::index::entry::id_of;
use crate::lang::Doc;
use crate::lang::display;
use crate::model::commit_section::{Event, What};
use crate::model::handle::{self, Collection};
use crate::model::{Documents, SectionOperation};
use crate::rules::{Access, Caller};
use crate::transaction::source::{CancelCheck, Source};
use crate::transaction::write_budget::{Held, HeldSize, WriteBudget};

/// State of a transaction on documents, in addition to its writes.
#[derive(Default)]
pub struct DocumentsState {
    /// True when it changed a definition.
    ddl: bool,
    /// Collections whose definitions are guarded.
    guarded: BTreeSet<u32>,
    /// By the key of the name.
    definitions: HashMap<Vec<u8>, Option<Arc<Definition>>>,
    /// Names that are recorded as read.
    noted: HashSet<Vec<u8>>,
    /// Its changes, as a section.
    section: Vec<u8>,
    /// Bytes of documents that it adds, over all databases with a quota.
    pub(crate) grown: i64,
    /// Size of its writes.
    held: Held,
    /// Validators are not evaluated.
    pub(crate) unvalidated: bool,
    /// The caller whose access the rules decide about; `None`: the application itself.
    pub(crate) caller: Option<Arc<Caller>>,
    /// It rebuilds a projection.
    is_rebuild: bool,
}

/// A savepoint.
#[derive(Debug, Clone, Copy)]
pub struct DocumentsMark {
    section: usize,
    grown: i64,
    held: HeldSize,
}

impl DocumentsState {
    /// Allows the names of collections that are reserved for rebuilds of projections.
    pub fn mark_rebuild(&mut self) {
        self.is_rebuild = true;
    }

    /// Sets a savepoint; the caller sets one for the writes as well.
    pub fn mark(&self) -> DocumentsMark {
        DocumentsMark { section: self.section.len(), grown: self.grown, held: self.held.size() }
    }

    /// Restores the state after the transaction's writes were rolled back to the mark taken with this one.
    pub fn rolled_back(&mut self, mark: DocumentsMark) {
        debug_assert!(mark.section <= self.section.len(), "the section only grows until a rollback");
        self.section.truncate(mark.section);
        self.grown = mark.grown;
        self.held.back_to(mark.held);
        self.guarded.clear();
        self.definitions.clear();
    }

    /// The operation to commit in addition to the writes.
    pub fn operation(&mut self) -> Option<Box<dyn Operation>> {
        let section = std::mem::take(&mut self.section);
        if section.is_empty() { None } else { Some(Box::new(SectionOperation { section })) }
    }
}

/// The documents as one transaction reads and writes them.
pub struct DocumentsTx<'a> {
    pub(crate) documents: &'a Documents,
    pub(crate) kv: &'a mut KvTransaction,
    pub(crate) state: &'a mut DocumentsState,
    pub(crate) look: Option<CancelCheck<'a>>,
}

impl<'a> DocumentsTx<'a> {
    /// The documents within a transaction; `state` begins empty and belongs to the transaction.
    pub fn new(documents: &'a Documents, kv: &'a mut KvTransaction, state: &'a mut DocumentsState) -> Self {
        Self { documents, kv, state, look: None }
    }

    /// The same transaction, calling `look` periodically during statements. An error from it ends the
    /// statement without effect.
    pub fn with_cancellation<'l>(&'l mut self, look: CancelCheck<'l>) -> DocumentsTx<'l> {
        DocumentsTx {
            documents: self.documents,
            kv: &mut *self.kv,
            state: &mut *self.state,
            look: Some(look),
        }
    }

    /// Rejects a new name that is reserved for rebuilds of projections.
    pub(crate) fn check_unreserved(&self, collection: &Collection) -> Result<()> {
        if self.state.is_rebuild { Ok(()) } else { check_unreserved(collection.name()) }
    }

    /// Sets whether documents written from now on must satisfy the validators of their collections;
    /// references and limits apply either way.
    pub fn validate(&mut self, validate: bool) {
        self.state.unvalidated = !validate;
    }

    /// A handle on a collection, which need not exist.
    ///
    /// # Errors
    /// Names that no database or collection may have.
    pub fn collection(&self, database: &str, name: &str) -> Result<Collection> {
        self.documents.collection(database, name)
    }

    /// Applies the rules of collections for `caller` from now on; `None`: the application itself, which is
    /// not restricted.
    pub fn act_for(&mut self, caller: Option<Caller>) {
        self.state.caller = caller.map(Arc::new);
    }

    /// The caller for whom the rules of collections are applied.
    pub fn acting(&self) -> Option<Caller> {
        self.state.caller.as_deref().cloned()
    }

    /// Applies the rules of a collection.
    pub(crate) fn check_access(
        &self,
        definition: &Definition,
        access: Access,
        stored: Option<Doc<'_>>,
        new: Option<Doc<'_>>,
    ) -> Result<()> {
        let caller = self.state.caller.as_deref();
        definition.check_access(caller, access, (stored, new), self.now_ms())
    }

    /// Runs one statement; a failed statement has no effect.
    pub(crate) fn statement<R>(&mut self, run: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        self.begin();
        self.within(|tx| {
            let result = run(tx)?;
            tx.state.held.check(tx.state.section.len())?;
            Ok(result)
        })
    }

    /// Runs a statement that writes to `collection`, whose name its errors contain.
    pub(crate) fn statement_on<R>(
        &mut self,
        collection: &Collection,
        run: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        self.statement(run).map_err(|error| collection.named(error))
    }

    /// Runs a part of a statement; it has no effect if it fails.
    pub(crate) fn within<R>(&mut self, run: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let (mark, state) = (self.kv.mark(), self.state.mark());
        let result = run(self);
        if result.is_err() {
            self.kv.rollback_to(mark);
            self.state.rolled_back(state);
        }
        result
    }

    /// Charges the memory of its writes to a budget that other transactions share.
    ///
    /// # Errors
    /// [`DocumentsError::TransactionMemory`], also later, for the write that does not fit.
    pub fn share(&mut self, budget: &Arc<WriteBudget>) -> Result<()> {
        self.state.held.share(budget)
    }

    /// Charges the memory of writes of other models to the budget of [`DocumentsTx::share`].
    ///
    /// # Errors
    /// [`DocumentsError::TransactionMemory`].
    pub fn charge(&mut self, bytes: usize) -> Result<()> {
        self.state.held.charge(bytes as u64)
    }

    /// Writes `key`, if it fits the transaction's limits.
    pub(crate) fn put(
        &mut self,
        keyspace: ropewalk_engine::Keyspace,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.take(keyspace, key, value.len())?;
        self.kv.put(keyspace, key, value);
        Ok(())
    }

    /// Deletes `key`, if that fits the transaction's limits.
    pub(crate) fn remove(&mut self, keyspace: ropewalk_engine::Keyspace, key: &[u8]) -> Result<()> {
        self.take(keyspace, key, 0)?;
        self.kv.delete(keyspace, key);
        Ok(())
    }

    fn take(&mut self, keyspace: ropewalk_engine::Keyspace, key: &[u8], value: usize) -> Result<()> {
        let replaced = match self.kv.wrote(keyspace, key) {
            true => key.len() + self.kv.peek(keyspace, key)?.map_or(0, |own| own.len()),
            false => 0,
        };
        self.state.held.take((key.len(), value), replaced, self.state.section.len())
    }

    /// Appends a change to the section.
    pub(crate) fn did(&mut self, definition: &Definition, what: What<'_>) {
        what.put(definition.id, &mut self.state.section);
        if definition.quota.is_some() {
            self.state.grown += what.growth().1;
        }
    }

    pub(crate) fn snapshot_catalog(&self) -> Reading {
        self.kv.snapshot().reading()
    }

    /// The collection's number by name, own definitions included.
    pub(crate) fn number_of(&mut self, name: &[u8]) -> Result<Option<u32>> {
        let catalog = self.spaces().catalog;
        Ok(self.kv.get(catalog, name)?.as_deref().and_then(number))
    }

    /// The definition of a collection by number, own definitions included.
    pub(crate) fn definition_by_id(&mut self, id: u32) -> Result<Arc<Definition>> {
        let catalog = self.spaces().catalog;
        let stored = self.kv.get(catalog, &definition_key(id))?;
        let stored =
            stored.ok_or_else(|| DocumentsError::damaged(format!("collection {id}"), "no definition"))?;
        let mut definition = Definition::decode(&stored)?;
        definition.quota =
            handle::quota(&self.documents.model, self.kv.snapshot().reading().view(), &definition.database)?;
        Ok(Arc::new(definition))
    }

    /// Guards the definition, on which the following writes depend.
    pub(crate) fn guard_definition(&mut self, definition: &Definition) {
        // Also for a definition that the transaction changed itself: that change may yet be rolled back.
        if self.state.guarded.insert(definition.id) {
            self.kv.guard_key(self.spaces().catalog, &definition_key(definition.id));
        }
    }

    /// Writes under read committed guard their keys here; the stricter levels check every key they write.
    pub(crate) fn guard(&mut self, keyspace: ropewalk_engine::Keyspace, key: &[u8]) {
        if self.kv.isolation() == Isolation::ReadCommitted {
            self.kv.guard_key(keyspace, key);
        }
    }

    /// Writes a definition. A concurrent change of it is detected at commit.
    pub(crate) fn put_definition(
        &mut self,
        mut definition: Definition,
        event: Event,
    ) -> Result<Arc<Definition>> {
        let catalog = self.spaces().catalog;
        let key = definition_key(definition.id);
        let name = name_key(&definition.database, &definition.name);
        if event == Event::Created {
            // A view of the same name that is created at the same time.
            self.kv.guard_key(catalog, &view_key(&definition.database, &definition.name));
            self.guard(catalog, &name);
            self.kv.put(catalog, &name, &definition.id.to_le_bytes());
            self.kv.put(catalog, &object_key(definition.id), &definition.id.to_le_bytes());
        } else {
            definition.version += 1;
            self.kv.guard_key(catalog, &key);
        }
        for object in definition.objects() {
            if self.kv.peek(catalog, &object_key(object))?.is_none() {
                self.kv.put(catalog, &object_key(object), &definition.id.to_le_bytes());
            }
        }
        let encoded = definition.encode();
        // The validator and the filters may be as large and as deep as a document; a definition holds more.
        Doc::check(&encoded)?;
        if cfg!(debug_assertions) {
            definition.check(&encoded);
        }
        self.put(catalog, &key, &encoded)?;
        let definition = Arc::new(definition);
        let (database, new_name) = (&definition.database, &definition.name);
        self.defined(definition.id, What::Definition { event, database, name: new_name });
        self.state.definitions.insert(name, Some(definition.clone()));
        Ok(definition)
    }

    /// Records that a definition changed.
    pub(crate) fn defined(&mut self, collection: u32, what: What<'_>) {
        what.put(collection, &mut self.state.section);
        // Documents that others write under a newer definition could not be read with the transaction's one.
        self.kv.pin_statement_snapshot();
        self.state.ddl = true;
        self.state.definitions.clear();
    }
}

impl Source for DocumentsTx<'_> {
    fn begin(&mut self) {
        self.kv.begin_statement();
        if self.kv.isolation() == Isolation::ReadCommitted {
            // Another transaction's change may be visible by now; own ones are found in the own writes.
            self.state.definitions.clear();
        }
    }

    fn documents(&self) -> &Documents {
        self.documents
    }

    fn caller(&self) -> Option<&Arc<Caller>> {
        self.state.caller.as_ref()
    }

    fn look(&self) -> Result<()> {
        self.look.map_or(Ok(()), |look| look())
    }

    fn reading(&self) -> Reading {
        self.kv.snapshot().reading()
    }

    fn definition_of(&mut self, collection: &Collection) -> Result<Option<Arc<Definition>>> {
        let name = name_key(collection.database(), collection.name());
        if let Some(known) = self.state.definitions.get(&name) {
            return Ok(known.clone());
        }
        let found = if self.state.ddl {
            match self.number_of(&name)? {
                Some(id) => Some(self.definition_by_id(id)?),
                None => None,
            }
        } else {
            let catalog = self.spaces().catalog;
            let found = collection.definition_at(self.kv.snapshot().reading().view())?;
            if self.state.noted.insert(name.clone()) {
                self.kv.note_read(catalog, &name);
                if let Some(definition) = &found {
                    self.kv.note_read(catalog, &definition_key(definition.id));
                }
            }
            found
        };
        if found.is_none() && self.stored_view(collection.database(), collection.name())?.is_some() {
            return Err(not_on_view(collection.database(), collection.name()));
        }
        self.state.definitions.insert(name, found.clone());
        Ok(found)
    }

    fn fetch(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.kv.get(self.spaces().documents, key)?)
    }

    fn walk(&mut self, span: KeySpan<'_>, each: &mut EachEntry<'_>) -> Result<()> {
        Ok(self.kv.visit(self.spaces().documents, span, each)?)
    }
}

impl DocumentsTx<'_> {
    /// The view of that name.
    pub(crate) fn stored_view(&mut self, database: &str, name: &str) -> Result<Option<View>> {
        let stored = self.kv.get(self.spaces().catalog, &view_key(database, name))?;
        stored.map(|stored| View::decode(&stored)).transpose()
    }

    pub(crate) fn spaces(&self) -> Spaces {
        self.documents.model.spaces()
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        self.documents.now_ms()
    }
}

impl Documents {
    /// Describes a conflict of the engine, if it was about documents.
    pub fn explain(&self, conflict: &KeyConflict) -> Option<DocumentsError> {
        let spaces = self.model.spaces();
        let seq = conflict.seq;
        let snapshot = self.engine.snapshot();
        let read = snapshot.read();
        let by_id = |id: u32| handle::definition(&self.model, read, id, None).ok();
        let what = if conflict.keyspace == spaces.catalog {
            match conflict.key.split_first()? {
                (b'n', _) => {
                    let (database, name) = split_name(&conflict.key, 1)?;
                    format!("the collection name {name:?} in database {database:?}")
                }
                (b'c', id) => match by_id(u32::from_be_bytes(id.try_into().ok()?)) {
                    Some(definition) => format!("the definition of collection {:?}", definition.name),
                    None => "the definition of a collection".into(),
                },
                _ => "the catalog of documents".into(),
            }
        } else if conflict.keyspace == spaces.documents {
            let object = u32::from_be_bytes(*conflict.key.first_chunk()?);
            let owner = read.get(spaces.catalog, &object_key(object)).ok()?;
            let definition = owner.and_then(|bytes| number(&bytes)).and_then(by_id);
            match definition {
                Some(definition) if definition.id == object => {
                    let stored = read.get(spaces.documents, &conflict.key).ok()?;
                    let id = stored.map(|bytes| display::value(id_of(Doc::trusted(&bytes))));
                    match id {
                        Some(id) => format!("collection {:?}, document {id}", definition.name),
                        None => {
                            format!("collection {:?}, key {}", definition.name, display::key(&conflict.key))
                        }
                    }
                }
                Some(definition) => {
                    let index = definition.indexes.iter().find(|index| index.object == object);
                    let index = index.map_or("that is gone", |index| index.name());
                    format!(
                        "collection {:?}, index {index:?}, key {}",
                        definition.name,
                        display::key(&conflict.key)
                    )
                }
                None => "a collection that is gone".into(),
            }
        } else if conflict.keyspace == spaces.sessions {
            "the record of a session".into()
        } else {
            return None;
        };
        Some(DocumentsError::Conflict { what, seq })
    }
}
