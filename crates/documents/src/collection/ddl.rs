//! Collections: create, alter, rename and drop; quotas of databases.

use std::collections::BTreeSet;

use ropewalk_engine::{Durability, KeySpan};

use crate::catalog::definition::{CollectionOptions, Definition};
use crate::catalog::{definition_key, gone_key, gone_rules_key, name_key, object_range};
use crate::error::{DocumentsError, Result};
use crate::lang::{Value, Writer};
use crate::model::commit_section::{Event, What};
use crate::model::handle::Collection;
use crate::transaction::source::Source;
use crate::transaction::tx::DocumentsTx;

impl DocumentsTx<'_> {
    /// True if the collection exists, for this transaction.
    ///
    /// # Errors
    /// Damage.
    pub fn has_collection(&mut self, collection: &Collection) -> Result<bool> {
        self.begin();
        Ok(self.definition_of(collection)?.is_some())
    }

    /// Creates a collection; false when it exists with the same options.
    ///
    /// # Errors
    /// [`DocumentsError::CollectionExists`] when it exists with other options; invalid options.
    pub fn create_collection(&mut self, collection: &Collection, options: CollectionOptions) -> Result<bool> {
        self.statement(|tx| {
            if tx.view_of(collection)?.is_some() {
                let (database, collection) = (collection.database().to_owned(), collection.name().to_owned());
                return Err(DocumentsError::CollectionExists { database, collection });
            }
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
            // `refer` skips a reference of a collection to itself, so it is recorded here.
            if references.iter().any(|reference| reference.collection == definition.name) {
                definition.referenced_by.insert(definition.id);
            }
            tx.tell_created(&definition);
            tx.put_definition(definition, Event::Created)?;
            Ok(true)
        })
    }

    /// Creates an empty collection with the options and indexes of another one.
    ///
    /// # Errors
    /// [`DocumentsError::UnknownCollection`], [`DocumentsError::CollectionExists`]; references from or to the
    /// other one.
    pub fn create_collection_like(&mut self, like: &Collection, collection: &Collection) -> Result<()> {
        self.statement(|tx| {
            let model = tx.definition_of(like)?.ok_or_else(|| like.unknown())?;
            tx.guard_definition(&model);
            check_no_references(&model)?;
            if tx.definition_of(collection)?.is_some() {
                let (database, collection) = (collection.database().to_owned(), collection.name().to_owned());
                return Err(DocumentsError::CollectionExists { database, collection });
            }
            tx.create_collection(collection, model.options.clone())?;
            for index in &model.indexes {
                let made = tx.definition_of(collection)?.ok_or_else(|| collection.unknown())?;
                tx.put_index(&made, index.name.clone(), &index.def, true)?;
            }
            Ok(())
        })
    }

    /// Gives a collection the access rules of another one, if both exist.
    ///
    /// # Errors
    /// Damage.
    pub fn copy_rules(&mut self, from: &Collection, to: &Collection) -> Result<()> {
        self.statement(|tx| {
            let (Some(model), Some(there)) = (tx.definition_of(from)?, tx.definition_of(to)?) else {
                return Ok(());
            };
            tx.guard_definition(&model);
            let rules = model.options.rules.clone();
            tx.set_options(to, CollectionOptions { rules, ..there.options.clone() })
        })
    }

    /// Replaces the options of a collection. Existing documents are not checked.
    ///
    /// # Errors
    /// [`DocumentsError::Protected`]; invalid options.
    pub fn set_options(&mut self, collection: &Collection, mut options: CollectionOptions) -> Result<()> {
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
            // Access rules are not part of the schema.
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

    /// Records the child in the definitions of its parents, and removes it from those of former parents.
    fn refer(
        &mut self,
        child: &Definition,
        references: &[crate::catalog::definition::Reference],
    ) -> Result<()> {
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

    /// Renames a collection, within its database or to another. With `replace` a collection that has the new
    /// name is dropped.
    ///
    /// # Errors
    /// [`DocumentsError::UnknownCollection`], [`DocumentsError::CollectionExists`]; references from or to it.
    pub fn rename_collection(&mut self, from: &Collection, to: &Collection, replace: bool) -> Result<()> {
        self.statement(|tx| {
            let definition = tx.definition_of(from)?.ok_or_else(|| from.unknown())?;
            if from.name() == to.name() && from.database() == to.database() {
                return Err(DocumentsError::InvalidOptions { what: "the new name equals the old".into() });
            }
            check_no_references(&definition)?;
            // A collection that has such a name may change its database.
            if from.name() != to.name() {
                tx.check_unreserved(to)?;
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

    /// Drops a collection with its documents and indexes, or a view. Returns false if it does not exist.
    ///
    /// # Errors
    /// Another collection refers to it.
    pub fn drop_collection(&mut self, collection: &Collection) -> Result<bool> {
        self.statement(|tx| {
            Ok(tx.drop_view(collection.database(), collection.name())? || tx.drop_now(collection)?)
        })
    }

    fn drop_now(&mut self, collection: &Collection) -> Result<bool> {
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
        // Its events remain in the log, and rules hide them from some readers.
        let had_rules = u8::from(definition.rules.is_some());
        self.kv.put(spaces.catalog, &gone_rules_key(definition.id), &[had_rules]);
        for object in definition.objects().chain([definition.id]) {
            self.drop_object(object);
        }
        let (database, name) = (definition.database.as_str(), definition.name.as_str());
        self.defined(definition.id, What::Definition { event: Event::Dropped, database, name });
        Ok(true)
    }

    /// Deletes the keys of an object when the transaction commits; nothing refers to them any more.
    pub(crate) fn drop_object(&mut self, object: u32) {
        let spaces = self.spaces();
        let (start, end) = object_range(object);
        self.kv.sweep_range(spaces.documents, &start, &end);
        self.kv.delete(spaces.catalog, &crate::catalog::object_key(object));
    }

    /// Drops every collection of a database; returns their names.
    ///
    /// # Errors
    /// As [`DocumentsTx::drop_collection`].
    pub fn drop_database(&mut self, database: &str) -> Result<Vec<String>> {
        self.statement(|tx| {
            let prefix = crate::catalog::names_of(database);
            let end = ropewalk_base::keys::prefix_end(&prefix);
            let mut names = tx.names_below(&prefix, end.as_deref())?;
            let views = crate::catalog::view::view_key(database, "");
            let views = tx.names_below(&views, ropewalk_base::keys::prefix_end(&views).as_deref())?;
            for name in &views {
                tx.drop_view(database, name)?;
            }
            // Children are dropped before the parents that they refer to, whatever their names are.
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
            names.extend(views);
            if !names.is_empty() {
                let mut event = Writer::new();
                event.put("operationType", Value::String("dropDatabase"));
                let event = event.finish();
                tx.defined(0, What::Told { database, name: "", event: event.bytes() });
            }
            Ok(names)
        })
    }

    /// The names in a range of the catalog's keys.
    fn names_below(&mut self, start: &[u8], end: Option<&[u8]>) -> Result<Vec<String>> {
        let (mut names, catalog) = (Vec::new(), self.spaces().catalog);
        self.kv.visit(catalog, KeySpan::forward(start, end), |key, _| {
            names.extend(crate::catalog::split_name(key, 1).map(|(_, name)| name.to_owned()));
            true
        })?;
        Ok(names)
    }

    /// Most bytes of documents that a database may hold; `None`: any.
    ///
    /// # Errors
    /// A name that no database may have.
    pub fn set_quota(&mut self, database: &str, bytes: Option<u64>) -> Result<()> {
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
}

/// Rejects a collection that has references, or that others refer to.
fn check_no_references(definition: &Definition) -> Result<()> {
    if definition.referenced_by.is_empty() && definition.options.references.is_empty() {
        return Ok(());
    }
    let what = format!("collection {:?} has references; remove them first", definition.name);
    Err(DocumentsError::InvalidOptions { what })
}

/// Changes, each as a durable commit.
impl Collection {
    /// Creates the collection; false when it exists with the same options.
    ///
    /// # Errors
    /// As [`DocumentsTx::create_collection`].
    pub fn create(&self, options: CollectionOptions) -> Result<bool> {
        self.documents().transact(Durability::Sync, |tx| tx.create_collection(self, options.clone()))
    }

    /// Replaces the options of the collection.
    ///
    /// # Errors
    /// As [`DocumentsTx::set_options`].
    pub fn set_options(&self, options: CollectionOptions) -> Result<()> {
        self.documents().transact(Durability::Sync, |tx| tx.set_options(self, options.clone()))
    }

    /// Drops the collection. Returns false if it does not exist.
    ///
    /// # Errors
    /// As [`DocumentsTx::drop_collection`].
    pub fn drop_collection(&self) -> Result<bool> {
        self.documents().transact(Durability::Sync, |tx| tx.drop_collection(self))
    }
}
