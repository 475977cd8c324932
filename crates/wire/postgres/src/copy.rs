//! COPY: bytes from the client into a table, or out of a query.
//!
//! ```text
//! COPY FROM STDIN ─▶ CopyInResponse ◀─ CopyData … CopyDone ─▶ CommandComplete         CopyFail, or an error: nothing was copied
//! COPY TO STDOUT ─▶ CopyOutResponse, a CopyData for each row, CopyDone, CommandComplete
//! ```
//! Both stream, with one chunk in memory. A client that disconnects during COPY FROM has copied nothing; one
//! that does not read is timed out as for every reply. Messages that arrive after an error are skipped.

use ropewalk_sql::{CopyDirection, CopyFormat, Outcome, SqlError, state};
use ropewalk_wire::run_unpinned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::channel::{Ended, Frame};
use crate::connection::{Connection, Outcomes, shutdown};
use crate::failure::{PROTOCOL_VIOLATION, malformed};
use crate::frame::{Fields, Malformed, Out, Request};
use crate::statement_cache::{Statement, StatementCache, lock};

/// Bytes that are passed on at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Head of the binary format: a signature, flags, and the length of an extension that no client uses.
const BINARY_HEAD: usize = 19;

/// Meaning of a message during COPY FROM.
enum Part {
    More,
    Done,
    /// The client aborts it, with a reason.
    Failed(String),
    /// The server rejects it.
    Refused(SqlError),
}

impl<S> Connection<'_, S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    pub(crate) async fn copy(
        &mut self,
        statement: &Statement,
        shape: CopyFormat,
    ) -> Result<Outcomes<Outcome>, Ended> {
        match shape.way {
            CopyDirection::In => self.copy_in(statement, shape).await,
            CopyDirection::Out => self.copy_out(statement, shape).await,
        }
    }

    async fn copy_in(
        &mut self,
        statement: &Statement,
        shape: CopyFormat,
    ) -> Result<Outcomes<Outcome>, Ended> {
        let begun = match &mut lock(statement).prepared {
            Some(prepared) => self.statements.session.copy_in(prepared),
            None => Err(nothing()),
        };
        let mut copy = match begun {
            Ok(copy) => copy,
            Err(error) => return Ok(Err(error)),
        };
        begin(&mut self.statements.out, b'G', shape);
        self.channel.send(&mut self.statements.out).await?;
        let mut chunk = Vec::new();
        loop {
            let frame = match self.next_part().await? {
                Ok(frame) => frame,
                Err(error) => return Ok(Err(error)),
            };
            let part = match Request::read(frame.tag, self.channel.body(frame)) {
                Ok(Request::CopyData(bytes)) => {
                    chunk.extend_from_slice(bytes);
                    Part::More
                }
                Ok(Request::CopyDone) => Part::Done,
                Ok(Request::CopyFail(reason)) => Part::Failed(reason.to_owned()),
                // Drivers of the extended protocol send them before they know that it is a COPY.
                Ok(Request::Flush | Request::Sync) => Part::More,
                Ok(Request::Terminate) => return Err(Ended::Said("the client ended during COPY".to_owned())),
                Ok(_) => {
                    let message = "unexpected message type during COPY from stdin";
                    Part::Refused(SqlError::new(PROTOCOL_VIOLATION, message))
                }
                Err(error) => Part::Refused(malformed(error)),
            };
            self.channel.done(frame);
            if chunk.len() >= CHUNK_BYTES || matches!(part, Part::Done) {
                // Never closed; if it were, running without a permit would still be correct.
                let _turn = self.shared.turns.acquire().await.ok();
                let session = &mut self.statements.session;
                if let Err(error) = run_unpinned(|| session.copy_data(&mut copy, &chunk)) {
                    return Ok(Err(error));
                }
                chunk.clear();
            }
            let session = &mut self.statements.session;
            match part {
                Part::More if session.canceller().is_cancelled() => {
                    let message = "canceling statement due to user request";
                    return Ok(Err(SqlError::new(state::QUERY_CANCELED, message)));
                }
                Part::More => {}
                Part::Done => return Ok(run_unpinned(|| session.copy_end(copy))),
                Part::Failed(reason) => return Ok(Err(session.copy_fail(copy, &reason))),
                Part::Refused(error) => return Ok(Err(error)),
            }
        }
    }

    /// The next message of a client that sends data. A transaction is open meanwhile, so long silence is an
    /// error.
    async fn next_part(&mut self) -> Result<Outcomes<Frame>, Ended> {
        let stop = self.shared.service.stop().clone();
        tokio::select! {
            frame = self.channel.message() => match frame? {
                Some(frame) => Ok(Ok(frame)),
                None => Err(Ended::Said("the client disconnected during COPY".to_owned())),
            },
            () = stop.wait() => Ok(Err(shutdown())),
            () = self.backend.terminated() => Ok(Err(shutdown())),
            () = tokio::time::sleep(self.shared.settings.transaction_idle_time) => Err(Ended::TooSlow),
        }
    }

    async fn copy_out(
        &mut self,
        statement: &Statement,
        shape: CopyFormat,
    ) -> Result<Outcomes<Outcome>, Ended> {
        let StatementCache { out, session, .. } = &mut self.statements;
        let (channel, turns) = (&mut self.channel, &self.shared.turns);
        begin(out, b'H', shape);
        channel.send(out).await?;
        // Never closed; if it were, running without a permit would still be correct.
        let mut turn = turns.acquire().await.ok();
        let mut gone = None;
        let mut is_first = true;
        let mut give = |bytes: &[u8]| {
            match shape.is_binary {
                true => binary_rows(out, bytes, std::mem::take(&mut is_first)),
                false => lines(out, bytes),
            }
            let runtime = Handle::current();
            if runtime.runtime_flavor() != RuntimeFlavor::MultiThread {
                return Ok(());
            }
            // A slow reader must not hold a permit.
            turn = None;
            let sent = runtime.block_on(async {
                channel.send(out).await?;
                Ok(turns.acquire().await.ok())
            });
            match sent {
                Ok(again) => {
                    turn = again;
                    Ok(())
                }
                Err(error) => {
                    gone = Some(error);
                    Err(SqlError::new(state::QUERY_CANCELED, "the client has disconnected"))
                }
            }
        };
        let copied = run_unpinned(|| match &mut lock(statement).prepared {
            Some(prepared) => session.copy_out(prepared, &mut give),
            None => Err(nothing()),
        });
        if let Some(gone) = gone {
            return Err(gone);
        }
        if copied.is_ok() {
            out.empty(b'c');
        }
        Ok(copied)
    }
}

fn nothing() -> SqlError {
    SqlError::new(state::SYNTAX_ERROR, "there is no statement")
}

fn begin(out: &mut Out, tag: u8, shape: CopyFormat) {
    out.message(tag, |body| {
        body.byte(shape.is_binary.into());
        body.count(shape.columns);
        (0..shape.columns).for_each(|_| body.i16(shape.is_binary.into()));
    });
}

/// One message per line, as clients expect that read rows.
fn lines(out: &mut Out, bytes: &[u8]) {
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        out.message(b'd', |body| body.0.extend_from_slice(line));
    }
}

/// One message per row of the binary format; the head is part of the first, as drivers expect.
fn binary_rows(out: &mut Out, bytes: &[u8], is_first: bool) {
    let mut rest = bytes;
    let mut skipped = if is_first { BINARY_HEAD } else { 0 };
    while !rest.is_empty() {
        let row = skipped + rest.get(skipped..).map_or(0, |row| row_bytes(row).unwrap_or(row.len()));
        let (message, after) = rest.split_at_checked(row).unwrap_or((rest, &[]));
        out.message(b'd', |body| body.0.extend_from_slice(message));
        rest = after;
        skipped = 0;
    }
}

/// Length of the row at the start of these bytes; the end is a row of -1 fields.
fn row_bytes(bytes: &[u8]) -> Result<usize, Malformed> {
    let mut fields = Fields(bytes);
    for _ in 0..fields.i16()?.max(0) {
        let length = fields.i32()?.max(0);
        fields.bytes(usize::try_from(length).unwrap_or(0))?;
    }
    Ok(bytes.len() - fields.0.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_rows_are_messages() {
        let head = [7; BINARY_HEAD];
        let rows: [&[u8]; 3] = [&[0, 2, 0, 0, 0, 1, 9, 0xff, 0xff, 0xff, 0xff], &[0, 0], &[0xff, 0xff]];
        let mut out = Out::default();
        binary_rows(&mut out, &[head.as_slice(), rows[0], rows[1]].concat(), true);
        binary_rows(&mut out, rows[2], false);
        let mut expected = Out::default();
        for message in [[head.as_slice(), rows[0]].concat(), rows[1].to_vec(), rows[2].to_vec()] {
            expected.message(b'd', |body| body.0.extend_from_slice(&message));
        }
        assert_eq!(out.bytes(), expected.bytes());
    }
}
