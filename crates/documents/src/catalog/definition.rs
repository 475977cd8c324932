//! Definition of a collection: names, indexes, validation and access rules. Stored as a BSON document in the
//! catalog.
//!
//! ```text
//! { id, version, database, name, uuid,
//!   options: { validator, moderate, protected, rules }, capped: { order, bytes, documents },
//!   references: [ { field, collection, onDelete } ], referencedBy: [ id ],
//!   indexes: [ { object, name, key: { path: 1 | -1 }, unique, sparse, hidden, ready, partial, expireAfterSeconds,
//!               collation, multikey: [ ] } ] }
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::catalog::capped::CappedLimits;
use crate::error::{DocumentsError, Result};
use crate::lang::key::IndexField;
use crate::lang::{Collation, Doc, DocBuf, Filter, Options, Patterns, Value, Writer};
use crate::rules::{Access, Caller, Rules};

/// Most indexes of one collection, as in MongoDB.
pub const INDEXES_MAX: usize = 64;
/// Most fields of one index.
pub const INDEX_FIELDS_MAX: usize = 32;
/// Name of the index that every collection has.
pub const ID_INDEX: &str = "_id_";

/// Action on referring documents when the referenced document is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDelete {
    /// It cannot be deleted.
    Restrict,
    /// Their field becomes null.
    SetNull,
    /// They are deleted, too.
    Cascade,
}

impl OnDelete {
    fn name(self) -> &'static str {
        match self {
            Self::Restrict => "restrict",
            Self::SetNull => "set_null",
            Self::Cascade => "cascade",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Restrict, Self::SetNull, Self::Cascade].into_iter().find(|action| action.name() == name)
    }
}

/// A field that holds the `_id` of a document of another collection, or null, or is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Dotted path; where it leads through arrays, every element refers.
    pub field: String,
    /// The collection that is referred to, in the same database.
    pub collection: String,
    /// The action when the referenced document is deleted.
    pub on_delete: OnDelete,
}

/// The last part of a wildcard index's only path.
pub(crate) const WILDCARD: &str = "$**";

/// The path below which a wildcard index on `path` holds everything; `None` for another path.
pub(crate) fn wildcard_root(path: &str) -> Option<&str> {
    let root = path.strip_suffix(WILDCARD)?;
    if root.is_empty() { Some(root) } else { root.strip_suffix('.') }
}

/// The rules of a collection's documents.
#[derive(Clone, Default)]
pub struct CollectionOptions {
    /// A filter that every document written has to match.
    pub validator: Option<DocBuf>,
    /// Documents that already violate the validator may be changed freely.
    pub moderate: bool,
    /// The validator cannot be replaced or removed.
    pub protected: bool,
    /// Fields that refer to other collections.
    pub references: Vec<Reference>,
    /// Access rules, CEL expressions by operation: see [`crate::Caller`].
    pub rules: Option<DocBuf>,
    /// The collection is capped: it retains documents in insertion order, up to these limits. When an
    /// existing collection is altered, `None` leaves its limits unchanged.
    pub capped: Option<CappedLimits>,
}

impl CollectionOptions {
    pub(crate) fn same(&self, other: &Self) -> bool {
        let of = |doc: &Option<DocBuf>| doc.as_ref().map(|doc| doc.bytes().to_vec());
        let bytes = |options: &Self| (of(&options.validator), of(&options.rules));
        bytes(self) == bytes(other)
            && (self.moderate, self.protected) == (other.moderate, other.protected)
            && self.references == other.references
            && self.capped == other.capped
    }
}

/// Definition of an index to create.
#[derive(Clone, Default)]
pub struct IndexDef {
    /// Its name; by default fields and directions, joined: `city_1_age_-1`.
    pub name: Option<String>,
    /// Paths and directions, in order.
    pub fields: Vec<IndexField>,
    /// No two documents may have the same values.
    pub unique: bool,
    /// Documents that have none of the fields are left out.
    pub sparse: bool,
    /// The planner does not use it; writes still maintain it.
    pub hidden: bool,
    /// Only documents that match are in it.
    pub partial: Option<DocBuf>,
    /// Documents are removed that many seconds after the date in the field.
    pub expire_after_seconds: Option<i64>,
    /// The order of text in it, if not that of its bytes.
    pub collation: Option<Collation>,
}

impl IndexDef {
    /// An index on `fields`, ascending; a minus in front of a path makes it descending.
    pub fn on<'p>(fields: impl IntoIterator<Item = &'p str>) -> Self {
        let field = |path: &str| match path.strip_prefix('-') {
            Some(path) => IndexField { path: path.to_owned(), descending: true },
            None => IndexField { path: path.to_owned(), descending: false },
        };
        Self { fields: fields.into_iter().map(field).collect(), ..Self::default() }
    }

    /// Makes it unique.
    #[must_use]
    pub fn unique(mut self) -> Self {
        self.unique = true;
        self
    }

    /// Leaves out documents that have none of the fields.
    #[must_use]
    pub fn sparse(mut self) -> Self {
        self.sparse = true;
        self
    }

    /// Hides it from the planner.
    #[must_use]
    pub fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    /// Leaves out documents that do not match `filter`.
    #[must_use]
    pub fn partial(mut self, filter: DocBuf) -> Self {
        self.partial = Some(filter);
        self
    }

    /// Removes documents that many seconds after the date in the field.
    #[must_use]
    pub fn expire_after(mut self, seconds: i64) -> Self {
        self.expire_after_seconds = Some(seconds);
        self
    }

    /// Orders text by a collation.
    #[must_use]
    pub fn collated(mut self, collation: Collation) -> Self {
        self.collation = Some(collation);
        self
    }

    /// Gives it a name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    pub(crate) fn default_name(&self) -> String {
        let part = |field: &IndexField| format!("{}_{}", field.path, if field.descending { -1 } else { 1 });
        self.fields.iter().map(part).collect::<Vec<_>>().join("_")
    }

    pub(crate) fn check(&self, collection: &str) -> Result<()> {
        let refuse = |what: &str| {
            Err(DocumentsError::InvalidIndex { collection: collection.to_owned(), what: what.to_owned() })
        };
        if self.fields.is_empty() || self.fields.len() > INDEX_FIELDS_MAX {
            return refuse("it has between 1 and 32 fields");
        }
        let mut seen = BTreeSet::new();
        if self.fields.iter().any(|field| wildcard_root(&field.path).is_some()) {
            let plain = self.fields.len() == 1 && !self.fields.iter().any(|field| field.descending);
            let special = self.unique || self.sparse || self.expire_after_seconds.is_some();
            if !plain || special || self.collation.is_some() {
                return refuse(
                    "a wildcard index has one field, ascending, and is not unique, sparse or TTL, without a collation",
                );
            }
        }
        for field in &self.fields {
            let path = wildcard_root(&field.path).filter(|root| !root.is_empty()).unwrap_or(&field.path);
            if path == WILDCARD {
                continue;
            }
            let bad = path.is_empty()
                || path.split('.').any(|part| part.is_empty() || part.starts_with('$'))
                || path.contains(['\0', '*']);
            if bad {
                return refuse(&format!("{:?} is not a valid path", field.path));
            }
            if !seen.insert(&field.path) {
                return refuse(&format!("{:?} occurs twice", field.path));
            }
        }
        if self.sparse && self.partial.is_some() {
            return refuse("sparse and partial cannot be combined");
        }
        match self.expire_after_seconds {
            Some(_) if self.fields.len() != 1 => return refuse("expireAfterSeconds takes one field"),
            Some(_) if self.fields.iter().any(|field| field.path == "_id") => {
                return refuse("expireAfterSeconds cannot be on _id");
            }
            Some(seconds) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
                return refuse("expireAfterSeconds is between 0 and 2147483647");
            }
            _ => {}
        }
        if let Some(name) = &self.name
            && (name.is_empty() || name.contains('\0') || name == ID_INDEX || name == "*")
        {
            return refuse(&format!("{name:?} is not a valid name"));
        }
        if let Some(partial) = &self.partial {
            Filter::parse(partial.doc(), &self.options())?;
        }
        Ok(())
    }

    /// The options of its partial filter.
    fn options(&self) -> Options {
        Options { collation: self.collation.clone(), ..Options::default() }
    }

    /// Checks the filter of a new partial index. Indexes of earlier versions may have others.
    pub(crate) fn check_partial(&self, collection: &str) -> Result<()> {
        let Some(partial) = &self.partial else { return Ok(()) };
        // With $$NOW or random numbers an entry that is there could not be found again.
        if Filter::parse(partial.doc(), &self.options())?.has_expression() {
            let what = "a partial filter takes no $expr and no $sampleRate".to_owned();
            return Err(DocumentsError::InvalidIndex { collection: collection.to_owned(), what });
        }
        Ok(())
    }
}

/// A secondary index.
pub struct Index {
    pub(crate) object: u32,
    pub(crate) name: String,
    pub(crate) def: IndexDef,
    /// Complete: readers may use it.
    pub(crate) ready: bool,
    /// By field: some document had an array on its path.
    pub(crate) multikey: Vec<bool>,
    /// The filter of a partial one.
    pub(crate) partial: Option<Filter>,
}

impl Index {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it was made.
    pub fn def(&self) -> &IndexDef {
        &self.def
    }

    /// Complete: the planner may use it.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Some document had an array on the path of a field.
    pub fn is_multikey(&self) -> bool {
        self.multikey.contains(&true)
    }

    pub(crate) fn fields(&self) -> &[IndexField] {
        &self.def.fields
    }

    pub(crate) fn collation(&self) -> Option<&Collation> {
        self.def.collation.as_ref()
    }

    pub(crate) fn pattern(&self) -> DocBuf {
        pattern(&self.def.fields)
    }

    pub(crate) fn with(&self, change: impl FnOnce(&mut IndexParts)) -> Result<Arc<Self>> {
        let mut parts = IndexParts {
            object: self.object,
            name: self.name.clone(),
            def: self.def.clone(),
            ready: self.ready,
            multikey: self.multikey.clone(),
        };
        change(&mut parts);
        parts.build()
    }

    fn put(&self, out: &mut Writer) {
        out.put("object", Value::Int64(i64::from(self.object)));
        out.put("name", Value::String(&self.name));
        out.put("key", Value::Document(self.pattern().doc()));
        out.put("unique", Value::Bool(self.def.unique));
        out.put("sparse", Value::Bool(self.def.sparse));
        out.put("hidden", Value::Bool(self.def.hidden));
        out.put("ready", Value::Bool(self.ready));
        if let Some(partial) = &self.def.partial {
            out.put("partial", Value::Document(partial.doc()));
        }
        if let Some(seconds) = self.def.expire_after_seconds {
            out.put("expireAfterSeconds", Value::Int64(seconds));
        }
        if let Some(collation) = &self.def.collation {
            out.put("collation", Value::Document(collation.spec()));
        }
        out.open_array("multikey");
        for (place, multikey) in self.multikey.iter().enumerate() {
            out.put(&place.to_string(), Value::Bool(*multikey));
        }
        out.close();
    }
}

/// The parts of an index under construction.
pub(crate) struct IndexParts {
    pub(crate) object: u32,
    pub(crate) name: String,
    pub(crate) def: IndexDef,
    pub(crate) ready: bool,
    pub(crate) multikey: Vec<bool>,
}

impl IndexParts {
    pub(crate) fn build(self) -> Result<Arc<Index>> {
        let partial = match &self.def.partial {
            Some(filter) => {
                let (patterns, collation) = (Patterns::stored(), self.def.collation.clone());
                let options = Options { patterns, collation, ..Options::default() };
                Some(Filter::parse(filter.doc(), &options)?)
            }
            None => None,
        };
        let Self { object, name, def, ready, multikey } = self;
        Ok(Arc::new(Index { object, name, def, ready, multikey, partial }))
    }
}

/// Fields and directions as MongoDB writes them.
pub(crate) fn pattern(fields: &[IndexField]) -> DocBuf {
    let mut out = Writer::new();
    for field in fields {
        out.put(&field.path, Value::Int32(if field.descending { -1 } else { 1 }));
    }
    out.finish()
}

/// A collection as of some commit.
pub struct Definition {
    pub(crate) id: u32,
    pub(crate) version: u64,
    pub(crate) database: String,
    pub(crate) name: String,
    pub(crate) uuid: [u8; 16],
    pub(crate) options: CollectionOptions,
    /// The object that holds the order of the documents, of a capped collection.
    pub(crate) order: Option<u32>,
    pub(crate) referenced_by: BTreeSet<u32>,
    pub(crate) indexes: Vec<Arc<Index>>,
    /// The parsed validator.
    pub(crate) validator: Option<Filter>,
    /// The parsed rules.
    pub(crate) rules: Option<Arc<Rules>>,
    /// Most bytes of documents in its database. A setting of the database, copied here.
    pub(crate) quota: Option<u64>,
}

impl Definition {
    pub(crate) fn new(id: u32, database: &str, name: &str, uuid: [u8; 16]) -> Self {
        Self {
            id,
            version: 1,
            database: database.to_owned(),
            name: name.to_owned(),
            uuid,
            options: CollectionOptions::default(),
            order: None,
            referenced_by: BTreeSet::new(),
            indexes: Vec::new(),
            validator: None,
            rules: None,
            quota: None,
        }
    }

    /// The collection's number, for life.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// A random id, as drivers expect one.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Its database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its rules.
    pub fn options(&self) -> &CollectionOptions {
        &self.options
    }

    /// Its secondary indexes, including those still being built.
    pub fn indexes(&self) -> &[Arc<Index>] {
        &self.indexes
    }

    /// Numbers of its objects other than the documents: its indexes, and the order of a capped collection.
    pub(crate) fn objects(&self) -> impl Iterator<Item = u32> {
        self.indexes.iter().map(|index| index.object).chain(self.order)
    }

    pub(crate) fn index_named(&self, name: &str) -> Result<&Arc<Index>> {
        let unknown =
            || DocumentsError::UnknownIndex { collection: self.name.clone(), index: name.to_owned() };
        self.indexes.iter().find(|index| index.name == name).ok_or_else(unknown)
    }

    /// A copy to modify.
    pub(crate) fn edit(&self) -> Result<Self> {
        let validator = parse_validator(self.options.validator.as_ref(), Patterns::stored())?;
        Ok(Self {
            id: self.id,
            version: self.version,
            database: self.database.clone(),
            name: self.name.clone(),
            uuid: self.uuid,
            options: self.options.clone(),
            order: self.order,
            referenced_by: self.referenced_by.clone(),
            indexes: self.indexes.clone(),
            validator,
            rules: self.rules.clone(),
            quota: self.quota,
        })
    }

    pub(crate) fn set_options(&mut self, options: CollectionOptions) -> Result<()> {
        self.take_options(options, Patterns::default())
    }

    fn take_options(&mut self, options: CollectionOptions, patterns: Patterns) -> Result<()> {
        self.validator = parse_validator(options.validator.as_ref(), patterns)?;
        self.rules = match &options.rules {
            Some(rules) => Some(Arc::new(Rules::parse(rules.doc())?)),
            None => None,
        };
        self.options = options;
        Ok(())
    }

    /// True when a write involves only the document itself: no indexes, rules or references.
    pub(crate) fn is_plain(&self) -> bool {
        self.indexes.is_empty()
            && self.validator.is_none()
            && self.options.references.is_empty()
            && self.referenced_by.is_empty()
            && self.quota.is_none()
            && self.order.is_none()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.put("id", Value::Int64(i64::from(self.id)));
        out.put("version", Value::Int64(self.version as i64));
        out.put("database", Value::String(&self.database));
        out.put("name", Value::String(&self.name));
        out.put("uuid", Value::Binary(4, &self.uuid));
        out.open_document("options");
        if let Some(validator) = &self.options.validator {
            out.put("validator", Value::Document(validator.doc()));
        }
        out.put("moderate", Value::Bool(self.options.moderate));
        out.put("protected", Value::Bool(self.options.protected));
        if let Some(rules) = &self.options.rules {
            out.put("rules", Value::Document(rules.doc()));
        }
        out.close();
        out.open_array("references");
        for (place, reference) in self.options.references.iter().enumerate() {
            out.open_document(&place.to_string());
            out.put("field", Value::String(&reference.field));
            out.put("collection", Value::String(&reference.collection));
            out.put("onDelete", Value::String(reference.on_delete.name()));
            out.close();
        }
        out.close();
        if let Some((order, capped)) = self.order.zip(self.options.capped) {
            out.open_document("capped");
            out.put("order", Value::Int64(i64::from(order)));
            out.put("bytes", Value::Int64(i64::try_from(capped.bytes).unwrap_or(i64::MAX)));
            if let Some(documents) = capped.documents {
                out.put("documents", Value::Int64(i64::try_from(documents).unwrap_or(i64::MAX)));
            }
            out.close();
        }
        out.open_array("referencedBy");
        for (place, id) in self.referenced_by.iter().enumerate() {
            out.put(&place.to_string(), Value::Int64(i64::from(*id)));
        }
        out.close();
        out.open_array("indexes");
        for (place, index) in self.indexes.iter().enumerate() {
            out.open_document(&place.to_string());
            index.put(&mut out);
            out.close();
        }
        out.close();
        out.finish().into_bytes()
    }

    /// Checks a definition that is about to be stored as `encoded`: what every change of it preserves.
    pub(crate) fn check(&self, encoded: &[u8]) {
        let back = Self::decode(encoded);
        assert!(back.is_ok_and(|back| back.encode() == encoded), "a definition reads as it was written");
        assert_eq!(self.order.is_some(), self.options.capped.is_some(), "a capped collection has an order");
        let objects: BTreeSet<u32> = self.objects().chain([self.id]).collect();
        assert_eq!(
            objects.len(),
            self.objects().count() + 1,
            "documents and indexes differ in their objects"
        );
        for index in &self.indexes {
            assert_eq!(index.multikey.len(), index.fields().len(), "{:?} knows its fields", index.name);
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let doc = Doc::check(bytes).map_err(|error| DocumentsError::damaged("definition", error))?;
        decode(doc).map_err(|what| DocumentsError::damaged("definition", what))?
    }
}

fn parse_validator(validator: Option<&DocBuf>, patterns: Patterns) -> Result<Option<Filter>> {
    let options = Options { patterns, ..Options::default() };
    Ok(match validator {
        Some(filter) if !filter.doc().is_empty() => Some(Filter::parse(filter.doc(), &options)?),
        _ => None,
    })
}

fn text<'a>(doc: Doc<'a>, field: &'static str) -> Result<&'a str, &'static str> {
    match doc.get(field) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(field),
    }
}

fn number(doc: Doc<'_>, field: &'static str) -> Result<i64, &'static str> {
    match doc.get(field) {
        Some(Value::Int64(number)) => Ok(number),
        _ => Err(field),
    }
}

fn object(doc: Doc<'_>, field: &'static str) -> Result<u32, &'static str> {
    u32::try_from(number(doc, field)?).map_err(|_| field)
}

fn flag(doc: Doc<'_>, field: &'static str) -> Result<bool, &'static str> {
    match doc.get(field) {
        Some(Value::Bool(flag)) => Ok(flag),
        _ => Err(field),
    }
}

fn list<'a>(doc: Doc<'a>, field: &'static str) -> Result<Doc<'a>, &'static str> {
    match doc.get(field) {
        Some(Value::Array(list)) => Ok(list),
        _ => Err(field),
    }
}

fn inner<'a>(value: Value<'a>, what: &'static str) -> Result<Doc<'a>, &'static str> {
    match value {
        Value::Document(doc) => Ok(doc),
        _ => Err(what),
    }
}

/// Decodes the stored fields. The inner result is an error if a stored filter or rule does not parse.
fn decode(doc: Doc<'_>) -> Result<Result<Definition>, &'static str> {
    let uuid = match doc.get("uuid") {
        Some(Value::Binary(4, bytes)) => bytes.try_into().map_err(|_| "uuid")?,
        _ => return Err("uuid"),
    };
    let mut definition =
        Definition::new(object(doc, "id")?, text(doc, "database")?, text(doc, "name")?, uuid);
    definition.version = number(doc, "version")? as u64;
    let stored = inner(doc.get("options").ok_or("options")?, "options")?;
    let validator = match stored.get("validator") {
        Some(value) => Some(inner(value, "validator")?.to_buf()),
        None => None,
    };
    let rules = match stored.get("rules") {
        Some(value) => Some(inner(value, "rules")?.to_buf()),
        None => None,
    };
    let mut references = Vec::new();
    for value in list(doc, "references")?.values() {
        let stored = inner(value, "reference")?;
        references.push(Reference {
            field: text(stored, "field")?.to_owned(),
            collection: text(stored, "collection")?.to_owned(),
            on_delete: OnDelete::named(text(stored, "onDelete")?).ok_or("onDelete")?,
        });
    }
    let (moderate, protected) = (flag(stored, "moderate")?, flag(stored, "protected")?);
    let mut capped = None;
    if let Some(value) = doc.get("capped") {
        let stored = inner(value, "capped")?;
        definition.order = Some(object(stored, "order")?);
        let documents = match stored.get("documents") {
            Some(_) => Some(number(stored, "documents")? as u64),
            None => None,
        };
        capped = Some(CappedLimits { bytes: number(stored, "bytes")? as u64, documents });
    }
    for value in list(doc, "referencedBy")?.values() {
        match value {
            Value::Int64(id) => {
                definition.referenced_by.insert(u32::try_from(id).map_err(|_| "referencedBy")?)
            }
            _ => return Err("referencedBy"),
        };
    }
    let mut indexes = Vec::new();
    for value in list(doc, "indexes")?.values() {
        indexes.push(decode_index(inner(value, "index")?)?);
    }
    let options = CollectionOptions { validator, moderate, protected, references, rules, capped };
    Ok(finish(definition, options, indexes))
}

fn finish(
    mut definition: Definition,
    options: CollectionOptions,
    indexes: Vec<IndexParts>,
) -> Result<Definition> {
    definition.take_options(options, Patterns::stored())?;
    definition.indexes = indexes.into_iter().map(IndexParts::build).collect::<Result<_, _>>()?;
    Ok(definition)
}

fn decode_index(stored: Doc<'_>) -> Result<IndexParts, &'static str> {
    let mut fields = Vec::new();
    for (path, direction) in inner(stored.get("key").ok_or("key")?, "key")?.iter() {
        fields.push(IndexField { path: path.to_owned(), descending: matches!(direction, Value::Int32(-1)) });
    }
    let name = text(stored, "name")?.to_owned();
    let partial = match stored.get("partial") {
        Some(value) => Some(inner(value, "partial")?.to_buf()),
        None => None,
    };
    let def = IndexDef {
        name: Some(name.clone()),
        fields,
        unique: flag(stored, "unique")?,
        sparse: flag(stored, "sparse")?,
        hidden: flag(stored, "hidden")?,
        partial,
        expire_after_seconds: match stored.get("expireAfterSeconds") {
            Some(_) => Some(number(stored, "expireAfterSeconds")?),
            None => None,
        },
        collation: Collation::parse(stored.get("collation")).map_err(|_| "collation")?,
    };
    let multikey =
        list(stored, "multikey")?.values().map(|value| matches!(value, Value::Bool(true))).collect();
    Ok(IndexParts { object: object(stored, "object")?, name, def, ready: flag(stored, "ready")?, multikey })
}

impl Definition {
    /// Checks that the caller, if there is one, may do this with the stored document and with the new
    /// version.
    pub(crate) fn check_access(
        &self,
        caller: Option<&Caller>,
        access: Access,
        documents: (Option<Doc<'_>>, Option<Doc<'_>>),
        now_ms: i64,
    ) -> Result<()> {
        match (caller, &self.rules) {
            (Some(caller), Some(rules)) if !rules.allow(caller, access, documents, now_ms) => {
                Err(DocumentsError::Denied { collection: self.name.clone(), access: access.name() })
            }
            _ => Ok(()),
        }
    }
}
