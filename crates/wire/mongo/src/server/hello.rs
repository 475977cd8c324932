//! The handshake, which describes the server. It reports the primary of a replica set without other members,
//! so that drivers use sessions, transactions, retryable writes and change streams.

use core::time::Duration;

use ropewalk::documents::lang::{DOCUMENT_BYTES_MAX, Value, Writer};

use crate::auth::login;
use crate::call::Call;
use crate::protocol::compress::Compressor;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::protocol::frame::{MESSAGE_BYTES_MAX, Request, WRITES_MAX};
use crate::state::Shared;
use crate::state::sessions::SESSION_MINUTES;

/// The replica set's name.
pub(crate) const SET_NAME: &str = "ropewalk";
/// Supported protocol version: that of MongoDB 7.0.
const WIRE_VERSION_MAX: i32 = 21;
/// Longest wait of an awaitable hello.
const WAIT_MAX_MS: i64 = 600_000;

/// `hello` and its older names.
pub(crate) fn hello(call: &mut Call<'_>) -> Outcome<Writer> {
    let shared = call.shared;
    if call.args.flag("loadBalanced")?.unwrap_or(false) {
        return Err(Failure::new(Code::BadValue, "load-balanced connections are not supported"));
    }
    let me = me(call);
    let mut out = Writer::new();
    put_topology(shared, &mut out);
    let legacy = call.args.name != "hello";
    out.put(if legacy { "ismaster" } else { "isWritablePrimary" }, Value::Bool(true));
    if call.args.flag("helloOk")?.unwrap_or(false) {
        out.put("helloOk", Value::Bool(true));
    }
    out.put("setName", Value::String(SET_NAME));
    out.put("setVersion", Value::Int32(1));
    out.put("secondary", Value::Bool(false));
    out.open_array("hosts");
    out.put("", Value::String(&me));
    out.close();
    out.put("primary", Value::String(&me));
    out.put("me", Value::String(&me));
    out.put("electionId", Value::ObjectId([0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1]));
    put_last_write(call, &mut out);
    out.put("maxBsonObjectSize", Value::Int32(DOCUMENT_BYTES_MAX as i32));
    out.put("maxMessageSizeBytes", Value::Int32(MESSAGE_BYTES_MAX as i32));
    out.put("maxWriteBatchSize", Value::Int32(WRITES_MAX as i32));
    out.put("localTime", Value::DateTime(call.now_ms()));
    out.put("logicalSessionTimeoutMinutes", Value::Int32(SESSION_MINUTES));
    out.put("connectionId", Value::Int32(call.client.connection));
    out.put("minWireVersion", Value::Int32(0));
    out.put("maxWireVersion", Value::Int32(WIRE_VERSION_MAX));
    out.put("readOnly", Value::Bool(false));
    put_compression(call, &mut out)?;
    if call.args.text("saslSupportedMechs")?.is_some() {
        out.open_array("saslSupportedMechs");
        login::MECHANISMS.iter().for_each(|name| out.put("", Value::String(name)));
        out.close();
    }
    // A login included in the handshake, to save a round trip. If it cannot begin, the client sends it again.
    if let Some(begun) = call.args.document("speculativeAuthenticate")?
        && let Ok(answer) = login::begin(call, begun)
    {
        out.put("speculativeAuthenticate", Value::Document(answer.doc()));
    }
    Ok(out)
}

/// The server's address for this client: drivers connect to the one they receive.
fn me(call: &Call<'_>) -> String {
    let announced = call.shared.settings.announce.clone();
    announced.or_else(|| call.client.local.clone()).unwrap_or_else(|| "localhost:27017".to_owned())
}

fn put_topology(shared: &Shared, out: &mut Writer) {
    out.open_document("topologyVersion");
    out.put("processId", Value::ObjectId(shared.process));
    out.put("counter", Value::Int64(0));
    out.close();
}

fn put_last_write(call: &Call<'_>, out: &mut Writer) {
    let seq = call.seq().0;
    let now = Value::DateTime(call.now_ms());
    out.open_document("lastWrite");
    for (optime, date) in [("opTime", "lastWriteDate"), ("majorityOpTime", "majorityWriteDate")] {
        out.open_document(optime);
        out.put("ts", Value::Timestamp(seq));
        out.put("t", Value::Int64(1));
        out.close();
        out.put(date, now);
    }
    out.close();
}

/// Negotiates compressors: those of the client that we support, in its order.
fn put_compression(call: &mut Call<'_>, out: &mut Writer) -> Outcome<()> {
    let Some(offered) = call.args.array("compression")? else { return Ok(()) };
    let known = |name: Value<'_>| Compressor::ALL.into_iter().find(|c| Some(c.name()) == name.as_str());
    call.client.compressors = offered.values().filter_map(known).collect();
    out.open_array("compression");
    call.client.compressors.iter().for_each(|compressor| out.put("", Value::String(compressor.name())));
    out.close();
    Ok(())
}

/// The application's name, if this request contains it.
pub(crate) fn application(request: &Request) -> Option<String> {
    let client = request.body().get("client")?.as_document()?;
    client.get("application")?.as_document()?.get("name")?.as_str().map(str::to_owned)
}

/// How long a hello waits for a change: `None` when it does not wait, which is the rule.
pub(crate) fn pause(shared: &Shared, request: &Request) -> Option<Duration> {
    let body = request.body();
    let (name, _) = body.first()?;
    if !["hello", "isMaster", "ismaster"].contains(&name) {
        return None;
    }
    let seen = body.get("topologyVersion")?.as_document()?;
    let same = matches!(seen.get("processId"), Some(Value::ObjectId(process)) if process == shared.process)
        && seen.get("counter").and_then(Value::as_integer) == Some(0);
    let millis =
        body.get("maxAwaitTimeMS")?.as_integer().filter(|millis| (0..=WAIT_MAX_MS).contains(millis))?;
    same.then(|| Duration::from_millis(millis as u64))
}
