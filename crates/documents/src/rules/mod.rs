//! Row rules: who may read, list, create, update and delete which documents, as expressions in CEL.
//!
//! ```text
//! caller { auth } ─▶ operation ─▶ its rule ─▶ true: allowed │ false or an error: denied
//!
//! request.auth        the caller: what the server knows of the user, or null
//! request.operation   "read", "list", "create", "update", "delete"
//! request.time        now
//! request.resource    the new version of the document, for create and update
//! resource            the stored document, for all but create
//! ```
//! Rules apply to callers; an application that opens the database itself has no caller and is not
//! restricted. A collection without rules is open to every caller. With rules, the rule of the operation
//! applies, else `write` (create, update, delete) or `read` (list); an operation without a rule is denied. A
//! query that depends on `_id`s alone (all documents, or one `_id`, in natural order) fails when it finds a
//! document that the caller may not list. Any other query omits such documents before its filter is
//! evaluated, since an error would reveal their values. Writes select their documents by the same rule.
//!
//! Parsed and evaluated here, on the bytes of the documents: a CEL crate would convert each document first,
//! and have more features than rules need.

mod eval;
mod parse;

use crate::error::{DocumentsError, Result};
use crate::lang::{Doc, DocBuf, Value, Writer};
use parse::Expr;

/// Operations on a document that rules decide about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Get it by its `_id`.
    Read,
    /// Find it by a query.
    List,
    /// Insert a new one.
    Create,
    /// Change it.
    Update,
    /// Delete it.
    Delete,
}

impl Access {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::List => "list",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    /// The rule that applies when the operation has no specific rule.
    fn general(self) -> &'static str {
        match self {
            Self::Read | Self::List => "read",
            _ => "write",
        }
    }
}

/// Names that a rule can have.
const NAMES: [&str; 6] = ["read", "list", "create", "update", "delete", "write"];

/// The user on whose behalf an operation runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    /// Value of `request.auth` in rules; `None`: not logged in.
    pub auth: Option<DocBuf>,
}

/// The rules of a collection, parsed.
#[derive(Debug)]
pub(crate) struct Rules(Vec<(&'static str, Expr)>);

impl Rules {
    /// Parses a document of rules: `{ read: "true", write: "request.auth.uid == resource.owner" }`.
    ///
    /// # Errors
    /// An unknown name; a text that is not an expression.
    pub(crate) fn parse(source: Doc<'_>) -> Result<Self> {
        let mut rules = Vec::new();
        for (name, value) in source.iter() {
            let invalid =
                |what: String| DocumentsError::InvalidOptions { what: format!("rule {name:?}: {what}") };
            let known = NAMES.into_iter().find(|known| *known == name);
            let known = known.ok_or_else(|| invalid(format!("rules are {}", NAMES.join(", "))))?;
            let Value::String(text) = value else { return Err(invalid("a rule must be a text".into())) };
            rules.push((known, parse::parse(text).map_err(invalid)?));
        }
        Ok(Self(rules))
    }

    /// Whether the rules allow the operation; false when the expression fails.
    pub(crate) fn allow(
        &self,
        caller: &Caller,
        access: Access,
        (stored, new): (Option<Doc<'_>>, Option<Doc<'_>>),
        now_ms: i64,
    ) -> bool {
        let rule = |name: &str| self.0.iter().find(|(own, _)| *own == name).map(|(_, expr)| expr);
        let Some(expr) = rule(access.name()).or_else(|| rule(access.general())) else { return false };
        let mut request = Writer::new();
        request.put("auth", caller.auth.as_ref().map_or(Value::Null, |auth| Value::Document(auth.doc())));
        request.put("operation", Value::String(access.name()));
        request.put("time", Value::DateTime(now_ms));
        if let Some(new) = new {
            request.put("resource", Value::Document(new));
        }
        let request = request.finish();
        let stored = stored.map_or(Value::Null, Value::Document);
        let outer = eval::Scope::new("resource", stored, None);
        let scope = eval::Scope::new("request", Value::Document(request.doc()), Some(&outer));
        eval::decides(expr, &scope).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decided(text: &str) -> Result<bool, String> {
        let expr = parse::parse(text)?;
        let mut doc = Writer::new();
        doc.put("n", Value::Int32(5));
        doc.put("name", Value::String("ann"));
        doc.open_array("list");
        (1..4).for_each(|n| doc.put(&(n - 1).to_string(), Value::Int64(n)));
        doc.close();
        doc.open_document("in_it");
        doc.put("deep", Value::Double(2.5));
        doc.close();
        let doc = doc.finish();
        eval::decides(&expr, &eval::Scope::new("d", Value::Document(doc.doc()), None))
    }

    #[test]
    fn rule_expressions_evaluate_as_in_cel() {
        for text in [
            "true",
            "!false",
            "d.n == 5 && d.n == 5.0 && d.n != 6",
            "d.n > 4 && d.n >= 5 && d.n < 5.5 && d.n <= 5",
            "d.n + 1 == 6 && d.n - 6 == -1 && d.n * 2 == 10 && d.n / 2 == 2 && d.n % 3 == 2",
            "d.in_it.deep * 2.0 == 5.0 && d['in_it']['deep'] == 2.5",
            "d.name == 'ann' && d.name + \"a\" == \"anna\"",
            "d.name.startsWith('a') && d.name.endsWith(\"nn\") && d.name.contains('n')",
            "d.name.matches('^a.n$') && !matches(d.name, 'b')",
            "size(d.name) == 3 && d.list.size() == 3 && size({'a': 1}) == 1",
            "2 in d.list && !(7 in d.list) && 'n' in d && 'x' in {'x': 1}",
            "d.list[0] == 1 && [1, 2, 3] == d.list && d.list + [4] == [1, 2, 3, 4]",
            "has(d.n) && !has(d.missing) && !has(d.missing.deeper) == true || true",
            "d.list.all(x, x > 0) && d.list.exists(x, x == 2) && d.list.exists_one(x, x > 2)",
            "d.list.map(x, x * 2) == [2, 4, 6] && d.list.filter(x, x > 1) == [2, 3]",
            "d.list.exists(x, d.list.exists(y, x + y == 6))",
            "d.n > 3 ? d.name == 'ann' : false",
            "d.n < 3 ? d.missing : true",
            "true || d.missing == 1",
            "d.missing == 1 || true",
            "!(false && d.missing == 1) && !(d.missing == 1 && false)",
            "int('12') == 12 && double(3) == 3.0 && string(7) == '7' && type(d.name) == 'string'",
            "1 < 2 == true // a comment",
            "-1 < 0 && - -1 == 1 && -(d.n) == -5",
        ] {
            assert_eq!(decided(text), Ok(true), "{text}");
        }
    }

    #[test]
    fn rule_with_failing_expression_is_an_error() {
        for text in [
            "d.missing",
            "d.missing == 1",
            "d.n",
            "d.n.deeper == 1",
            "d.list[3] == 1",
            "unknown == 1",
            "1 / 0 == 1",
            "9223372036854775807 + 1 > 0",
            "d.name > 3",
            "d.name + 1 == 'ann1'",
            "d.list.all(x, x.y)",
            "size(3) == 1",
            "true && d.missing",
            "false || d.missing",
        ] {
            assert!(decided(text).is_err(), "{text}: {:?}", decided(text));
        }
        for text in [
            "",
            "1 +",
            "(",
            "a b",
            "a ? b",
            "'open",
            "f(1)",
            "a.b(",
            "has(1)",
            "1e",
            "#",
            "99999999999999999999",
            "a = b",
            "matches(a, b)",
            "x.matches('(')",
            "size()",
            "[1,",
            "{'a' 1}",
        ] {
            assert!(parse::parse(text).is_err(), "{text}");
        }
        let deep = format!("{}1{}", "(".repeat(1000), ")".repeat(1000));
        assert!(parse::parse(&deep).is_err());
        assert!(parse::parse(&format!("a{}", ".b".repeat(1000))).is_err());
        let slow = "d.list.all(a, d.list.all(b, d.list.all(c, d.list.all(e, d.list.all(f, d.list.all(g, \
                    d.list.all(h, d.list.all(i, d.list.all(j, d.list.all(k, d.list.all(l, true)))))))))))";
        assert!(decided(slow).unwrap_err().contains("steps"));
    }

    proptest! {
        #[test]
        fn parse_of_any_text_does_not_panic(text in "[a-z0-9 .,()\\[\\]{}?:!&|=<>+*/%'\"-]{0,60}") {
            if let Ok(expr) = parse::parse(&text) {
                let _ = eval::decides(&expr, &eval::Scope::new("a", Value::Int32(1), None));
            }
        }
    }
}
