//! Entries in order, pushed by the service: an open consumer, which lives as long as reads continue.
//!
//! ```text
//! stream ─▶ consumer without acknowledgements ─▶ subscription ─▶ fetch
//!              number of the delivery: no gap, else messages were lost on the way: open another feed
//!              number in the stream:   no gap, else the stream has a hole, which the log examines
//! ```
//!
//! The consumer is in the memory of one server, which need not be the leader of the stream: a feed may lag, and it
//! ends with its server, with the connection, or when heartbeats stop. The service stores nothing about readers.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use async_nats::header::NATS_LAST_CONSUMER;
use async_nats::{Message, StatusCode, Subscriber};
use futures_util::{Stream, StreamExt};
use ropewalk_log::shared::{EntryIndex, SharedEntry};
use serde_json::{Value, json};

use crate::link::{CallError, Link, Waited};

/// Interval of the heartbeats of a consumer that has nothing to send, …
const HEARTBEAT: Duration = Duration::from_secs(1);
/// … and the silence after which it is given up.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// A consumer whose subscription ended is removed after this time.
const INACTIVE: Duration = Duration::from_secs(5);
/// Time to hand an answer of flow control to the connection.
const REPLY_TIME: Duration = Duration::from_secs(1);
/// The header of a heartbeat that repeats a request of flow control.
const STALLED: &str = "Nats-Consumer-Stalled";

/// An open consumer.
#[derive(Debug)]
pub(crate) struct Feed {
    subscriber: Subscriber,
    /// Number in the stream of the next entry.
    next: u64,
    /// Number of the last delivery.
    delivered: u64,
    /// Messages that the consumer had after the last delivery.
    pending: u64,
    /// Number of the connection over which it was opened.
    epoch: u64,
    /// Time of the last message.
    heard: Instant,
}

/// Why a feed ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Messages were or may be lost on the way: another feed delivers them.
    Broken(String),
    /// The next message in the stream is this one, not the next entry.
    Hole(u64),
    /// A message of another subject: the stream was created again.
    Foreign,
}

/// A message of the subscription.
enum Received {
    Entry(Vec<u8>),
    /// A heartbeat, or a request of flow control.
    Control,
}

impl Feed {
    /// Opens a consumer that begins with the entry `next`.
    pub(crate) fn open(link: &Link, stream: &str, next: u64, deadline: Instant) -> Result<Self, CallError> {
        let epoch = link.epoch();
        let inbox = link.client().new_inbox();
        let name = inbox.rsplit('.').next().unwrap_or_default().to_owned();
        let subscriber = link
            .wait(link.client().subscribe(inbox.clone()), deadline)
            .ok_or_else(|| CallError::Unavailable("subscribing took too long".to_owned()))?
            .map_err(|error| CallError::Unavailable(error.to_string()))?;
        let body = json!({
            "stream_name": stream,
            "action": "create",
            "config": {
                "name": name,
                "deliver_subject": inbox,
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": next,
                "ack_policy": "none",
                "replay_policy": "instant",
                "flow_control": true,
                "idle_heartbeat": nanoseconds(HEARTBEAT),
                "inactive_threshold": nanoseconds(INACTIVE),
                "num_replicas": 1,
                "mem_storage": true,
            },
        });
        let created = link.call("CONSUMER.CREATE", &format!("{stream}.{name}"), &body, deadline)?;
        let pending = created.get("num_pending").and_then(Value::as_u64).unwrap_or(0);
        Ok(Self { subscriber, next, delivered: 0, pending, epoch, heard: Instant::now() })
    }

    /// Number in the stream of the next entry.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// True when entries that were not fetched are known to exist.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending > 0
    }

    /// Waits for an entry until `deadline`, and returns it with those that have arrived, about `bytes_max` bytes. The
    /// feed cannot be used after it ended; entries before that are valid.
    pub(crate) fn fetch(
        &mut self,
        link: &Link,
        subject: &str,
        bytes_max: usize,
        deadline: Instant,
    ) -> (Vec<SharedEntry>, Option<Ended>) {
        let (mut entries, mut bytes) = (Vec::new(), 0_usize);
        while entries.is_empty() || bytes < bytes_max {
            let message = match self.arrived() {
                Poll::Ready(message) => message,
                Poll::Pending if !entries.is_empty() => break,
                Poll::Pending => match self.waited(link, deadline) {
                    Ok(Some(message)) => Some(message),
                    Ok(None) => break,
                    Err(ended) => return (entries, Some(ended)),
                },
            };
            let Some(message) = message else {
                return (entries, Some(Ended::Broken("the subscription ended".to_owned())));
            };
            self.heard = Instant::now();
            match self.receive(link, subject, message) {
                Ok(Received::Control) => {}
                Ok(Received::Entry(contents)) => {
                    bytes = bytes.saturating_add(contents.len());
                    entries.push(SharedEntry { index: EntryIndex(self.next), bytes: contents });
                    self.next += 1;
                }
                Err(ended) => return (entries, Some(ended)),
            }
        }
        (entries, None)
    }

    /// A message that is there, without waiting.
    fn arrived(&mut self) -> Poll<Option<Message>> {
        Pin::new(&mut self.subscriber).poll_next(&mut Context::from_waker(Waker::noop()))
    }

    /// The next message; `None` when none arrives until `deadline`.
    fn waited(&mut self, link: &Link, deadline: Instant) -> Result<Option<Message>, Ended> {
        if self.epoch != link.epoch() {
            return Err(Ended::Broken("the connection was lost".to_owned()));
        }
        let silent = self.heard + SILENCE_MAX;
        match link.wait_connected(self.subscriber.next(), deadline.min(silent)) {
            Waited::Done(Some(message)) => Ok(Some(message)),
            Waited::Done(None) => Err(Ended::Broken("the subscription ended".to_owned())),
            Waited::Broken => Err(Ended::Broken("the connection was lost".to_owned())),
            Waited::Late if Instant::now() >= silent => {
                Err(Ended::Broken("the consumer sends no heartbeats".to_owned()))
            }
            Waited::Late => Ok(None),
        }
    }

    /// Checks the numbers of a message.
    fn receive(&mut self, link: &Link, subject: &str, message: Message) -> Result<Received, Ended> {
        if let Some(status) = message.status {
            return self.control(link, status, &message);
        }
        let delivery = message.reply.as_deref().and_then(Delivery::parse);
        let Some(delivery) = delivery else {
            return Err(Ended::Broken("a message has no number".to_owned()));
        };
        if message.subject.as_str() != subject {
            return Err(Ended::Foreign);
        }
        if delivery.number != self.delivered + 1 {
            let what = format!("delivery {} follows delivery {}", delivery.number, self.delivered);
            return Err(Ended::Broken(what));
        }
        if delivery.entry != self.next {
            return Err(Ended::Hole(delivery.entry));
        }
        self.delivered = delivery.number;
        self.pending = delivery.pending;
        Ok(Received::Entry(message.payload.to_vec()))
    }

    /// Answers flow control. Checks that all messages before a heartbeat have arrived.
    fn control(&self, link: &Link, status: StatusCode, message: &Message) -> Result<Received, Ended> {
        if status != StatusCode::IDLE_HEARTBEAT {
            let what = message.description.as_deref().unwrap_or_default();
            return Err(Ended::Broken(format!("the consumer sent status {status}: {what}")));
        }
        let header = |name: &str| message.headers.as_ref()?.get(name).map(|value| value.as_str().to_owned());
        let stalled = message.reply.as_ref().map(|reply| reply.to_string()).or_else(|| header(STALLED));
        if let Some(reply) = stalled {
            // A lost answer is repeated at the next heartbeat.
            let _ = link.wait(link.client().publish(reply, Vec::new().into()), Instant::now() + REPLY_TIME);
        }
        let last = message.headers.as_ref().and_then(|headers| headers.get(NATS_LAST_CONSUMER));
        match last.and_then(|last| last.as_str().parse::<u64>().ok()) {
            Some(last) if last != self.delivered => {
                Err(Ended::Broken(format!("delivery {last} was sent, {} arrived", self.delivered)))
            }
            _ => Ok(Received::Control),
        }
    }
}

/// The numbers of a delivery, which are in the subject for its acknowledgement.
#[derive(Debug, PartialEq, Eq)]
struct Delivery {
    entry: u64,
    number: u64,
    /// Messages that the consumer has after this one.
    pending: u64,
}

impl Delivery {
    /// Reads `$JS.ACK.STREAM.CONSUMER.TRIES.ENTRY.NUMBER.TIME.PENDING`, or the form with domain and account after
    /// `ACK`.
    fn parse(reply: &str) -> Option<Self> {
        let skipped = match reply.split('.').count() {
            9 => 5,
            11.. => 7,
            _ => return None,
        };
        let mut tokens = reply.strip_prefix("$JS.ACK.").map(|_| reply.split('.').skip(skipped))?;
        let mut number = || tokens.next()?.parse().ok();
        let (entry, delivery, _time) = (number()?, number()?, number()?);
        Some(Self { entry, number: delivery, pending: number()? })
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_delivery_are_read_in_both_forms() {
        let delivery = Some(Delivery { entry: 7, number: 3, pending: 12 });
        assert_eq!(Delivery::parse("$JS.ACK.S.c0.1.7.3.1764240000000000000.12"), delivery);
        assert_eq!(Delivery::parse("$JS.ACK._.HASH.S.c0.1.7.3.1764240000000000000.12"), delivery);
        assert_eq!(Delivery::parse("$JS.ACK._.HASH.S.c0.1.7.3.1764240000000000000.12.x"), delivery);
        for wrong in [
            "",
            "$JS.ACK.S.c0.1.7.3.1",
            "$JS.FC.S.c0.1.7.3.1.12",
            "$JS.ACK.S.c0.1.x.3.1.12",
            "a.b.c.d.e.7.3.1.12",
        ] {
            assert_eq!(Delivery::parse(wrong), None, "{wrong}");
        }
    }
}
