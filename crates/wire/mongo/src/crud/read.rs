//! `find`, `count`, `distinct`, `aggregate`, `explain`, `killCursors`, and cursor replies.

use std::collections::VecDeque;

use ropewalk::documents::lang::{
    self, Doc, DocBuf, Filter, Options, Output, OutputMode, Pipeline, Projection, Value, Writer,
};
use ropewalk::documents::{
    CancelCheck, Collection, DocumentsAt, DocumentsError, DocumentsRead, DocumentsTx, Find, Hint,
    view_documents,
};
use ropewalk::{Seq, Snapshot};
use ropewalk_auth::Right;

use crate::call::{Call, RESERVED};
use crate::crud::write::{self, hint, int, sort, validates};
use crate::crud::{change_streams, definitions, index_stats, views};
use crate::protocol::args::Args;
use crate::protocol::failure::{Code, Failure, Outcome, not_on_reserved};
use crate::protocol::frame::Request;
use crate::server::current_ops;
use crate::state::cursors::{Cursor, Source};
use crate::state::guard::{Guard, Needs};
use crate::state::sessions::session_parts;

/// Default number of documents of a first batch, as in MongoDB.
pub(crate) const FIRST_BATCH: usize = 101;
/// Bytes of documents of one batch: the limit of one document, as in MongoDB.
pub(crate) const BATCH_BYTES: usize = 16 << 20;
/// Documents produced between two checks for cancellation.
const DOCUMENTS_PER_LOOK: usize = 256;
/// Bytes of documents computed at once and held for a cursor: of pipelines, and of queries inside
/// transactions.
const READY_BYTES_MAX: usize = 64 << 20;
/// Memory of a pipeline, as in MongoDB.
const PIPELINE_BYTES_MAX: usize = 100 << 20;

pub(crate) const FIND_FIELDS: &[&str] = &[
    "find",
    "filter",
    "sort",
    "projection",
    "hint",
    "skip",
    "limit",
    "batchSize",
    "singleBatch",
    "let",
    "collation",
    "allowDiskUse",
    "noCursorTimeout",
    "allowPartialResults",
    "max",
    "min",
    "returnKey",
    "showRecordId",
    "tailable",
    "awaitData",
    "oplogReplay",
];

/// A query for one document by its `_id`: short, whatever is stored.
pub(crate) fn is_point(call: &Call<'_>) -> bool {
    if call.args.name != "find" || call.in_transaction {
        return false;
    }
    let filter = call.args.get("filter").and_then(Value::as_document);
    let Some(filter) = filter else { return false };
    let mut fields = filter.iter();
    match (fields.next(), fields.next()) {
        (Some(("_id", value)), None) => {
            !matches!(value, Value::Document(_) | Value::Array(_) | Value::Regex(..))
        }
        _ => false,
    }
}

fn find_of(call: &Call<'_>, args: &Args<'_>) -> Outcome<Find> {
    let options = call.options(args)?;
    let mut find = match args.document("filter")? {
        Some(filter) => Find::matching(Filter::parse(filter, &options)?),
        None => Find::all(),
    };
    if let Some(sort) = sort(args)? {
        find = find.sort((*sort).clone());
    }
    if let Some(projection) = args.document("projection")?.filter(|projection| !projection.is_empty()) {
        find = find.project(Projection::parse(projection, &options)?);
    }
    if let Some(hint) = hint(args)? {
        find = find.hint(hint);
    }
    if let Some(skip) = args.count("skip")? {
        find = find.skip(skip);
    }
    // Zero is no limit.
    if let Some(limit) = args.count("limit")?.filter(|limit| *limit > 0) {
        find = find.limit(limit);
    }
    args.not_offered(&["max", "min", "returnKey", "showRecordId", "oplogReplay"])?;
    Ok(find)
}

/// `find`
pub(crate) fn find(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(FIND_FIELDS)?;
    call.may(Right::Read, Some(call.database))?;
    let collection = call.collection()?;
    let guard = Guard::new(call.reader(), Needs::Database, vec![collection.clone()])?;
    let find = find_of(call, &call.args)?;
    let size = call.args.count("batchSize")?.unwrap_or(FIRST_BATCH);
    let single = call.args.flag("singleBatch")?.unwrap_or(false);
    if let Some(awaits) = tails(call)? {
        let namespace = namespace(&collection);
        let definition = collection.definition()?;
        if definition.is_some_and(|definition| definition.options().capped.is_none()) {
            let message = format!("tailable cursor requested on non capped collection {namespace}");
            return Err(Failure::new(Code::BadValue, message));
        }
        let source = match collection.tail(call.asked(), &find)? {
            Some(tail) => Source::Tail(Box::new(tail), awaits),
            None => {
                views::refuse(&collection)?;
                Source::Ready(VecDeque::new(), 0)
            }
        };
        return first_batch(call, guard, namespace, source, size, false, call.seq());
    }
    let mut at = call.seq();
    let source = match call.transaction()? {
        Some(transaction) => {
            let found = transaction.run(false, |tx| {
                if is_view(tx, &collection) {
                    return Ok(None);
                }
                let mut ready = Ready::default();
                tx.visit(&collection, &find, &mut |document| ready.push(document))?;
                Ok(Some(ready.done()))
            })?;
            let Some((documents, bytes)) = found else { return views::find(call, &collection) };
            Source::Ready(documents, bytes)
        }
        None => {
            let snapshot = call.snapshot()?;
            at = snapshot.seq();
            match collection.find_for(call.asked(), snapshot.engine().clone(), &find) {
                Ok(cursor) => Source::Find(Box::new(cursor)),
                Err(error) if error.is_view() => return views::find(call, &collection),
                Err(error) => return Err(error.into()),
            }
        }
    };
    let namespace = namespace(&collection);
    first_batch(call, guard, namespace, source, size, single, at)
}

/// True for a view, as the transaction sees it.
fn is_view(tx: &mut DocumentsTx<'_>, collection: &Collection) -> bool {
    tx.has_collection(collection).is_err_and(|error| error.is_view())
}

/// Whether the query tails a capped collection, and then whether `getMore` awaits data.
fn tails(call: &Call<'_>) -> Outcome<Option<bool>> {
    let awaits = call.args.flag("awaitData")?.unwrap_or(false);
    if !call.args.flag("tailable")?.unwrap_or(false) {
        let message = "Cannot set 'awaitData' without also setting 'tailable'";
        return if awaits { Err(Failure::new(Code::FailedToParse, message)) } else { Ok(None) };
    }
    if call.in_transaction {
        let message = "a tailable cursor cannot be opened in a transaction";
        return Err(Failure::new(Code::OperationNotSupportedInTransaction, message));
    }
    let refuse = |message: &str| Err(Failure::new(Code::BadValue, message));
    if call.args.flag("singleBatch")?.unwrap_or(false) {
        return refuse("Cannot use tailable option with the 'singleBatch' option");
    }
    if sort(&call.args)?.is_some_and(|sort| sort.natural() != Some(false)) {
        return refuse("cannot use tailable option with a sort other than {$natural: 1}");
    }
    if hint(&call.args)?.is_some_and(|hint| hint != Hint::Natural(false)) {
        return refuse("cannot use tailable option with a hint other than {$natural: 1}");
    }
    Ok(Some(awaits))
}

/// Documents computed in memory.
#[derive(Default)]
pub(crate) struct Ready {
    documents: VecDeque<DocBuf>,
    bytes: usize,
}

impl Ready {
    /// Adds a document.
    ///
    /// # Errors
    /// The documents take too much memory.
    pub(crate) fn push(&mut self, document: DocBuf) -> Result<bool, DocumentsError> {
        let document = document.compact();
        self.charge(document.bytes().len() + size_of::<DocBuf>())?;
        self.documents.push_back(document);
        Ok(true)
    }

    /// Counts memory that is needed for the documents.
    ///
    /// # Errors
    /// The documents take too much memory.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), DocumentsError> {
        self.bytes += bytes;
        if self.bytes > READY_BYTES_MAX {
            return Err(DocumentsError::TooLarge { what: "result", bytes: self.bytes, max: READY_BYTES_MAX });
        }
        Ok(())
    }

    /// The documents and their bytes.
    pub(crate) fn done(self) -> (VecDeque<DocBuf>, usize) {
        (self.documents, self.bytes)
    }
}

fn namespace(collection: &Collection) -> String {
    format!("{}.{}", collection.database(), collection.name())
}

/// The next documents of a source: at most `count`; and whether there may be more.
pub(crate) fn take(call: &Call<'_>, source: &mut Source, count: usize) -> Outcome<(Vec<DocBuf>, bool)> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let look = || call.may_go_on();
    match source {
        Source::Find(cursor) => {
            while batch.len() < count && bytes < BATCH_BYTES && !cursor.is_done() {
                let wanted = (count - batch.len()).min(DOCUMENTS_PER_LOOK);
                let left = BATCH_BYTES - bytes;
                let next = cursor.next_batch_while(wanted, left, &look)?;
                bytes += next.iter().map(|document| document.bytes().len()).sum::<usize>();
                // The rest comes with the next batch.
                let cut = next.len() < wanted;
                batch.extend(next);
                if cut {
                    break;
                }
            }
            Ok((batch, !cursor.is_done()))
        }
        Source::Ready(documents, held) => {
            while batch.len() < count
                && let Some(next) = documents.front()
                && (batch.is_empty() || bytes + next.bytes().len() <= BATCH_BYTES)
            {
                bytes += next.bytes().len();
                batch.extend(documents.pop_front());
            }
            *held -= (bytes + batch.len() * size_of::<DocBuf>()).min(*held);
            let more = !documents.is_empty();
            Ok((batch, more))
        }
        Source::Made(made) => {
            let batch = made.next_batch(count, BATCH_BYTES, &look)?;
            Ok((batch, !made.is_done()))
        }
        Source::Changes(changes) => Ok((changes.take(count, BATCH_BYTES)?, !changes.has_ended())),
        Source::Tail(tail, _) => {
            let batch = tail.next_batch(count, BATCH_BYTES)?;
            // Without a document there is no position to resume from, as in MongoDB.
            Ok((batch, !tail.is_done() && (tail.position_exists() || count == 0)))
        }
    }
}

/// Returns the first documents of a source, and stores the rest under a cursor.
pub(crate) fn first_batch(
    call: &Call<'_>,
    guard: Guard,
    namespace: String,
    mut source: Source,
    size: usize,
    single: bool,
    at: Seq,
) -> Outcome<Writer> {
    let (batch, mut more) = take(call, &mut source, size)?;
    // Read ahead to see whether anything is left; a cursor for nothing would cost the client a round trip.
    if let Source::Find(cursor) = &mut source
        && more
        && size > 0
        && !single
    {
        more = cursor.has_more_while(&|| call.may_go_on())?;
    }
    let token = if let Source::Changes(changes) = &source { Some(changes.token()) } else { None };
    let id = if more && !single {
        let cursor = Cursor {
            namespace: namespace.clone(),
            guard,
            source,
            user: call.user().to_owned(),
            session: call.session.clone(),
            transaction: call.number.filter(|_| call.in_transaction),
            connection: call.client.connection,
            no_timeout: call.args.flag("noCursorTimeout")?.unwrap_or(false),
            at,
        };
        call.shared.cursors.open(cursor, || call.shared.random())?
    } else {
        0
    };
    let mut out = Writer::new();
    put_cursor(&mut out, "firstBatch", &batch, id, &namespace, token.as_ref());
    put_snapshot_time(call, &mut out, at);
    out.close();
    Ok(out)
}

/// Puts the reply's `cursor`, which is left open.
pub(crate) fn put_cursor(
    out: &mut Writer,
    field: &str,
    batch: &[DocBuf],
    id: i64,
    namespace: &str,
    token: Option<&DocBuf>,
) {
    out.open_document("cursor");
    out.open_array(field);
    batch.iter().for_each(|document| out.put("", Value::Document(document.doc())));
    out.close();
    out.put("id", Value::Int64(id));
    out.put("ns", Value::String(namespace));
    if let Some(token) = token {
        out.put("postBatchResumeToken", Value::Document(token.doc()));
    }
}

/// Puts the time of a snapshot read.
fn put_snapshot_time(call: &Call<'_>, out: &mut Writer, at: Seq) {
    if call.wants_snapshot_time() {
        out.put("atClusterTime", Value::Timestamp(at.0));
    }
}

/// True for a batch of a cursor that has more batches.
pub(crate) fn goes_on(request: &Request, reply: &DocBuf) -> bool {
    let cursor = reply.doc().get("cursor").and_then(Value::as_document);
    let id = cursor.and_then(|cursor| cursor.get("id")).and_then(Value::as_integer);
    matches!(request.body().first(), Some(("getMore", _))) && id.is_some_and(|id| id != 0)
}

/// `killCursors`
pub(crate) fn kill_cursors(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["killCursors", "cursors"])?;
    let cursors = call.args.needed("cursors", call.args.array("cursors")?)?;
    let (mut killed, mut missing) = (Vec::new(), Vec::new());
    for value in cursors.values() {
        let id =
            value.as_integer().ok_or_else(|| Failure::new(Code::TypeMismatch, "a cursor's id is a long"))?;
        if call.shared.cursors.kill(id, call.user()) { killed.push(id) } else { missing.push(id) }
    }
    // A batch that is being built is discarded.
    let of = |command: Doc<'_>| {
        let id = command.get("getMore").and_then(Value::as_integer);
        id.is_some_and(|id| killed.contains(&id))
    };
    call.shared.operations.end_of(|_, command| of(command));
    let mut out = Writer::new();
    for (field, ids) in [
        ("cursorsKilled", killed),
        ("cursorsNotFound", missing),
        ("cursorsAlive", vec![]),
        ("cursorsUnknown", vec![]),
    ] {
        out.open_array(field);
        ids.into_iter().for_each(|id| out.put("", Value::Int64(id)));
        out.close();
    }
    Ok(out)
}

const COUNT_FIELDS: &[&str] = &["count", "query", "limit", "skip", "hint", "collation", "fields"];

/// `count`
pub(crate) fn count(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(COUNT_FIELDS)?;
    call.may(Right::Read, Some(call.database))?;
    let collection = call.collection()?;
    let find = count_of(call, &call.args)?;
    let empty = call.args.document("query")?.is_none_or(Doc::is_empty);
    let plain = ["limit", "skip", "hint"].iter().all(|field| call.args.get(field).is_none());
    let asked = call.asked();
    let counted = if empty && plain && asked.is_none() {
        match collection.estimated_count()?.documents {
            0 if views::named(&collection)?.is_some() => return views::count(call, &collection),
            counted => counted,
        }
    } else {
        let snapshot = call.snapshot()?;
        let look = || call.may_go_on();
        let at = call.documents().at(snapshot.engine()).as_caller(asked);
        match at.with_cancellation(&look).count(&collection, &find) {
            Err(error) if error.is_view() => return views::count(call, &collection),
            counted => counted?,
        }
    };
    let mut out = Writer::new();
    out.put("n", int(counted as i64));
    Ok(out)
}

fn count_of(call: &Call<'_>, args: &Args<'_>) -> Outcome<Find> {
    let options = call.options(args)?;
    let mut find = match args.document("query")? {
        Some(query) => Find::matching(Filter::parse(query, &options)?),
        None => Find::all(),
    };
    if let Some(skip) = args.count("skip")? {
        find = find.skip(skip);
    }
    // Old clients send a negative limit and mean its absolute value.
    if let Some(limit) = args.integer("limit")?.filter(|limit| *limit != 0) {
        find = find.limit(usize::try_from(limit.unsigned_abs()).unwrap_or(usize::MAX));
    }
    if let Some(hint) = hint(args)? {
        find = find.hint(hint);
    }
    Ok(find)
}

const DISTINCT_FIELDS: &[&str] = &["distinct", "key", "query", "collation", "hint"];

/// `distinct`
pub(crate) fn distinct(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(DISTINCT_FIELDS)?;
    call.args.not_offered(&["hint"])?;
    call.may(Right::Read, Some(call.database))?;
    let collection = call.collection()?;
    let path = call.args.needed("key", call.args.text("key")?)?;
    let options = call.options(&call.args)?;
    let filter = match call.args.document("query")? {
        Some(query) => Filter::parse(query, &options)?,
        None => Filter::all(),
    };
    let mut at = call.seq();
    let values = match call.transaction()? {
        Some(transaction) => transaction.run(false, |tx| match is_view(tx, &collection) {
            true => Ok(None),
            false => Ok(Some(tx.distinct(&collection, path, &filter)?)),
        })?,
        None => {
            let snapshot = call.snapshot()?;
            at = snapshot.seq();
            let look = || call.may_go_on();
            let at = call.documents().at(snapshot.engine()).as_caller(call.asked());
            match at.with_cancellation(&look).distinct(&collection, path, &filter) {
                Err(error) if error.is_view() => None,
                values => Some(values?),
            }
        }
    };
    let mut out = Writer::new();
    match values {
        Some(values) => {
            out.open_array("values");
            values.iter().for_each(|value| out.put("", value.value()));
            out.close();
        }
        None => out.put("values", Value::Array(views::distinct(call, &collection, path)?.doc())),
    }
    put_snapshot_time(call, &mut out, at);
    Ok(out)
}

const AGGREGATE_FIELDS: &[&str] = &[
    "aggregate",
    "pipeline",
    "cursor",
    "explain",
    "allowDiskUse",
    "bypassDocumentValidation",
    "hint",
    "collation",
    "let",
];

/// `aggregate`
pub(crate) fn aggregate(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(AGGREGATE_FIELDS)?;
    let stages = call.args.needed("pipeline", call.args.array("pipeline")?)?;
    let first = stages.values().next().and_then(Value::as_document).and_then(Doc::first);
    if let Some(("$changeStream", spec)) = first {
        return change_streams::open(call, spec, stages);
    }
    // Operations are visible to callers who may list them, not to readers of the database's collections.
    let lists_operations = matches!(first, Some(("$currentOp", _)));
    if !lists_operations {
        call.may(Right::Read, Some(call.database))?;
    }
    if call.args.flag("explain")?.unwrap_or(false) {
        return explain_as(call, call.args.doc(), false);
    }
    let cursor = call.args.document("cursor")?.ok_or_else(|| {
        let message = "The 'cursor' option is required, except for aggregate with the explain argument";
        Failure::new(Code::FailedToParse, message)
    })?;
    let size = Args::statement("aggregate.cursor", cursor, &["batchSize"])?.count("batchSize")?;
    let listed = match first {
        Some(("$listSearchIndexes", _)) => return Err(definitions::no_search()),
        Some(("$listLocalSessions", _)) if call.is_strict() => {
            let message = "stage $listLocalSessions is not allowed with 'apiStrict: true' in API Version 1";
            return Err(Failure::new(Code::APIStrictError, message));
        }
        Some(("$listLocalSessions", _)) => Some(sessions_listed(call, stages)?),
        Some(("$currentOp", spec)) => Some(current_ops::stages(call, spec, stages)?),
        Some(("$indexStats", spec)) => Some(index_stats::stages(call, spec, stages)?),
        Some(("$collStats", spec)) => Some(definitions::collection_told(call, spec, stages)?),
        _ => None,
    };
    let stages = listed.as_ref().map_or(stages, DocBuf::doc);
    let pipeline = Pipeline::parse(stages, &call.options(&call.args)?)?;
    if lists_operations && !pipeline.collections().is_empty() {
        call.may(Right::Read, Some(call.database))?;
    }
    let hint = hint(&call.args)?;
    let collection = match call.args.get("aggregate") {
        // The first stage's documents are already there.
        Some(Value::String(_)) if listed.is_some() => None,
        Some(Value::String(_)) => Some(call.collection()?),
        Some(one) if one.as_integer() == Some(1) => None,
        _ => {
            let message = "aggregate needs the name of a collection, or 1";
            return Err(Failure::new(Code::FailedToParse, message));
        }
    };
    if collection.is_none() && !pipeline.brings_documents() {
        let message = "{aggregate: 1} is not valid for a pipeline that does not make its own documents";
        return Err(Failure::new(Code::InvalidNamespace, message));
    }
    if let (Some(collection), Some(_)) = (&collection, &hint) {
        views::refuse_hint(collection)?;
    }
    let mut read: Vec<Collection> = collection.iter().cloned().collect();
    for name in pipeline.collections() {
        read.push(call.documents().collection(call.database, name)?);
    }
    views::add_read(call, &mut read)?;
    let needs = match first {
        Some(("$currentOp", spec)) if !current_ops::shows_all(spec) && read.is_empty() => Needs::Nothing,
        Some(("$currentOp", spec)) if current_ops::shows_all(spec) => Needs::Operations,
        _ => Needs::Database,
    };
    let guard = Guard::new(call.reader(), needs, read)?;
    if let Some(output) = pipeline.output() {
        let namespace = collection.as_ref().map_or_else(|| nameless(call), namespace);
        write_output(call, collection, &pipeline, output)?;
        let source = Source::Ready(VecDeque::new(), 0);
        return first_batch(call, guard, namespace, source, FIRST_BATCH, true, call.seq());
    }
    let (documents, bytes, at) = computed(call, collection.as_ref(), &pipeline, hint.as_ref())?;
    let namespace = collection.as_ref().map_or_else(|| nameless(call), namespace);
    let source = Source::Ready(documents, bytes);
    first_batch(call, guard, namespace, source, size.unwrap_or(FIRST_BATCH), false, at)
}

/// The documents of a pipeline that writes nothing, their bytes, and the commit that they are of.
///
/// # Errors
/// Those of its stages; the documents take too much memory.
pub(crate) fn computed(
    call: &Call<'_>,
    collection: Option<&Collection>,
    pipeline: &Pipeline,
    hint: Option<&Hint>,
) -> Outcome<(VecDeque<DocBuf>, usize, Seq)> {
    if let Some(transaction) = call.transaction()? {
        let (documents, bytes) = transaction.run(false, |tx| {
            let mut input = Ready::default();
            match collection {
                Some(collection) if !pipeline.collections().is_empty() || is_view(tx, collection) => {
                    for document in tx.aggregate(collection, pipeline)? {
                        input.push(document)?;
                    }
                    return Ok(input.done());
                }
                Some(collection) => {
                    let find = input_of(pipeline, hint);
                    tx.visit(collection, &find, &mut |document| input.push(document))?;
                }
                None => {}
            }
            let input = input.done().0.into_iter().map(Ok);
            run(call, pipeline, Box::new(input), &Alone(call))
        })?;
        return Ok((documents, bytes, call.seq()));
    }
    let snapshot = call.snapshot()?;
    let look = || call.may_go_on();
    let others = Others { call, snapshot: &snapshot, look: &look };
    let input: lang::Stream<'_, DocumentsError> = match collection {
        Some(collection) => {
            let all = Filter::all();
            let filter = pipeline.leading_filter().unwrap_or(&all);
            others.stream(collection, &input_of(pipeline, hint), filter)?
        }
        None => Box::new(std::iter::empty()),
    };
    let (documents, bytes) = run(call, pipeline, input, &others)?;
    Ok((documents, bytes, snapshot.seq()))
}

/// Replaces `$listLocalSessions` at the start of a pipeline by the sessions: those with transactions, and the
/// caller's.
fn sessions_listed(call: &Call<'_>, stages: Doc<'_>) -> Outcome<DocBuf> {
    if call.args.get("aggregate").and_then(Value::as_integer) != Some(1) {
        let message = "$listLocalSessions must be run against the database with {aggregate: 1}";
        return Err(Failure::new(Code::InvalidNamespace, message));
    }
    let mut known = call.shared.sessions.ids_of(call.user().as_bytes());
    known.extend(call.session.clone().filter(|own| !known.contains(own)));
    let mut out = Writer::array();
    out.open_document("0");
    out.open_array("$documents");
    for id in &known {
        out.open_document("");
        out.open_document("_id");
        out.put("id", Value::Binary(4, session_parts(id).0));
        out.close();
        out.put("lastUse", Value::DateTime(call.now_ms()));
        out.close();
    }
    out.close();
    out.close();
    for (place, stage) in stages.values().enumerate().skip(1) {
        out.put(&place.to_string(), stage);
    }
    Ok(out.finish())
}

/// The namespace of a pipeline without a collection.
fn nameless(call: &Call<'_>) -> String {
    format!("{}.$cmd.aggregate", call.database)
}

/// Runs a pipeline that ends with `$out` or `$merge`, as one commit.
fn write_output(
    call: &Call<'_>,
    collection: Option<Collection>,
    pipeline: &Pipeline,
    output: &Output,
) -> Outcome<()> {
    let stage = if matches!(output.mode, OutputMode::Replace) { "$out" } else { "$merge" };
    if call.in_transaction {
        let message = format!("{stage} cannot be used in a transaction");
        return Err(Failure::new(Code::OperationNotSupportedInTransaction, message));
    }
    if call.read_level() == Some("linearizable") {
        let message = format!("{stage} cannot be used with a linearizable read concern");
        return Err(Failure::new(Code::InvalidOptions, message));
    }
    let database = output.database.as_deref().unwrap_or(call.database);
    if database == RESERVED {
        return Err(not_on_reserved(stage));
    }
    call.may(Right::Append, Some(database))?;
    if stage == "$merge" {
        call.may(Right::Read, Some(database))?;
    }
    // A pipeline that makes its own documents reads no collection; the one it writes to serves as well.
    let collection = match collection {
        Some(collection) => collection,
        None => call.documents().collection(database, &output.collection)?,
    };
    let validate = validates(call)?;
    call.documents().transact(call.durability(), |tx| {
        tx.validate(validate);
        tx.act_for(call.asked_in(database));
        tx.with_cancellation(&|| call.may_go_on()).aggregate(&collection, pipeline)
    })?;
    Ok(())
}

/// The query for a pipeline's input: by an index where it begins with a match.
fn input_of(pipeline: &Pipeline, hint: Option<&Hint>) -> Find {
    let find = pipeline.leading_filter().map_or_else(Find::all, |filter| Find::matching(filter.clone()));
    match hint {
        Some(hint) => find.hint(hint.clone()),
        None => find,
    }
}

fn run<S: lang::Source<Error = DocumentsError>>(
    call: &Call<'_>,
    pipeline: &Pipeline,
    input: lang::Stream<'_, DocumentsError>,
    source: &S,
) -> Outcome<(VecDeque<DocBuf>, usize)> {
    let mut ready = Ready::default();
    for (place, document) in pipeline.run(input, source, PIPELINE_BYTES_MAX)?.enumerate() {
        ready.push(document?)?;
        if place % DOCUMENTS_PER_LOOK == 0 {
            call.may_go_on()?;
        }
    }
    Ok(ready.done())
}

/// The other collections of the database, at one snapshot.
struct Others<'a> {
    call: &'a Call<'a>,
    snapshot: &'a Snapshot,
    look: CancelCheck<'a>,
}

impl Others<'_> {
    /// The documents of a collection or a view that match; `find` is the query with this filter.
    fn stream(
        &self,
        collection: &Collection,
        find: &Find,
        filter: &Filter,
    ) -> Result<lang::Stream<'_, DocumentsError>, DocumentsError> {
        let snapshot = self.snapshot.engine();
        match collection.find_for(self.call.asked(), snapshot.clone(), find) {
            Ok(cursor) => Ok(Box::new(cursor.documents_while(self.look))),
            Err(error) if error.is_view() => {
                let Some(view) = collection.view_at(snapshot)? else { return Err(error) };
                let options = Options { now_ms: self.call.now_ms(), ..Options::default() };
                view_documents(&view, filter, &options, self)
            }
            Err(error) => Err(error),
        }
    }
}

impl lang::Source for Others<'_> {
    type Error = DocumentsError;

    fn find(&self, name: &str, filter: &Filter) -> Result<lang::Stream<'_, DocumentsError>, DocumentsError> {
        let collection = self.call.documents().collection(self.call.database, name)?;
        self.stream(&collection, &Find::matching(filter.clone()), filter)
    }

    fn look(&self) -> Result<(), DocumentsError> {
        (self.look)()
    }
}

/// For a pipeline inside a transaction that reads no other collections.
struct Alone<'a>(&'a Call<'a>);

impl lang::Source for Alone<'_> {
    type Error = DocumentsError;

    fn find(&self, _: &str, _: &Filter) -> Result<lang::Stream<'_, DocumentsError>, DocumentsError> {
        Ok(Box::new(std::iter::empty()))
    }

    fn look(&self) -> Result<(), DocumentsError> {
        self.0.may_go_on()
    }
}

/// `explain`
pub(crate) fn explain(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["explain", "verbosity"])?;
    call.may(Right::Read, Some(call.database))?;
    let inner = call.args.needed("explain", call.args.document("explain")?)?;
    let run = match call.args.text("verbosity")?.unwrap_or("allPlansExecution") {
        "queryPlanner" => false,
        "executionStats" | "allPlansExecution" => true,
        other => {
            let message =
                format!("Enumeration value '{other}' for field 'explain.verbosity' is not a valid value.");
            return Err(Failure::new(Code::BadValue, message));
        }
    };
    explain_as(call, inner, run)
}

fn explain_as(call: &Call<'_>, inner: Doc<'_>, run: bool) -> Outcome<Writer> {
    let (collection, find) = explained(call, inner)?;
    let snapshot = call.snapshot()?;
    let look = || call.may_go_on();
    let at: DocumentsAt<'_> = call.documents().at(snapshot.engine()).as_caller(call.asked());
    let mut at = at.with_cancellation(&look);
    let explained = at.explain(&collection, &find, run)?;
    let mut out = Writer::new();
    explained.doc().iter().for_each(|(name, value)| out.put(name, value));
    out.put("command", Value::Document(inner));
    out.open_document("serverInfo");
    out.put("version", Value::String(env!("CARGO_PKG_VERSION")));
    out.close();
    Ok(out)
}

/// The query of a command that is explained: the first stages of a pipeline, the filter of a write.
fn explained(call: &Call<'_>, inner: Doc<'_>) -> Outcome<(Collection, Find)> {
    let refuse = |message: &str| Failure::new(Code::FailedToParse, message);
    let Some((name, Value::String(collection))) = inner.first() else {
        return Err(refuse("explain needs a command on a collection"));
    };
    let collection = call.documents().collection(call.database, collection)?;
    let statement = |list: &'static str| {
        let statements = inner.get(list).and_then(Value::as_array);
        let mut statements = statements.into_iter().flat_map(|list| list.values());
        match (statements.next().and_then(Value::as_document), statements.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(refuse("explain takes one statement")),
        }
    };
    let checked = |name: &'static str, fields: &[&str]| {
        let args = Args::new(name, inner);
        args.only(fields).map(|()| args)
    };
    let find = match name {
        "find" => find_of(call, &checked("find", FIND_FIELDS)?)?,
        "count" => count_of(call, &checked("count", COUNT_FIELDS)?)?,
        "distinct" => looked_for(call, &checked("distinct", DISTINCT_FIELDS)?, "query")?,
        "aggregate" => {
            let args = checked("aggregate", AGGREGATE_FIELDS)?;
            let stages = args.needed("pipeline", args.array("pipeline")?)?;
            input_of(&Pipeline::parse(stages, &call.options(&args)?)?, hint(&args)?.as_ref())
        }
        "findAndModify" | "findandmodify" => {
            looked_for(call, &checked("findAndModify", write::MODIFY_FIELDS)?, "query")?.limit(1)
        }
        "update" => {
            let args = Args::statement("update.updates", statement("updates")?, write::UPDATE_FIELDS)?;
            looked_for(call, &args, "q")?
        }
        "delete" => {
            let args = Args::statement("delete.deletes", statement("deletes")?, write::DELETE_FIELDS)?;
            looked_for(call, &args, "q")?
        }
        other => {
            return Err(Failure::new(Code::NotImplemented, format!("explain of {other} is not offered")));
        }
    };
    Ok((collection, find))
}

/// The query in `field`.
fn looked_for(call: &Call<'_>, args: &Args<'_>, field: &str) -> Outcome<Find> {
    let find = match args.document(field)? {
        Some(query) => Find::matching(Filter::parse(query, &call.options(args)?)?),
        None => Find::all(),
    };
    Ok(match hint(args)? {
        Some(hint) => find.hint(hint),
        None => find,
    })
}
