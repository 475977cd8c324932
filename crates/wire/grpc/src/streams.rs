//! Streaming responses of frames. The connection pulls from a stream: nothing is read before the client can
//! receive it, nothing is queued, and a disconnecting client drops the stream and with it the read.

use std::collections::VecDeque;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use ropewalk::Position;
use ropewalk_wire::{Code, Followed, Following, Frame as Slot, Reading, RequestTimer, Service, WireError};
use tonic::Status;

use crate::frame::{Dialect, Frame, FrameWriter, Head};
use crate::request::Protocol;

/// A response.
pub(crate) type FrameStream = Pin<Box<dyn Stream<Item = Result<Frame, Status>> + Send>>;

/// Bytes of stored events that are fetched for one frame: large enough that a frame's overhead is negligible,
/// small enough that many slow readers need little memory.
const FETCH_BYTES: usize = 256 << 10;

/// A response without a message.
pub(crate) fn nothing() -> FrameStream {
    Box::pin(stream::empty())
}

/// Parameters of a read's response.
pub(crate) struct ReadPlan {
    pub(crate) dialect: Dialect,
    pub(crate) head: Head,
    /// Events of one frame.
    pub(crate) events: usize,
    /// The head to send when there is no event.
    pub(crate) empty_head: Option<Position>,
}

struct Read {
    service: Service,
    protocol: Protocol,
    reading: Reading,
    plan: ReadPlan,
    ready: VecDeque<Frame>,
    begun: bool,
    ended: bool,
    timer: Option<RequestTimer>,
}

impl Read {
    async fn next(&mut self) -> Result<Option<Frame>, WireError> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Ok(Some(frame));
            }
            if self.ended {
                return Ok(None);
            }
            if self.service.stop().stopping() {
                return Err(WireError::stopping());
            }
            let mut writer = FrameWriter::new(self.plan.dialect, self.plan.head);
            let more = self.reading.next(self.plan.events, FETCH_BYTES, |event| writer.push(event)).await?;
            self.ready.extend(writer.finish());
            self.ended = !more;
            if self.ready.is_empty() && self.ended && !self.begun {
                self.ready.push_back(FrameWriter::empty(self.plan.empty_head));
            }
            self.begun = true;
        }
    }

    fn end(&mut self, outcome: Result<(), Code>) {
        self.ended = true;
        self.ready.clear();
        if let Some(timer) = self.timer.take() {
            timer.done(outcome);
        }
    }
}

/// The frames of a read; the timer ends with the last one.
pub(crate) fn read(
    service: &Service,
    protocol: Protocol,
    reading: Reading,
    plan: ReadPlan,
    timer: RequestTimer,
) -> FrameStream {
    let read = Read {
        service: service.clone(),
        protocol,
        reading,
        plan,
        ready: VecDeque::new(),
        begun: false,
        ended: false,
        timer: Some(timer),
    };
    Box::pin(stream::unfold(read, async |mut read| match read.next().await {
        Ok(Some(frame)) => Some((Ok(frame), read)),
        Ok(None) => {
            read.end(Ok(()));
            None
        }
        Err(error) => {
            read.end(Err(error.code));
            Some((Err((read.protocol.status)(&error)), read))
        }
    }))
}

/// Parameters of a subscription's response.
#[derive(Clone, Copy)]
pub(crate) struct FollowPlan {
    pub(crate) dialect: Dialect,
    /// Limit of events of one frame.
    pub(crate) events: usize,
}

struct Follow {
    protocol: Protocol,
    following: Following,
    plan: FollowPlan,
    ready: VecDeque<Frame>,
    ended: bool,
}

impl Follow {
    async fn next(&mut self) -> Result<Frame, WireError> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Ok(frame);
            }
            let followed = self.following.next().await?;
            self.take(&followed);
        }
    }

    fn take(&mut self, followed: &Followed) {
        let dialect = self.plan.dialect;
        match followed {
            Followed::Events(batch) if batch.events().len() <= self.plan.events => {
                // One frame, encoded by the first subscription that sends this batch.
                let slot = if dialect == Dialect::Umadb { Slot::Umadb } else { Slot::Grpc };
                let shared = batch.frame(slot, |batch| match &*frames(dialect, batch.events()) {
                    [one] => one.0.clone(),
                    // A very large event yields several frames, and each subscription encodes them.
                    _ => Bytes::new(),
                });
                if shared.is_empty() {
                    self.ready.extend(frames(dialect, batch.events()));
                } else {
                    self.ready.push_back(Frame(shared));
                }
            }
            Followed::Events(batch) => {
                let mut events = batch.events().peekable();
                while events.peek().is_some() {
                    self.ready.extend(frames(dialect, events.by_ref().take(self.plan.events)));
                }
            }
            Followed::CaughtUp { head } if dialect == Dialect::Events => {
                self.ready.push_back(Frame::signal(2, *head));
            }
            Followed::FellBehind { head } if dialect == Dialect::Events => {
                self.ready.push_back(Frame::signal(3, *head));
            }
            Followed::CaughtUp { .. } | Followed::FellBehind { .. } => {}
        }
    }
}

fn frames<'a>(
    dialect: Dialect,
    events: impl Iterator<Item = ropewalk::events::SequencedEventRef<'a>>,
) -> Vec<Frame> {
    let mut writer = FrameWriter::new(dialect, Head::Absent);
    events.for_each(|event| writer.push(&event));
    writer.finish()
}

/// The frames of a subscription. When the server stops, the stream ends: without an error for UmaDB's
/// clients, as they expect, and with a reason for ours.
pub(crate) fn follow(protocol: Protocol, following: Following, plan: FollowPlan) -> FrameStream {
    let follow = Follow { protocol, following, plan, ready: VecDeque::new(), ended: false };
    Box::pin(stream::unfold(follow, async |mut follow| {
        if follow.ended {
            return None;
        }
        match follow.next().await {
            Ok(frame) => Some((Ok(frame), follow)),
            Err(error) if error.code == Code::Stopping && follow.plan.dialect == Dialect::Umadb => None,
            Err(error) => {
                follow.ended = true;
                Some((Err((follow.protocol.status)(&error)), follow))
            }
        }
    }))
}
