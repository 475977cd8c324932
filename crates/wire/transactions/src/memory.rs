//! Memory of the encoded results of one request.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ropewalk_wire::{Reservation, Service, WireError};

/// The memory of results while they are encoded, within `limits.answer_memory`.
pub struct ResultMemory {
    /// Most bytes of the results of one request.
    bytes_max: usize,
    held: Mutex<Held>,
}

struct Held {
    /// Bytes of the complete results.
    bytes: usize,
    reservation: Reservation,
}

impl ResultMemory {
    /// No results yet.
    pub fn new(service: &Service) -> Self {
        let reservation = service.answer_memory().connection().reservation();
        let bytes_max = service.limits().transactions.result_bytes;
        Self { bytes_max, held: Mutex::new(Held { bytes: 0, reservation }) }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // A number and permits: a panic leaves them consistent.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves memory for so many bytes of the next result, beyond the complete ones.
    ///
    /// # Errors
    /// More than the limit of results; the responses of the server hold too much.
    pub fn cover(&self, bytes: usize) -> Result<(), WireError> {
        let mut held = self.held();
        let bytes = held.bytes + bytes;
        if bytes > self.bytes_max {
            return Err(WireError::too_large("bytes of results", bytes, self.bytes_max));
        }
        held.reservation.try_cover(bytes)
    }

    /// Counts a complete result.
    ///
    /// # Errors
    /// As [`ResultMemory::cover`].
    pub fn add(&self, bytes: usize) -> Result<(), WireError> {
        self.cover(bytes)?;
        self.held().bytes += bytes;
        Ok(())
    }

    /// Forgets the results: the transaction runs again.
    pub fn clear(&self) {
        // The memory stays reserved: the next run needs about as much.
        self.held().bytes = 0;
    }

    /// The memory of the complete response, until the client has received it.
    ///
    /// # Errors
    /// The responses of the server hold too much.
    pub fn finish(self, response_bytes: usize) -> Result<Reservation, WireError> {
        let Held { mut reservation, .. } = self.held.into_inner().unwrap_or_else(PoisonError::into_inner);
        reservation.try_cover(response_bytes)?;
        reservation.shrink_to(response_bytes);
        Ok(reservation)
    }
}
