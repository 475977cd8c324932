//! Databases, collections and indexes: created, listed, changed, dropped.

use ropewalk::documents::lang::key::IndexField;
use ropewalk::documents::lang::{Doc, DocBuf, Filter, Options, Value, Writer};
use ropewalk::documents::{
    CappedLimits, Collection, CollectionOptions, Definition, DocumentsError, ID_INDEX, Index, IndexDef,
};
use ropewalk_auth::Right;
use ropewalk_sql::hide_rebuilds;
use ropewalk_transactions::told;

use crate::call::{Call, RESERVED};
use crate::crud::read::{FIRST_BATCH, Ready, first_batch};
use crate::crud::rules::{may_count, rules_bind};
use crate::crud::views;
use crate::crud::write::int;
use crate::protocol::args::Args;
use crate::protocol::failure::{Code, Failure, Outcome, not_on_reserved};
use crate::protocol::reply::check_list;
use crate::server::current_ops::with_documents;
use crate::state::cursors::Source;
use crate::state::guard::{Guard, Needs};

/// Collections whose names are in memory at a time while they are listed.
const NAMES_AT_ONCE: usize = 100;
const CREATE_FIELDS: &[&str] = &[
    "create",
    "validator",
    "validationLevel",
    "validationAction",
    "collation",
    "capped",
    "size",
    "max",
    "viewOn",
    "pipeline",
    "timeseries",
    "clusteredIndex",
    "changeStreamPreAndPostImages",
    "storageEngine",
    "indexOptionDefaults",
    "expireAfterSeconds",
    "encryptedFields",
    "autoIndexId",
];
/// Fields of `create` that are not supported.
const CREATE_NOT_OFFERED: &[&str] = &[
    "timeseries",
    "clusteredIndex",
    "storageEngine",
    "indexOptionDefaults",
    "expireAfterSeconds",
    "encryptedFields",
];

/// The rules of a collection, from `create` or `collMod`, on top of the existing ones.
fn rules(args: &Args<'_>, mut options: CollectionOptions) -> Outcome<CollectionOptions> {
    if let Some(validator) = args.document("validator")? {
        options.validator = (!validator.is_empty()).then(|| validator.to_buf());
    }
    match args.text("validationLevel")? {
        None => {}
        Some("strict") => options.moderate = false,
        Some("moderate") => options.moderate = true,
        Some("off") if options.validator.is_none() => {}
        Some("off") => {
            let message = "validationLevel \"off\" is not offered; there are strict and moderate";
            return Err(Failure::new(Code::NotImplemented, message));
        }
        Some(other) => return Err(unknown_value("validationLevel", other)),
    }
    match args.text("validationAction")? {
        None | Some("error") => Ok(options),
        Some("warn" | "errorAndLog") => {
            let message = "the only validationAction is \"error\"";
            Err(Failure::new(Code::NotImplemented, message))
        }
        Some(other) => Err(unknown_value("validationAction", other)),
    }
}

fn unknown_value(field: &str, value: &str) -> Failure {
    let message = format!("Enumeration value '{value}' for field '{field}' is not a valid value.");
    Failure::new(Code::BadValue, message)
}

/// The limits of a capped collection, from `create`.
fn capped(args: &Args<'_>) -> Outcome<Option<CappedLimits>> {
    let (size, max) = (args.integer("size")?, args.integer("max")?);
    let refuse = |message: &str| Err(Failure::new(Code::InvalidOptions, message));
    match (args.flag("capped")?.unwrap_or(false), size) {
        (true, Some(size)) => Ok(Some(CappedLimits::new(size, max)?)),
        (true, None) => refuse("the 'size' field is required when 'capped' is true"),
        (false, None) if max.is_none() => Ok(None),
        (false, _) => {
            refuse("the 'capped' field needs to be true when either the 'size' or 'max' fields are present")
        }
    }
}

/// `convertToCapped`
pub(crate) fn convert_to_capped(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["convertToCapped", "size"])?;
    call.may(Right::Admin, Some(call.database))?;
    let collection = call.collection()?;
    existing(&collection)?;
    let size = call.args.needed("size", call.args.integer("size")?)?;
    collection.set_capped(CappedLimits::new(size, None)?)?;
    Ok(Writer::new())
}

fn refuse_images(args: &Args<'_>) -> Outcome<()> {
    match args.document("changeStreamPreAndPostImages")? {
        Some(images) if images.get("enabled").is_none_or(Value::is_truthy) => {
            let message = "pre-images of documents are not supported";
            Err(Failure::new(Code::NotImplemented, message))
        }
        _ => Ok(()),
    }
}

/// `create`
pub(crate) fn create(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(CREATE_FIELDS)?;
    call.args.not_offered(CREATE_NOT_OFFERED)?;
    refuse_images(&call.args)?;
    call.options(&call.args)?;
    if let Some(view) = views::described(&call.args)? {
        return views::create(call, &view);
    }
    call.may(Right::Append, Some(call.database))?;
    let collection = call.collection()?;
    let options = CollectionOptions { capped: capped(&call.args)?, ..CollectionOptions::default() };
    let options = rules(&call.args, options)?;
    match call.transaction()? {
        Some(transaction) => {
            transaction.run(true, |tx| match tx.create_collection(&collection, options)? {
                true => Ok(()),
                false => {
                    let (database, collection) = (call.database.to_owned(), collection.name().to_owned());
                    Err(DocumentsError::CollectionExists { database, collection }.into())
                }
            })?;
        }
        None => {
            collection.create(options)?;
        }
    }
    Ok(Writer::new())
}

fn namespace(collection: &Collection) -> String {
    format!("{}.{}", collection.database(), collection.name())
}

/// `drop`
pub(crate) fn drop(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["drop"])?;
    call.may(Right::Admin, Some(call.database))?;
    let collection = call.collection()?;
    let indexes = collection.definition()?.map(|definition| definition.indexes().len() + 1);
    let mut out = Writer::new();
    if collection.drop_collection()? {
        out.put("nIndexesWas", int(indexes.unwrap_or(1) as i64));
        out.put("ns", Value::String(&namespace(&collection)));
    }
    Ok(out)
}

/// `dropDatabase`
pub(crate) fn drop_database(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["dropDatabase"])?;
    call.may(Right::Admin, Some(call.database))?;
    let dropped = call.documents().transact(call.durability(), |tx| tx.drop_database(call.database))?;
    let mut out = Writer::new();
    if !dropped.is_empty() {
        out.put("dropped", Value::String(call.database));
    }
    Ok(out)
}

/// Splits `database.collection`.
fn split(namespace: &str) -> Outcome<(&str, &str)> {
    namespace.split_once('.').ok_or_else(|| {
        Failure::new(Code::InvalidNamespace, format!("Invalid namespace specified '{namespace}'"))
    })
}

/// `renameCollection`
pub(crate) fn rename_collection(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["renameCollection", "to", "dropTarget", "stayTemp"])?;
    call.args.not_offered(&["stayTemp"])?;
    let from = split(call.args.needed("renameCollection", call.args.text("renameCollection")?)?)?;
    let to = split(call.args.needed("to", call.args.text("to")?)?)?;
    if [from.0, to.0].contains(&RESERVED) {
        return Err(not_on_reserved("renameCollection"));
    }
    // It takes documents and rules from one database and may replace those of another.
    call.may(Right::Admin, Some(from.0))?;
    call.may(Right::Admin, Some(to.0))?;
    let replace = call.args.flag("dropTarget")?.unwrap_or(false);
    let documents = call.documents();
    let (from, to) = (documents.collection(from.0, from.1)?, documents.collection(to.0, to.1)?);
    documents.transact(call.durability(), |tx| tx.rename_collection(&from, &to, replace))?;
    Ok(Writer::new())
}

/// `collMod`
pub(crate) fn coll_mod(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&[
        "collMod",
        "index",
        "validator",
        "validationLevel",
        "validationAction",
        "changeStreamPreAndPostImages",
        "cappedSize",
        "cappedMax",
        "viewOn",
        "pipeline",
    ])?;
    refuse_images(&call.args)?;
    call.may(Right::Admin, Some(call.database))?;
    if let Some(view) = views::described(&call.args)? {
        return views::modify(call, &view);
    }
    let collection = call.collection()?;
    let definition = existing(&collection)?;
    let mut out = Writer::new();
    if let Some(index) = call.args.document("index")? {
        let index =
            Args::statement("collMod.index", index, &["name", "keyPattern", "hidden", "expireAfterSeconds"])?;
        let name = match (index.text("name")?, index.document("keyPattern")?) {
            (Some(name), None) => name.to_owned(),
            (None, Some(pattern)) => named_by(&definition, &pattern_fields(pattern)?)
                .ok_or_else(|| unknown_index(&definition, &pattern.to_string()))?,
            _ => {
                return Err(Failure::new(Code::InvalidOptions, "an index is named by name or by keyPattern"));
            }
        };
        let (hidden, seconds) = (index.flag("hidden")?, index.integer("expireAfterSeconds")?);
        call.documents().transact(call.durability(), |tx| {
            if let Some(hidden) = hidden {
                tx.hide_index(&collection, &name, hidden)?;
            }
            if let Some(seconds) = seconds {
                tx.expire_index_after(&collection, &name, seconds)?;
            }
            Ok(())
        })?;
        let there = definition.indexes().iter().find(|index| index.name() == name);
        if let (Some(there), Some(hidden)) = (there, hidden) {
            out.put("hidden_old", Value::Bool(there.def().hidden));
            out.put("hidden_new", Value::Bool(hidden));
        }
        if let (Some(there), Some(seconds)) = (there, seconds) {
            if let Some(old) = there.def().expire_after_seconds {
                out.put("expireAfterSeconds_old", Value::Int64(old));
            }
            out.put("expireAfterSeconds_new", Value::Int64(seconds));
        }
    }
    let changes = ["validator", "validationLevel", "validationAction", "cappedSize", "cappedMax"];
    if changes.iter().any(|field| call.args.get(field).is_some()) {
        let mut options = rules(&call.args, definition.options().clone())?;
        options.capped = resized(&call.args, options.capped)?;
        collection.set_options(options)?;
    }
    Ok(out)
}

/// New limits of a capped collection, from `collMod`.
fn resized(args: &Args<'_>, there: Option<CappedLimits>) -> Outcome<Option<CappedLimits>> {
    let (size, max) = (args.integer("cappedSize")?, args.integer("cappedMax")?);
    if size.is_none() && max.is_none() {
        return Ok(there);
    }
    let there = there.ok_or_else(|| {
        Failure::new(Code::InvalidOptions, "cappedSize and cappedMax are of capped collections")
    })?;
    let new = CappedLimits::new(size.unwrap_or(there.bytes as i64), max)?;
    Ok(Some(if max.is_some() { new } else { CappedLimits { documents: there.documents, ..new } }))
}

/// The definition of a collection.
///
/// # Errors
/// `NamespaceNotFound`; `CommandNotSupportedOnView`.
pub(crate) fn existing(collection: &Collection) -> Outcome<std::sync::Arc<Definition>> {
    if let Some(definition) = collection.definition()? {
        return Ok(definition);
    }
    views::refuse(collection)?;
    Err(Failure::new(Code::NamespaceNotFound, format!("ns does not exist: {}", namespace(collection))))
}

fn unknown_index(definition: &Definition, name: &str) -> Failure {
    let (collection, index) = (definition.name().to_owned(), name.to_owned());
    DocumentsError::UnknownIndex { collection, index }.into()
}

fn pattern_fields(pattern: Doc<'_>) -> Outcome<Vec<IndexField>> {
    let mut fields = Vec::new();
    for (path, direction) in pattern {
        let descending = match direction {
            Value::String(kind) => {
                let message = format!("indexes of kind {kind:?} are not offered");
                return Err(Failure::new(Code::NotImplemented, message));
            }
            other => match other.as_double() {
                Some(direction) if direction > 0.0 => false,
                Some(direction) if direction < 0.0 => true,
                _ => {
                    let message = format!(
                        "Values in the index key pattern must be numbers above or below 0; {path} has {other}"
                    );
                    return Err(Failure::new(Code::CannotCreateIndex, message));
                }
            },
        };
        fields.push(IndexField { path: path.to_owned(), descending });
    }
    Ok(fields)
}

fn named_by(definition: &Definition, fields: &[IndexField]) -> Option<String> {
    let same = |index: &&std::sync::Arc<Index>| {
        let there = &index.def().fields;
        there.len() == fields.len()
            && there.iter().zip(fields).all(|(a, b)| a.path == b.path && a.descending == b.descending)
    };
    definition.indexes().iter().find(same).map(|index| index.name().to_owned())
}

const INDEX_FIELDS: &[&str] = &[
    "key",
    "name",
    "unique",
    "sparse",
    "hidden",
    "partialFilterExpression",
    "expireAfterSeconds",
    "collation",
    "v",
    "background",
    "dropDups",
    "ns",
];

/// `None`: the index on `_id`, which always exists.
fn index_def(index: Doc<'_>) -> Outcome<Option<IndexDef>> {
    let args = Args::statement("createIndexes.indexes", index, INDEX_FIELDS)?;
    Options::refuse_collation(args.get("collation"))?;
    args.not_offered(&["dropDups"])?;
    if !matches!(args.integer("v")?, None | Some(2)) {
        return Err(Failure::new(Code::BadValue, "indexes are of version 2"));
    }
    let fields = pattern_fields(args.needed("key", args.document("key")?)?)?;
    if let [only] = fields.as_slice()
        && only.path == "_id"
    {
        return Ok(None);
    }
    Ok(Some(IndexDef {
        name: Some(args.needed("name", args.text("name")?)?.to_owned()),
        fields,
        unique: args.flag("unique")?.unwrap_or(false),
        sparse: args.flag("sparse")?.unwrap_or(false),
        hidden: args.flag("hidden")?.unwrap_or(false),
        partial: args.document("partialFilterExpression")?.map(Doc::to_buf),
        expire_after_seconds: args.integer("expireAfterSeconds")?,
    }))
}

/// `createIndexes`
pub(crate) fn create_indexes(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["createIndexes", "indexes", "commitQuorum", "ignoreUnknownIndexOptions"])?;
    call.args.not_offered(&["ignoreUnknownIndexOptions"])?;
    quorum(&call.args)?;
    call.may(Right::Append, Some(call.database))?;
    let collection = call.collection()?;
    let list = call.args.needed("indexes", call.args.array("indexes")?)?;
    if list.is_empty() {
        return Err(Failure::new(Code::BadValue, "Must specify at least one index to create"));
    }
    let mut defs = Vec::new();
    for index in list.values() {
        let index = index.as_document();
        let index = index.ok_or_else(|| Failure::new(Code::TypeMismatch, "an index is a document"))?;
        defs.extend(index_def(index)?);
    }
    let before = collection.definition()?;
    let count = |definition: &Option<std::sync::Arc<Definition>>| {
        definition.as_ref().map_or(0, |definition| definition.indexes().len() as i64 + 1)
    };
    let mut made = 0;
    match call.transaction()? {
        Some(transaction) => transaction.run(true, |tx| {
            if before.is_some() {
                let message = format!(
                    "Cannot create new indexes on existing collection {} in a multi-document transaction.",
                    namespace(&collection)
                );
                return Err(Failure::new(Code::OperationNotSupportedInTransaction, message));
            }
            for def in &defs {
                made += i64::from(tx.create_index(&collection, def)?);
            }
            Ok(())
        })?,
        None => {
            if defs.is_empty() && before.is_none() {
                collection.create(CollectionOptions::default())?;
            }
            for def in &defs {
                made += i64::from(match (collection.create_index(def), rules_bind(call, &collection)?) {
                    (Err(error), true) => return Err(error.without_values().into()),
                    (built, _) => built?,
                });
            }
        }
    }
    let mut out = Writer::new();
    out.put("numIndexesBefore", int(count(&before).max(1)));
    out.put("numIndexesAfter", int(count(&before).max(1) + made));
    out.put("createdCollectionAutomatically", Value::Bool(before.is_none()));
    if made == 0 {
        out.put("note", Value::String("all indexes already exist"));
    }
    Ok(out)
}

/// Checks how many members have to be ready: there is one.
fn quorum(args: &Args<'_>) -> Outcome<()> {
    match args.get("commitQuorum") {
        None => Ok(()),
        Some(Value::String("votingMembers" | "majority")) => Ok(()),
        Some(number) if matches!(number.as_integer(), Some(0 | 1)) => Ok(()),
        Some(other) => {
            let message = format!(
                "Commit quorum cannot be satisfied with the current replica set configuration: {other}"
            );
            Err(Failure::new(Code::UnsatisfiableWriteConcern, message))
        }
    }
}

/// `dropIndexes`
pub(crate) fn drop_indexes(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["dropIndexes", "deleteIndexes", "index"])?;
    call.may(Right::Append, Some(call.database))?;
    let collection = call.collection()?;
    let definition = existing(&collection)?;
    let names = match call.args.needed("index", call.args.get("index"))? {
        Value::String("*") => definition.indexes().iter().map(|index| index.name().to_owned()).collect(),
        Value::String(name) => vec![name.to_owned()],
        Value::Array(names) => names.values().filter_map(Value::as_str).map(str::to_owned).collect(),
        Value::Document(pattern) => {
            let fields = pattern_fields(pattern)?;
            let id = matches!(fields.as_slice(), [only] if only.path == "_id");
            let found = if id { Some(ID_INDEX.to_owned()) } else { named_by(&definition, &fields) };
            vec![found.ok_or_else(|| unknown_index(&definition, &pattern.to_string()))?]
        }
        _ => return Err(Failure::new(Code::TypeMismatch, "an index is a name, names, or a key pattern")),
    };
    call.documents().transact(call.durability(), |tx| {
        names.iter().try_for_each(|name| tx.drop_index(&collection, name))
    })?;
    let mut out = Writer::new();
    out.put("nIndexesWas", int(definition.indexes().len() as i64 + 1));
    Ok(out)
}

pub(crate) fn put_index(index: Option<&Index>) -> DocBuf {
    let mut out = Writer::new();
    out.put("v", Value::Int32(2));
    out.open_document("key");
    match index {
        Some(index) => {
            for field in &index.def().fields {
                out.put(&field.path, Value::Int32(if field.descending { -1 } else { 1 }));
            }
        }
        None => out.put("_id", Value::Int32(1)),
    }
    out.close();
    out.put("name", Value::String(index.map_or(ID_INDEX, |index| index.name())));
    if let Some(index) = index {
        let def = index.def();
        for (field, set) in [("unique", def.unique), ("sparse", def.sparse), ("hidden", def.hidden)] {
            if set {
                out.put(field, Value::Bool(true));
            }
        }
        if let Some(partial) = &def.partial {
            out.put("partialFilterExpression", Value::Document(partial.doc()));
        }
        if let Some(seconds) = def.expire_after_seconds {
            out.put("expireAfterSeconds", int(seconds));
        }
    }
    out.finish()
}

/// Returns a list as a cursor. `needs`: the right to read its further batches.
pub(crate) fn listed(call: &Call<'_>, needs: Needs, namespace: String, list: Ready) -> Outcome<Writer> {
    let size = match call.args.document("cursor")? {
        Some(cursor) => Args::statement("cursor", cursor, &["batchSize"])?.count("batchSize")?,
        None => None,
    };
    let (documents, bytes) = list.done();
    first_batch(
        call,
        Guard::new(call.reader(), needs, Vec::new())?,
        namespace,
        Source::Ready(documents, bytes),
        size.unwrap_or(FIRST_BATCH.max(1000)),
        false,
        call.seq(),
    )
}

/// `listIndexes`
pub(crate) fn list_indexes(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["listIndexes", "cursor"])?;
    call.may(Right::Read, Some(call.database))?;
    let collection = call.collection()?;
    let definition = existing(&collection)?;
    let ready = definition.indexes().iter().filter(|index| index.is_ready());
    let mut list = Ready::default();
    for index in std::iter::once(None).chain(ready.map(Some)) {
        list.push(put_index(index.map(AsRef::as_ref)))?;
    }
    listed(call, Needs::Database, namespace(&collection), list)
}

/// Fields of `listCollections`.
pub(crate) const LIST_FIELDS: &[&str] =
    &["listCollections", "filter", "nameOnly", "authorizedCollections", "cursor"];

/// `listCollections`: without collections that rebuilds of projections fill.
pub(crate) fn list_collections(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(LIST_FIELDS)?;
    call.may(Right::Read, Some(call.database))?;
    let filter = call.filter()?;
    let name_only = call.args.flag("nameOnly")?.unwrap_or(false);
    let db = call.shared.service.database();
    let before = db.snapshot();
    let (mut list, mut after) = (Ready::default(), None::<String>);
    loop {
        let names = call.documents().collections_after(call.database, None, after.as_deref(), NAMES_AT_ONCE);
        let mut names = names?;
        let Some(last) = names.last().cloned() else { break };
        hide_rebuilds(db, &before, &mut names, Some(call.database)).map_err(|error| {
            Failure::new(Code::InternalError, told(&error, db.engine().dir()).message.clone())
        })?;
        for name in names {
            call.may_go_on()?;
            let collection = call.documents().collection(call.database, &name)?;
            let Some(definition) = collection.definition()? else { continue };
            let whole = put_collection(&definition, false);
            if filter.matches(whole.doc())? {
                list.push(if name_only { put_collection(&definition, true) } else { whole })?;
            }
        }
        after = Some(last);
    }
    for name in call.documents().views(call.database)? {
        let Some(view) = call.documents().collection(call.database, &name)?.view()? else { continue };
        let whole = views::put(&name, &view, false);
        if filter.matches(whole.doc())? {
            list.push(if name_only { views::put(&name, &view, true) } else { whole })?;
        }
    }
    listed(call, Needs::Database, format!("{}.$cmd.listCollections", call.database), list)
}

fn put_collection(definition: &Definition, name_only: bool) -> DocBuf {
    let mut out = Writer::new();
    out.put("name", Value::String(definition.name()));
    out.put("type", Value::String("collection"));
    if name_only {
        return out.finish();
    }
    out.open_document("options");
    let options = definition.options();
    if let Some(capped) = options.capped {
        put_limits(capped, &mut out, "size", "max");
    }
    if let Some(validator) = &options.validator {
        out.put("validator", Value::Document(validator.doc()));
        out.put("validationLevel", Value::String(if options.moderate { "moderate" } else { "strict" }));
        out.put("validationAction", Value::String("error"));
    }
    out.close();
    out.open_document("info");
    out.put("readOnly", Value::Bool(false));
    out.put("uuid", Value::Binary(4, &definition.uuid()));
    out.close();
    out.put("idIndex", Value::Document(put_index(None).doc()));
    out.finish()
}

/// Puts the limits of a capped collection under the command's field names.
fn put_limits(capped: CappedLimits, out: &mut Writer, bytes: &str, documents: &str) {
    out.put("capped", Value::Bool(true));
    out.put(bytes, int(capped.bytes as i64));
    if let Some(max) = capped.documents {
        out.put(documents, int(max as i64));
    }
}

/// `listDatabases`
pub(crate) fn list_databases(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["listDatabases", "filter", "nameOnly", "authorizedDatabases"])?;
    let mut names = call.documents().databases()?;
    // The reserved one has no documents over this port.
    names.retain(|name| name != RESERVED && call.may(Right::Read, Some(name)).is_ok());
    let filter = match call.args.document("filter")? {
        // For a caller without rights on any database the filter is not parsed.
        Some(filter) if !names.is_empty() => Filter::parse(filter, &call.options(&call.args)?)?,
        _ => Filter::all(),
    };
    let name_only = call.args.flag("nameOnly")?.unwrap_or(false);
    let (mut total, mut out) = (0, Writer::new());
    out.open_array("databases");
    for name in names {
        call.may_go_on()?;
        let bytes = match name_only {
            true => 0,
            // Documents that rules may hide do not count.
            false if call.may(Right::Admin, Some(&name)).is_err() => call.documents().unruled_bytes(&name)?,
            false => call.documents().database_bytes(&name)?,
        } as i64;
        let mut database = Writer::new();
        database.put("name", Value::String(&name));
        if !name_only {
            database.put("sizeOnDisk", Value::Int64(bytes));
            database.put("empty", Value::Bool(bytes == 0));
        }
        let database = database.finish();
        if filter.matches(database.doc())? {
            total += bytes;
            out.put("", Value::Document(database.doc()));
            check_list(&out, "databases", "use a filter")?;
        }
    }
    out.close();
    if !name_only {
        out.put("totalSize", Value::Int64(total));
        out.put("totalSizeMb", Value::Int64(total >> 20));
    }
    Ok(out)
}

/// `collStats`
pub(crate) fn coll_stats(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["collStats", "scale"])?;
    call.may(Right::Read, Some(call.database))?;
    let collection = call.collection()?;
    views::refuse(&collection)?;
    may_count(call, &collection)?;
    let scale = call.args.count("scale")?.filter(|scale| *scale > 0).unwrap_or(1) as i64;
    let mut out = Writer::new();
    out.put("ns", Value::String(&namespace(&collection)));
    put_storage(&mut out, &collection, scale)?;
    Ok(out)
}

/// Puts the sizes of a collection.
fn put_storage(out: &mut Writer, collection: &Collection, scale: i64) -> Outcome<()> {
    let count = collection.estimated_count()?;
    let definition = collection.definition()?;
    let indexes = definition.as_ref().map_or(0, |definition| definition.indexes().len() as i64 + 1);
    out.put("count", int(count.documents as i64));
    out.put("size", int(count.bytes as i64 / scale));
    if let Some(mean) = count.bytes.checked_div(count.documents) {
        out.put("avgObjSize", int(mean as i64));
    }
    out.put("nindexes", int(indexes));
    match definition.and_then(|definition| definition.options().capped) {
        Some(capped) => put_limits(capped, out, "maxSize", "max"),
        None => out.put("capped", Value::Bool(false)),
    }
    out.put("scaleFactor", int(scale));
    Ok(())
}

/// Replaces the stage `$collStats` by its document: `storageStats` and `count` are supported.
pub(crate) fn collection_told(call: &Call<'_>, spec: Value<'_>, stages: Doc<'_>) -> Outcome<DocBuf> {
    let spec = spec
        .as_document()
        .ok_or_else(|| Failure::new(Code::TypeMismatch, "the $collStats stage takes an object"))?;
    let spec =
        Args::statement("$collStats", spec, &["storageStats", "count", "latencyStats", "queryExecStats"])?;
    spec.not_offered(&["latencyStats", "queryExecStats"])?;
    let collection = call.collection()?;
    existing(&collection)?;
    may_count(call, &collection)?;
    let mut out = Writer::array();
    out.open_document("");
    out.put("ns", Value::String(&namespace(&collection)));
    out.put("localTime", Value::DateTime(call.now_ms()));
    if let Some(storage) = spec.document("storageStats")? {
        let storage = Args::statement("$collStats.storageStats", storage, &["scale"])?;
        let scale = storage.count("scale")?.filter(|scale| *scale > 0).unwrap_or(1) as i64;
        out.open_document("storageStats");
        put_storage(&mut out, &collection, scale)?;
        out.close();
    }
    if spec.document("count")?.is_some() {
        out.put("count", int(collection.estimated_count()?.documents as i64));
    }
    out.close();
    Ok(with_documents(out, stages))
}

/// `dbStats`
pub(crate) fn db_stats(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&[call.args.name, "scale"])?;
    call.may(Right::Read, Some(call.database))?;
    let scale = call.args.count("scale")?.filter(|scale| *scale > 0).unwrap_or(1) as i64;
    let (mut objects, mut bytes, mut indexes, mut collections) = (0, 0, 0, 0);
    for name in call.documents().collections(call.database)? {
        let collection = call.documents().collection(call.database, &name)?;
        // Documents that rules hide do not count.
        if !rules_bind(call, &collection)? {
            let count = collection.estimated_count()?;
            objects += count.documents as i64;
            bytes += count.bytes as i64;
        }
        collections += 1;
        indexes += collection.definition()?.map_or(0, |definition| definition.indexes().len() as i64 + 1);
    }
    let mut out = Writer::new();
    out.put("db", Value::String(call.database));
    out.put("collections", int(collections));
    out.put("views", int(call.documents().views(call.database)?.len() as i64));
    out.put("objects", int(objects));
    out.put("dataSize", int(bytes / scale));
    out.put("indexes", int(indexes));
    out.put("scaleFactor", int(scale));
    Ok(out)
}

/// Commands on search indexes, which only Atlas has.
pub(crate) fn search_indexes(_: &mut Call<'_>) -> Outcome<Writer> {
    Err(no_search())
}

/// Why there are no search indexes.
pub(crate) fn no_search() -> Failure {
    Failure::new(Code::SearchNotSupported, "Search index commands are only supported with Atlas.")
}

/// `validate`: checks every document and index entry of a collection.
pub(crate) fn validate(call: &mut Call<'_>) -> Outcome<Writer> {
    // Both modes read the collection at one snapshot, and block no other operation.
    call.args.only(&["validate", "full", "scandata", "background", "checkBSONConformance"])?;
    call.may(Right::Read, Some(call.database))?;
    let collection = call.collection()?;
    existing(&collection)?;
    may_count(call, &collection)?;
    let found = collection.validate()?;
    let mut out = Writer::new();
    out.put("ns", Value::String(&namespace(&collection)));
    out.put("nrecords", int(found.documents as i64));
    out.put("nIndexes", int(found.indexes.len() as i64 + 1));
    out.open_document("keysPerIndex");
    out.put(ID_INDEX, int(found.documents as i64));
    found.indexes.iter().for_each(|(name, entries)| out.put(name, int(*entries as i64)));
    out.close();
    out.put("valid", Value::Bool(found.problems.is_empty()));
    out.open_array("warnings");
    out.close();
    out.open_array("errors");
    found.problems.iter().for_each(|problem| out.put("", Value::String(problem)));
    out.close();
    Ok(out)
}
