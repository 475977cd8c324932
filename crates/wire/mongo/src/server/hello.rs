//! The handshake, which describes the server. It reports a member of a replica set, so that drivers use sessions,
//! transactions, retryable writes and change streams. A server that is alone is its only member.

use core::time::Duration;

use ropewalk::documents::lang::{DOCUMENT_BYTES_MAX, Value, Writer};

use crate::auth::login;
use crate::call::Call;
use crate::protocol::compress::Compressor;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::protocol::frame::{MESSAGE_BYTES_MAX, Request, WRITES_MAX};
use crate::state::Shared;
use crate::state::sessions::SESSION_MINUTES;
use crate::state::topology::Topology;

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
    let version = shared.topology_version();
    let topology = shared.topology(call.client.local.as_deref());
    let mut out = Writer::new();
    put_version(shared, version, &mut out);
    let legacy = call.args.name != "hello";
    out.put(if legacy { "ismaster" } else { "isWritablePrimary" }, Value::Bool(topology.is_primary));
    if call.args.flag("helloOk")?.unwrap_or(false) {
        out.put("helloOk", Value::Bool(true));
    }
    out.put("setName", Value::String(SET_NAME));
    out.put("setVersion", Value::Int32(1));
    out.put("secondary", Value::Bool(!topology.is_primary));
    out.open_array("hosts");
    topology.hosts.iter().for_each(|host| out.put("", Value::String(host)));
    out.close();
    if let Some(primary) = &topology.primary {
        out.put("primary", Value::String(primary));
    }
    out.put("me", Value::String(&topology.me));
    if topology.is_primary {
        out.put("electionId", Value::ObjectId(election(topology.term)));
    }
    put_last_write(call, &topology, &mut out);
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

/// The election of a term: drivers take the primary with the larger one.
fn election(term: u64) -> [u8; 12] {
    let mut id = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
    if let Some(end) = id.last_chunk_mut::<8>() {
        *end = term.to_be_bytes();
    }
    id
}

/// Adds the version of the topology, which replies about the role of the server have.
pub(crate) fn put_topology(shared: &Shared, out: &mut Writer) {
    put_version(shared, shared.topology_version(), out);
}

fn put_version(shared: &Shared, version: i64, out: &mut Writer) {
    out.open_document("topologyVersion");
    out.put("processId", Value::ObjectId(shared.process));
    out.put("counter", Value::Int64(version));
    out.close();
}

fn put_last_write(call: &Call<'_>, topology: &Topology, out: &mut Writer) {
    let seq = call.seq().0;
    let term = i64::try_from(topology.term).unwrap_or(i64::MAX);
    // Commits that a member lacks are newer than this.
    let now = Value::DateTime(call.now_ms().saturating_sub(topology.lag_ms));
    out.open_document("lastWrite");
    for (optime, date) in [("opTime", "lastWriteDate"), ("majorityOpTime", "majorityWriteDate")] {
        out.open_document(optime);
        out.put("ts", Value::Timestamp(seq));
        out.put("t", Value::Int64(term));
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

/// Interval at which a hello that waits looks for a change of the topology.
const LOOK: Duration = Duration::from_millis(50);

/// Waits for `pause`, or until the topology is no longer that of the version `seen`.
pub(crate) async fn wait_for_change(shared: &Shared, seen: i64, pause: Duration) {
    if shared.service.cluster().is_none() {
        // The topology of one server never changes.
        return tokio::time::sleep(pause).await;
    }
    let until = tokio::time::Instant::now() + pause;
    while shared.topology_version() == seen && tokio::time::Instant::now() < until {
        tokio::time::sleep(LOOK.min(pause)).await;
    }
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
        && seen.get("counter").and_then(Value::as_integer) == Some(shared.topology_version());
    let millis =
        body.get("maxAwaitTimeMS")?.as_integer().filter(|millis| (0..=WAIT_MAX_MS).contains(millis))?;
    same.then(|| Duration::from_millis(millis as u64))
}
