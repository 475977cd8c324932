//! Commands that describe the server itself.

use ropewalk::documents::lang::{DOCUMENT_BYTES_MAX, Value, Writer};
use ropewalk_auth::{Caller, Right, Roles};

use crate::auth::login::MECHANISMS;
use crate::auth::roles::put_authenticated;
use crate::call::Call;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::protocol::frame::MESSAGE_BYTES_MAX;
use crate::server::hello::SET_NAME;

/// The MongoDB version whose protocol and commands this server follows; drivers choose features by it.
const VERSION: &str = "7.0.0";
const VERSION_PARTS: [i32; 4] = [7, 0, 0, 0];

/// `ping`
pub(crate) fn ping(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["ping"])?;
    Ok(Writer::new())
}

/// `buildInfo`
pub(crate) fn build_info(call: &mut Call<'_>) -> Outcome<Writer> {
    let mut out = Writer::new();
    out.put("version", Value::String(VERSION));
    out.put("gitVersion", Value::String("ropewalk"));
    out.put("ropewalkVersion", Value::String(env!("CARGO_PKG_VERSION")));
    out.open_array("modules");
    out.close();
    out.put("sysInfo", Value::String("ropewalk"));
    out.open_array("versionArray");
    VERSION_PARTS.iter().for_each(|part| out.put("", Value::Int32(*part)));
    out.close();
    out.put("bits", Value::Int32(64));
    out.put("debug", Value::Bool(cfg!(debug_assertions)));
    out.put("maxBsonObjectSize", Value::Int32(DOCUMENT_BYTES_MAX as i32));
    out.open_array("storageEngines");
    out.put("", Value::String("ropewalk"));
    out.close();
    call.args.only(&[call.args.name])?;
    Ok(out)
}

/// `whatsmyuri`
pub(crate) fn whats_my_uri(call: &mut Call<'_>) -> Outcome<Writer> {
    let mut out = Writer::new();
    out.put("you", Value::String(&call.client.peer_text));
    Ok(out)
}

/// `connectionStatus`
pub(crate) fn connection_status(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["connectionStatus", "showPrivileges"])?;
    let privileges = call.args.flag("showPrivileges")?.unwrap_or(false);
    let mut out = Writer::new();
    out.open_document("authInfo");
    out.open_array("authenticatedUsers");
    if call.client.logged_in {
        out.open_document("");
        out.put("user", Value::String(call.user()));
        out.put("db", Value::String("admin"));
        out.close();
    }
    out.close();
    let roles = call.caller.as_ref().filter(|_| call.client.logged_in).map(Caller::roles);
    put_authenticated(roles.unwrap_or(&Roles::new()), privileges, &mut out);
    out.close();
    Ok(out)
}

/// `hostInfo`
pub(crate) fn host_info(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["hostInfo"])?;
    call.may(Right::Read, None)?;
    let mut out = Writer::new();
    out.open_document("system");
    out.put("currentTime", Value::DateTime(call.now_ms()));
    out.put("cpuAddrSize", Value::Int32(64));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    out.put("numCores", Value::Int32(processors as i32));
    out.put("cpuArch", Value::String(std::env::consts::ARCH));
    out.close();
    out.open_document("os");
    out.put("type", Value::String(std::env::consts::OS));
    out.close();
    Ok(out)
}

/// `getParameter`: the few that clients use.
pub(crate) fn get_parameter(call: &mut Call<'_>) -> Outcome<Writer> {
    let all = call.args.get("getParameter").and_then(Value::as_str) == Some("*");
    let mut out = Writer::new();
    let mut found = all;
    for (name, _) in call.args.doc().iter().skip(1) {
        if name.starts_with('$')
            || ["lsid", "txnNumber", "comment", "apiVersion", "maxTimeMS"].contains(&name)
        {
            continue;
        }
        match name {
            "featureCompatibilityVersion" | "authenticationMechanisms" | "quiet" => found = true,
            "enableTestCommands" | "requireApiVersion" | "transactionLifetimeLimitSeconds" => found = true,
            _ => {
                return Err(Failure::new(Code::InvalidOptions, format!("no option found to get: {name}")));
            }
        }
    }
    if !found {
        return Err(Failure::new(Code::InvalidOptions, "no option found to get"));
    }
    let wanted = |name: &str| all || call.args.get(name).is_some();
    if wanted("featureCompatibilityVersion") {
        out.open_document("featureCompatibilityVersion");
        out.put("version", Value::String("7.0"));
        out.close();
    }
    if wanted("authenticationMechanisms") {
        out.open_array("authenticationMechanisms");
        MECHANISMS.iter().for_each(|name| out.put("", Value::String(name)));
        out.close();
    }
    let tests = call.shared.fail_points.offered;
    for (name, set) in [("quiet", false), ("enableTestCommands", tests), ("requireApiVersion", false)] {
        if wanted(name) {
            out.put(name, Value::Bool(set));
        }
    }
    if wanted("transactionLifetimeLimitSeconds") {
        out.put("transactionLifetimeLimitSeconds", Value::Int32(60));
    }
    Ok(out)
}

/// `getCmdLineOpts`: empty for clients; `ropewalk serve --check` prints the settings.
pub(crate) fn get_cmd_line_opts(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["getCmdLineOpts"])?;
    call.may(Right::Admin, None)?;
    let mut out = Writer::new();
    out.open_array("argv");
    out.put("", Value::String("ropewalk"));
    out.close();
    out.open_document("parsed");
    out.open_document("replication");
    out.put("replSet", Value::String(SET_NAME));
    out.close();
    out.close();
    Ok(out)
}

/// `getLog`: the log goes to standard error and is not stored.
pub(crate) fn get_log(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["getLog"])?;
    call.may(Right::Admin, None)?;
    let mut out = Writer::new();
    match call.args.text("getLog")? {
        Some("*") => {
            out.open_array("names");
            ["global", "startupWarnings"].iter().for_each(|name| out.put("", Value::String(name)));
            out.close();
        }
        Some("global" | "startupWarnings") => {
            out.put("totalLinesWritten", Value::Int32(0));
            out.open_array("log");
            out.close();
        }
        other => {
            let message = format!("No log named '{}'", other.unwrap_or_default());
            return Err(Failure::new(Code::OperationFailed, message));
        }
    }
    Ok(out)
}

/// `serverStatus`
pub(crate) fn server_status(call: &mut Call<'_>) -> Outcome<Writer> {
    call.may(Right::Read, None)?;
    let shared = call.shared;
    let stats = shared.service.database().stats();
    let mut out = Writer::new();
    out.put("host", Value::String(call.client.local.as_deref().unwrap_or("local")));
    out.put("version", Value::String(VERSION));
    out.put("process", Value::String("ropewalk"));
    out.put("pid", Value::Int64(i64::from(std::process::id())));
    out.put("uptime", Value::Double(shared.uptime().as_secs_f64()));
    out.put("uptimeMillis", Value::Int64(shared.uptime().as_millis() as i64));
    out.put("localTime", Value::DateTime(call.now_ms()));
    out.open_document("connections");
    let open = shared.open_connections.load(std::sync::atomic::Ordering::Relaxed);
    out.put("current", Value::Int32(open));
    out.put("totalCreated", Value::Int32(shared.connections.load(std::sync::atomic::Ordering::Relaxed)));
    out.close();
    out.open_document("repl");
    out.put("setName", Value::String(SET_NAME));
    let is_primary = shared.service.database().leads();
    out.put("isWritablePrimary", Value::Bool(is_primary));
    out.put("secondary", Value::Bool(!is_primary));
    out.close();
    let (sessions, transactions) = shared.sessions.counts();
    out.open_document("logicalSessionRecordCache");
    out.put("activeSessionsCount", Value::Int64(sessions as i64));
    out.close();
    out.open_document("transactions");
    out.put("currentOpen", Value::Int64(transactions as i64));
    out.close();
    out.open_document("metrics");
    out.open_document("cursor");
    out.open_document("open");
    out.put("total", Value::Int64(shared.cursors.count() as i64));
    out.close();
    out.close();
    out.close();
    out.open_document("storageEngine");
    out.put("name", Value::String("ropewalk"));
    out.put("supportsCommittedReads", Value::Bool(true));
    out.put("persistent", Value::Bool(true));
    out.close();
    out.open_document("ropewalk");
    out.put("commits", Value::Int64(stats.seq.0 as i64));
    out.put("logSyncs", Value::Int64(stats.log.syncs as i64));
    out.put("logAppendedBytes", Value::Int64(stats.log.appended_bytes as i64));
    out.put("memtableBytes", Value::Int64(stats.write_bytes as i64));
    out.put("messageBytesMax", Value::Int64(MESSAGE_BYTES_MAX as i64));
    out.close();
    Ok(out)
}
