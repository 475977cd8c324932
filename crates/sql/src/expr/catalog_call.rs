//! A function over the catalog, as an expression calls it. The room `catalog` implements it.

use std::fmt::Debug;

use ropewalk::tables::Value;

use crate::error::Result;
use crate::expr::Context;

/// A bound call of a function over the catalog.
pub(crate) trait CatalogCall: Debug + Send + Sync {
    /// The value for these arguments.
    fn call(&self, arguments: &[Value<'_>], cx: &Context<'_>) -> Result<Value<'static>>;

    /// True for functions that affect another session and may wait for it.
    fn is_of_peers(&self) -> bool;

    /// Number of the function; calls of the same function are equal.
    fn number(&self) -> usize;
}

impl PartialEq for dyn CatalogCall {
    fn eq(&self, other: &Self) -> bool {
        self.number() == other.number()
    }
}
