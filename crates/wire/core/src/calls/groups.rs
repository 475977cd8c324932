//! Consumer groups and checkpoints, for protocols: the caller's right, the memory budget, waiting without a
//! thread.

use core::time::Duration;
use std::time::Instant;

use ropewalk::Error;
use ropewalk::changes::ConsumerCheckpoints;
use ropewalk::groups::{ConsumerGroup, ConsumerGroups, Lease};
use ropewalk_auth::{Caller, Right};

use crate::calls::blocking::run_unpinned;
use crate::calls::{AskedStore, Service};
use crate::error::{Result, WireError};

/// Most events of one take.
pub const TAKE_MAX: usize = 1_000;
/// Longest wait of a take for its first event.
pub const TAKE_WAIT_MAX: Duration = Duration::from_secs(20);
/// Shortest pause before retried events are checked again.
const DUE_PAUSE_MIN: Duration = Duration::from_millis(1);

impl Service {
    /// The consumer groups of `store`, for a caller with `right` on it.
    ///
    /// # Errors
    /// [`crate::Code::NotFound`] for an unknown store; [`crate::Code::PermissionDenied`].
    pub fn groups<'s>(
        &self,
        caller: &Caller,
        right: Right,
        store: impl Into<AskedStore<'s>>,
    ) -> Result<ConsumerGroups> {
        let store = store.into();
        self.asked(caller, right, store)?;
        Ok(self.database().consumer_groups(store.name)?)
    }

    /// A consumer group of `store`, for a caller who may read it.
    ///
    /// # Errors
    /// As [`Service::groups`]; [`crate::Code::NotFound`] for an unknown group.
    pub fn group<'s>(
        &self,
        caller: &Caller,
        store: impl Into<AskedStore<'s>>,
        group: &str,
    ) -> Result<ConsumerGroup> {
        Ok(self.groups(caller, Right::Read, store)?.group(group)?)
    }

    /// The checkpoints of the consumers of `store`, for a caller who may read it.
    ///
    /// # Errors
    /// As [`Service::groups`].
    pub fn checkpoints<'s>(
        &self,
        caller: &Caller,
        store: impl Into<AskedStore<'s>>,
    ) -> Result<ConsumerCheckpoints> {
        let store = store.into();
        self.asked(caller, Right::Read, store)?;
        Ok(self.database().consumer_checkpoints(store.name)?)
    }

    /// Runs `work`, a short write that waits for the disk.
    ///
    /// # Errors
    /// [`crate::Code::ResourceExhausted`] while the memory budget is spent; the error of `work`.
    pub async fn write<R>(&self, work: impl FnOnce() -> Result<R, Error>) -> Result<R> {
        self.wait_for_write_capacity().await?;
        Ok(run_unpinned(work)?)
    }

    /// Takes up to `max` events of a group, waiting up to `wait` for the first, without a thread.
    ///
    /// # Errors
    /// [`crate::Code::InvalidArgument`] for more than [`TAKE_MAX`] events or [`TAKE_WAIT_MAX`];
    /// [`crate::Code::ResourceExhausted`] when too many wait; [`crate::Code::Stopping`]; as
    /// [`Service::write`].
    pub async fn take(
        &self,
        group: &ConsumerGroup,
        max: usize,
        lease: Option<Duration>,
        wait: Duration,
    ) -> Result<Lease> {
        if max == 0 || max > TAKE_MAX {
            return Err(WireError::invalid(format!("{max} events cannot be taken; 1 to {TAKE_MAX} can")));
        }
        if wait > TAKE_WAIT_MAX {
            let most = TAKE_WAIT_MAX.as_millis();
            return Err(WireError::invalid(format!("a call waits at most {most} ms")));
        }
        let until = Instant::now() + wait;
        let mut waiting = None;
        loop {
            let seen = self.database().seq();
            let taken = self.write(|| group.take_for(max, lease)).await?;
            let now = Instant::now();
            if !taken.events.is_empty() || now >= until {
                return Ok(taken);
            }
            if waiting.is_none() {
                waiting = Some(self.admit_stream()?);
            }
            let mut pause = until - now;
            if let Some(due_micros) = taken.due_micros {
                let wall = self.database().engine().env().clock.wall_micros();
                let due = Duration::from_micros(due_micros.saturating_sub(wall).max(0).cast_unsigned());
                pause = pause.min(due.max(DUE_PAUSE_MIN));
            }
            tokio::select! {
                visible = self.database().wait_visible_after(seen) => { visible?; }
                () = tokio::time::sleep(pause) => {}
                () = self.stop().wait() => return Err(WireError::stopping()),
            }
        }
    }
}
