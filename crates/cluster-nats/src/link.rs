//! The connection to the servers, and requests over it.
//!
//! ```text
//! calling thread ──request──▶ task of the connection ──▶ a server ──▶ leader of the stream
//!        └── waits: answer, lost connection or deadline      └── lost: tries all servers for ever
//! ```
//!
//! One thread of a private runtime runs the connection; calls wait on their own threads. A request is not repeated
//! here unless it is harmless to do so: [`Link::send`] sends once and says whether the service can have received it,
//! [`Link::call`] repeats.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use async_nats::client::RequestErrorKind;
use async_nats::connection::State;
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, Message, Request, rustls};
use futures_util::future::{Either, select};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::error::NatsError;
use crate::settings::NatsSettings;
use crate::wait::wait_until;

/// Time of one attempt to connect.
const CONNECT_TIME: Duration = Duration::from_secs(2);
/// A connection over which nothing is received is given up after three of these.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// Longest pause between two attempts to connect.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Pause before a request is repeated, and between two checks whether there is a connection.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);
/// Time of one attempt of a request that is repeated.
const ATTEMPT_TIME: Duration = Duration::from_secs(2);
/// Messages that wait for a reader. Flow control allows 32 MiB of them, and one has at least 150 bytes.
const WAITING_MESSAGES_MAX: usize = 1 << 18;
/// Age at which an error that the server sent no longer explains a missing answer.
const COMPLAINT_AGE_MAX: Duration = Duration::from_secs(10);

/// JetStream's errors that pass: no leader yet, or servers that are starting.
const PASSING: &[u64] = &[10004, 10005, 10008, 10009, 10118];

/// A request without an answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// No server that stores anything received it.
    Unsent(String),
    /// The client rejects it because of its size.
    TooLarge(String),
    /// It may have been received.
    Unknown(String),
}

/// A request to JetStream that failed.
#[derive(Debug)]
pub(crate) enum CallError {
    /// No answer within the time.
    Unavailable(String),
    /// JetStream's answer is an error.
    Refused { code: u64, description: String },
}

/// A future that ended, or the reason why it was not waited for.
pub(crate) enum Waited<T> {
    Done(T),
    /// The deadline passed.
    Late,
    /// The connection was lost meanwhile.
    Broken,
}

/// Reports of the connection about itself.
#[derive(Debug)]
struct Reports {
    /// Counts lost connections.
    breaks: watch::Sender<u64>,
    /// The last error that the server sent or that connecting had.
    complaint: Mutex<Option<(Instant, String)>>,
}

impl Reports {
    fn note(&self, event: &Event) {
        match event {
            Event::Disconnected => self.breaks.send_modify(|count| *count += 1),
            Event::ServerError(error) => *self.complaint.lock() = Some((Instant::now(), error.to_string())),
            Event::ClientError(error) => *self.complaint.lock() = Some((Instant::now(), error.to_string())),
            _ => {}
        }
    }
}

/// The connection, which lives as long as this value.
#[derive(Debug)]
pub(crate) struct Link {
    /// Only `None` while this value is dropped.
    runtime: Option<Runtime>,
    client: Client,
    reports: Arc<Reports>,
}

impl Link {
    /// Connects; tries until `deadline` while no server answers.
    pub(crate) fn connect(settings: &NatsSettings, deadline: Instant) -> Result<Self, NatsError> {
        let addresses = settings.addresses()?;
        if let Some(path) = &settings.ca_file {
            std::fs::File::open(path)
                .map_err(|error| NatsError::File { path: path.clone(), what: error.to_string() })?;
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("nats")
            .enable_all()
            .build()
            .map_err(|error| NatsError::System { what: "starting a thread", cause: error.to_string() })?;
        let reports = Arc::new(Reports { breaks: watch::Sender::new(0), complaint: Mutex::new(None) });
        loop {
            let mut options = options(settings, &reports);
            if let Some(user) = &settings.user {
                options = options.user_and_password(user.name.clone(), user.password.clone());
            }
            let connecting = options.connect(addresses.as_slice());
            let connected = {
                let _guard = runtime.enter();
                wait_until(connecting, deadline)
            };
            let error = match connected {
                Some(Ok(client)) => return Ok(Self { runtime: Some(runtime), client, reports }),
                Some(Err(error)) => connect_error(settings, &error),
                None => unreachable(settings, "no answer in time".to_owned()),
            };
            if !matches!(error, NatsError::Unreachable { .. }) || Instant::now() + PAUSE >= deadline {
                return Err(error);
            }
            thread::sleep(PAUSE);
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Number of the connection: another one after each reconnection.
    pub(crate) fn epoch(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::Relaxed)
    }

    /// Waits for a future of the client on this thread.
    pub(crate) fn wait<F: Future>(&self, future: F, deadline: Instant) -> Option<F::Output> {
        // Futures of the client may start tasks.
        let _guard = self.runtime.as_ref().map(Runtime::enter);
        wait_until(future, deadline)
    }

    /// Waits for a future of the client as long as the connection exists.
    pub(crate) fn wait_connected<F: Future>(&self, future: F, deadline: Instant) -> Waited<F::Output> {
        let mut breaks = self.reports.breaks.subscribe();
        let future = std::pin::pin!(future);
        let broken = std::pin::pin!(breaks.changed());
        match self.wait(select(future, broken), deadline) {
            Some(Either::Left((output, _))) => Waited::Done(output),
            Some(Either::Right(_)) => Waited::Broken,
            None => Waited::Late,
        }
    }

    /// Sends a request once and waits for its answer.
    pub(crate) fn send(
        &self,
        subject: String,
        request: Request,
        deadline: Instant,
    ) -> Result<Message, Unanswered> {
        // The client would store the request and send it after any time.
        while self.client.connection_state() != State::Connected {
            if Instant::now() + PAUSE >= deadline {
                return Err(Unanswered::Unsent(self.explained("no connection".to_owned())));
            }
            thread::sleep(PAUSE);
        }
        let start = Instant::now();
        match self.wait_connected(self.client.send_request(subject, request.timeout(None)), deadline) {
            Waited::Done(Ok(message)) => Ok(message),
            Waited::Done(Err(error)) => Err(match error.kind() {
                RequestErrorKind::NoResponders | RequestErrorKind::InvalidSubject => {
                    Unanswered::Unsent(self.explained(error.to_string()))
                }
                RequestErrorKind::MaxPayloadExceeded => Unanswered::TooLarge(error.to_string()),
                _ => Unanswered::Unknown(self.explained(error.to_string())),
            }),
            Waited::Broken => Err(Unanswered::Unknown("the connection was lost".to_owned())),
            Waited::Late => {
                let time = start.elapsed().as_millis();
                Err(Unanswered::Unknown(self.explained(format!("no answer within {time} ms"))))
            }
        }
    }

    /// A request to JetStream, repeated until it is answered: `call("STREAM.INFO", "shop", …)`.
    pub(crate) fn call(
        &self,
        verb: &str,
        stream: &str,
        body: &Value,
        deadline: Instant,
    ) -> Result<Value, CallError> {
        loop {
            let request = Request::new().payload(body.to_string().into());
            let attempt = deadline.min(Instant::now() + ATTEMPT_TIME);
            let cause = match self.send(format!("$JS.API.{verb}.{stream}"), request, attempt) {
                Ok(message) => match parse_answer(&message.payload) {
                    Err(CallError::Unavailable(cause)) => cause,
                    answer => return answer,
                },
                Err(Unanswered::TooLarge(cause)) => return Err(CallError::Unavailable(cause)),
                Err(Unanswered::Unsent(cause) | Unanswered::Unknown(cause)) => cause,
            };
            if Instant::now() + PAUSE >= deadline {
                return Err(CallError::Unavailable(format!("{verb}: {cause}")));
            }
            thread::sleep(PAUSE);
        }
    }

    /// `what`, with the last error of the server when that may be the reason.
    fn explained(&self, what: String) -> String {
        match &*self.reports.complaint.lock() {
            Some((time, complaint)) if time.elapsed() < COMPLAINT_AGE_MAX => format!("{what} ({complaint})"),
            _ => what,
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Dropping it would wait for its thread, which panics inside of a task of another runtime.
            runtime.shutdown_background();
        }
    }
}

fn options(settings: &NatsSettings, reports: &Arc<Reports>) -> ConnectOptions {
    let reports = reports.clone();
    let options = ConnectOptions::new()
        .name("ropewalk")
        .connection_timeout(CONNECT_TIME)
        .ping_interval(PING_INTERVAL)
        .subscription_capacity(WAITING_MESSAGES_MAX)
        .read_buffer_capacity(u16::MAX)
        .max_reconnects(None)
        .reconnect_delay_callback(reconnect_pause)
        .require_tls(settings.tls)
        .event_callback(move |event| {
            let reports = reports.clone();
            async move { reports.note(&event) }
        });
    match &settings.ca_file {
        Some(path) => options.add_root_certificates(path.clone()),
        None => options,
    }
}

/// None before the first attempt, then doubling.
fn reconnect_pause(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts).unwrap_or(u32::MAX).saturating_sub(2).min(16);
    if attempts < 2 { Duration::ZERO } else { (PAUSE * (1 << doublings)).min(RECONNECT_PAUSE_MAX) }
}

/// The value, or the error that it contains.
fn parse_answer(payload: &[u8]) -> Result<Value, CallError> {
    let value: Value = serde_json::from_slice(payload)
        .map_err(|error| CallError::Unavailable(format!("the answer is not JSON: {error}")))?;
    let Some(error) = value.get("error") else { return Ok(value) };
    let number = |name: &str| error.get(name).and_then(Value::as_u64);
    let description = error.get("description").and_then(Value::as_str).unwrap_or("no description").to_owned();
    let code = number("err_code").or(number("code")).unwrap_or(0);
    if PASSING.contains(&code) {
        return Err(CallError::Unavailable(format!("{description} (error {code})")));
    }
    Err(CallError::Refused { code, description })
}

fn unreachable(settings: &NatsSettings, cause: String) -> NatsError {
    NatsError::Unreachable { servers: settings.servers_text(), cause }
}

fn connect_error(settings: &NatsSettings, error: &ConnectError) -> NatsError {
    let (servers, cause) = (settings.servers_text(), error.to_string());
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            NatsError::Denied { servers, cause }
        }
        ConnectErrorKind::Tls => NatsError::Tls { servers, cause },
        _ if is_tls_error(error) => NatsError::Tls { servers, cause },
        _ => NatsError::Unreachable { servers, cause },
    }
}

/// True when a handshake is among the causes.
fn is_tls_error(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if error.is::<rustls::Error>() || inner.is_some_and(|inner| inner.is::<rustls::Error>()) {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_connections_grow_to_a_second() {
        let pauses: Vec<u128> =
            [0, 1, 2, 3, 6, 7, usize::MAX].map(|attempts| reconnect_pause(attempts).as_millis()).into();
        assert_eq!(pauses, [0, 0, 50, 100, 800, 1000, 1000]);
    }

    #[test]
    fn answers_are_values_errors_or_passing() {
        assert!(parse_answer(br#"{"seq":1}"#).is_ok());
        for (text, passes) in [
            (r#"{"error":{"code":503,"err_code":10008,"description":"unavailable"}}"#, true),
            (r#"{"error":{"code":503,"description":"insufficient resources"}}"#, false),
            ("not JSON", true),
            (r#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#, false),
            (r#"{"error":7}"#, false),
        ] {
            let error = parse_answer(text.as_bytes()).unwrap_err();
            assert_eq!(matches!(error, CallError::Unavailable(_)), passes, "{text}");
        }
    }
}
