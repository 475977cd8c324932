//! Typed documents: values of an application's types, stored as BSON by serde; filters and updates of `doc!`.
//!
//! ```text
//! T ─▶ serde ─▶ BSON ─▶ Collection or DocumentsTx ─▶ BSON ─▶ serde ─▶ T
//! ```
//! Not here: schemas. A stored document that does not fit the type is an error of the read that meets it.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use bson::{Bson, Document};
use ropewalk_engine::Durability;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{DocumentsError, Result};
use crate::lang::error::LangResult;
use crate::lang::{self, Code, DocBuf, Filter, LangError, Owned, Sort, Update, Value, Writer};
use crate::model::handle::Collection;
use crate::query::read::Find;
use crate::transaction::tx::DocumentsTx;
use crate::write::statements::{UpdateSpec, Updated};

fn encoded(document: &impl Serialize) -> LangResult<DocBuf> {
    let bytes = bson::serialize_to_vec(document)
        .map_err(|error| LangError::new(Code::InvalidBSON, error.to_string()))?;
    DocBuf::check(bytes)
}

fn filter_of(filter: &Document, now_ms: i64) -> LangResult<Filter> {
    Filter::parse(encoded(filter)?.doc(), &lang::Options { now_ms, ..Default::default() })
}

fn update_of(update: &Document, now_ms: i64) -> LangResult<Update> {
    let (update, options) = (encoded(update)?, lang::Options { now_ms, ..Default::default() });
    Update::parse(Value::Document(update.doc()), None, &options)
}

/// Parses the filter; `$$NOW` in it is the system time of the conversion.
impl TryFrom<Document> for Filter {
    type Error = DocumentsError;

    fn try_from(filter: Document) -> Result<Self> {
        Ok(filter_of(&filter, bson::DateTime::now().timestamp_millis())?)
    }
}

/// Parses an update of operators or a replacement; `$$NOW` in it is the system time of the conversion.
impl TryFrom<Document> for Update {
    type Error = DocumentsError;

    fn try_from(update: Document) -> Result<Self> {
        Ok(update_of(&update, bson::DateTime::now().timestamp_millis())?)
    }
}

/// Parses a sort, such as `doc! { "age": -1 }`.
impl TryFrom<Document> for Sort {
    type Error = DocumentsError;

    fn try_from(sort: Document) -> Result<Self> {
        Ok(Self::parse(encoded(&sort)?.doc())?)
    }
}

/// A collection whose documents are values of `T`. Cheap to clone.
///
/// The field `_id` of a document is its key: a field of `T` called or renamed to `_id`. A `T` without one
/// gets an ObjectId when it is inserted. Each write is a commit; [`TypedCollection::within`] writes in a
/// transaction. Errors name the collection.
pub struct TypedCollection<T> {
    collection: Collection,
    durability: Durability,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for TypedCollection<T> {
    fn clone(&self) -> Self {
        Self { collection: self.collection.clone(), durability: self.durability, of: PhantomData }
    }
}

impl<T> fmt::Debug for TypedCollection<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {}", self.collection, type_name::<T>())
    }
}

impl Collection {
    /// The collection with documents of type `T`. Stored documents are not checked against it.
    pub fn typed<T>(&self) -> TypedCollection<T> {
        TypedCollection { collection: self.clone(), durability: Durability::Sync, of: PhantomData }
    }

    fn encode(&self, document: &impl Serialize) -> Result<DocBuf> {
        encoded(document).map_err(|error| self.named(error.into()))
    }

    fn decode<T: DeserializeOwned>(&self, document: &DocBuf) -> Result<T> {
        bson::deserialize_from_slice(document.bytes()).map_err(|error| DocumentsError::Undecoded {
            collection: self.name().to_owned(),
            id: document.doc().get("_id").map_or_else(String::new, |id| id.to_string()),
            wanted: type_name::<T>(),
            source: Box::new(error),
        })
    }

    fn filter(&self, filter: &Document) -> Result<Filter> {
        filter_of(filter, self.documents().now_ms()).map_err(|error| self.named(error.into()))
    }

    fn by_id(&self, id: Bson) -> Result<DocBuf> {
        self.encode(&bson::doc! { "_id": id })
    }

    /// Combines a filter and an update, which must consist of operators.
    fn changes(&self, filter: &Document, update: &Document) -> Result<UpdateSpec> {
        let update = update_of(update, self.documents().now_ms()).and_then(|update| match update {
            update if !update.is_replacement() => Ok(update),
            _ => Err(LangError::new(
                Code::FailedToParse,
                "an update consists of operators such as $set; `replace` takes whole documents",
            )),
        });
        let update = update.map_err(|error| self.named(error.into()))?;
        Ok(UpdateSpec::new(self.filter(filter)?, update))
    }

    fn replacement(&self, id: Bson, document: &impl Serialize) -> Result<UpdateSpec> {
        let (id, document) = (self.by_id(id)?, self.encode(document)?);
        let filter = Filter::equals("_id", id_of(&id));
        let update = Update::parse(Value::Document(document.doc()), None, &lang::Options::default());
        let update = update.map_err(|error| self.named(error.into()))?;
        if !update.is_replacement() {
            let what = "a stored document cannot have a field that begins with a dollar";
            return Err(self.named(LangError::new(Code::DollarPrefixedFieldName, what).into()));
        }
        Ok(UpdateSpec::new(filter, update))
    }
}

fn id_of(document: &DocBuf) -> Value<'_> {
    document.doc().get("_id").unwrap_or(Value::Null)
}

/// An `_id` as the type of the crate bson.
fn bson_of(id: &Owned) -> Bson {
    let mut writer = Writer::new();
    writer.put("_id", id.value());
    let document: Option<Document> = bson::deserialize_from_slice(writer.finish().bytes()).ok();
    document.and_then(|mut document| document.remove("_id")).unwrap_or(Bson::Null)
}

impl<T> TypedCollection<T> {
    /// The untyped collection, for indexes, pipelines, change streams and other updates.
    pub fn collection(&self) -> &Collection {
        &self.collection
    }

    /// Returns the collection with another durability of its writes. Default: [`Durability::Sync`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The same collection within a transaction, whose `documents()` this takes.
    pub fn within<'t>(&self, tx: DocumentsTx<'t>) -> TypedTx<'t, T> {
        TypedTx { collection: self.collection.clone(), tx, of: PhantomData }
    }

    /// Changes all documents that match `filter` by the operators of `update`, in one commit.
    ///
    /// # Errors
    /// A filter or update that does not parse, or is a replacement; an update that does not fit a document.
    pub fn update(&self, filter: Document, update: Document) -> Result<Updated> {
        let spec = self.collection.changes(&filter, &update)?;
        match spec.filter.only_id() {
            Some(_) => self.collection.update_one(&spec, self.durability),
            None => self.collection.update_many(&spec, self.durability),
        }
    }

    /// Deletes all documents that match `filter`, in one commit; returns how many.
    ///
    /// # Errors
    /// A filter that does not parse; a reference that forbids it.
    pub fn delete(&self, filter: Document) -> Result<u64> {
        let filter = self.collection.filter(&filter)?;
        match filter.only_id() {
            Some(_) => self.collection.delete_one(&filter, self.durability).map(u64::from),
            None => self.collection.delete_many(&filter, self.durability),
        }
    }
}

impl<T: Serialize> TypedCollection<T> {
    /// Inserts a document and returns its `_id`.
    ///
    /// # Errors
    /// [`DocumentsError::Duplicate`]; a value that does not serialize to a document; a rule that it
    /// violates.
    pub fn insert(&self, document: &T) -> Result<Bson> {
        let document = self.collection.encode(document)?;
        Ok(bson_of(&self.collection.insert_one(document.bytes(), self.durability)?))
    }

    /// Replaces the document with this `_id`; false when it does not exist.
    ///
    /// # Errors
    /// A document with another `_id`; as [`TypedCollection::insert`].
    pub fn replace(&self, id: impl Into<Bson>, document: &T) -> Result<bool> {
        let spec = self.collection.replacement(id.into(), document)?;
        Ok(self.collection.update_one(&spec, self.durability)?.matched > 0)
    }
}

impl<T: DeserializeOwned> TypedCollection<T> {
    /// The document with this `_id`, as of the newest commit. Cost: one lookup.
    ///
    /// # Errors
    /// [`DocumentsError::Undecoded`]; damage.
    pub fn get(&self, id: impl Into<Bson>) -> Result<Option<T>> {
        let id = self.collection.by_id(id.into())?;
        let found = self.collection.get(id_of(&id))?;
        found.map(|document| self.collection.decode(&document)).transpose()
    }

    /// The documents that match `filter`, as of the newest commit. Memory: one page of documents.
    ///
    /// # Errors
    /// A filter that does not parse. Items: [`DocumentsError::Undecoded`], after which the iterator
    /// continues; damage.
    pub fn find(&self, filter: Document) -> Result<impl Iterator<Item = Result<T, DocumentsError>> + use<T>> {
        self.find_with(&Find::matching(self.collection.filter(&filter)?))
    }

    /// As [`TypedCollection::find`], with a sort, a limit or a hint. A projection must leave what `T` needs.
    ///
    /// # Errors
    /// As [`TypedCollection::find`]; an unknown hint; a sort that takes too much memory.
    pub fn find_with(&self, find: &Find) -> Result<impl Iterator<Item = Result<T, DocumentsError>> + use<T>> {
        let collection = self.collection.clone();
        let cursor = collection.find(find).map_err(|error| collection.named(error))?;
        Ok(cursor.map(move |document| {
            let document = document.map_err(|error| collection.named(error))?;
            collection.decode(&document)
        }))
    }
}

/// A [`TypedCollection`] within a transaction: it sees the transaction's writes, and what it reads counts for
/// its isolation.
pub struct TypedTx<'t, T> {
    collection: Collection,
    tx: DocumentsTx<'t>,
    of: PhantomData<fn() -> T>,
}

impl<T> TypedTx<'_, T> {
    /// As [`TypedCollection::update`], as a part of the transaction.
    ///
    /// # Errors
    /// As [`TypedCollection::update`].
    pub fn update(&mut self, filter: Document, update: Document) -> Result<Updated> {
        let spec = self.collection.changes(&filter, &update)?;
        self.tx.update_many(&self.collection, &spec)
    }

    /// As [`TypedCollection::delete`], as a part of the transaction.
    ///
    /// # Errors
    /// As [`TypedCollection::delete`].
    pub fn delete(&mut self, filter: Document) -> Result<u64> {
        let filter = self.collection.filter(&filter)?;
        self.tx.delete_many(&self.collection, &filter)
    }
}

impl<T: Serialize> TypedTx<'_, T> {
    /// As [`TypedCollection::insert`], as a part of the transaction.
    ///
    /// # Errors
    /// As [`TypedCollection::insert`].
    pub fn insert(&mut self, document: &T) -> Result<Bson> {
        let document = self.collection.encode(document)?;
        Ok(bson_of(&self.tx.insert_one(&self.collection, document.bytes())?))
    }

    /// As [`TypedCollection::replace`], as a part of the transaction.
    ///
    /// # Errors
    /// As [`TypedCollection::replace`].
    pub fn replace(&mut self, id: impl Into<Bson>, document: &T) -> Result<bool> {
        let spec = self.collection.replacement(id.into(), document)?;
        Ok(self.tx.update_one(&self.collection, &spec)?.matched > 0)
    }
}

impl<T: DeserializeOwned> TypedTx<'_, T> {
    /// The document with this `_id`. Cost: one lookup.
    ///
    /// # Errors
    /// [`DocumentsError::Undecoded`]; damage.
    pub fn get(&mut self, id: impl Into<Bson>) -> Result<Option<T>> {
        let id = self.collection.by_id(id.into())?;
        let found = self.tx.get(&self.collection, id_of(&id))?;
        found.map(|document| self.collection.decode(&document)).transpose()
    }

    /// The documents that match `filter`, all in memory.
    ///
    /// # Errors
    /// As [`TypedCollection::find`]; [`DocumentsError::Undecoded`] for the first that does not decode.
    pub fn find(&mut self, filter: Document) -> Result<Vec<T>> {
        self.find_with(&Find::matching(self.collection.filter(&filter)?))
    }

    /// As [`TypedTx::find`], with a sort, a limit or a hint.
    ///
    /// # Errors
    /// As [`TypedTx::find`]; an unknown hint; a sort that takes too much memory.
    pub fn find_with(&mut self, find: &Find) -> Result<Vec<T>> {
        let found = self.tx.find(&self.collection, find).map_err(|error| self.collection.named(error))?;
        found.iter().map(|document| self.collection.decode(document)).collect()
    }
}
