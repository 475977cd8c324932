//! The functions that expressions can call: tables of names, operands and code.

mod arithmetic;
mod arrays;
mod compare;
mod convert;
pub(crate) mod dates;
mod objects;
mod sets;
mod strings;
mod text_search;
mod zones;

use crate::lang::value::val::{Answer, Val};

pub(crate) use arithmetic::{product_of, quotient, sum_of};
pub(crate) use arrays::{standard_deviation, window};
pub(crate) use objects::Merged;

/// A function of values.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) arguments: Arguments,
    pub(crate) call: fn(&[Val<'_>]) -> Answer,
}

/// How its operands are written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arguments {
    /// Positional, so many.
    Between(usize, usize),
    /// As a document; so many of the first names are required. Others that are absent are passed as missing.
    Named(&'static [&'static str], usize),
    /// As a document, or as a single operand.
    NamedOrOne(&'static [&'static str], usize),
}

const TABLES: [&[Function]; 9] = [
    arithmetic::TABLE,
    arrays::TABLE,
    compare::TABLE,
    convert::TABLE,
    dates::TABLE,
    objects::TABLE,
    sets::TABLE,
    strings::TABLE,
    text_search::TABLE,
];

pub(crate) fn find(name: &str) -> Option<&'static Function> {
    TABLES.iter().flat_map(|table| table.iter()).find(|function| function.name == name)
}

const fn fixed(name: &'static str, count: usize, call: fn(&[Val<'_>]) -> Answer) -> Function {
    between(name, count, count, call)
}

const fn between(name: &'static str, least: usize, most: usize, call: fn(&[Val<'_>]) -> Answer) -> Function {
    Function { name, arguments: Arguments::Between(least, most), call }
}

const fn named(
    name: &'static str,
    names: &'static [&'static str],
    required: usize,
    call: fn(&[Val<'_>]) -> Answer,
) -> Function {
    Function { name, arguments: Arguments::Named(names, required), call }
}

/// The operand at a position; a parser has checked their number.
fn arg<'v, 'a>(args: &'v [Val<'a>], at: usize) -> &'v Val<'a> {
    args.get(at).unwrap_or(&Val::Missing)
}
