//! Memory for requests that are being received, shared by all protocols; and, from a pool of the same kind,
//! for responses that are built completely.
//!
//! ```text
//! bytes that arrived ─▶ share of the connection ─▶ pool of the server ─▶ Reservation ─▶ released when dropped
//! ```
//!
//! Invariants
//! 1. A reservation covers bytes that arrived. An announced length reserves nothing.
//! 2. One connection holds at most a quarter of the pool, or one request of the largest size if that is more.
//! 3. A request that holds memory waits at most [`GROWTH_WAIT_MAX`] for more, so that requests which wait for
//!    each other end.

use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Result, WireError};

/// Bytes of one request that need no reservation; most requests fit.
const FREE_BYTES: usize = 16 << 10;
/// Reservations grow by whole steps of this many KiB.
const STEP_KIB: usize = 64;
/// Longest wait of a request that holds memory already.
const GROWTH_WAIT_MAX: Duration = Duration::from_secs(2);

/// The pool of a server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RequestMemory {
    pool: Arc<Semaphore>,
    share_kib: usize,
}

impl RequestMemory {
    /// A pool of `bytes`, for requests of at most `request_bytes` bytes before and after inflating.
    pub fn new(bytes: usize, request_bytes: usize) -> Self {
        let largest = 2 * request_bytes.div_ceil(1 << 10) + 2 * STEP_KIB;
        let kib = (bytes >> 10).max(largest).min(u32::MAX as usize);
        Self { pool: Arc::new(Semaphore::new(kib)), share_kib: (kib / 4).max(largest).min(kib) }
    }

    /// The share of one connection.
    pub fn connection(&self) -> ConnectionMemory {
        let share = Arc::new(Semaphore::new(self.share_kib));
        ConnectionMemory { pool: self.pool.clone(), share, share_kib: self.share_kib }
    }

    /// Bytes that are not reserved.
    pub fn available_bytes(&self) -> usize {
        self.pool.available_permits() << 10
    }
}

/// The share of one connection. Cheap to clone: requests of one connection share it.
#[derive(Debug, Clone)]
pub struct ConnectionMemory {
    pool: Arc<Semaphore>,
    share: Arc<Semaphore>,
    share_kib: usize,
}

impl ConnectionMemory {
    /// An empty reservation, for one request.
    pub fn reservation(&self) -> Reservation {
        Reservation { memory: self.clone(), held: None, kib: 0 }
    }
}

/// Memory of one request; released when dropped.
#[derive(Debug)]
pub struct Reservation {
    memory: ConnectionMemory,
    /// Permits of the connection's share, then of the pool.
    held: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
    kib: usize,
}

impl Reservation {
    /// Grows the reservation to cover `bytes`, or to the whole share of the connection if that is less. The
    /// first growth waits for memory, so the caller sets a deadline.
    ///
    /// # Errors
    /// [`crate::Code::ResourceExhausted`]: more is needed, and none was released within two seconds.
    pub async fn cover(&mut self, bytes: usize) -> Result<()> {
        let Some(more) = self.missing(bytes) else { return Ok(()) };
        let (share, pool) = (self.memory.share.clone(), self.memory.pool.clone());
        let acquired = async {
            Some((share.acquire_many_owned(more).await.ok()?, pool.acquire_many_owned(more).await.ok()?))
        };
        let acquired = match self.held {
            None => acquired.await,
            Some(_) => tokio::time::timeout(GROWTH_WAIT_MAX, acquired).await.ok().flatten(),
        };
        let (share, pool) = acquired.ok_or_else(|| {
            WireError::exhausted(format!(
                "{bytes} bytes of this request do not fit in the memory for requests"
            ))
        })?;
        self.add((share, pool), more);
        Ok(())
    }

    /// As [`Reservation::cover`], without waiting: for a response while it is built.
    ///
    /// # Errors
    /// [`crate::Code::ResourceExhausted`].
    pub fn try_cover(&mut self, bytes: usize) -> Result<()> {
        let Some(more) = self.missing(bytes) else { return Ok(()) };
        let acquired = || {
            let share = self.memory.share.clone().try_acquire_many_owned(more).ok()?;
            Some((share, self.memory.pool.clone().try_acquire_many_owned(more).ok()?))
        };
        let acquired = acquired().ok_or_else(|| {
            WireError::exhausted(format!("{bytes} bytes of this response exceed the memory for responses"))
        })?;
        self.add(acquired, more);
        Ok(())
    }

    /// KiB to acquire so that the reservation covers `bytes`.
    fn missing(&self, bytes: usize) -> Option<u32> {
        // A share that is smaller than one request would never suffice: MongoDB's messages exceed
        // `limits.request_bytes`.
        let wanted = (bytes.div_ceil(STEP_KIB << 10) * STEP_KIB).min(self.memory.share_kib);
        let is_covered = bytes <= FREE_BYTES || wanted <= self.kib;
        (!is_covered).then(|| u32::try_from(wanted - self.kib).unwrap_or(u32::MAX))
    }

    fn add(&mut self, (share, pool): (OwnedSemaphorePermit, OwnedSemaphorePermit), kib: u32) {
        match &mut self.held {
            None => self.held = Some((share, pool)),
            Some((held_share, held_pool)) => {
                held_share.merge(share);
                held_pool.merge(pool);
            }
        }
        self.kib += kib as usize;
    }

    /// Wraps bytes that hold this reservation for as long as they or parts of them live.
    pub fn hold(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        struct Held<B>(B, #[expect(dead_code, reason = "released when dropped")] Reservation);
        impl<B: AsRef<[u8]>> AsRef<[u8]> for Held<B> {
            fn as_ref(&self) -> &[u8] {
                self.0.as_ref()
            }
        }
        if self.held.is_none() {
            Bytes::copy_from_slice(bytes.as_ref())
        } else {
            Bytes::from_owner(Held(bytes, self))
        }
    }

    /// Releases what `bytes` do not need.
    pub fn shrink_to(&mut self, bytes: usize) {
        let wanted = if bytes <= FREE_BYTES { 0 } else { bytes.div_ceil(STEP_KIB << 10) * STEP_KIB };
        if wanted >= self.kib {
            return;
        }
        if let Some((share, pool)) = &mut self.held {
            drop((share.split(self.kib - wanted), pool.split(self.kib - wanted)));
        }
        self.kib = wanted;
        if wanted == 0 {
            self.held = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    const MIB: usize = 1 << 20;

    #[tokio::test(start_paused = true)]
    async fn reservation_covers_what_arrived_and_is_released_when_dropped() {
        let memory = RequestMemory::new(64 * MIB, MIB);
        let mut reservation = memory.connection().reservation();
        reservation.cover(FREE_BYTES).await.unwrap();
        assert_eq!(memory.available_bytes(), 64 * MIB);
        reservation.cover(FREE_BYTES + 1).await.unwrap();
        assert_eq!(memory.available_bytes(), 64 * MIB - (STEP_KIB << 10));
        reservation.cover(MIB).await.unwrap();
        assert_eq!(memory.available_bytes(), 63 * MIB);
        reservation.shrink_to(100 << 10);
        assert_eq!(memory.available_bytes(), 64 * MIB - (128 << 10));
        drop(reservation);
        assert_eq!(memory.available_bytes(), 64 * MIB);
    }

    #[tokio::test(start_paused = true)]
    async fn connection_cannot_take_more_than_its_share() {
        let memory = RequestMemory::new(64 * MIB, MIB);
        let greedy = memory.connection();
        let mut held = Vec::new();
        for _ in 0..16 {
            let mut reservation = greedy.reservation();
            reservation.cover(MIB).await.unwrap();
            held.push(reservation);
        }
        let mut one_more = greedy.reservation();
        assert!(tokio::time::timeout(Duration::from_secs(9), one_more.cover(MIB)).await.is_err());
        assert_eq!(memory.available_bytes(), 48 * MIB);
        memory.connection().reservation().cover(MIB).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn request_larger_than_the_share_takes_the_whole_share() {
        let memory = RequestMemory::new(64 * MIB, MIB);
        let mut reservation = memory.connection().reservation();
        reservation.cover(94 * MIB).await.unwrap();
        assert_eq!(memory.available_bytes(), 48 * MIB);
        drop(reservation);
        assert_eq!(memory.available_bytes(), 64 * MIB);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_wait_for_each_other_end() {
        let memory = RequestMemory::new(4 * MIB, MIB);
        let (mut a, mut b) = (memory.connection().reservation(), memory.connection().reservation());
        a.cover(2 * MIB).await.unwrap();
        b.cover(2 * MIB).await.unwrap();
        let (first, second) = tokio::join!(a.cover(2 * MIB + 1), b.cover(2 * MIB + 1));
        assert_eq!(first.unwrap_err().code, Code::ResourceExhausted);
        assert_eq!(second.unwrap_err().code, Code::ResourceExhausted);
    }
    #[tokio::test(start_paused = true)]
    async fn response_that_does_not_fit_is_rejected_without_waiting() {
        let memory = RequestMemory::new(4 * MIB, MIB);
        let (mut a, mut b) = (memory.connection().reservation(), memory.connection().reservation());
        a.try_cover(2 * MIB).unwrap();
        b.try_cover(MIB).unwrap();
        assert_eq!(b.try_cover(2 * MIB + 1).unwrap_err().code, Code::ResourceExhausted);
        drop(a);
        b.try_cover(2 * MIB + 1).unwrap();
    }
}
