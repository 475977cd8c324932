//! Values, columns and functions as the engine evaluates them.

pub(super) mod arithmetic;
pub(super) mod checked_sum;
pub(super) mod convert;
pub(super) mod made;
pub(super) mod plan_step;
pub(super) mod scalar;
