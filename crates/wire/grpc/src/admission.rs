//! The door of the port: credentials are checked before a body is read, and a body has bounds of bytes, memory and time.
//!
//! ```text
//! headers ─▶ health or reflection? ─ no ─▶ caller known? ─▶ body, frame by frame: memory, deadline ─▶ call
//!                 └─ yes: body of at most 64 KiB ─────────▶
//! ```

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::stream::unfold;
use http_body_util::{BodyExt as _, StreamBody};
use ropewalk_wire::{Code, ConnectionMemory, Reservation, Service, WireError};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tonic::Status;
use tonic::body::Body as TonicBody;
use tonic::transport::server::TcpConnectInfo;

use crate::request::authenticate;
use crate::status::{self, ToStatus};

/// Largest request of a service that needs no credentials.
const OPEN_BYTES_MAX: usize = 64 << 10;

/// Lets a call in, or refuses it by its headers alone.
pub(crate) async fn admit(State(service): State<Service>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_open = path.starts_with("/grpc.health.") || path.starts_with("/grpc.reflection.");
    let to_status: ToStatus = if path.starts_with("/ropewalk.") { status::events } else { status::umadb };
    if !is_open {
        let peer = request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
        match authenticate(&service, request.headers(), peer.map(|peer| peer.ip())).await {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
            }
            Err(error) => return to_status(&error).into_http::<TonicBody>().map(Body::new),
        }
    }
    let memory = request.extensions().get::<ConnectionMemory>().cloned();
    let memory = memory.unwrap_or_else(|| service.request_memory().connection());
    let reservation = Arc::new(Mutex::new(memory.reservation()));
    // The decoded message lives as long as the call, and so does the reservation.
    request.extensions_mut().insert(Held(reservation.clone()));
    let bounds = Bounds {
        reservation,
        deadline: Instant::now() + service.limits().request_time,
        bytes_max: if is_open { OPEN_BYTES_MAX } else { usize::MAX },
        to_status,
    };
    next.run(request.map(|body| bounded(body, bounds))).await
}

/// Keeps a reservation until the call has ended.
#[derive(Clone)]
struct Held(#[expect(dead_code, reason = "released when dropped")] Arc<Mutex<Reservation>>);

struct Bounds {
    reservation: Arc<Mutex<Reservation>>,
    deadline: Instant,
    bytes_max: usize,
    to_status: ToStatus,
}

/// The same body, which ends with an error at the first bound that it meets.
fn bounded(body: Body, bounds: Bounds) -> Body {
    let frames = unfold(Some((body, bounds, 0)), |state| async move {
        let (mut body, bounds, received) = state?;
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
        let received = received + frame.data_ref().map_or(0, Bytes::len);
        if received > bounds.bytes_max {
            let error =
                WireError::too_large("bytes of a request without credentials", received, bounds.bytes_max);
            return Some((Err((bounds.to_status)(&error)), None));
        }
        let covered = bounds.reservation.lock().await.cover(received).await;
        match covered {
            Ok(()) => Some((Ok(frame), Some((body, bounds, received)))),
            Err(error) => Some((Err((bounds.to_status)(&error)), None)),
        }
    });
    Body::new(StreamBody::new(frames))
}
