//! Fixed limits of idempotency keys. Configurable limits are [`ropewalk_wire::TransactionLimits`].

use core::time::Duration;

/// Longest idempotency key, bytes.
pub const KEY_BYTES_MAX: usize = 255;
/// Time for which the result of an idempotency key is stored.
pub const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// Interval of the deletion of old idempotency keys.
pub(crate) const KEYS_INTERVAL: Duration = Duration::from_secs(60);
