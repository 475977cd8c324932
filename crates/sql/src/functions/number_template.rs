//! `to_char` of numbers: a template of digits, such as `FM999,990.00`.
//!
//! Source of the rules: PostgreSQL 15's documentation, "Template Patterns for Numeric Formatting", and its
//! server for details that the page leaves open.

use ropewalk::tables::{Numeric, Value};

use crate::error::{Result, SqlError, state};

/// A part of a template.
#[derive(Debug, Clone, PartialEq)]
enum Part {
    /// `9`
    Digit,
    /// `0`
    Zero,
    /// `.` and `D`
    Point,
    /// `,` and `G`
    Group,
    Currency,
    /// `MI`
    Minus,
    /// `PL`
    Plus,
    /// `SG`
    Sign,
    /// `RN`; true for lower case.
    Roman(bool),
    /// `TH`; true for lower case.
    Ordinal(bool),
    Text(String),
}

/// Position of `S`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SignAt {
    Before,
    Behind,
}

/// A parsed template.
#[derive(Debug, Default)]
struct Template {
    parts: Vec<Part>,
    /// Digits before and after the point.
    before: usize,
    behind: usize,
    /// `FM`
    is_bare: bool,
    has_point: bool,
    /// Digit positions of the first and the last `0`.
    first_zero: Option<usize>,
    last_zero: usize,
    sign: Option<SignAt>,
    digits_before_sign: usize,
    has_minus: bool,
    has_plus: bool,
    has_brackets: bool,
    is_scientific: bool,
    /// Digits after `V`.
    shift: Option<usize>,
    is_roman: bool,
}

fn wrong(message: &str) -> SqlError {
    SqlError::new(state::SYNTAX_ERROR, message)
}

/// The keywords, longer ones before their prefixes.
const WORDS: [&str; 17] =
    ["EEEE", "FM", "MI", "PL", "PR", "RN", "SG", "TH", "SP", ",", ".", "0", "9", "B", "C", "D", "G"];

impl Template {
    fn read(text: &str) -> Result<Self> {
        let mut template = Self::default();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if c == '"' {
                let inner = rest.get(1..).unwrap_or_default();
                let (quoted, behind) = inner.split_once('"').unwrap_or((inner, ""));
                template.parts.push(Part::Text(quoted.to_owned()));
                rest = behind;
                continue;
            }
            let is = |word: &str| rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
            let word = WORDS.iter().chain(["L", "S", "V"].iter()).find(|word| is(word));
            let Some(word) = word else {
                template.parts.push(Part::Text(c.to_string()));
                rest = rest.get(c.len_utf8()..).unwrap_or_default();
                continue;
            };
            let is_small = rest.starts_with(|c: char| c.is_ascii_lowercase());
            template.take(word, is_small)?;
            rest = rest.get(word.len()..).unwrap_or_default();
        }
        Ok(template)
    }

    fn take(&mut self, word: &str, is_small: bool) -> Result<()> {
        if self.is_scientific && word != "FM" {
            return Err(wrong("\"EEEE\" must be the last pattern used"));
        }
        match word {
            "9" => {
                if self.has_brackets {
                    return Err(wrong("\"9\" must be ahead of \"PR\""));
                }
                match (&mut self.shift, self.has_point) {
                    (Some(shift), _) => *shift += 1,
                    (None, true) => self.behind += 1,
                    (None, false) => self.before += 1,
                }
                self.parts.push(Part::Digit);
            }
            "0" => {
                if self.has_brackets {
                    return Err(wrong("\"0\" must be ahead of \"PR\""));
                }
                if self.first_zero.is_none() && !self.has_point {
                    self.first_zero = Some(self.before);
                }
                match self.has_point {
                    true => self.behind += 1,
                    false => self.before += 1,
                }
                self.last_zero = self.before + self.behind;
                self.parts.push(Part::Zero);
            }
            "." | "D" => {
                if self.has_point {
                    return Err(wrong("multiple decimal points"));
                }
                if self.shift.is_some() {
                    return Err(wrong("cannot use \"V\" and decimal point together"));
                }
                self.has_point = true;
                self.parts.push(Part::Point);
            }
            "," | "G" => self.parts.push(Part::Group),
            "L" => self.parts.push(Part::Currency),
            "FM" => self.is_bare = true,
            "S" => {
                if self.sign.is_some() {
                    return Err(wrong("cannot use \"S\" twice"));
                }
                if self.has_plus || self.has_minus || self.has_brackets {
                    return Err(wrong("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"));
                }
                self.digits_before_sign = self.before;
                self.sign = Some(if self.has_point { SignAt::Behind } else { SignAt::Before });
            }
            "MI" | "PL" | "SG" | "PR" if self.sign.is_some() => {
                return Err(wrong(&format!("cannot use \"S\" and \"{word}\" together")));
            }
            "MI" => {
                self.has_minus = true;
                self.parts.push(Part::Minus);
            }
            "PL" => {
                self.has_plus = true;
                self.parts.push(Part::Plus);
            }
            "SG" => {
                (self.has_minus, self.has_plus) = (true, true);
                self.parts.push(Part::Sign);
            }
            "PR" if self.has_plus || self.has_minus => {
                return Err(wrong("cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together"));
            }
            "PR" => self.has_brackets = true,
            "RN" => {
                self.is_roman = true;
                self.parts.push(Part::Roman(is_small));
            }
            "TH" => self.parts.push(Part::Ordinal(is_small)),
            "V" if self.has_point => {
                return Err(wrong("cannot use \"V\" and decimal point together"));
            }
            "V" => self.shift = Some(0),
            "EEEE" => {
                let mixed = self.is_bare
                    || self.sign.is_some()
                    || self.has_brackets
                    || self.has_minus
                    || self.has_plus
                    || self.is_roman
                    || self.shift.is_some();
                if mixed {
                    let message = "\"EEEE\" is incompatible with other formats";
                    return Err(wrong(message).hint("use it with digits and a decimal point alone"));
                }
                self.is_scientific = true;
            }
            word => {
                return Err(SqlError::unsupported(
                    format!("{word} in to_char of a number"),
                    "put letters that are no field in double quotes",
                ));
            }
        }
        Ok(())
    }
}

const ROMAN: [(i64, &str); 13] = [
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
];

fn roman(number: i64) -> String {
    if !(1..=3999).contains(&number) {
        return "#".repeat(15);
    }
    let mut rest = number;
    let mut out = String::new();
    for (value, letters) in ROMAN {
        while rest >= value {
            out += letters;
            rest -= value;
        }
    }
    out
}

/// The digits of a number, without its sign, with `behind` decimal places.
fn digits(value: &Value<'_>, behind: usize, shift: usize) -> Option<(bool, String)> {
    match value {
        Value::Numeric(number) => {
            let shifted = (0..shift).try_fold(*number, |number, _| number.checked_mul(Numeric::from(10_i64)));
            // Digits beyond the precision of a numeric are zeros.
            let most = u8::try_from(behind).unwrap_or(u8::MAX);
            let number = shifted?;
            let kept = (0..=most.min(38)).rev().find_map(|scale| number.rescale(scale))?;
            let text = kept.to_string();
            let shown = text.trim_start_matches('-').to_owned();
            let missing = behind.saturating_sub(kept.scale().into());
            let point = if kept.scale() == 0 && behind > 0 { "." } else { "" };
            Some((text.starts_with('-'), shown + point + &"0".repeat(missing)))
        }
        value => {
            // A double has 15 significant digits.
            const DIGITS: usize = 15;
            let number = crate::expr::cast::to_f64(value)? * 10_f64.powi(i32::try_from(shift).ok()?);
            let whole = format!("{:.0}", number.abs()).len();
            let behind = behind.min(DIGITS.saturating_sub(whole));
            Some((number < 0.0, format!("{:.behind$}", number.abs())))
        }
    }
}

fn scientific(value: &Value<'_>, template: &Template) -> Option<String> {
    let behind = template.behind;
    let text = match value {
        Value::Numeric(number) if number.is_nan() => return None,
        Value::Numeric(number) => {
            // Rounded in decimal: the mantissa contains all digits.
            let all = number.mantissa().unsigned_abs().to_string();
            let mut exponent = i64::try_from(all.len()).ok()? - 1 - i64::from(number.scale());
            if number.mantissa() == 0 {
                exponent = 0;
            }
            let scale = u8::try_from(all.len() - 1).ok()?;
            let one = Numeric::new(number.mantissa(), scale)?;
            let kept = u8::try_from(behind).ok().and_then(|places| one.rescale(places))?;
            let (kept, exponent) = match kept.integer_digits() > 1 {
                true => (Numeric::new(kept.mantissa() / 10, kept.scale())?, exponent + 1),
                false => (kept, exponent),
            };
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{kept}e{sign}{:02}", exponent.abs())
        }
        value => {
            let number = crate::expr::cast::to_f64(value).filter(|number| number.is_finite())?;
            let text = format!("{number:.behind$e}");
            let (mantissa, exponent) = text.split_once('e')?;
            let exponent: i64 = exponent.parse().ok()?;
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
    };
    Some(if text.starts_with('-') { text } else { format!(" {text}") })
}

/// The suffix of an ordinal number.
fn ordinal(digits: &str) -> &'static str {
    let mut last = digits.chars().rev();
    match (last.next(), last.next()) {
        (_, Some('1')) => "TH",
        (Some('1'), _) => "ST",
        (Some('2'), _) => "ND",
        (Some('3'), _) => "RD",
        _ => "TH",
    }
}

/// State of filling a template from left to right.
struct Filler<'t> {
    template: &'t Template,
    is_negative: bool,
    number: Vec<char>,
    /// The last significant position; `FM` omits zeros after it.
    last: Option<usize>,
    /// Template positions before the number's first digit.
    spaces: usize,
    /// Number of digits in the template.
    count: usize,
    sign: Option<SignAt>,
    has_brackets: bool,
    /// The sign has been written, or a separate part writes it.
    is_signed: bool,
    /// The position of the digit in the template, and in the number.
    at: usize,
    next: usize,
    /// A part of the number has been written.
    is_inside: bool,
    out: String,
}

impl Filler<'_> {
    fn digit(&mut self, is_zero: bool) {
        let template = self.template;
        self.is_inside = false;
        let first = self.number.first().copied();
        let before_point =
            template.first_zero.is_none() && self.next == 0 && first == Some('0') && template.behind != 0;
        let last_is_point = self.last.is_some_and(|last| self.number.get(last) == Some(&'.'));
        let zero_from = |at: usize| template.first_zero.is_some_and(|first| first <= at);
        let reached = self.at >= self.spaces || template.first_zero == Some(self.at);
        if !self.is_signed && reached && (!before_point || last_is_point) {
            match (self.sign, self.has_brackets) {
                (Some(SignAt::Before), _) => {
                    self.out.push(if self.is_negative { '-' } else { '+' });
                    self.is_signed = true;
                }
                (Some(SignAt::Behind), _) => {}
                (None, true) => {
                    self.out.push(if self.is_negative { '<' } else { ' ' });
                    self.is_signed = true;
                }
                (None, false) => {
                    if self.is_negative {
                        self.out.push('-');
                    } else if !template.is_bare {
                        self.out.push(' ');
                    }
                    self.is_signed = true;
                }
            }
        }
        if self.at < self.spaces && !zero_from(self.at) {
            if !template.is_bare {
                self.out.push(' ');
            }
        } else if self.at < self.spaces {
            self.out.push('0');
            self.is_inside = true;
        } else {
            match self.number.get(self.next) {
                Some('.') if !last_is_point || template.is_bare => self.out.push('.'),
                Some('.') => {}
                _ if self.last.is_some_and(|last| self.next > last) && !is_zero => {}
                Some(_) if before_point => {
                    if !template.is_bare {
                        self.out.push(' ');
                    } else if last_is_point {
                        self.out.push('0');
                    }
                }
                Some(digit) => {
                    self.out.push(*digit);
                    self.is_inside = true;
                }
                None => {}
            }
            if self.next < self.number.len() {
                self.next += 1;
            }
        }
        let mut end = self.count + usize::from(self.spaces > 0) + usize::from(template.has_point);
        if self.last.is_some_and(|last| last == self.next) {
            end = self.at;
        }
        if self.at + 1 == end {
            if self.is_signed && self.has_brackets {
                self.out.push(if self.is_negative { '>' } else { ' ' });
            } else if self.sign == Some(SignAt::Behind) {
                self.out.push(if self.is_negative { '-' } else { '+' });
            }
        }
        self.at += 1;
    }
}

/// The last decimal place that is not zero; the point if all are.
fn last_that_counts(number: &[char]) -> Option<usize> {
    let point = number.iter().position(|c| *c == '.')?;
    let counts = |(_, c): &(usize, &char)| **c != '0';
    let behind = number.iter().enumerate().skip(point + 1).rfind(counts);
    Some(behind.map_or(point, |(place, _)| place))
}

/// Formats a number by a template.
///
/// # Errors
/// 42601: invalid template; 0A000 for unsupported keywords.
pub(crate) fn to_char(value: &Value<'_>, template: &str) -> Result<String> {
    let template = Template::read(template)?;
    if template.parts.is_empty() {
        return Ok(String::new());
    }
    let is_wide = |value: &Value<'_>| match value {
        Value::Numeric(number) => number.is_nan(),
        value => crate::expr::cast::to_f64(value).is_none_or(|number| !number.is_finite()),
    };
    let hashes = || {
        let behind =
            if template.has_point { format!(".{}", "#".repeat(template.behind)) } else { String::new() };
        "#".repeat(template.before) + &behind
    };
    if template.is_scientific {
        let wide = || format!(" {}", hashes().replace('.', "") + "#####");
        return Ok(scientific(value, &template).unwrap_or_else(wide));
    }
    let shift = template.shift.unwrap_or_default();
    let before = template.before + shift;
    let (is_negative, number) = match template.is_roman {
        true => {
            let rounded = digits(value, 0, 0).map(|(sign, text)| (sign, text.parse::<i64>()));
            let number = match rounded {
                Some((false, Ok(number))) => number,
                _ => 0,
            };
            (false, roman(number))
        }
        false if is_wide(value) => (false, hashes()),
        false => digits(value, template.behind, shift).unwrap_or_else(|| (false, hashes())),
    };
    let whole = number.split('.').next().unwrap_or_default().len();
    let (spaces, number) = match template.is_roman {
        true => (0, number),
        false if whole < before => (before - whole, number),
        false if whole > before => {
            let behind =
                if template.has_point { format!(".{}", "#".repeat(template.behind)) } else { String::new() };
            (0, "#".repeat(before) + &behind)
        }
        false => (0, number),
    };
    // Zero without visible digits has no sign.
    let number: Vec<char> = number.chars().collect();
    let mut last = None;
    if template.is_bare && template.has_point {
        last = last_that_counts(&number);
        if let Some(place) = &mut last
            && template.last_zero > spaces
        {
            *place = (*place).max((template.last_zero - spaces).min(number.len().saturating_sub(1)));
        }
    }
    let (mut sign, has_marks) = (template.sign, template.has_minus || template.has_plus);
    if !has_marks && sign == Some(SignAt::Before) && template.before == template.digits_before_sign {
        sign = Some(SignAt::Behind);
    }
    let is_signed = match has_marks {
        true => template.has_minus,
        false => !is_negative && template.is_bare && sign.is_none(),
    };
    let has_brackets = template.has_brackets && (is_negative || !template.is_bare);
    let count = template.behind + before;
    let count = if !is_signed && spaces == 0 { count } else { count - usize::from(count > 0) };
    let mut filler = Filler {
        template: &template,
        is_negative,
        number,
        last,
        spaces,
        count,
        sign,
        has_brackets,
        is_signed,
        at: 0,
        next: 0,
        is_inside: false,
        out: String::new(),
    };
    for part in &template.parts {
        match part {
            Part::Digit | Part::Zero | Part::Point if template.is_roman => {}
            Part::Digit | Part::Point => filler.digit(false),
            Part::Zero => filler.digit(true),
            Part::Group if filler.is_inside => filler.out.push(','),
            Part::Group if template.is_bare => {}
            Part::Group | Part::Currency => filler.out.push(' '),
            Part::Minus if is_negative => filler.out.push('-'),
            Part::Minus if template.is_bare => {}
            Part::Minus => filler.out.push(' '),
            Part::Plus if !is_negative => filler.out.push('+'),
            Part::Plus if template.is_bare => {}
            Part::Plus => filler.out.push(' '),
            Part::Sign => filler.out.push(if is_negative { '-' } else { '+' }),
            Part::Roman(is_small) => {
                let letters: String = filler.number.iter().collect();
                let letters = if *is_small { letters.to_lowercase() } else { letters };
                filler.out += &if template.is_bare { letters } else { format!("{letters:>15}") };
            }
            Part::Ordinal(is_small) => {
                let is_hidden = template.is_roman
                    || is_negative
                    || template.has_point
                    || filler.number.first() == Some(&'#');
                if !is_hidden {
                    let digits: String = filler.number.iter().collect();
                    let ending = ordinal(&digits);
                    filler.out += &if *is_small { ending.to_lowercase() } else { ending.to_owned() };
                }
            }
            Part::Text(text) => filler.out += text,
        }
    }
    Ok(filler.out)
}
