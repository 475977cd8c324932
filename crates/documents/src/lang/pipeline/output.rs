//! `$out` and `$merge`: destinations of a pipeline's documents. The store writes them.

use crate::lang::error::{LangResult, refuse};
use crate::lang::options::Options;
use crate::lang::pipeline::only;
use crate::lang::value::{Doc, DocBuf, Owned, Value};

/// The last stage of a pipeline that writes.
#[derive(Debug, Clone)]
pub struct Output {
    /// Another database, if one is named.
    pub database: Option<String>,
    /// The collection.
    pub collection: String,
    /// How the documents are written.
    pub mode: OutputMode,
}

/// How documents are written.
#[derive(Debug, Clone)]
pub enum OutputMode {
    /// `$out`: they replace all documents of the collection.
    Replace,
    /// `$merge`: one by one.
    Merge {
        /// The fields that identify a document; a unique index must be on them.
        on: Vec<String>,
        /// The action when a document with these values exists.
        matched: WhenMatched,
        /// The action when no such document exists.
        not_matched: WhenNotMatched,
    },
}

/// `whenMatched`
#[derive(Debug, Clone)]
pub enum WhenMatched {
    /// The new document replaces it.
    Replace,
    /// It is unchanged.
    KeepExisting,
    /// Its fields are set to the new ones.
    Merge,
    /// The command fails.
    Fail,
    /// An update by pipeline: parse it with the new document as the variable `new`, and with `variables`.
    Pipeline {
        /// The array of stages.
        stages: Owned,
        /// `let`, expressions of the new document; `{ new: "$$ROOT" }` if none was given.
        variables: Option<DocBuf>,
    },
}

/// `whenNotMatched`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenNotMatched {
    /// It is inserted.
    Insert,
    /// It is dropped.
    Discard,
    /// The command fails.
    Fail,
}

impl Output {
    pub(crate) fn name(&self) -> &'static str {
        match self.mode {
            OutputMode::Replace => "$out",
            OutputMode::Merge { .. } => "$merge",
        }
    }

    pub(crate) fn parse(stage: &str, operand: Value<'_>, _options: &Options) -> LangResult<Self> {
        if stage == "$out" {
            let (database, collection) = place(stage, operand)?;
            return Ok(Self { database, collection, mode: OutputMode::Replace });
        }
        let Value::Document(spec) = operand else {
            let (database, collection) = place(stage, operand)?;
            return Ok(Self { database, collection, mode: merge(Doc::empty())? });
        };
        only(stage, spec, &["into", "on", "let", "whenMatched", "whenNotMatched"])?;
        let Some(into) = spec.get("into") else {
            refuse!(FailedToParse, "$merge requires 'into'");
        };
        let (database, collection) = place(stage, into)?;
        Ok(Self { database, collection, mode: merge(spec)? })
    }
}

fn place(stage: &str, operand: Value<'_>) -> LangResult<(Option<String>, String)> {
    match operand {
        Value::String(name) if !name.is_empty() => Ok((None, name.to_owned())),
        Value::Document(doc) => {
            only(stage, doc, &["db", "coll"])?;
            match (doc.get("db"), doc.get("coll")) {
                (None, Some(Value::String(collection))) => Ok((None, collection.to_owned())),
                (Some(Value::String(db)), Some(Value::String(collection))) => {
                    Ok((Some(db.to_owned()), collection.to_owned()))
                }
                _ => refuse!(FailedToParse, "{stage} takes the names 'db' and 'coll'"),
            }
        }
        _ => refuse!(
            FailedToParse,
            "{stage} only supports a string or object argument, but found {}",
            operand.type_name()
        ),
    }
}

fn merge(spec: Doc<'_>) -> LangResult<OutputMode> {
    let on = match spec.get("on") {
        None => vec!["_id".to_owned()],
        Some(Value::String(name)) => vec![name.to_owned()],
        Some(Value::Array(names)) if !names.is_empty() => {
            let names: Option<Vec<String>> =
                names.values().map(|name| name.as_str().map(str::to_owned)).collect();
            match names {
                Some(names) => names,
                None => refuse!(51186, "$merge 'on' field must be either a string or an array of strings"),
            }
        }
        Some(_) => refuse!(51186, "$merge 'on' field must be either a string or an array of strings"),
    };
    let variables = match spec.get("let") {
        None => None,
        Some(Value::Document(doc)) => Some(doc.to_buf()),
        Some(other) => refuse!(TypeMismatch, "$merge 'let' is an object, not {}", other.type_name()),
    };
    let matched = match spec.get("whenMatched") {
        None | Some(Value::String("merge")) => WhenMatched::Merge,
        Some(Value::String("replace")) => WhenMatched::Replace,
        Some(Value::String("keepExisting")) => WhenMatched::KeepExisting,
        Some(Value::String("fail")) => WhenMatched::Fail,
        Some(stages @ Value::Array(_)) => {
            WhenMatched::Pipeline { stages: stages.into(), variables: variables.clone() }
        }
        Some(other) => {
            refuse!(BadValue, "Enumeration value '{other}' for field 'whenMatched' is not a valid value.")
        }
    };
    if variables.is_some() && !matches!(matched, WhenMatched::Pipeline { .. }) {
        refuse!(51199, "Cannot use 'let' variables with a whenMatched mode that is not a pipeline");
    }
    let not_matched = match spec.get("whenNotMatched") {
        None | Some(Value::String("insert")) => WhenNotMatched::Insert,
        Some(Value::String("discard")) => WhenNotMatched::Discard,
        Some(Value::String("fail")) => WhenNotMatched::Fail,
        Some(other) => {
            refuse!(BadValue, "Enumeration value '{other}' for field 'whenNotMatched' is not a valid value.")
        }
    };
    Ok(OutputMode::Merge { on, matched, not_matched })
}
