//! Optimizer rules that preserve PostgreSQL's semantics, or save work.

pub(super) mod computed_first;
pub(super) mod constants;
pub(super) mod early_semi_joins;
pub(super) mod filters_over_groups;
pub(super) mod in_order;
pub(super) mod sorted_joins;
