//! Admission of requests: credentials and rights are checked before a body is read, and a body has limits of
//! bytes, memory and time.
//!
//! ```text
//! headers ─▶ health or reflection? ─ no ─▶ caller known, with the rights of the call? ─▶ body, frame by frame: memory, deadline ─▶ call
//!                 └─ yes: body of at most 64 KiB ──────────────────────────────────▶
//! ```
//! A write on a node of a cluster that follows is sent to the leader then, as it arrives.
//!
//! Memory covers the bytes that arrived and the message that is decoded from them.
//! The deadline is `limits.request_time`, or that of the header `grpc-timeout` if it is earlier. The memory of
//! a response that is built completely is held until it has been sent.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::stream::unfold;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use http_body_util::{BodyExt as _, StreamBody};
use ropewalk_auth::{Caller, Resource};
use ropewalk_http_kit::leader::{FORWARDED, ToLeader, send_to_leader};
use ropewalk_wire::{Code, ConnectionMemory, NodeAddresses, Reservation, Service, WireError};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tonic::Status;
use tonic::body::Body as TonicBody;
use tonic::transport::server::TcpConnectInfo;

use crate::decoded::DecodedSize;
use crate::request::{self, Deadline, ResponseMemory, authenticate};
use crate::rights::{self, Call};
use crate::status::ToStatus;
use crate::{events, umadb};

/// Largest request of a caller without any right, and of a service that needs no credentials.
const OPEN_BYTES_MAX: usize = 64 << 10;
/// Most memory of a decoded message, as a multiple of `limits.request_bytes`. Events with two tags and a
/// hundred bytes of data take twice the bytes of their message.
const DECODED_FACTOR: usize = 4;

/// A port: its service, and what differs from other ports.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) service: Service,
    /// The store of calls that name none.
    pub(crate) store: Arc<str>,
    /// The port exists for this store.
    pub(crate) is_of_one_store: bool,
    /// Sends writes to the leader while this node follows.
    pub(crate) leader: Option<Arc<dyn ToLeader>>,
}

/// Admits a call, or rejects it by its headers alone.
pub(crate) async fn admit(State(port): State<Port>, mut request: Request, next: Next) -> Response {
    let Port { service, store, .. } = &port;
    let path = request.uri().path();
    let call = rights::find(path);
    let is_open = call.is_some_and(|call| call.needs.resource == Resource::Public);
    let protocol = if path.starts_with("/ropewalk.") { events::PROTOCOL } else { umadb::PROTOCOL };
    let to_status = protocol.status;
    let refuse = |status: Status| status.into_http::<TonicBody>().map(Body::new);
    let mut has_right = false;
    if !is_open {
        let peer = request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
        let caller = match authenticate(service, request.headers(), peer.map(|peer| peer.ip())).await {
            Ok(caller) => caller,
            Err(error) => return refuse(to_status(&error)),
        };
        let Some(call) = call else { return refuse(Status::unimplemented("")) };
        if let Err(error) = authorize(service, &caller, call, (store, request.headers())) {
            service.metrics().request(protocol.name, call.name).done(Err(error.code));
            return refuse(to_status(&error));
        }
        has_right = caller.has_any_right();
        request.extensions_mut().insert(caller);
    }
    let limit = service.limits().request_time;
    let limit = match request::timeout(request.headers()) {
        Ok(timeout) => timeout.map_or(limit, |timeout| limit.min(timeout)),
        Err(error) => return refuse(to_status(&error)),
    };
    let deadline = Instant::now() + limit;
    request.extensions_mut().insert(Deadline(deadline));
    let memory = request.extensions().get::<ConnectionMemory>().cloned();
    let memory = memory.unwrap_or_else(|| service.request_memory().connection());
    let reservation = Arc::new(Mutex::new(memory.reservation()));
    // The decoded message lives as long as the call, and so does the reservation.
    request.extensions_mut().insert(Held(reservation.clone()));
    let bounds = Bounds {
        reservation,
        deadline,
        bytes_max: if has_right { usize::MAX } else { OPEN_BYTES_MAX },
        received: 0,
        decoded: call.and_then(Call::shape).map(DecodedSize::new),
        decoded_max: service.limits().request_bytes.saturating_mul(DECODED_FACTOR),
        to_status,
    };
    let request = request.map(|body| bounded(body, bounds));
    if let Some(call) = call.filter(|call| call.is_for_the_leader())
        && let Some(sender) = port.sender(call, &request)
    {
        let timer = service.metrics().request(protocol.name, call.name);
        let sent = to_leader(&port, sender, request, deadline).await;
        timer.done(sent.as_ref().map(drop).map_err(|error| error.code));
        return sent.unwrap_or_else(|error| refuse(to_status(&error)));
    }
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<ResponseMemory>() {
        None => response,
        Some(memory) => response.map(|body| Body::new(body.map_frame(move |frame| memory.pass(frame)))),
    }
}

impl Port {
    /// Sends a call to the leader; `None` when this node carries it out, or rejects it with the leader's address.
    fn sender(&self, call: &Call, request: &Request) -> Option<&Arc<dyn ToLeader>> {
        if self.service.cluster().is_none() || self.service.database().leads() {
            return None;
        }
        let headers = request.headers();
        let is_known = headers.contains_key(AUTHORIZATION) || self.service.access().admits_anonymous();
        // The leader has another default.
        let is_named = call.takes_store_of_header() || !self.is_of_one_store;
        // One that another node has sent here: the two do not agree who leads, and will soon.
        let is_first = !headers.contains_key(FORWARDED);
        self.leader.as_ref().filter(|_| is_known && is_named && is_first)
    }
}

/// Sends a call to the leader, whose response is passed on as it arrives.
async fn to_leader(
    port: &Port,
    sender: &Arc<dyn ToLeader>,
    mut request: Request,
    deadline: Instant,
) -> Result<Response, WireError> {
    let cluster = port.service.cluster().ok_or_else(|| port.service.not_leader())?;
    if !request.headers().contains_key(request::STORE) {
        let store =
            HeaderValue::from_str(&port.store).map_err(|error| WireError::invalid(error.to_string()))?;
        request.headers_mut().insert(request::STORE, store);
    }
    let sent = send_to_leader(&**sender, &**cluster, NodeAddresses::grpc, request);
    timeout_at(deadline, sent).await.unwrap_or_else(|_| {
        let what = "the leader did not answer within the deadline; it may still commit";
        Err(WireError::new(Code::Timeout, what))
    })
}

/// Rejects a caller without the rights of the call on the store that it names, else on that of the port.
fn authorize(
    service: &Service,
    caller: &Caller,
    call: &Call,
    (of_port, headers): (&str, &HeaderMap),
) -> Result<(), WireError> {
    let store = match call.needs.resource {
        Resource::Header => Some(request::store(of_port, headers)?),
        _ => None,
    };
    service.authorize(caller, call.needs, store)
}

/// Holds a reservation until the call has ended.
#[derive(Clone)]
struct Held(#[expect(dead_code, reason = "released when dropped")] Arc<Mutex<Reservation>>);

struct Bounds {
    reservation: Arc<Mutex<Reservation>>,
    deadline: Instant,
    bytes_max: usize,
    received: usize,
    /// Absent for services whose messages are small.
    decoded: Option<DecodedSize>,
    decoded_max: usize,
    to_status: ToStatus,
}

impl Bounds {
    /// Reserves memory for received bytes and for what is decoded from them.
    async fn take(&mut self, data: &[u8]) -> Result<(), WireError> {
        self.received += data.len();
        if self.received > self.bytes_max {
            let what = "bytes of a request without any right";
            return Err(WireError::too_large(what, self.received, self.bytes_max));
        }
        let mut needed = self.received;
        if let Some(decoded) = &mut self.decoded {
            decoded.add(data)?;
            if decoded.bytes() > self.decoded_max {
                let what = "bytes of memory for the decoded message";
                return Err(WireError::too_large(what, decoded.bytes(), self.decoded_max));
            }
            needed += decoded.bytes();
        }
        self.reservation.lock().await.cover(needed).await
    }
}

/// The same body, which ends with an error at the first exceeded limit.
fn bounded(body: Body, bounds: Bounds) -> Body {
    let frames = unfold(Some((body, bounds)), |state| async move {
        let (mut body, mut bounds) = state?;
        let frame = timeout_at(bounds.deadline, body.frame()).await;
        let frame = match frame {
            Ok(None) => return None,
            Ok(Some(Err(error))) => return Some((Err(Status::from_error(error.into())), None)),
            Err(_) => {
                let error = WireError::new(Code::Timeout, "the request did not arrive within the time limit");
                return Some((Err((bounds.to_status)(&error)), None));
            }
            Ok(Some(Ok(frame))) => frame,
        };
        let data = frame.data_ref().cloned().unwrap_or_default();
        match bounds.take(&data).await {
            Ok(()) => Some((Ok(frame), Some((body, bounds)))),
            Err(error) => Some((Err((bounds.to_status)(&error)), None)),
        }
    });
    Body::new(StreamBody::new(frames))
}
