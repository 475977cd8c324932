//! The lane that serves a connection, and the processor where its messages arrive.
//!
//! The system reports which processor received a connection's last packet: that of the network card's queue,
//! or that of a client on this machine. Connections that arrive at one processor belong on one lane. That
//! lane then alternates with the client's thread, or finds the packet in its processor's cache. Otherwise
//! each message interrupts another processor, which on a virtual machine costs more than many requests. See
//! docs/decisions/0022.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Messages between two checks of where they arrive.
const MESSAGES: u32 = 16;
/// Consecutive checks that must see the same processor, so that a migrating client thread is not followed at
/// once.
const LOOKS: u32 = 4;

const NOWHERE: usize = usize::MAX;

/// The lane of one connection; shared by its task and its stream.
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

    /// Records the processor where messages arrive.
    pub(crate) fn arrives_at(&self, processor: usize) {
        self.processor.store(processor, Ordering::Relaxed);
    }

    /// Takes the recorded processor, if any.
    pub(crate) fn arrived_at(&self) -> Option<usize> {
        if self.processor.load(Ordering::Relaxed) == NOWHERE {
            return None;
        }
        Some(self.processor.swap(NOWHERE, Ordering::Relaxed)).filter(|&processor| processor != NOWHERE)
    }
}

/// Counts at which processor a connection's messages arrived.
#[derive(Default)]
pub(crate) struct Arrivals {
    messages: u32,
    looks: u32,
    processor: usize,
}

impl Arrivals {
    /// Counts a message. Calls `look` for its processor once every [`MESSAGES`]; returns the processor after
    /// [`LOOKS`] equal checks in a row.
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
    fn processor_is_reported_after_enough_equal_checks() {
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
    fn recorded_processor_is_taken_once() {
        let place = Place::new(1);
        assert_eq!((place.lane(), place.arrived_at()), (1, None));
        place.arrives_at(0);
        assert_eq!((place.arrived_at(), place.arrived_at()), (Some(0), None));
        place.set_lane(0);
        assert_eq!(place.lane(), 0);
    }
}
