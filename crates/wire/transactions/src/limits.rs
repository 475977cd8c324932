//! Fixed limits of idempotency keys. Configurable limits are [`ropewalk_wire::TransactionLimits`].

use core::time::Duration;

pub use ropewalk::hooks::idempotency::{KEY_BYTES_MAX, RETENTION};

/// Interval of the deletion of old idempotency keys.
pub(crate) const KEYS_INTERVAL: Duration = Duration::from_secs(60);
