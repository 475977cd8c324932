//! Documents in shell notation: `{a: 1, "b.c": [2L, 1.5, 0.1d], r: /x/i, at: Date(5)}`.
//!
//! `L` marks a long, `d` a decimal; `oid(n)`, `Timestamp(n)`, `undefined`, `MinKey` and `MaxKey` are the
//! types of that name.

use ropewalk_documents::lang::{Decimal, DocBuf, Owned, Value, Writer};

/// A document.
pub(crate) fn doc(text: &str) -> DocBuf {
    match value(text).value() {
        Value::Document(doc) => DocBuf::check(doc.bytes().to_vec()).unwrap(),
        other => panic!("no document: {other}"),
    }
}

/// Any value.
pub(crate) fn value(text: &str) -> Owned {
    let mut writer = Writer::new();
    let mut reader = Reader { text, rest: text };
    reader.value("v", &mut writer);
    assert!(reader.rest.trim().is_empty(), "{:?} is left of {text}", reader.rest);
    writer.finish().doc().get("v").unwrap().into()
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn skip(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) {
        assert!(self.skip(token), "{token:?} expected at {:?} in {}", self.rest, self.text);
    }

    fn until(&mut self, end: impl Fn(char) -> bool) -> &'a str {
        let at = self.rest.find(end).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(at);
        self.rest = rest;
        word
    }

    fn quoted(&mut self) -> Option<String> {
        self.skip("\"").then(|| {
            let mut text = String::new();
            let mut characters = self.rest.char_indices();
            while let Some((at, character)) = characters.next() {
                match character {
                    '"' => {
                        self.rest = &self.rest[at + 1..];
                        return text;
                    }
                    '\\' => text.push(characters.next().unwrap().1),
                    other => text.push(other),
                }
            }
            panic!("a text has no end in {}", self.text);
        })
    }

    fn value(&mut self, name: &str, writer: &mut Writer) {
        if self.skip("{") {
            writer.open_document(name);
            while !self.skip("}") {
                let key = self.quoted().unwrap_or_else(|| self.until(|c| c == ':').trim().to_owned());
                self.expect(":");
                self.value(&key, writer);
                self.skip(",");
            }
            return writer.close();
        }
        if self.skip("[") {
            writer.open_array(name);
            while !self.skip("]") {
                self.value("", writer);
                self.skip(",");
            }
            return writer.close();
        }
        if let Some(text) = self.quoted() {
            return writer.put(name, Value::String(&text));
        }
        if self.skip("/") {
            let pattern = self.until(|c| c == '/').to_owned();
            self.expect("/");
            let options = self.until(|c| !c.is_ascii_lowercase());
            return writer.put(name, Value::Regex(&pattern, options));
        }
        let word = self.until(|c| ",]} ".contains(c));
        let inner = |name: &str| word.strip_prefix(name)?.strip_suffix(')')?.parse::<i64>().ok();
        let value = match word {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            "undefined" => Value::Undefined,
            "MinKey" => Value::MinKey,
            "MaxKey" => Value::MaxKey,
            "NaN" => Value::Double(f64::NAN),
            "Infinity" => Value::Double(f64::INFINITY),
            _ => {
                if let Some(ms) = inner("Date(") {
                    Value::DateTime(ms)
                } else if let Some(n) = inner("oid(") {
                    let mut id = [0; 12];
                    id[4..].copy_from_slice(&n.to_be_bytes());
                    Value::ObjectId(id)
                } else if let Some(n) = inner("Timestamp(") {
                    Value::Timestamp((n as u64) << 32)
                } else if let Some(long) = word.strip_suffix('L') {
                    Value::Int64(long.parse().unwrap())
                } else if let Some(decimal) = word.strip_suffix('d') {
                    Value::Decimal(Decimal::parse(decimal).unwrap())
                } else if let Ok(n) = word.parse() {
                    Value::Int32(n)
                } else {
                    Value::Double(word.parse().unwrap_or_else(|_| panic!("{word:?} in {}", self.text)))
                }
            }
        };
        writer.put(name, value);
    }
}
