use super::{Function, arg, fixed};
use crate::lang::value::Value;
use crate::lang::value::order;
use crate::lang::value::val::{self, Val};

use std::cmp::Ordering;

pub(super) const TABLE: &[Function] = &[
    fixed("$eq", 2, |args| Ok(val::bool(order(args).is_eq()))),
    fixed("$ne", 2, |args| Ok(val::bool(order(args).is_ne()))),
    fixed("$gt", 2, |args| Ok(val::bool(order(args).is_gt()))),
    fixed("$gte", 2, |args| Ok(val::bool(order(args).is_ge()))),
    fixed("$lt", 2, |args| Ok(val::bool(order(args).is_lt()))),
    fixed("$lte", 2, |args| Ok(val::bool(order(args).is_le()))),
    fixed("$cmp", 2, |args| Ok(Val::Ref(Value::Int32(order(args) as i32)))),
    fixed("$not", 1, |args| Ok(val::bool(!arg(args, 0).get().is_some_and(Value::is_truthy)))),
];

/// In expressions, values of all types compare with one another.
fn order(args: &[Val<'_>]) -> Ordering {
    order::compare_options(arg(args, 0).get(), arg(args, 1).get())
}
