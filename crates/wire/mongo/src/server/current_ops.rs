//! Commands on running operations: `currentOp`, `$currentOp`, `killOp`.

use ropewalk::documents::lang::{Doc, DocBuf, Filter, Value, Writer};
use ropewalk_auth::Right;

use crate::call::Call;
use crate::protocol::args::Args;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::protocol::reply::check_list;
use crate::state::operations::Wish;

/// Which operations are listed.
struct Listed {
    /// Those of every user.
    all_users: bool,
    /// Connections that run nothing, too.
    idle: bool,
    /// Truncate long commands.
    short: bool,
}

/// Passes the operations to `each`, one at a time: a long command that runs on every connection is many times
/// that command.
fn listed(call: &Call<'_>, listed: &Listed, mut each: impl FnMut(DocBuf) -> Outcome<()>) -> Outcome<()> {
    if listed.all_users {
        call.may(Right::Admin, None)?;
    }
    let wish = Wish {
        user: (!listed.all_users).then(|| call.user()),
        idle: listed.idle,
        short: listed.short,
        host: call.client.local.as_deref().unwrap_or("local"),
        now_ms: call.now_ms(),
    };
    call.shared.operations.list(&wish).try_for_each(&mut each)
}

/// Rejects a command or stage that belongs to database `admin`.
fn of_admin(call: &Call<'_>, what: &str) -> Outcome<()> {
    if call.database == "admin" {
        return Ok(());
    }
    Err(Failure::new(Code::Unauthorized, format!("{what} may only be run against the admin database.")))
}

/// `currentOp`: its options, and a filter made of all other fields.
pub(crate) fn current_op(call: &mut Call<'_>) -> Outcome<Writer> {
    of_admin(call, "currentOp")?;
    let own = call.args.flag("$ownOps")?.unwrap_or(false);
    let idle = call.args.flag("$all")?.unwrap_or(false);
    let short = call.args.flag("$truncateOps")?.unwrap_or(false);
    if !own {
        call.may(Right::Admin, None)?;
    }
    let mut filter = Writer::new();
    for (name, value) in call.args.doc().iter().skip(1) {
        if !["$ownOps", "$all", "$truncateOps"].contains(&name) && !Args::is_generic(name) {
            filter.put(name, value);
        }
    }
    let filter = Filter::parse(filter.finish().doc(), &call.options(&call.args)?)?;
    let mut out = Writer::new();
    out.open_array("inprog");
    listed(call, &Listed { all_users: !own, idle, short }, |operation| {
        if filter.matches(operation.doc())? {
            out.put("", Value::Document(operation.doc()));
            check_list(&out, "operations", "use a filter, or set $truncateOps")?;
        }
        Ok(())
    })?;
    out.close();
    Ok(out)
}

/// A pipeline whose first stage is replaced by documents.
pub(crate) fn with_documents(documents: Writer, stages: Doc<'_>) -> DocBuf {
    let mut out = Writer::array();
    out.open_document("");
    out.put("$documents", Value::Array(documents.finish().doc()));
    out.close();
    for stage in stages.values().skip(1) {
        out.put("", stage);
    }
    out.finish()
}

const STAGE_FIELDS: &[&str] = &[
    "allUsers",
    "idleConnections",
    "truncateOps",
    "localOps",
    "idleCursors",
    "idleSessions",
    "backtrace",
    "targetAllNodes",
];

/// Replaces `$currentOp` at the start of a pipeline by the operations.
pub(crate) fn stages(call: &Call<'_>, spec: Value<'_>, stages: Doc<'_>) -> Outcome<DocBuf> {
    of_admin(call, "$currentOp")?;
    if call.args.get("aggregate").and_then(Value::as_integer) != Some(1) {
        let message = "$currentOp must be run against the 'admin' database with {aggregate: 1}";
        return Err(Failure::new(Code::InvalidNamespace, message));
    }
    let Some(spec) = spec.as_document() else {
        let message = "$currentOp options must be specified in an object";
        return Err(Failure::new(Code::FailedToParse, message));
    };
    let args = Args::statement("$currentOp", spec, STAGE_FIELDS)?;
    args.not_offered(&["idleCursors", "idleSessions", "backtrace", "targetAllNodes"])?;
    args.flag("localOps")?;
    let wish = Listed {
        all_users: args.flag("allUsers")?.unwrap_or(false),
        idle: args.flag("idleConnections")?.unwrap_or(false),
        short: args.flag("truncateOps")?.unwrap_or(false),
    };
    let mut out = Writer::array();
    listed(call, &wish, |operation| {
        out.open_document("");
        out.open_document("$literal");
        operation.doc().iter().for_each(|(name, value)| out.put(name, value));
        out.close();
        out.close();
        Ok(check_list(&out, "operations", "set truncateOps")?)
    })?;
    Ok(with_documents(out, stages))
}

/// Whether the stage `$currentOp` lists the operations of every user.
pub(crate) fn shows_all(spec: Value<'_>) -> bool {
    spec.as_document().and_then(|spec| spec.get("allUsers")).is_some_and(Value::is_truthy)
}

/// `killOp`
pub(crate) fn kill_op(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["killOp", "op"])?;
    of_admin(call, "killOp")?;
    let number = call.args.needed("op", call.args.integer("op")?)?;
    let Ok(number) = i32::try_from(number) else {
        let message = format!("invalid op : {number}. Op ID cannot be represented with 32 bits");
        return Err(Failure::new(Code::InvalidOpId, message));
    };
    let may_kill = || call.may(Right::Admin, None);
    call.shared.operations.kill(number, call.user(), may_kill)?;
    let mut out = Writer::new();
    out.put("info", Value::String("attempting to kill op"));
    Ok(out)
}
