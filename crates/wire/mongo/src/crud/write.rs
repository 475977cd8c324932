//! `insert`, `update`, `delete`, `findAndModify`.
//!
//! A command is one commit: all its successful statements, and its result, so that a driver that lost the
//! reply gets it again. (MongoDB commits each statement separately; a watcher of the collection sees the
//! difference only as fewer intermediate states.)

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropewalk::Seq;
use ropewalk::documents::lang::{Doc, DocBuf, Filter, Owned, Projection, Sort, Update, Value, Writer};
use ropewalk::documents::{
    Caller as Asked, Collection, DocumentsError, DocumentsTx, Find, FindAndModify, Hint, RetryKey, UpdateSpec,
};
use ropewalk_auth::Right;
use ropewalk_wire::{committed, run_unpinned};

use crate::call::Call;
use crate::protocol::args::Args;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::protocol::frame::WRITES_MAX;

/// Attempts at a write that conflicts with others.
const ATTEMPTS: usize = 1000;
/// Longest wait for the conflicting commit.
const CONFLICT_WAIT: Duration = Duration::from_secs(1);
/// Documents and bytes of a command that is short.
const SHORT: usize = 16;
const SHORT_BYTES: usize = 64 << 10;
/// Bytes that one command's `writeErrors` may take; errors after that are counted, not listed.
const ERROR_BYTES_MAX: usize = 8 << 20;

/// Results of the statements of one command.
#[derive(Default)]
struct Done {
    n: i64,
    modified: i64,
    upserted: Vec<(usize, Owned)>,
    errors: Vec<(usize, Failure)>,
}

impl Done {
    fn answer(&self, is_update: bool) -> DocBuf {
        let mut out = Writer::new();
        out.put("n", int(self.n));
        if is_update {
            out.put("nModified", int(self.modified));
            if !self.upserted.is_empty() {
                out.open_array("upserted");
                for (index, id) in &self.upserted {
                    out.open_document("");
                    out.put("index", int(*index as i64));
                    out.put("_id", id.value());
                    out.close();
                }
                out.close();
            }
        }
        if !self.errors.is_empty() {
            out.open_array("writeErrors");
            for (index, failure) in &self.errors {
                if out.size() < ERROR_BYTES_MAX {
                    failure.put_write_error(*index, &mut out);
                }
            }
            out.close();
        }
        out.finish()
    }
}

/// A count as clients expect it: an int32 where it fits.
pub(crate) fn int(number: i64) -> Value<'static> {
    i32::try_from(number).map_or(Value::Int64(number), Value::Int32)
}

/// A stored reply, to be completed.
pub(crate) fn written(answer: &DocBuf) -> Writer {
    let mut out = Writer::new();
    answer.doc().iter().for_each(|(name, value)| out.put(name, value));
    out
}

/// The statements of a command, from its body or from a document sequence.
///
/// # Errors
/// Both, neither, or too many.
pub(crate) fn statements<'a>(call: &Call<'a>, field: &'static str) -> Outcome<Vec<&'a [u8]>> {
    if let Some(name) = call.request.sequence_names().find(|name| *name != field) {
        let message = format!("BSON field '{}.{name}' is an unknown field.", call.args.name);
        return Err(Failure::new(Code::UnknownField, message));
    }
    if call.request.sequence_names().count() > 1 {
        let message = format!("Duplicate document sequence: {field}");
        return Err(Failure::new(Code::DuplicateSequence, message));
    }
    let found = match (call.request.sequence(field), call.args.array(field)?) {
        (Some(_), Some(_)) => {
            let message = format!("BSON field '{}.{field}' is a duplicate field", call.args.name);
            return Err(Failure::new(Code::FailedToParse, message));
        }
        (Some(found), None) => found,
        (None, array) => {
            let mut found = Vec::new();
            for value in call.args.needed(field, array)?.values() {
                let doc = value.as_document().ok_or_else(|| {
                    let message =
                        format!("each element of '{}.{field}' has to be a document", call.args.name);
                    Failure::new(Code::TypeMismatch, message)
                })?;
                found.push(doc.bytes());
            }
            found
        }
    };
    if found.is_empty() || found.len() > WRITES_MAX {
        let message =
            format!("Write batch sizes must be between 1 and {WRITES_MAX}. Got {} operations.", found.len());
        return Err(Failure::new(Code::InvalidLength, message));
    }
    Ok(found)
}

/// True for an error that the other statements would also get.
fn concerns_all(error: &DocumentsError) -> bool {
    matches!(
        error,
        DocumentsError::Engine(_)
            | DocumentsError::Damaged { .. }
            | DocumentsError::Conflict { .. }
            | DocumentsError::InvalidName { .. }
            | DocumentsError::Interrupted(_)
            | DocumentsError::TransactionTooOld { .. }
            | DocumentsError::TransactionMemory { .. }
    ) || error.is_view()
}

/// An error of one document or statement, with the full name of the collection.
fn told(database: &str, error: DocumentsError) -> Failure {
    match error {
        DocumentsError::Duplicate { collection, index, pattern, key, shown } => {
            let collection = format!("{database}.{collection}");
            DocumentsError::Duplicate { collection, index, pattern, key, shown }.into()
        }
        other => other.into(),
    }
}

/// Pending writes: in the command's transaction, or in a separate one.
pub(crate) struct Change<'a> {
    work: Box<dyn FnMut(&mut DocumentsTx<'_>) -> Result<DocBuf, DocumentsError> + Send + 'a>,
    /// Documents must satisfy the collection's validator.
    validate: bool,
    asked: Option<Asked>,
    /// They may take longer than sending a reply.
    long: bool,
    /// They had been executed before.
    again: bool,
}

impl<'a> Change<'a> {
    fn new(
        call: &Call<'_>,
        long: bool,
        work: impl FnMut(&mut DocumentsTx<'_>) -> Result<DocBuf, DocumentsError> + Send + 'a,
    ) -> Outcome<Self> {
        Ok(Self { work: Box::new(work), long, validate: validates(call)?, asked: call.asked(), again: false })
    }

    fn work(&mut self, tx: &mut DocumentsTx<'_>) -> Result<DocBuf, DocumentsError> {
        tx.validate(self.validate);
        tx.act_for(self.asked.clone());
        (self.work)(tx)
    }

    /// Executes the writes once, or returns the stored result; stores the result if the command may be
    /// retried.
    fn run(&mut self, tx: &mut DocumentsTx<'_>, retry: Option<&RetryKey>) -> Result<DocBuf, DocumentsError> {
        let Some(retry) = retry else { return self.work(tx) };
        if let Some(answer) = tx.answered(retry)? {
            self.again = true;
            return Ok(answer);
        }
        self.again = false;
        let answer = self.work(tx)?;
        tx.answer(retry, answer.doc())?;
        Ok(answer)
    }
}

/// False for a command that may write documents that violate the validator of its collection.
///
/// # Errors
/// `Unauthorized`: bypassing the validator takes an administrator.
pub(crate) fn validates(call: &Call<'_>) -> Outcome<bool> {
    if !call.args.flag("bypassDocumentValidation")?.unwrap_or(false) {
        return Ok(true);
    }
    call.may(Right::Admin, Some(call.database))?;
    Ok(false)
}

/// Executes and commits a change. No thread waits for the disk write.
pub(crate) async fn commit(call: &Call<'_>, mut change: Change<'_>) -> Outcome<Writer> {
    if let Some(transaction) = call.transaction()? {
        let answer = run_blocking_limited(call, change.long, || {
            call.budget().run(|| {
                transaction.run(true, |tx| change.work(tx).map_err(|error| told(call.database, error)))
            })
        });
        let answer = answer.await?;
        if answer.doc().get("writeErrors").is_some() {
            transaction.abort();
        }
        return Ok(written(&answer));
    }
    let (retry, durability) = (call.retry(0)?, call.durability());
    call.shared.service.wait_for_write_capacity().await?;
    let mut attempt = 1;
    let look = || call.may_go_on();
    loop {
        let long = change.long;
        let work = |tx: &mut DocumentsTx<'_>| {
            call.budget().run(|| change.run(&mut tx.with_cancellation(&look), retry.as_ref()))
        };
        let submitted =
            match run_blocking_limited(call, long, || call.documents().submit(durability, work)).await {
                Ok(submitted) => committed(submitted).await,
                Err(error) => Err(error),
            };
        match submitted {
            Ok(answer) => {
                call.client.answered_again.store(change.again, Ordering::Relaxed);
                return Ok(written(&answer));
            }
            Err(DocumentsError::Conflict { seq, .. }) if attempt < ATTEMPTS => {
                attempt += 1;
                call.may_go_on()?;
                // The other commit may not be durable yet, and is not visible before.
                let visible = call.shared.service.database().wait_visible_after(Seq(seq.0.saturating_sub(1)));
                let _ = tokio::time::timeout(CONFLICT_WAIT, visible).await;
            }
            Err(error) => return Err(told(call.database, error)),
        }
    }
}

/// Runs short work at once, long work as blocking work with a permit.
pub(crate) async fn run_blocking_limited<R>(call: &Call<'_>, long: bool, work: impl FnOnce() -> R) -> R {
    if !long {
        return work();
    }
    // Never closed; if it were, running without a permit would still be correct.
    let _turn = call.shared.writes.acquire().await.ok();
    run_unpinned(work)
}

/// `insert`
pub(crate) fn insert<'a>(call: &mut Call<'a>) -> Outcome<Change<'a>> {
    call.args.only(&["insert", "documents", "ordered", "bypassDocumentValidation"])?;
    call.may(Right::Append, Some(call.database))?;
    let collection = call.collection()?;
    let documents = statements(call, "documents")?;
    let ordered = call.args.flag("ordered")?.unwrap_or(true);
    let bytes: usize = documents.iter().map(|document| document.len()).sum();
    Change::new(call, documents.len() > SHORT || bytes > SHORT_BYTES, move |tx| {
        let many = tx.insert_many(&collection, &documents, ordered)?;
        let told = |(index, error)| (index, told(collection.database(), error));
        let errors = many.errors.into_iter().map(told).collect();
        Ok(Done { n: many.inserted.len() as i64, errors, ..Done::default() }.answer(false))
    })
}

/// Runs the statements of a command in order; invalid statements are reported like failed ones.
fn each<S>(
    database: &str,
    statements: &[Outcome<S>],
    ordered: bool,
    mut run: impl FnMut(usize, &S, &mut Done) -> Result<(), DocumentsError>,
) -> Result<Done, DocumentsError> {
    let mut done = Done::default();
    for (index, statement) in statements.iter().enumerate() {
        let failure = match statement {
            Ok(statement) => match run(index, statement, &mut done) {
                Ok(()) => continue,
                Err(error) if concerns_all(&error) => return Err(error),
                Err(error) => told(database, error),
            },
            Err(failure) => failure.clone(),
        };
        done.errors.push((index, failure));
        if ordered {
            break;
        }
    }
    Ok(done)
}

/// `update`
pub(crate) fn update<'a>(call: &mut Call<'a>) -> Outcome<Change<'a>> {
    call.args.only(&["update", "updates", "ordered", "bypassDocumentValidation", "let"])?;
    call.may(Right::Append, Some(call.database))?;
    call.may(Right::Read, Some(call.database))?;
    let collection = call.collection()?;
    let args = arguments("update.updates", statements(call, "updates")?, UPDATE_FIELDS)?;
    let parsed: Vec<_> = args.iter().map(|args| update_statement(call, args)).collect();
    let ordered = call.args.flag("ordered")?.unwrap_or(true);
    let long = is_long(parsed.iter().flatten().map(|(spec, _)| &*spec.filter), parsed.len());
    Change::new(call, long, move |tx| {
        let done = each(collection.database(), &parsed, ordered, |index, (spec, multi), done| {
            let updated = match multi {
                true => tx.update_many(&collection, spec)?,
                false => tx.update_one(&collection, spec)?,
            };
            done.n += updated.matched as i64 + i64::from(updated.upserted.is_some());
            done.modified += updated.modified as i64;
            done.upserted.extend(updated.upserted.map(|id| (index, id)));
            Ok(())
        })?;
        Ok(done.answer(true))
    })
}

/// True unless each of a few filters selects one document by its `_id`.
fn is_long<'f>(mut filters: impl Iterator<Item = &'f Filter>, count: usize) -> bool {
    count > SHORT || filters.any(|filter| filter.only_id().is_none())
}

// Without `sort`, which servers have from 8.0 on: this one reports 7.0.
pub(crate) const UPDATE_FIELDS: &[&str] =
    &["q", "u", "c", "multi", "upsert", "upsertSupplied", "collation", "arrayFilters", "hint"];

/// The fields of statements. An unknown field fails the command, not the statement.
fn arguments<'a>(name: &'static str, statements: Vec<&'a [u8]>, known: &[&str]) -> Outcome<Vec<Args<'a>>> {
    statements.into_iter().map(|bytes| Args::statement(name, Doc::check(bytes)?, known)).collect()
}

fn update_statement(call: &Call<'_>, args: &Args<'_>) -> Outcome<(UpdateSpec, bool)> {
    let mut options = call.options(args)?;
    options.variables = match args.document("c")? {
        Some(constants) => Some(constants.to_buf()),
        None => call.options(&call.args)?.variables,
    };
    let filter = Filter::parse(args.needed("q", args.document("q")?)?, &options)?;
    let update = Update::parse(args.needed("u", args.get("u"))?, args.array("arrayFilters")?, &options)?;
    let multi = args.flag("multi")?.unwrap_or(false);
    let spec = UpdateSpec {
        filter: Arc::new(filter),
        update: Arc::new(update),
        upsert: args.flag("upsert")?.unwrap_or(false),
        hint: hint(args)?,
        sort: None,
    };
    Ok((spec, multi))
}

/// `delete`
pub(crate) fn delete<'a>(call: &mut Call<'a>) -> Outcome<Change<'a>> {
    call.args.only(&["delete", "deletes", "ordered", "let"])?;
    call.may(Right::Append, Some(call.database))?;
    call.may(Right::Read, Some(call.database))?;
    let collection = call.collection()?;
    let args = arguments("delete.deletes", statements(call, "deletes")?, DELETE_FIELDS)?;
    let parsed: Vec<_> = args.iter().map(|args| delete_statement(call, args)).collect();
    let ordered = call.args.flag("ordered")?.unwrap_or(true);
    let long = is_long(parsed.iter().flatten().map(|(filter, _)| filter), parsed.len());
    Change::new(call, long, move |tx| {
        let done = each(collection.database(), &parsed, ordered, |_, (_, find), done| {
            done.n += tx.delete(&collection, find)? as i64;
            Ok(())
        })?;
        Ok(done.answer(false))
    })
}

pub(crate) const DELETE_FIELDS: &[&str] = &["q", "limit", "collation", "hint"];

fn delete_statement(call: &Call<'_>, args: &Args<'_>) -> Outcome<(Filter, Find)> {
    let mut options = call.options(args)?;
    options.variables = call.options(&call.args)?.variables;
    let filter = Filter::parse(args.needed("q", args.document("q")?)?, &options)?;
    let find = Find::matching(filter.clone());
    let find = match args.needed("limit", args.integer("limit")?)? {
        0 => find,
        1 => find.limit(1),
        other => {
            let message = format!("The limit field in delete objects must be 0 or 1. Got {other}");
            return Err(Failure::new(Code::FailedToParse, message));
        }
    };
    let find = match hint(args)? {
        Some(hint) => find.hint(hint),
        None => find,
    };
    Ok((filter, find))
}

/// The hinted index.
pub(crate) fn hint(args: &Args<'_>) -> Outcome<Option<Hint>> {
    match args.get("hint") {
        None => Ok(None),
        Some(Value::String(name)) => Ok(Some(Hint::Name(name.to_owned()))),
        Some(Value::Document(fields)) if fields.is_empty() => Ok(None),
        Some(Value::Document(fields)) => {
            let bad = || {
                Failure::new(Code::BadValue, "a hint is the name of an index, or its fields and directions")
            };
            let mut pattern = Vec::new();
            for (path, direction) in fields {
                let descending = match direction.as_integer().ok_or_else(bad)? {
                    1 => false,
                    -1 => true,
                    _ => return Err(bad()),
                };
                if path == "$natural" {
                    return Ok(Some(Hint::Natural(descending)));
                }
                pattern.push((path.to_owned(), descending));
            }
            Ok(Some(Hint::Fields(pattern)))
        }
        Some(_) => Err(Failure::new(Code::FailedToParse, "Hint must be a string or an object")),
    }
}

/// The requested order.
pub(crate) fn sort(args: &Args<'_>) -> Outcome<Option<Arc<Sort>>> {
    match args.document("sort")? {
        Some(sort) if !sort.is_empty() => Ok(Some(Arc::new(Sort::parse(sort)?))),
        _ => Ok(None),
    }
}

pub(crate) const MODIFY_FIELDS: &[&str] = &[
    "findAndModify",
    "findandmodify",
    "query",
    "sort",
    "remove",
    "update",
    "new",
    "fields",
    "upsert",
    "bypassDocumentValidation",
    "collation",
    "arrayFilters",
    "hint",
    "let",
];

/// `findAndModify`
pub(crate) fn find_and_modify<'a>(call: &mut Call<'a>) -> Outcome<Change<'a>> {
    call.args.only(MODIFY_FIELDS)?;
    call.may(Right::Append, Some(call.database))?;
    call.may(Right::Read, Some(call.database))?;
    let collection: Collection = call.collection()?;
    let spec = modify_spec(call)?;
    Change::new(call, spec.filter.only_id().is_none(), move |tx| {
        let (document, updated) = tx.find_and_modify(&collection, &spec)?;
        let mut out = Writer::new();
        out.open_document("lastErrorObject");
        let n = updated.matched as i64 + i64::from(updated.upserted.is_some());
        out.put("n", int(n));
        if spec.update.is_some() {
            out.put("updatedExisting", Value::Bool(updated.matched > 0));
        }
        if let Some(id) = &updated.upserted {
            out.put("upserted", id.value());
        }
        out.close();
        out.put("value", document.as_ref().map_or(Value::Null, |document| Value::Document(document.doc())));
        Ok(out.finish())
    })
}

fn modify_spec(call: &Call<'_>) -> Outcome<FindAndModify> {
    let args = &call.args;
    let options = call.options(args)?;
    let filter = match args.document("query")? {
        Some(query) => Filter::parse(query, &options)?,
        None => Filter::all(),
    };
    let remove = args.flag("remove")?.unwrap_or(false);
    let (upsert, new) = (args.flag("upsert")?.unwrap_or(false), args.flag("new")?.unwrap_or(false));
    let refuse = |message: &str| Err(Failure::new(Code::FailedToParse, message));
    let update = match args.get("update") {
        Some(_) if remove => return refuse("Cannot specify both an update and remove=true"),
        Some(update) => {
            let update = Update::parse(update, args.array("arrayFilters")?, &options)?;
            Some(Arc::new(update))
        }
        None if !remove => return refuse("Either an update or remove=true must be specified"),
        None if upsert => return refuse("Cannot specify both upsert=true and remove=true"),
        None if new => {
            return refuse(
                "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document",
            );
        }
        None => None,
    };
    let projection = match args.document("fields")? {
        Some(fields) if !fields.is_empty() => Some(Arc::new(Projection::parse(fields, &options)?)),
        _ => None,
    };
    Ok(FindAndModify {
        filter: Arc::new(filter),
        sort: sort(args)?,
        projection,
        update,
        upsert,
        return_new: new,
        hint: hint(args)?,
    })
}
