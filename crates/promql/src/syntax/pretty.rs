//! Prints an expression on several lines: a part that fits stays on one line; others are broken at the
//! outermost operator or call, with their parts indented.
//!
//! Line breaks and indentation are those of Prometheus, so that both print the same text.

use std::fmt::{self, Write};

use crate::syntax::ast::*;
use crate::syntax::print::{Behind, Head, Middle};

/// Longest part that stays on one line; the indentation does not count.
const LINE_BYTES_MAX: usize = 100;
const KEEP_NAME: &str = " keep_metric_names";

impl Expr {
    /// The expression as text, on several lines if it is long. It parses to the same tree.
    pub fn pretty(&self) -> String {
        let mut out = String::new();
        put(self, 0, &mut out);
        out
    }
}

/// Remaining bytes of a line.
struct Room(usize);

impl Write for Room {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.checked_sub(text.len()).ok_or(fmt::Error)?;
        Ok(())
    }
}

fn fits(expr: &Expr) -> bool {
    write!(Room(LINE_BYTES_MAX), "{expr}").is_ok()
}

fn indent(level: usize, out: &mut String) {
    out.extend(std::iter::repeat_n("  ", level));
}

/// Writes an expression, starting with an indented line.
fn put(expr: &Expr, level: usize, out: &mut String) {
    match expr {
        Expr::Invariant(e) => put(e, level, out),
        // Never indented by themselves.
        Expr::Subquery(_) if fits(expr) => out.push_str(&expr.to_string()),
        Expr::Subquery(e) => {
            put(&e.expr, level, out);
            out.push_str(&Behind(e).to_string());
        }
        Expr::Unary(e) => {
            let mut operand = String::new();
            put(&e.expr, level, &mut operand);
            indent(level, out);
            out.push(if e.negative { '-' } else { '+' });
            out.push_str(operand.trim());
        }
        Expr::Aggregate(e) if !fits(expr) => {
            indent(level, out);
            out.push_str(&Head(e).to_string());
            put_list(e.args(), level, out);
            if let Some(limit) = e.limit {
                out.push_str(&format!(" limit {limit}"));
            }
        }
        Expr::Call(e) if !fits(expr) => {
            indent(level, out);
            out.push_str(e.function.name);
            put_list(&e.args, level, out);
            if e.keep_name {
                out.push_str(KEEP_NAME);
            }
        }
        Expr::Paren(e) if !fits(expr) => {
            indent(level, out);
            put_list([&e.expr], level, out);
            if matches!(&e.expr, Expr::Binary(inner) if inner.keep_name) {
                out.push_str(KEEP_NAME);
            }
        }
        Expr::Binary(e) if !fits(expr) => {
            put(&e.left, level + 1, out);
            out.push('\n');
            indent(level, out);
            out.push_str(&Middle(e).to_string());
            out.push('\n');
            put(&e.right, level + 1, out);
        }
        _ => {
            indent(level, out);
            out.push_str(&expr.to_string());
        }
    }
}

/// `(`, each item on a separate line, `)`.
fn put_list<'e>(items: impl IntoIterator<Item = &'e Expr>, level: usize, out: &mut String) {
    out.push_str("(\n");
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push_str(",\n");
        }
        put(item, level + 1, out);
    }
    out.push('\n');
    indent(level, out);
    out.push(')');
}
