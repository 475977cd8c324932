//! Change streams: `$changeStream` as the first stage of a pipeline, and `getMore`, which waits for events.
//!
//! A stream reads the log, so it costs nothing between batches, and resumes from any position that the log
//! still holds. It holds no thread while it waits for a visible commit, the client's `maxTimeMS`, or
//! shutdown.

use std::str::FromStr as _;
use std::time::{Duration, Instant};

use ropewalk::Seq;
use ropewalk::documents::lang::{Doc, DocBuf, Owned, Pipeline, Value, Writer};
use ropewalk::documents::{ResumeToken, Target, Watch};
use ropewalk_wire::run_unpinned;

use crate::call::Call;
use crate::crud::read::{FIRST_BATCH, first_batch, put_cursor, take};
use crate::crud::views;
use crate::protocol::args::Args;
use crate::protocol::failure::{Code, Failure, Outcome, interrupted, shutting_down};
use crate::state::changes::Changes;
use crate::state::cursors::{Cursor, Source};
use crate::state::guard::Guard;

/// How long a `getMore` waits by default, as in MongoDB.
const WAIT: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Stages that may follow `$changeStream`.
const STAGES: &[&str] =
    &["$match", "$project", "$addFields", "$set", "$unset", "$replaceRoot", "$replaceWith", "$redact"];
const FIELDS: &[&str] = &[
    "fullDocument",
    "fullDocumentBeforeChange",
    "resumeAfter",
    "startAfter",
    "startAtOperationTime",
    "allChangesForCluster",
    "showExpandedEvents",
];

fn token(args: &Args<'_>, field: &str) -> Outcome<Option<ResumeToken>> {
    let Some(token) = args.document(field)? else { return Ok(None) };
    let data = token.get("_data").and_then(Value::as_str);
    let parsed = data.and_then(|data| ResumeToken::from_str(data).ok());
    let bad =
        || Failure::new(Code::InvalidResumeToken, format!("{field} holds no resume token of this server"));
    parsed.map(Some).ok_or_else(bad)
}

/// Opens a change stream: `aggregate` with `$changeStream`.
pub(crate) fn open(call: &mut Call<'_>, spec: Value<'_>, stages: Doc<'_>) -> Outcome<Writer> {
    if call.in_transaction {
        let message = "$changeStream cannot be used in a transaction";
        return Err(Failure::new(Code::OperationNotSupportedInTransaction, message));
    }
    if !matches!(call.read_level(), None | Some("majority")) {
        let message = "$changeStream is only supported with the 'majority' read concern";
        return Err(Failure::new(Code::InvalidOptions, message));
    }
    let spec = spec.as_document().ok_or_else(|| {
        Failure::new(Code::TypeMismatch, "the $changeStream stage must be specified as an object")
    })?;
    let spec = Args::statement("$changeStream", spec, FIELDS)?;
    let expanded = spec.flag("showExpandedEvents")?.unwrap_or(false);
    let full_document = match spec.text("fullDocument")?.unwrap_or("default") {
        "default" => false,
        "updateLookup" | "whenAvailable" | "required" => true,
        other => {
            let message = format!(
                "Enumeration value '{other}' for field '$changeStream.fullDocument' is not a valid value."
            );
            return Err(Failure::new(Code::BadValue, message));
        }
    };
    if !matches!(spec.text("fullDocumentBeforeChange")?, None | Some("off" | "whenAvailable")) {
        let message = "pre-images of documents are not supported";
        return Err(Failure::new(Code::NotImplemented, message));
    }
    let everything = spec.flag("allChangesForCluster")?.unwrap_or(false);
    let target = match call.args.get("aggregate") {
        Some(Value::String(_)) if !everything => {
            let collection = call.collection()?;
            views::refuse(&collection)?;
            Target::Collection {
                database: collection.database().to_owned(),
                name: collection.name().to_owned(),
            }
        }
        Some(one) if one.as_integer() == Some(1) => match (everything, call.database) {
            (true, "admin") => Target::All,
            (true, _) => {
                let message = "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database";
                return Err(Failure::new(Code::InvalidOptions, message));
            }
            (false, database) => Target::Database(database.to_owned()),
        },
        _ => return Err(Failure::new(Code::InvalidOptions, "a change stream is of a collection, or of 1")),
    };
    let guard = Guard::watching(call.reader(), &target)?;
    let after = [token(&spec, "resumeAfter")?, token(&spec, "startAfter")?];
    if after.first().copied().flatten().is_some_and(ResumeToken::is_of_invalidate) {
        let message = "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate notification.";
        return Err(Failure::new(Code::InvalidResumeToken, message));
    }
    let from = match spec.get("startAtOperationTime") {
        None => None,
        Some(Value::Timestamp(seq)) => Some(Seq(seq)),
        Some(_) => return Err(Failure::new(Code::TypeMismatch, "startAtOperationTime is a timestamp")),
    };
    if after.iter().flatten().count() + usize::from(from.is_some()) > 1 {
        let message = "only one of resumeAfter, startAfter and startAtOperationTime may be given";
        return Err(Failure::new(Code::InvalidOptions, message));
    }
    let watch = Watch { after: after.into_iter().flatten().next(), from, full_document, expanded };
    let pipeline = pipeline(call, stages)?;
    let cursor = call.args.document("cursor")?.unwrap_or(Doc::empty());
    let size = Args::statement("aggregate.cursor", cursor, &["batchSize"])?.count("batchSize")?;
    let namespace = match &target {
        Target::Collection { database, name } => format!("{database}.{name}"),
        _ => format!("{}.$cmd.aggregate", call.database),
    };
    let stream = call.documents().watch(target, watch, pipeline)?;
    let stream = if guard.is_bound() { stream.hiding_ruled() } else { stream };
    let source = Source::Changes(Box::new(Changes::new(stream)));
    first_batch(call, guard, namespace, source, size.unwrap_or(FIRST_BATCH), false, call.seq())
}

/// The stages after `$changeStream`.
fn pipeline(call: &Call<'_>, stages: Doc<'_>) -> Outcome<Option<Pipeline>> {
    let rest = Owned::array(stages.values().skip(1));
    let Some(rest) = rest.value().as_array().filter(|rest| !rest.is_empty()) else { return Ok(None) };
    let pipeline = Pipeline::parse(rest, &call.options(&call.args)?)?;
    for stage in rest.values() {
        let name = stage.as_document().and_then(Doc::first).map_or("", |(name, _)| name);
        if !STAGES.contains(&name) {
            let message = format!("{name} is not permitted in a $changeStream pipeline");
            return Err(Failure::new(Code::IllegalOperation, message));
        }
    }
    Ok(Some(pipeline))
}

/// `getMore`
pub(crate) async fn get_more(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["getMore", "collection", "batchSize"])?;
    let id = call.args.needed("getMore", call.args.integer("getMore")?)?;
    let name = call.args.needed("collection", call.args.text("collection")?)?;
    let size = call.args.count("batchSize")?.filter(|size| *size > 0).unwrap_or(usize::MAX);
    let wait = call.args.max_time()?;
    let shared = call.shared;
    let mut cursor = shared.cursors.take(id, call.user())?;
    if let Err(refused) = belongs(call, &cursor, name, wait) {
        shared.cursors.put_back(id, cursor);
        return Err(refused);
    }
    let taken = match (cursor.guard.check(call.reader()), &mut cursor.source) {
        (Err(refused), _) => Err(refused),
        (Ok(()), Source::Changes(_) | Source::Tail(_, true)) => {
            awaited(call, &mut cursor, size, wait.unwrap_or(WAIT).min(WAIT_MAX)).await
        }
        (Ok(()), source) => run_unpinned(|| call.budget().run(|| take(call, source, size))),
    };
    // A right may have been withdrawn between the check and the batch; that ends the cursor.
    let taken = taken.and_then(|taken| {
        call.look_at_caller()?;
        cursor.guard.check(call.reader())?;
        Ok(taken)
    });
    let token = if let Source::Changes(changes) = &cursor.source { Some(changes.token()) } else { None };
    let (namespace, at) = (cursor.namespace.clone(), cursor.at);
    let (batch, more) = match taken {
        Ok(taken) => taken,
        Err(failure) => {
            shared.cursors.kill(id, call.user());
            return Err(failure);
        }
    };
    if more {
        shared.cursors.put_back(id, cursor);
    } else {
        shared.cursors.kill(id, call.user());
    }
    let mut out = Writer::new();
    put_cursor(&mut out, "nextBatch", &batch, if more { id } else { 0 }, &namespace, token.as_ref());
    if call.wants_snapshot_time() {
        out.put("atClusterTime", Value::Timestamp(at.0));
    }
    out.close();
    Ok(out)
}

/// Rejects a `getMore` for a cursor of another session, transaction or namespace.
fn belongs(call: &Call<'_>, cursor: &Cursor, name: &str, wait: Option<Duration>) -> Outcome<()> {
    let asked = format!("{}.{name}", call.database);
    if asked != cursor.namespace {
        let message = format!(
            "Requested getMore on namespace '{asked}', but cursor belongs to a different namespace {}",
            cursor.namespace
        );
        return Err(Failure::new(Code::Unauthorized, message));
    }
    if cursor.session.is_some() && cursor.session != call.session {
        let message = "Cannot run getMore on a cursor of another session";
        return Err(Failure::new(Code::ForeignSession, message));
    }
    if cursor.transaction != call.number.filter(|_| call.in_transaction) {
        let message = "Cannot run getMore on a cursor of another transaction";
        return Err(Failure::new(Code::ForeignTransaction, message));
    }
    if wait.is_some() && !matches!(cursor.source, Source::Changes(_) | Source::Tail(_, true)) {
        let message = "cannot set maxTimeMS on getMore command for a non-awaitData cursor";
        return Err(Failure::new(Code::BadValue, message));
    }
    Ok(())
}

/// Waits for the next events or documents.
async fn awaited(
    call: &mut Call<'_>,
    cursor: &mut Cursor,
    size: usize,
    wait: Duration,
) -> Outcome<(Vec<DocBuf>, bool)> {
    let until = Instant::now() + wait;
    let database = call.shared.service.database();
    let stop = call.shared.service.stop();
    loop {
        let seq = database.seq();
        call.look_at_caller()?;
        cursor.guard.check(call.reader())?;
        let (batch, more) = run_unpinned(|| take(call, &mut cursor.source, size))?;
        if !batch.is_empty() || !more || Instant::now() >= until {
            return Ok((batch, more));
        }
        tokio::select! {
            visible = database.wait_visible_after(seq) => { visible.map_err(ropewalk::Error::from)?; }
            () = tokio::time::sleep_until(until.into()) => {}
            () = stop.wait() => return Err(shutting_down()),
            () = call.running.ended() => return Err(interrupted()),
        }
    }
}
