//! Headers of a cluster.

use axum::http::HeaderName;

/// The commit that a response may contain, and that a request wants to read.
pub(crate) const SEQ: HeaderName = HeaderName::from_static("ropewalk-seq");
/// How much a read may miss.
pub(crate) const READ: HeaderName = HeaderName::from_static("ropewalk-read");
