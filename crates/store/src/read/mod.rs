//! Reading one view of the store: points, ranges, many keys at once.

pub(crate) mod cursor;
pub(crate) mod flush;
pub(crate) mod multi_get;
pub(crate) mod scan;
pub(crate) mod sorted;
pub(crate) mod sorted_cursor;
pub(crate) mod view;
