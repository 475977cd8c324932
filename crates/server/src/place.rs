//! Where a connection is served, and where its messages arrive.
//!
//! The system tells which processor took a connection's last packet: that of the network card's queue, or that which a client on
//! this machine ran on. Connections that arrive at one processor belong on one lane. That lane then takes turns with the client's
//! thread, or finds what the card brought in its processor's cache; otherwise each message interrupts another processor, which on a
//! virtual machine costs more than many an answer. See docs/decisions/0022.

use std::sync::atomic::{AtomicUsize, Ordering};

/// So many messages are taken between two looks at where they arrive.
const MESSAGES: u32 = 16;
/// So many looks in a row must see the same processor: a client's thread that changes its own is not followed at once.
const LOOKS: u32 = 4;

const NOWHERE: usize = usize::MAX;

/// The lane of one connection; shared by what runs there and the stream it reads from.
pub(crate) struct Place {
    lane: AtomicUsize,
    processor: AtomicUsize,
}

impl Place {
    pub(crate) fn new(lane: usize) -> Self {
        Self { lane: AtomicUsize::new(lane), processor: AtomicUsize::new(NOWHERE) }
    }

    pub(crate) fn lane(&self) -> usize {
        self.lane.load(Ordering::Relaxed)
    }

    pub(crate) fn set_lane(&self, lane: usize) {
        self.lane.store(lane, Ordering::Relaxed);
    }

    /// Says that messages arrive at this processor.
    pub(crate) fn arrives_at(&self, processor: usize) {
        self.processor.store(processor, Ordering::Relaxed);
    }

    /// The processor that was said, once.
    pub(crate) fn arrived_at(&self) -> Option<usize> {
        if self.processor.load(Ordering::Relaxed) == NOWHERE {
            return None;
        }
        Some(self.processor.swap(NOWHERE, Ordering::Relaxed)).filter(|&processor| processor != NOWHERE)
    }
}

/// What a connection has seen of where its messages arrive.
#[derive(Default)]
pub(crate) struct Arrivals {
    messages: u32,
    looks: u32,
    processor: usize,
}

impl Arrivals {
    /// A message came; `look` tells where, and is asked now and then. The processor is told each time that it was the same often enough.
    pub(crate) fn heard(&mut self, look: impl FnOnce() -> Option<usize>) -> Option<usize> {
        self.messages += 1;
        if self.messages < MESSAGES {
            return None;
        }
        self.messages = 0;
        let processor = look()?;
        if processor != self.processor {
            (self.processor, self.looks) = (processor, 0);
        }
        self.looks += 1;
        if self.looks < LOOKS {
            return None;
        }
        self.looks = 0;
        Some(processor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_told_when_it_was_the_same_often_enough() {
        let mut arrivals = Arrivals::default();
        let mut told = |processors: &[usize]| {
            let mut told = Vec::new();
            for &processor in processors {
                for _ in 1..MESSAGES {
                    assert_eq!(arrivals.heard(|| panic!("not each message is looked at")), None);
                }
                told.extend(arrivals.heard(|| Some(processor)));
            }
            told
        };
        assert_eq!(told(&[3, 3, 3, 3]), [3]);
        assert!(told(&[3, 3, 3, 1, 3, 1, 3, 3, 3]).is_empty());
        assert_eq!(told(&[3, 3, 3, 3, 3]), [3, 3]);
        assert_eq!(told(&[1, 1, 1, 1]), [1]);
    }

    #[test]
    fn where_messages_arrive_is_answered_once() {
        let place = Place::new(1);
        assert_eq!((place.lane(), place.arrived_at()), (1, None));
        place.arrives_at(0);
        assert_eq!((place.arrived_at(), place.arrived_at()), (Some(0), None));
        place.set_lane(0);
        assert_eq!(place.lane(), 0);
    }
}
