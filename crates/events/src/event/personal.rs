//! Personal data in typed events: which fields have it, and a text without it.
//!
//! Not here: encryption and deletion. Events are stored as they are appended and are not changed. Data that must
//! be erasable belongs in a document or row, with its key in the event.

use core::fmt;

/// A type of events that names its personal data.
///
/// ```
/// use std::fmt;
/// use ropewalk_events::PersonalData;
///
/// struct Registered {
///     user: String,
///     email: String,
/// }
///
/// impl PersonalData for Registered {
///     const PERSONAL: &'static [(&'static str, &'static [&'static str])] = &[("Registered", &["email"])];
///
///     fn fmt_redacted(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         write!(f, "Registered {}", self.user)
///     }
/// }
///
/// let event = Registered { user: "u7".into(), email: "ann@example.org".into() };
/// assert_eq!(event.redacted().to_string(), "Registered u7");
/// # let _ = event.email;
/// ```
pub trait PersonalData {
    /// Event types with the names of their personal fields.
    const PERSONAL: &'static [(&'static str, &'static [&'static str])];

    /// Formats the event without its personal data.
    ///
    /// # Errors
    /// The output is rejected.
    fn fmt_redacted(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// The event for logs: a text without its personal data.
    fn redacted(&self) -> Redacted<'_, Self> {
        Redacted(self)
    }
}

/// Displays an event without its personal data; see [`PersonalData::redacted`].
pub struct Redacted<'e, E: ?Sized>(&'e E);

impl<E: PersonalData + ?Sized> fmt::Display for Redacted<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_redacted(f)
    }
}

impl<E: PersonalData + ?Sized> fmt::Debug for Redacted<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_redacted(f)
    }
}
