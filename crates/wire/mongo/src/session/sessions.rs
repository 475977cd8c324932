//! Commands of sessions: started, refreshed, ended, killed.

use ropewalk::documents::lang::{Value, Writer};
use ropewalk_auth::Right;

use crate::call::Call;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::state::sessions::{self, SESSION_MINUTES, SessionId, named_session, session_parts};

/// `startSession`
pub(crate) fn start_session(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["startSession"])?;
    let mut id = [0; 16];
    let random = [call.shared.random(), call.shared.random()].into_iter().flat_map(u64::to_le_bytes);
    for (place, (byte, random)) in id.iter_mut().zip(random).enumerate() {
        *byte = match place {
            // Version bits of a random UUID.
            6 => random & 0x0f | 0x40,
            8 => random & 0x3f | 0x80,
            _ => random,
        };
    }
    let mut out = Writer::new();
    out.open_document("id");
    out.put("id", Value::Binary(4, &id));
    out.close();
    out.put("timeoutMinutes", Value::Int32(SESSION_MINUTES));
    Ok(out)
}

fn named(call: &Call<'_>) -> Outcome<Vec<SessionId>> {
    let list = call.args.array(call.args.name)?;
    let list = call.args.needed(call.args.name, list)?;
    list.values().map(|value| named_session(value, call.user())).collect()
}

/// `refreshSessions`
pub(crate) fn refresh_sessions(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["refreshSessions"])?;
    for id in named(call)? {
        if let Some(session) = call.shared.sessions.find(&id) {
            sessions::lock(&session).touch();
        }
    }
    Ok(Writer::new())
}

/// `endSessions`, `killSessions`: aborts their transactions and closes their cursors; the latter also kills
/// their operations.
pub(crate) fn end_sessions(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&[call.args.name])?;
    let ended = named(call)?;
    if ended.is_empty() && call.args.name == "killSessions" {
        let user = call.user().as_bytes();
        call.shared.sessions.end_all(|id| session_parts(id).1 == user);
        call.shared.cursors.kill_of(|id| session_parts(id).1 == user);
        call.shared.operations.end_of_session(|id| session_parts(id).1 == user);
    }
    for id in &ended {
        call.shared.sessions.end(id);
    }
    call.shared.cursors.kill_of(|id| ended.contains(id));
    if call.args.name == "killSessions" {
        call.shared.operations.end_of_session(|id| ended.contains(id));
    }
    Ok(Writer::new())
}

/// `killAllSessions`
pub(crate) fn kill_all_sessions(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(&["killAllSessions"])?;
    call.may(Right::Admin, None)?;
    let users = call.args.needed("killAllSessions", call.args.array("killAllSessions")?)?;
    let mut names = Vec::new();
    for user in users.values() {
        let name = user.as_document().and_then(|user| user.get("user")).and_then(Value::as_str);
        names.push(name.ok_or_else(|| Failure::new(Code::TypeMismatch, "a user is a document with a name"))?);
    }
    let of =
        |id: &SessionId| names.is_empty() || names.iter().any(|name| session_parts(id).1 == name.as_bytes());
    call.shared.sessions.end_all(of);
    call.shared.cursors.kill_of(of);
    call.shared.operations.end_of_session(of);
    Ok(Writer::new())
}
