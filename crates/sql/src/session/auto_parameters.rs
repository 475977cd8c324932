//! Automatic parameterization: one plan for texts that differ only in numbers.
//!
//!   text ─▶ text with $1, $2 for numbers ─▶ plan cached by that text ─▶ run with the numbers as parameters
//!
//! Programs that build their statements as text, such as pgbench in simple mode, pay for parsing and planning
//! once. A number is replaced where a constant and a parameter of type integer mean the same: after a
//! comparison, after a sign, or in VALUES. The plan is used only if it is brief: one row by its key, or the
//! rows of VALUES. All other texts are planned as they are.

use std::sync::Arc;

use ropewalk::tables::{Type, Value};

use crate::session::Session;
use crate::session::prepared::Prepared;
use crate::syntax::parse;

/// Longest text that is parameterized.
const BYTES_MAX: usize = 4 << 10;
/// A number that follows one of these is an operand.
const OPERATORS: [&[u8]; 9] = [b"=", b"<", b">", b"<=", b">=", b"<>", b"!=", b"+", b"-"];

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Replaces the numbers of a text by parameters; returns that text and the numbers. `None` for a text without
/// numbers, or one that cannot be parameterized.
pub fn parameterize_literals(text: &str) -> Option<(String, Vec<Value<'static>>)> {
    if text.len() > BYTES_MAX {
        return None;
    }
    let (mut out, mut numbers) = (String::with_capacity(text.len()), Vec::new());
    let mut rest = text.trim_start();
    // The previous token, blanks ignored.
    let mut before: &[u8] = b"";
    let (mut is_insert, mut is_first, mut may_lift) = (false, true, false);
    while let Some(byte) = rest.bytes().next() {
        let length = |of: &dyn Fn(u8) -> bool| rest.bytes().position(|b| !of(b)).unwrap_or(rest.len());
        let length = match byte {
            b if is_word(b) => length(&is_word),
            b'\'' | b'"' => 2 + rest.bytes().skip(1).position(|b| b == byte)?,
            b'$' | b'\\' => return None,
            b';' if rest.get(1..)?.trim().is_empty() => break,
            b';' => return None,
            b if b.is_ascii_whitespace() => length(&|b| b.is_ascii_whitespace()),
            b if b"=<>!+-*/|@#&~^%?:".contains(&b) => length(&|b| b"=<>!+-*/|@#&~^%?:".contains(&b)),
            _ => 1,
        };
        let (token, behind) = rest.split_at_checked(length)?;
        rest = behind;
        if byte.is_ascii_whitespace() {
            out.push(' ');
            continue;
        }
        if token.contains("--") || token.contains("/*") || token.contains('\\') {
            return None;
        }
        if is_word(byte) {
            let is = |word: &str| token.eq_ignore_ascii_case(word);
            if is_first {
                is_insert = is("INSERT");
                may_lift = is("UPDATE") || is("DELETE");
                if !(is_insert || may_lift || is("SELECT")) {
                    return None;
                }
                is_first = false;
            }
            may_lift |= if is_insert { is("VALUES") } else { is("WHERE") };
            let is_operand = match before {
                b"(" | b"," => is_insert,
                before => OPERATORS.contains(&before),
            };
            let is_plain = !rest.starts_with('.') && byte.is_ascii_digit();
            if may_lift
                && is_operand
                && is_plain
                && let Ok(number) = token.parse::<i32>()
            {
                numbers.push(Value::Int4(number));
                out.push('$');
                out.push_str(&numbers.len().to_string());
                before = b"0";
                continue;
            }
        }
        out.push_str(token);
        before = token.as_bytes();
    }
    (!numbers.is_empty()).then_some((out, numbers))
}

impl Session {
    /// Plans a text that [`parameterize_literals`] returned; `None` if it has no brief plan. Errors are left to the original
    /// text.
    pub fn prepare_lifted(&mut self, text: &str, numbers: usize) -> Option<Prepared> {
        if self.has_failed {
            return None;
        }
        let statement = parse::one(text).ok()?;
        let prepared = self.plan(Arc::new(statement), &vec![Some(Type::INT4); numbers]).ok()?;
        (prepared.is_brief() && prepared.is_of_keys()).then_some(prepared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifted(text: &str) -> Option<String> {
        let (text, numbers) = parameterize_literals(text)?;
        let number = |value: &Value<'_>| value.as_integer().map_or("?".into(), |n| n.to_string());
        Some(format!("{text} [{}]", numbers.iter().map(number).collect::<Vec<_>>().join(",")))
    }

    #[test]
    fn lift_operand_numbers_become_parameters() {
        let same = |text, want: &str| assert_eq!(lifted(text).as_deref(), Some(want));
        same("SELECT 1 FROM t WHERE id = 17;", "SELECT 1 FROM t WHERE id = $1 [17]");
        same("update t2 set n = n + -5\nwhere id=7", "update t2 set n = n + -$1 where id=$2 [5,7]");
        same(
            "UPDATE t SET n = n - 5, s = '1=2' WHERE \"=3\" = 8",
            "UPDATE t SET n = n - $1, s = '1=2' WHERE \"=3\" = $2 [5,8]",
        );
        same(
            "INSERT INTO t (a, b) VALUES (1, 'x''y'), (-2, now())",
            "INSERT INTO t (a, b) VALUES ($1, 'x''y'), (-$2, now()) [1,2]",
        );
        same(
            "DELETE FROM t WHERE a = 1.5 AND b >= 2 AND c = 3000000000",
            "DELETE FROM t WHERE a = 1.5 AND b >= $1 AND c = 3000000000 [2]",
        );
        same(
            "SELECT a FROM t WHERE id = 4 ORDER BY 1 LIMIT 2",
            "SELECT a FROM t WHERE id = $1 ORDER BY 1 LIMIT 2 [4]",
        );
    }

    #[test]
    fn lift_unsupported_text_returns_none() {
        for text in [
            "",
            "SELECT 1",
            "SELECT a = 1 FROM t",
            "BEGIN",
            "WITH x AS (SELECT 1) SELECT * FROM x WHERE a = 1",
            "SELECT a FROM t WHERE a = 1; SELECT 2",
            "SELECT a FROM t WHERE a = $1 AND b = 2",
            "SELECT a FROM t WHERE a = 1 -- b = 2",
            "SELECT a FROM t WHERE a = 1 /* ' */",
            "SELECT a FROM t WHERE s = E'\\'' AND a = 1",
            "SELECT a FROM t WHERE a -> 1",
            "SELECT a FROM t WHERE a = 'open",
            "SELECT a FROM t WHERE a = 0x1F",
        ] {
            assert_eq!(lifted(text), None, "{text}");
        }
    }
}
