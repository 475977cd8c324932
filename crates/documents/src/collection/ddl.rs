//! Definitions: collections made, renamed, dropped; their rules; their indexes, also built beside running writers.
//!
//! An index is built in batches: first it is declared, and from then on every writer keeps it; then the documents that were
//! there get their entries, batch by batch, each in a commit that nobody else's write of the same documents crossed; then it
//! is declared ready, and readers may use it. A build that was cut off goes on when it is asked for again.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use ropewalk_engine::Durability;

use crate::catalog::definition::{CollectionOptions, Definition, INDEXES_MAX, Index, IndexDef, IndexParts};
use crate::catalog::{definition_key, gone_key, gone_rules_key, name_key, object_range};
use crate::error::DocumentsError;
use crate::index::entry::{entries, id_part};
use crate::index::wildcard;
use crate::lang::{Doc, DocBuf, Value, Writer};
use crate::model::Documents;
use crate::model::commit_section::{Event, What};
use crate::model::handle::Collection;
use crate::query::read::Source;
use crate::transaction::tx::DocumentsTx;

/// Documents of one batch of a build.
const BATCH: usize = 512;
/// Bytes of documents of one batch, about.
const BATCH_BYTES: usize = 4 << 20;

impl DocumentsTx<'_> {
    fn new_definition(&self, collection: &Collection) -> Result<Definition, DocumentsError> {
        let engine = &self.documents.engine;
        let id = self.documents.model.new_number(engine)?;
        let random = &engine.env().random;
        let mut uuid = [0; 16];
        for (place, byte) in
            random.next_u64().to_le_bytes().into_iter().chain(random.next_u64().to_le_bytes()).enumerate()
        {
            if let Some(slot) = uuid.get_mut(place) {
                *slot = match place {
                    6 => byte & 0x0f | 0x40,
                    8 => byte & 0x3f | 0x80,
                    _ => byte,
                };
            }
        }
        let mut definition = Definition::new(id, collection.database(), collection.name(), uuid);
        definition.quota = crate::model::handle::quota(
            &self.documents.model,
            self.snapshot_catalog().view(),
            collection.database(),
        )?;
        Ok(definition)
    }

    /// Makes a collection in the midst of a statement that needs it.
    pub(crate) fn create_now(&mut self, collection: &Collection) -> Result<Arc<Definition>, DocumentsError> {
        let definition = self.new_definition(collection)?;
        self.tell_created(&definition);
        self.put_definition(definition, Event::Created)
    }

    /// Creates a collection; false when it is there with the same options.
    ///
    /// # Errors
    /// [`DocumentsError::CollectionExists`] with others; options that make no sense.
    pub fn create_collection(
        &mut self,
        collection: &Collection,
        options: CollectionOptions,
    ) -> Result<bool, DocumentsError> {
        self.statement(|tx| {
            if let Some(there) = tx.definition_of(collection)? {
                if there.options.same(&options) {
                    return Ok(false);
                }
                return Err(DocumentsError::CollectionExists {
                    database: collection.database().to_owned(),
                    collection: collection.name().to_owned(),
                });
            }
            let mut definition = tx.new_definition(collection)?;
            let references = options.references.clone();
            if options.capped.is_some() {
                definition.order = Some(tx.documents.model.new_number(&tx.documents.engine)?);
            }
            definition.set_options(options)?;
            tx.refer(&definition, &references)?;
            // A collection that refers to itself has been told so by now.
            if references.iter().any(|reference| reference.collection == definition.name) {
                definition.referenced_by.insert(definition.id);
            }
            tx.tell_created(&definition);
            tx.put_definition(definition, Event::Created)?;
            Ok(true)
        })
    }

    /// Gives a collection other rules. Documents that are there are not looked at.
    ///
    /// # Errors
    /// [`DocumentsError::Protected`]; options that make no sense.
    pub fn set_options(
        &mut self,
        collection: &Collection,
        mut options: CollectionOptions,
    ) -> Result<(), DocumentsError> {
        self.statement(|tx| {
            let definition = tx.definition_of(collection)?.ok_or_else(|| collection.unknown())?;
            if options.capped.is_some() && definition.order.is_none() {
                let what = format!("collection {:?} is not capped", definition.name);
                return Err(DocumentsError::InvalidOptions { what });
            }
            options.capped = options.capped.or(definition.options.capped);
            if definition.options.same(&options) {
                return Ok(());
            }
            // Who may do what is no part of the schema.
            let rules = definition.options.rules.clone();
            let schema_stays = definition.options.same(&CollectionOptions { rules, ..options.clone() });
            if definition.options.protected && !schema_stays {
                return Err(DocumentsError::Protected { collection: definition.name.clone() });
            }
            let references = options.references.clone();
            tx.refer(&definition, &references)?;
            let definition = tx.definition_of(collection)?.ok_or_else(|| collection.unknown())?;
            let mut changed = definition.edit()?;
            changed.set_options(options)?;
            if references.iter().any(|reference| reference.collection == changed.name) {
                changed.referenced_by.insert(changed.id);
            }
            let room = changed.order.zip(changed.options.capped);
            let mut changed = tx.put_modified(changed)?;
            match room {
                Some((order, capped)) => tx.make_room(&mut changed, order, capped),
                None => Ok(()),
            }
        })
    }

    /// Writes a definition that has other options.
    pub(crate) fn put_modified(&mut self, changed: Definition) -> Result<Arc<Definition>, DocumentsError> {
        self.tell(&changed, "modify", |_| ());
        self.put_definition(changed, Event::Changed)
    }

    /// Tells the parents who refers to them, and those who are no parents any more.
    fn refer(
        &mut self,
        child: &Definition,
        references: &[crate::catalog::definition::Reference],
    ) -> Result<(), DocumentsError> {
        let new: BTreeSet<&str> = references.iter().map(|reference| reference.collection.as_str()).collect();
        let old: BTreeSet<&str> =
            child.options.references.iter().map(|reference| reference.collection.as_str()).collect();
        for reference in references {
            let path = &reference.field;
            if path.is_empty() || path.starts_with('$') || path == "_id" || path.contains('\0') {
                return Err(DocumentsError::InvalidOptions {
                    what: format!("a reference cannot be in field {path:?}"),
                });
            }
        }
        for name in new.union(&old).filter(|name| **name != child.name) {
            let parent = self.documents.collection(&child.database, name)?;
            let there = match self.definition_of(&parent)? {
                Some(there) => there,
                None if new.contains(name) => self.create_now(&parent)?,
                None => continue,
            };
            let mut changed = there.edit()?;
            let refers = new.contains(name);
            let differs = if refers {
                changed.referenced_by.insert(child.id)
            } else {
                changed.referenced_by.remove(&child.id)
            };
            if differs {
                self.put_definition(changed, Event::Changed)?;
            }
        }
        Ok(())
    }

    /// Gives a collection another name, in the same or another database. `replace`: what has that name is dropped.
    ///
    /// # Errors
    /// [`DocumentsError::UnknownCollection`], [`DocumentsError::CollectionExists`]; references from or to it.
    pub fn rename_collection(
        &mut self,
        from: &Collection,
        to: &Collection,
        replace: bool,
    ) -> Result<(), DocumentsError> {
        self.statement(|tx| {
            let definition = tx.definition_of(from)?.ok_or_else(|| from.unknown())?;
            if from.name() == to.name() && from.database() == to.database() {
                return Err(DocumentsError::InvalidOptions { what: "the new name is the old one".into() });
            }
            if !definition.referenced_by.is_empty() || !definition.options.references.is_empty() {
                let what = format!("collection {:?} has references; take them away first", from.name());
                return Err(DocumentsError::InvalidOptions { what });
            }
            let replaced = tx.definition_of(to)?.map(|there| there.uuid);
            if replaced.is_some() {
                if !replace {
                    let (database, collection) = (to.database().to_owned(), to.name().to_owned());
                    return Err(DocumentsError::CollectionExists { database, collection });
                }
                tx.drop_now(to)?;
            }
            tx.tell(&definition, "rename", |out| {
                out.open_document("to");
                out.put("db", Value::String(to.database()));
                out.put("coll", Value::String(to.name()));
                out.close();
                if let Some(uuid) = replaced {
                    out.put("dropTarget", Value::Binary(4, &uuid));
                }
            });
            let catalog = tx.spaces().catalog;
            let (old_name, new_name) =
                (name_key(from.database(), from.name()), name_key(to.database(), to.name()));
            tx.guard(catalog, &old_name);
            tx.guard(catalog, &new_name);
            tx.kv.delete(catalog, &old_name);
            tx.kv.put(catalog, &new_name, &definition.id.to_le_bytes());
            let (database, name) = (from.database(), from.name());
            tx.defined(definition.id, What::Definition { event: Event::Renamed, database, name });
            let mut changed = definition.edit()?;
            changed.database = to.database().to_owned();
            changed.name = to.name().to_owned();
            tx.put_definition(changed, Event::Changed)?;
            Ok(())
        })
    }

    /// Drops a collection with its documents and indexes; false when there is none.
    ///
    /// # Errors
    /// Another collection refers to it.
    pub fn drop_collection(&mut self, collection: &Collection) -> Result<bool, DocumentsError> {
        self.statement(|tx| tx.drop_now(collection))
    }

    fn drop_now(&mut self, collection: &Collection) -> Result<bool, DocumentsError> {
        let Some(definition) = self.definition_of(collection)? else { return Ok(false) };
        if let Some(child) = definition.referenced_by.iter().find(|child| **child != definition.id) {
            let child = self.definition_by_id(*child)?;
            let what = format!("collection {:?} refers to {:?}", child.name, definition.name);
            return Err(DocumentsError::InvalidOptions { what });
        }
        self.refer(&definition, &[])?;
        self.guard_definition(&definition);
        let spaces = self.spaces();
        let name = name_key(&definition.database, &definition.name);
        self.guard(spaces.catalog, &name);
        self.kv.delete(spaces.catalog, &name);
        let key = definition_key(definition.id);
        self.kv.guard_key(spaces.catalog, &key);
        self.kv.delete(spaces.catalog, &key);
        let gone = [definition.database.as_bytes(), b"\0", definition.name.as_bytes()].concat();
        self.kv.put(spaces.catalog, &gone_key(definition.id), &gone);
        // Its events are in the log, and rules hide them from some readers.
        let had_rules = u8::from(definition.rules.is_some());
        self.kv.put(spaces.catalog, &gone_rules_key(definition.id), &[had_rules]);
        for object in definition.objects().chain([definition.id]) {
            self.drop_object(object);
        }
        let (database, name) = (definition.database.as_str(), definition.name.as_str());
        self.defined(definition.id, What::Definition { event: Event::Dropped, database, name });
        Ok(true)
    }

    /// The keys of an object go when the transaction commits; nothing leads to them any more.
    fn drop_object(&mut self, object: u32) {
        let spaces = self.spaces();
        let (start, end) = object_range(object);
        self.kv.sweep_range(spaces.documents, &start, &end);
        self.kv.delete(spaces.catalog, &crate::catalog::object_key(object));
    }

    /// Drops every collection of a database; answers their names.
    ///
    /// # Errors
    /// As [`DocumentsTx::drop_collection`].
    pub fn drop_database(&mut self, database: &str) -> Result<Vec<String>, DocumentsError> {
        self.statement(|tx| {
            let prefix = crate::catalog::names_of(database);
            let end = ropewalk_base::keys::prefix_end(&prefix);
            let mut names = Vec::new();
            let catalog = tx.spaces().catalog;
            tx.kv.visit(catalog, &prefix, end.as_deref(), false, |key, _| {
                names.extend(crate::catalog::split_name(key, 1).map(|(_, name)| name.to_owned()));
                true
            })?;
            // Children go before the parents that they refer to, whatever their names are.
            let mut left: Vec<String> = names.clone();
            while !left.is_empty() {
                let mut stuck = Vec::new();
                let mut failure = None;
                for name in &left {
                    let collection = tx.documents.handle(database, name);
                    if let Err(error) = tx.within(|tx| tx.drop_now(&collection)) {
                        stuck.push(name.clone());
                        failure = Some(error);
                    }
                }
                match failure {
                    Some(error) if stuck.len() == left.len() => return Err(error),
                    _ => left = stuck,
                }
            }
            if !names.is_empty() {
                let mut event = Writer::new();
                event.put("operationType", Value::String("dropDatabase"));
                let event = event.finish();
                tx.defined(0, What::Told { database, name: "", event: event.bytes() });
            }
            Ok(names)
        })
    }

    /// Most bytes of documents that a database may hold; `None`: any.
    ///
    /// # Errors
    /// A name that no database may have.
    pub fn set_quota(&mut self, database: &str, bytes: Option<u64>) -> Result<(), DocumentsError> {
        crate::catalog::check_database(database)?;
        self.statement(|tx| {
            let mut settings = Writer::new();
            if let Some(bytes) = bytes {
                settings.put("quota", Value::Int64(i64::try_from(bytes).unwrap_or(i64::MAX)));
            }
            let (catalog, key) = (tx.spaces().catalog, crate::catalog::database_key(database));
            tx.guard(catalog, &key);
            tx.kv.put(catalog, &key, settings.finish().bytes());
            tx.defined(0, What::Definition { event: Event::Changed, database, name: "" });
            Ok(())
        })
    }

    /// Declares an index and, when `ready`, fills it in the same transaction. Answers it, and whether it is new.
    pub(crate) fn declare_index(
        &mut self,
        collection: &Collection,
        def: &IndexDef,
        ready: bool,
    ) -> Result<(Arc<Index>, bool), DocumentsError> {
        def.check(collection.name())?;
        let definition = match self.definition_of(collection)? {
            Some(definition) => definition,
            None => self.create_now(collection)?,
        };
        let name = def.name.clone().unwrap_or_else(|| def.default_name());
        if let Some(there) = same_index(&definition, &name, def)? {
            return Ok((there, false));
        }
        if definition.indexes.len() + 1 >= INDEXES_MAX {
            let what = format!("it would have more than {INDEXES_MAX} indexes");
            return Err(DocumentsError::InvalidIndex { collection: definition.name.clone(), what });
        }
        let object = self.documents.model.new_number(&self.documents.engine)?;
        // What a wildcard index holds of a document are always several entries.
        let several = def.fields.iter().any(|field| wildcard::root_of(&field.path).is_some());
        let multikey = vec![several; def.fields.len()];
        let def = IndexDef { name: Some(name.clone()), ..def.clone() };
        let index = IndexParts { object, name, def, ready, multikey }.build()?;
        let mut changed = definition.edit()?;
        changed.indexes.push(index.clone());
        if ready {
            self.tell_index(&changed, "createIndexes", &index);
        }
        self.put_definition(changed, Event::Changed)?;
        Ok((index, true))
    }

    /// Creates an index within the transaction; false when the same index is there. For collections that others write to
    /// at the same time [`Documents::create_index`] is the better way.
    ///
    /// # Errors
    /// The name or the fields are taken with other options; documents break its uniqueness.
    pub fn create_index(&mut self, collection: &Collection, def: &IndexDef) -> Result<bool, DocumentsError> {
        self.statement(|tx| {
            let (index, new) = tx.declare_index(collection, def, true)?;
            let mut next = Vec::new();
            while new && let Some(last) = tx.fill_batch(collection, &index.name, &next, BATCH)? {
                next = last;
            }
            Ok(new)
        })
    }

    /// Puts the entries of up to `limit` documents from key `next` on; answers where to go on.
    fn fill_batch(
        &mut self,
        collection: &Collection,
        name: &str,
        next: &[u8],
        limit: usize,
    ) -> Result<Option<Vec<u8>>, DocumentsError> {
        let mut definition = self.definition_of(collection)?.ok_or_else(|| collection.unknown())?;
        self.guard_definition(&definition);
        let place = definition.indexes.iter().position(|index| index.name == name);
        let unknown =
            || DocumentsError::UnknownIndex { collection: definition.name.clone(), index: name.to_owned() };
        let place = place.ok_or_else(unknown)?;
        let (start, end) = object_range(definition.id);
        let start = if next.is_empty() { start.to_vec() } else { next.to_vec() };
        let (mut found, mut bytes) = (Vec::new(), 0);
        self.walk(&start, Some(&end), false, &mut |key, value| {
            bytes += value.len();
            found.push((key.to_vec(), value.to_vec()));
            found.len() < limit && bytes < BATCH_BYTES
        })?;
        let more = found.len() >= limit || bytes >= BATCH_BYTES;
        let documents = self.spaces().documents;
        for (key, value) in &found {
            let Some(index) = definition.indexes.get(place).cloned() else { break };
            let doc = Doc::trusted(value);
            let of = entries(&definition, &index, doc, id_part(key))?;
            if of.multikey.iter().zip(&index.multikey).any(|(now, known)| *now && !known) {
                definition = self.mark_multikey(&definition, place, &of.multikey)?;
            }
            // Whoever changes the document meanwhile writes the entries of the new one; those of this one must not stay.
            self.kv.guard_key(documents, key);
            for entry in &of.entries {
                self.put_entry(&definition, &index, entry, Some(doc))?;
            }
        }
        Ok(found.pop().filter(|_| more).map(|(mut last, _)| {
            last.push(0);
            last
        }))
    }

    fn change_index(
        &mut self,
        collection: &Collection,
        name: &str,
        change: impl FnOnce(&mut IndexParts),
    ) -> Result<(), DocumentsError> {
        let definition = self.definition_of(collection)?.ok_or_else(|| collection.unknown())?;
        let there = definition.index_named(name)?;
        let index = there.with(change)?;
        let mut changed = definition.edit()?;
        match index.ready && !there.ready {
            true => self.tell_index(&changed, "createIndexes", &index),
            false => {
                self.tell(&changed, "modify", |out| out.put("index", Value::Document(told(&index).doc())))
            }
        }
        if let Some(slot) = changed.indexes.iter_mut().find(|index| index.name == name) {
            *slot = index;
        }
        self.put_definition(changed, Event::Changed)?;
        Ok(())
    }

    /// Hides an index from the planner, or shows it again.
    ///
    /// # Errors
    /// [`DocumentsError::UnknownIndex`].
    pub fn hide_index(
        &mut self,
        collection: &Collection,
        name: &str,
        hidden: bool,
    ) -> Result<(), DocumentsError> {
        self.statement(|tx| tx.change_index(collection, name, |parts| parts.def.hidden = hidden))
    }

    /// Changes after how many seconds documents of a TTL index go.
    ///
    /// # Errors
    /// [`DocumentsError::UnknownIndex`]; not one field, or not a number of seconds.
    pub fn expire_index_after(
        &mut self,
        collection: &Collection,
        name: &str,
        seconds: i64,
    ) -> Result<(), DocumentsError> {
        self.statement(|tx| {
            let definition = tx.definition_of(collection)?.ok_or_else(|| collection.unknown())?;
            let index = definition.index_named(name)?;
            let def = IndexDef { expire_after_seconds: Some(seconds), ..index.def.clone() };
            def.check(&definition.name)?;
            tx.change_index(collection, name, |parts| parts.def = def)
        })
    }

    /// Drops an index.
    ///
    /// # Errors
    /// [`DocumentsError::UnknownIndex`]; the index on `_id` stays.
    pub fn drop_index(&mut self, collection: &Collection, name: &str) -> Result<(), DocumentsError> {
        self.statement(|tx| {
            if name == crate::catalog::definition::ID_INDEX {
                return Err(DocumentsError::InvalidOptions { what: "the index on _id stays".into() });
            }
            let definition = tx.definition_of(collection)?.ok_or_else(|| collection.unknown())?;
            let index = definition.index_named(name)?;
            let mut changed = definition.edit()?;
            changed.indexes.retain(|index| index.name != name);
            tx.drop_object(index.object);
            if index.ready {
                tx.tell_index(&changed, "dropIndexes", index);
            }
            tx.put_definition(changed, Event::Changed)?;
            Ok(())
        })
    }
}

/// What change streams that show more than documents tell of a definition.
impl DocumentsTx<'_> {
    fn tell(&mut self, definition: &Definition, operation: &str, describe: impl FnOnce(&mut Writer)) {
        let mut event = Writer::new();
        event.put("operationType", Value::String(operation));
        event.put("collectionUUID", Value::Binary(4, &definition.uuid));
        event.open_document("operationDescription");
        describe(&mut event);
        event.close();
        let event = event.finish();
        let (database, name) = (definition.database.as_str(), definition.name.as_str());
        self.defined(definition.id, What::Told { database, name, event: event.bytes() });
    }

    fn tell_created(&mut self, definition: &Definition) {
        self.tell(definition, "create", |out| {
            out.open_document("idIndex");
            out.put("v", Value::Int32(2));
            out.open_document("key");
            out.put("_id", Value::Int32(1));
            out.close();
            out.put("name", Value::String(crate::catalog::definition::ID_INDEX));
            out.close();
            if let Some(validator) = &definition.options.validator {
                out.put("validator", Value::Document(validator.doc()));
            }
        });
    }

    fn tell_index(&mut self, definition: &Definition, operation: &str, index: &Index) {
        self.tell(definition, operation, |out| {
            out.open_array("indexes");
            out.put("", Value::Document(told(index).doc()));
            out.close();
        });
    }
}

/// An index in the words of change streams.
fn told(index: &Index) -> DocBuf {
    let mut out = Writer::new();
    out.put("v", Value::Int32(2));
    out.open_document("key");
    for field in &index.def.fields {
        out.put(&field.path, Value::Int32(if field.descending { -1 } else { 1 }));
    }
    out.close();
    out.put("name", Value::String(&index.name));
    out.finish()
}

/// The index that `def` asks for, if it is there.
fn same_index(
    definition: &Definition,
    name: &str,
    def: &IndexDef,
) -> Result<Option<Arc<Index>>, DocumentsError> {
    let bytes = |def: &IndexDef| def.partial.as_ref().map(|partial| partial.bytes().to_vec());
    let fields = |def: &IndexDef| {
        def.fields.iter().map(|field| (field.path.clone(), field.descending)).collect::<Vec<_>>()
    };
    let same = |there: &IndexDef| {
        (there.unique, there.sparse, there.expire_after_seconds)
            == (def.unique, def.sparse, def.expire_after_seconds)
            && bytes(there) == bytes(def)
    };
    for index in &definition.indexes {
        let (same_name, same_fields) = (index.name == name, fields(&index.def) == fields(def));
        if same_name && same_fields && same(&index.def) {
            return Ok(Some(index.clone()));
        }
        // The same fields may be indexed again under another filter.
        if same_name || same_fields && bytes(&index.def) == bytes(def) {
            let (collection, index) = (definition.name.clone(), index.name.clone());
            return Err(DocumentsError::IndexExists { collection, index, same_name });
        }
    }
    Ok(None)
}

impl Documents {
    /// Creates an index while others read and write the collection. Readers use it when it is complete. Called again with
    /// the same definition it goes on with one that was cut off; false when the same index is there and complete.
    ///
    /// # Errors
    /// The name or the fields are taken with other options. Documents break its uniqueness: nothing is left of the index
    /// then.
    pub fn create_index(&self, collection: &Collection, def: &IndexDef) -> Result<bool, DocumentsError> {
        let (index, new) = self
            .transact(Durability::Sync, |tx| tx.statement(|tx| tx.declare_index(collection, def, false)))?;
        if index.ready {
            return Ok(new);
        }
        self.fill(collection, &index.name).inspect_err(|_| {
            // What is half built is of no use; if even this fails it can be dropped by hand.
            let _ = self.transact(Durability::Sync, |tx| tx.drop_index(collection, &index.name));
        })?;
        Ok(true)
    }

    fn fill(&self, collection: &Collection, name: &str) -> Result<(), DocumentsError> {
        let mut batch = BATCH;
        let mut next = Vec::new();
        loop {
            let filled = self.attempt(Durability::Buffered, |tx| {
                tx.statement(|tx| tx.fill_batch(collection, name, &next, batch))
            });
            match filled {
                Ok(Some(last)) => {
                    next = last;
                    batch = (batch * 2).min(BATCH);
                }
                Ok(None) => break,
                Err(DocumentsError::Conflict { seq, .. }) => {
                    batch = (batch / 2).max(1);
                    self.engine.wait_visible(seq, Duration::from_secs(1));
                }
                Err(error) => return Err(error),
            }
        }
        self.transact(Durability::Sync, |tx| {
            tx.statement(|tx| tx.change_index(collection, name, |parts| parts.ready = true))
        })
    }
}
