/// Errors of labels, matchers and histograms that break a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LabelError {
    /// A label set breaks a rule or a limit.
    #[error("labels {labels}: {what}")]
    InvalidLabels {
        /// The labels as far as they could be read, truncated.
        labels: String,
        /// Reason.
        what: String,
    },
    /// A matcher is invalid.
    #[error("matcher {matcher}: {what}")]
    InvalidMatcher {
        /// The matcher, truncated.
        matcher: String,
        /// Reason.
        what: String,
    },
    /// A native histogram breaks a rule.
    #[error("histogram: {what}")]
    InvalidHistogram {
        /// Reason.
        what: &'static str,
    },
}
