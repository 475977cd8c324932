//! Checks whether a text is JSON (RFC 8259). Nothing is built; depth is bounded, so that no input exhausts
//! the stack.

/// Deepest nesting of arrays and objects.
pub const JSON_DEPTH_MAX: usize = 512;

/// The byte offset of the first JSON error in `text`, or `None`.
pub fn json_error(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut walk = Walk { rest: bytes };
    walk.space();
    let done = walk.value(0).and_then(|()| {
        walk.space();
        walk.rest.is_empty().then_some(())
    });
    done.is_none().then(|| bytes.len() - walk.rest.len())
}

struct Walk<'a> {
    rest: &'a [u8],
}

impl Walk<'_> {
    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn eat(&mut self, word: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(())
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.next();
        }
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        match self.peek()? {
            b'{' | b'[' if depth == JSON_DEPTH_MAX => None,
            b'{' => self.list(b'}', |walk| {
                walk.string()?;
                walk.space();
                walk.eat(b":")?;
                walk.space();
                walk.value(depth + 1)
            }),
            b'[' => self.list(b']', |walk| walk.value(depth + 1)),
            b'"' => self.string(),
            b't' => self.eat(b"true"),
            b'f' => self.eat(b"false"),
            b'n' => self.eat(b"null"),
            _ => self.number(),
        }
    }

    fn list(&mut self, close: u8, item: impl Fn(&mut Self) -> Option<()>) -> Option<()> {
        self.next();
        self.space();
        if self.eat(&[close]).is_some() {
            return Some(());
        }
        loop {
            item(self)?;
            self.space();
            if self.eat(&[close]).is_some() {
                return Some(());
            }
            self.eat(b",")?;
            self.space();
        }
    }

    fn string(&mut self) -> Option<()> {
        self.eat(b"\"")?;
        loop {
            match self.peek()? {
                b'"' => return self.eat(b"\""),
                b'\\' => {
                    self.next();
                    match self.next()? {
                        b'u' => {
                            for _ in 0..4 {
                                self.next().filter(u8::is_ascii_hexdigit)?;
                            }
                        }
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                        _ => return None,
                    }
                }
                0..0x20 => return None,
                _ => {
                    self.next();
                }
            }
        }
    }

    fn digits(&mut self) -> Option<()> {
        self.peek().filter(u8::is_ascii_digit)?;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.next();
        }
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        let _sign = self.eat(b"-");
        if self.eat(b"0").is_none() {
            self.digits()?;
        }
        if self.eat(b".").is_some() {
            self.digits()?;
        }
        if self.eat(b"e").or_else(|| self.eat(b"E")).is_some() {
            let _sign = self.eat(b"+").or_else(|| self.eat(b"-"));
            self.digits()?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_error_finds_invalid_json() {
        for good in [
            "0",
            "-0.5e+10",
            " [ ] ",
            "{}",
            r#"{"a":[1,2,{"b":null}],"c":"\u00e9\n"}"#,
            "\"ü\"",
            "true",
            "1E5",
        ] {
            assert_eq!(json_error(good), None, "{good}");
        }
        for bad in [
            "",
            " ",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "nul",
            "[1,]",
            "{,}",
            "{\"a\"}",
            "{a:1}",
            "'x'",
            "\"\\x\"",
            "\"\n\"",
            "\"\\u12g4\"",
            "[1]x",
            "NaN",
            "\"",
        ] {
            assert!(json_error(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(json_error(&nested(JSON_DEPTH_MAX)), None);
        assert_eq!(json_error(&nested(JSON_DEPTH_MAX + 1)), Some(JSON_DEPTH_MAX));
        assert!(json_error(&"[".repeat(1_000_000)).is_some());
    }
}
