//! Logins: `saslStart` and `saslContinue` around the exchange of `ropewalk_auth`.
//!
//! Supported are SCRAM-SHA-256 and, for old clients, SCRAM-SHA-1. PLAIN would need the password itself, and
//! MONGODB-X509 client certificates.

use crate::call::Call;
use crate::call::client::Conversation;
use crate::protocol::failure::{Code, Failure, Outcome};
use ropewalk::documents::lang::{Doc, DocBuf, Value, Writer};
use ropewalk_auth::AuthError;

/// Supported mechanisms.
pub(crate) const MECHANISMS: &[&str] = &["SCRAM-SHA-256", "SCRAM-SHA-1"];
/// Id of the only conversation of a connection.
const CONVERSATION: i32 = 1;

fn failed() -> Failure {
    Failure::new(Code::AuthenticationFailed, "Authentication failed.")
}

fn text(bytes: &[u8]) -> Outcome<&str> {
    std::str::from_utf8(bytes).map_err(|_| Failure::new(Code::BadValue, "the payload is not UTF-8"))
}

/// The payload: binary, or a string from old clients.
fn payload<'a>(call: &Call<'_>, doc: Doc<'a>) -> Outcome<&'a str> {
    match doc.get("payload") {
        Some(Value::Binary(_, bytes)) => text(bytes),
        Some(Value::String(text)) => Ok(text),
        _ => Err(Failure::new(Code::TypeMismatch, format!("{} needs a payload", call.args.name))),
    }
}

fn answer(done: bool, payload: &str) -> DocBuf {
    let mut out = Writer::new();
    out.put("conversationId", Value::Int32(CONVERSATION));
    out.put("done", Value::Bool(done));
    out.put("payload", Value::Binary(0, payload.as_bytes()));
    out.finish()
}

fn written(doc: &DocBuf) -> Writer {
    let mut out = Writer::new();
    doc.doc().iter().for_each(|(name, value)| out.put(name, value));
    out
}

/// Begins a login with the fields of `saslStart`.
///
/// # Errors
/// An unknown mechanism; an invalid first message; too many wrong passwords.
pub(crate) fn begin(call: &mut Call<'_>, fields: Doc<'_>) -> Outcome<DocBuf> {
    call.client.login = None;
    let mechanism = fields.get("mechanism").and_then(Value::as_str).unwrap_or_default();
    if !MECHANISMS.contains(&mechanism) {
        let message = format!("Received authentication for mechanism {mechanism} which is not enabled");
        return Err(Failure::new(Code::MechanismUnavailable, message));
    }
    let options = fields.get("options").and_then(Value::as_document);
    let skip = options.and_then(|options| options.get("skipEmptyExchange")).is_some_and(Value::is_truthy);
    let first = payload(call, fields)?;
    let (access, peer) = (call.shared.service.access(), call.client.peer);
    let (exchange, server) = match mechanism {
        "SCRAM-SHA-1" => access.begin_scram_sha1(first, peer)?,
        _ => access.begin_scram(first, peer)?,
    };
    call.client.login = Some(Conversation::Proof(Box::new(exchange), skip));
    Ok(answer(false, &server))
}

/// `saslStart`
pub(crate) fn sasl_start(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["saslStart", "mechanism", "payload", "autoAuthorize", "options", "db"])?;
    Ok(written(&begin(call, call.args.doc())?))
}

/// `saslContinue`
pub(crate) fn sasl_continue(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["saslContinue", "conversationId", "payload"])?;
    let no_session = || Failure::new(Code::ProtocolError, "No SASL session state found");
    let conversation = call.client.login.take().ok_or_else(no_session)?;
    if call.args.integer("conversationId")? != Some(i64::from(CONVERSATION)) {
        let message = "sasl: Mismatched conversation id";
        return Err(Failure::new(Code::ProtocolError, message));
    }
    let last = payload(call, call.args.doc())?;
    match conversation {
        Conversation::Proof(exchange, skip) => {
            let access = call.shared.service.access();
            let (caller, verdict) = access.end_scram(*exchange, last).map_err(|error| match error {
                AuthError::Throttled { .. } => Failure::from(error),
                // The client does not learn what was wrong.
                _ => failed(),
            })?;
            call.client.caller = Some(caller);
            call.client.logged_in = true;
            if !skip {
                call.client.login = Some(Conversation::Empty);
            }
            Ok(written(&answer(skip, &verdict)))
        }
        Conversation::Empty if last.is_empty() => Ok(written(&answer(true, ""))),
        Conversation::Empty => Err(failed()),
    }
}

/// `logout`
pub(crate) fn logout(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["logout"])?;
    call.client.caller = None;
    call.client.logged_in = false;
    Ok(Writer::new())
}
