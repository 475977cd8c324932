//! Authentication of the server's users: SCRAM-SHA-256 with the exchange of `ropewalk_auth`.
//!
//! While the server has no users every client is admitted, as on every port. MD5 and cleartext passwords are
//! not supported: the stored verifier could check neither more safely than a stolen copy of it.

use std::net::IpAddr;

use ropewalk_auth::{Access, AuthError, Caller, Credentials};
use ropewalk_sql::SqlError;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::channel::{Channel, Ended};
use crate::failure::{INVALID_PASSWORD, PROTOCOL_VIOLATION, malformed, refused};
use crate::frame::{Fields, Out, Request};

const MECHANISM: &str = "SCRAM-SHA-256";

/// Authenticates the client; an inner `Err` is the error to send before closing the connection.
///
/// # Errors
/// The stream's.
pub(crate) async fn login<S>(
    access: &Access,
    user: &str,
    peer: Option<IpAddr>,
    channel: &mut Channel<S>,
    out: &mut Out,
) -> Result<Result<Caller, SqlError>, Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    if let Ok(caller) = access.authenticate(Credentials::None, peer).await {
        return Ok(Ok(caller));
    }
    request(out, 10, |body| body.extend_from_slice(b"SCRAM-SHA-256\0\0"));
    let first = match answer(channel, out).await? {
        Ok(answer) => answer,
        Err(error) => return Ok(Err(error)),
    };
    let message = match initial(&first) {
        Ok(message) => message,
        Err(error) => return Ok(Err(error)),
    };
    let (exchange, challenge) = match access.begin_scram_of(user, message, peer) {
        Ok(begun) => begun,
        Err(error) => return Ok(Err(told(user, error))),
    };
    request(out, 11, |body| body.extend_from_slice(challenge.as_bytes()));
    let last = match answer(channel, out).await? {
        Ok(answer) => answer,
        Err(error) => return Ok(Err(error)),
    };
    let Ok(last) = std::str::from_utf8(&last) else { return Ok(Err(no_message())) };
    match access.end_scram(exchange, last) {
        Ok((caller, verdict)) => {
            request(out, 12, |body| body.extend_from_slice(verdict.as_bytes()));
            Ok(Ok(caller))
        }
        Err(error) => Ok(Err(told(user, error))),
    }
}

fn request(out: &mut Out, kind: i32, fill: impl FnOnce(&mut Vec<u8>)) {
    out.message(b'R', |body| {
        body.i32(kind);
        fill(body.0);
    });
}

/// The client's next message of the exchange.
async fn answer<S>(channel: &mut Channel<S>, out: &mut Out) -> Result<Result<Vec<u8>, SqlError>, Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    channel.send(out).await?;
    let Some(frame) = channel.message().await? else {
        return Err(Ended::Said("the client disconnected during the password exchange".to_owned()));
    };
    let found = match Request::read(frame.tag, channel.body(frame)) {
        Ok(Request::Login(bytes)) => Ok(bytes.to_vec()),
        Ok(Request::Terminate) => return Err(Ended::Said("the client has no password".to_owned())),
        Ok(_) => Err(SqlError::new(PROTOCOL_VIOLATION, "expected a password response")),
        Err(error) => Err(malformed(error)),
    };
    channel.done(frame);
    Ok(found)
}

/// The exchange's message inside the first reply.
fn initial(bytes: &[u8]) -> Result<&str, SqlError> {
    let mut fields = Fields(bytes);
    let mechanism = fields.text().map_err(malformed)?;
    if mechanism != MECHANISM {
        let message = "client selected an invalid SASL authentication mechanism";
        return Err(SqlError::new(PROTOCOL_VIOLATION, message));
    }
    let length = usize::try_from(fields.i32().map_err(malformed)?).map_err(|_| no_message())?;
    let message = fields.bytes(length).map_err(malformed)?;
    fields.end().map_err(malformed)?;
    std::str::from_utf8(message).map_err(|_| no_message())
}

fn no_message() -> SqlError {
    SqlError::new(PROTOCOL_VIOLATION, "malformed SCRAM message")
}

/// The client does not learn what was wrong.
fn told(user: &str, error: AuthError) -> SqlError {
    match error {
        AuthError::Unauthenticated(_) => {
            SqlError::new(INVALID_PASSWORD, format!("password authentication failed for user \"{user}\""))
        }
        AuthError::Invalid(_) => no_message(),
        other => refused(&other.into()),
    }
}
