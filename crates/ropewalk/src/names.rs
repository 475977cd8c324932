use crate::error::Result;
use ropewalk_events::{EventsError, NAME_BYTES_MAX};

/// Rejects a name that cannot be part of a key or be displayed.
pub(crate) fn check_name(kind: &'static str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let name = name.chars().take(64).collect();
        return Err(EventsError::InvalidName { kind, name }.into());
    }
    Ok(())
}
