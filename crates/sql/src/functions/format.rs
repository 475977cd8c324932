//! `format(template, ...)`.
//!
//! ```text
//! %  [number of the argument $]  [-: align left]  [width, or * for an argument, *n$ for the n-th]  s, I or L        %%
//! ```
//! Source of the rules: PostgreSQL 15's documentation, "format".

use std::iter::Peekable;
use std::str::Chars;

use ropewalk::tables::Value;

use crate::error::{Result, SqlError, state};
use crate::expr::bounds::check_text;
use crate::types::text_format::to_text;

const FOR_A_SIGN: &str = "for a single \"%\" use \"%%\"";

fn wrong(what: &str) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, what)
}

fn unterminated() -> SqlError {
    wrong("unterminated format() type specifier").hint(FOR_A_SIGN)
}

/// The arguments, and the position of the next one.
struct Arguments<'v> {
    all: &'v [Value<'v>],
    next: usize,
}

impl<'v> Arguments<'v> {
    /// The argument with a number from 1, or the next one; sets the next position.
    fn take(&mut self, number: Option<usize>) -> Result<&'v Value<'v>> {
        let place = number.map_or(self.next, |number| number - 1);
        self.next = place + 1;
        self.all.get(place).ok_or_else(|| wrong("too few arguments for format()"))
    }

    fn width(&mut self, number: Option<usize>) -> Result<i64> {
        let Some(text) = to_text(self.take(number)?) else { return Ok(0) };
        text.trim().parse::<i32>().map(i64::from).map_err(|_| {
            let message = format!("invalid input syntax for type integer: \"{text}\"");
            SqlError::new(state::INVALID_TEXT_REPRESENTATION, message)
        })
    }
}

/// The number at the current position, if any.
fn digits(chars: &mut Peekable<Chars<'_>>) -> Result<Option<usize>> {
    let mut found = None;
    while let Some(digit) = chars.next_if(char::is_ascii_digit).and_then(|c| c.to_digit(10)) {
        let number: i32 = found.unwrap_or_default();
        let number = number.checked_mul(10).and_then(|n| n.checked_add(i32::try_from(digit).ok()?));
        found = Some(
            number
                .ok_or_else(|| SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "number is out of range"))?,
        );
    }
    Ok(found.and_then(|number| usize::try_from(number).ok()))
}

fn from_one(number: usize) -> Result<usize> {
    if number > 0 {
        return Ok(number);
    }
    Err(wrong("format specifies argument 0, but arguments are numbered from 1"))
}

/// The parts of a specifier between `%` and its letter.
#[derive(Default)]
struct Specifier {
    argument: Option<usize>,
    to_the_left: bool,
    width: i64,
}

impl Specifier {
    fn read(chars: &mut Peekable<Chars<'_>>, arguments: &mut Arguments<'_>) -> Result<Self> {
        let mut found = Self::default();
        if let Some(number) = digits(chars)? {
            if chars.next_if_eq(&'$').is_none() {
                found.width = i64::try_from(number).unwrap_or(i64::MAX);
                return Ok(found);
            }
            found.argument = Some(from_one(number)?);
        }
        while chars.next_if_eq(&'-').is_some() {
            found.to_the_left = true;
        }
        if chars.next_if_eq(&'*').is_some() {
            let number = match digits(chars)? {
                None => None,
                Some(_) if chars.next_if_eq(&'$').is_none() => {
                    return Err(wrong("width argument position must be ended by \"$\""));
                }
                Some(number) => Some(from_one(number)?),
            };
            let width = arguments.width(number)?;
            found.to_the_left |= width < 0;
            found.width = width.abs();
        } else if let Some(number) = digits(chars)? {
            found.width = i64::try_from(number).unwrap_or(i64::MAX);
        }
        Ok(found)
    }

    fn put(&self, out: &mut String, text: &str) -> Result<()> {
        let have = text.chars().count();
        let missing = usize::try_from(self.width).unwrap_or_default().saturating_sub(have);
        check_text(out.len().saturating_add(text.len()).saturating_add(missing))?;
        let blanks = std::iter::repeat_n(' ', missing);
        if self.to_the_left {
            out.push_str(text);
            out.extend(blanks);
        } else {
            out.extend(blanks);
            out.push_str(text);
        }
        Ok(())
    }
}

/// The template with its arguments inserted.
pub(crate) fn format(template: &str, arguments: &[Value<'_>]) -> Result<String> {
    let mut arguments = Arguments { all: arguments, next: 0 };
    let mut out = String::new();
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let specifier = Specifier::read(&mut chars, &mut arguments)?;
        let letter = chars.next().ok_or_else(unterminated)?;
        if !matches!(letter, 's' | 'I' | 'L') {
            let message = format!("unrecognized format() type specifier \"{letter}\"");
            return Err(wrong(&message).hint(FOR_A_SIGN));
        }
        let value = to_text(arguments.take(specifier.argument)?);
        let shown = match (letter, value) {
            ('I', Some(value)) => crate::syntax::names::ident(&value),
            ('I', None) => {
                let message = "null values cannot be formatted as an SQL identifier";
                return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message));
            }
            ('L', Some(value)) => crate::functions::text::quoted_literal(&value),
            ('L', None) => "NULL".into(),
            (_, value) => value.unwrap_or_default(),
        };
        specifier.put(&mut out, &shown)?;
    }
    Ok(out)
}
