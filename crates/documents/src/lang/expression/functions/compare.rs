use super::{Arguments, Function, arg, fixed, ordered};
use crate::lang::error::LangResult;
use crate::lang::value::Value;
use crate::lang::value::ordering::Order;
use crate::lang::value::val::{self, Answer, Val};

use std::cmp::Ordering;

pub(super) const TABLE: &[Function] = &[
    comparison("$eq", |args, order| Ok(val::bool(compared(args, order)?.is_eq()))),
    comparison("$ne", |args, order| Ok(val::bool(compared(args, order)?.is_ne()))),
    comparison("$gt", |args, order| Ok(val::bool(compared(args, order)?.is_gt()))),
    comparison("$gte", |args, order| Ok(val::bool(compared(args, order)?.is_ge()))),
    comparison("$lt", |args, order| Ok(val::bool(compared(args, order)?.is_lt()))),
    comparison("$lte", |args, order| Ok(val::bool(compared(args, order)?.is_le()))),
    comparison("$cmp", |args, order| Ok(Val::Ref(Value::Int32(compared(args, order)? as i32)))),
    fixed("$not", 1, |args| Ok(val::bool(!arg(args, 0).get().is_some_and(Value::is_truthy)))),
];

const fn comparison(name: &'static str, call: fn(&[Val<'_>], &Order) -> Answer) -> Function {
    ordered(name, Arguments::Between(2, 2), call)
}

/// In expressions, values of all types compare with one another.
fn compared(args: &[Val<'_>], order: &Order) -> LangResult<Ordering> {
    order.compare_options(arg(args, 0).get(), arg(args, 1).get())
}
