//! `$redact`: keeps, prunes or descends into a document and the documents in it.
//!
//! ```text
//! { a: { level: 9 }, b: [ { level: 1 }, 7 ] }     the expression sees each document as $$CURRENT
//!   ─▶ $$DESCEND: look at the documents inside    $$KEEP: keep it as it is    $$PRUNE: leave it out
//! ```
//!
//! Source: MongoDB manual, "$redact".

use crate::lang::budget::byte_steps;
use crate::lang::error::{LangError, refuse};
use crate::lang::expression::{Expression, Scope};
use crate::lang::value::writer::Writer;
use crate::lang::value::{DEPTH_MAX, Doc, DocBuf, Value};

/// The variables of the expression. Their values are texts, as in MongoDB.
const VARIABLES: [&str; 4] = ["ROOT", "KEEP", "PRUNE", "DESCEND"];
const KEEP: Value<'static> = Value::String("keep");
const PRUNE: Value<'static> = Value::String("prune");
const DESCEND: Value<'static> = Value::String("descend");

/// A parsed `$redact`.
#[derive(Debug, Clone)]
pub(crate) struct Redact(Expression);

#[derive(Clone, Copy)]
enum Verdict {
    Keep,
    Prune,
    Descend,
}

impl Redact {
    pub(crate) fn parse(operand: Value<'_>, scope: &Scope<'_>) -> Result<Self, LangError> {
        Ok(Self(Expression::parse_with(operand, scope, &VARIABLES)?))
    }

    /// The rest of the document; `None` if it is left out.
    pub(crate) fn apply(&self, root: Doc<'_>) -> Result<Option<DocBuf>, LangError> {
        match self.verdict(root, root)? {
            Verdict::Keep => Ok(Some(root.to_buf())),
            Verdict::Prune => Ok(None),
            Verdict::Descend => {
                let mut writer = Writer::with_capacity(root.bytes().len());
                self.fields(root, root, &mut writer, 0)?;
                Ok(Some(writer.finish()))
            }
        }
    }

    fn verdict(&self, current: Doc<'_>, root: Doc<'_>) -> Result<Verdict, LangError> {
        let found = self.0.evaluate_with(current, &[Value::Document(root), KEEP, PRUNE, DESCEND])?;
        match found.or_null() {
            Value::String("keep") => Ok(Verdict::Keep),
            Value::String("prune") => Ok(Verdict::Prune),
            Value::String("descend") => Ok(Verdict::Descend),
            other => refuse!(
                17053,
                "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and $$PRUNE, but returned {other}"
            ),
        }
    }

    fn fields(
        &self,
        values: Doc<'_>,
        root: Doc<'_>,
        writer: &mut Writer,
        depth: usize,
    ) -> Result<(), LangError> {
        if depth > DEPTH_MAX {
            refuse!(Overflow, "$redact descends more than {DEPTH_MAX} levels");
        }
        byte_steps(values.bytes().len())?;
        for (name, value) in values {
            match value {
                Value::Document(inner) => match self.verdict(inner, root)? {
                    Verdict::Keep => writer.put(name, value),
                    Verdict::Prune => {}
                    Verdict::Descend => {
                        writer.open_document(name);
                        self.fields(inner, root, writer, depth + 1)?;
                        writer.close();
                    }
                },
                Value::Array(inner) => {
                    writer.open_array(name);
                    self.fields(inner, root, writer, depth + 1)?;
                    writer.close();
                }
                other => writer.put(name, other),
            }
        }
        Ok(())
    }
}
