//! Command fields: taken by name, checked by type; unknown fields are rejected.

use core::time::Duration;

use ropewalk::documents::DocumentsError;
use ropewalk::documents::lang::{
    Doc, DocBuf, Filter, Options, Patterns, Pipeline, Random, Source, Stream, Value, Writer,
};

use crate::protocol::failure::{Code, Failure, Outcome};

/// Memory of a `let`.
const LET_BYTES_MAX: usize = 1 << 20;
/// Fields that every command accepts.
const GENERIC: &[&str] = &[
    "$db",
    "$clusterTime",
    "$readPreference",
    "apiDeprecationErrors",
    "apiStrict",
    "apiVersion",
    "autocommit",
    "comment",
    "lsid",
    "maxTimeMS",
    "readConcern",
    "startTransaction",
    "txnNumber",
    "writeConcern",
];

/// Evaluates the variables of a `let`: their expressions see no document, and are mostly constants.
fn evaluated(spec: Doc<'_>, options: &Options) -> Outcome<DocBuf> {
    let plain = |value: Value<'_>| match value {
        Value::Document(_) | Value::Array(_) => false,
        Value::String(text) => !text.starts_with('$'),
        _ => true,
    };
    if spec.values().all(plain) {
        return Ok(spec.to_buf());
    }
    let mut stages = Writer::array();
    stages.open_document("0");
    stages.open_document("$replaceRoot");
    stages.put("newRoot", Value::Document(spec));
    stages.close();
    stages.close();
    let stages = stages.finish();
    let pipeline = Pipeline::parse(stages.doc(), options)?;
    let input: Stream<'_, DocumentsError> = Box::new(std::iter::once(Ok(DocBuf::empty())));
    let made = pipeline.run(input, &NoOthers, LET_BYTES_MAX)?.next();
    Ok(made.transpose()?.unwrap_or_else(DocBuf::empty))
}

/// A command that reads no other collections.
pub(crate) struct NoOthers;

impl Source for NoOthers {
    type Error = DocumentsError;

    fn find(&self, _: &str, _: &Filter) -> Result<Stream<'_, DocumentsError>, DocumentsError> {
        Ok(Box::new(std::iter::empty()))
    }
}

/// A command and its name.
#[derive(Clone, Copy)]
pub(crate) struct Args<'a> {
    /// Name of the command.
    pub(crate) name: &'static str,
    doc: Doc<'a>,
}

impl<'a> Args<'a> {
    /// The arguments of command `name`.
    pub(crate) fn new(name: &'static str, doc: Doc<'a>) -> Self {
        Self { name, doc }
    }

    /// True for a field that every command accepts.
    pub(crate) fn is_generic(field: &str) -> bool {
        GENERIC.contains(&field)
    }

    /// The command document.
    pub(crate) fn doc(&self) -> Doc<'a> {
        self.doc
    }

    /// Rejects fields that are neither in `known` nor generic, and duplicate fields.
    ///
    /// # Errors
    /// 40415, as in MongoDB.
    pub(crate) fn only(&self, known: &[&str]) -> Outcome<()> {
        self.only_in(self.doc.iter().skip(1).map(|(name, _)| name), known, GENERIC)
    }

    fn only_in<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        known: &[&str],
        generic: &[&str],
    ) -> Outcome<()> {
        for name in names {
            if !known.contains(&name) && !generic.contains(&name) {
                let message = format!("BSON field '{}.{name}' is an unknown field.", self.name);
                return Err(Failure::new(Code::UnknownField, message));
            }
        }
        Ok(())
    }

    /// Arguments of one statement of the command, all of whose fields are known.
    ///
    /// # Errors
    /// 40415.
    pub(crate) fn statement(name: &'static str, doc: Doc<'a>, known: &[&str]) -> Outcome<Self> {
        let args = Self { name, doc };
        args.only_in(doc.iter().map(|(name, _)| name), known, &[])?;
        Ok(args)
    }

    /// The value of a field.
    pub(crate) fn get(&self, field: &str) -> Option<Value<'a>> {
        self.doc.get(field)
    }

    fn mistyped(&self, field: &str, value: Value<'_>, expected: &str) -> Failure {
        let (name, found) = (self.name, value.type_name());
        let message =
            format!("BSON field '{name}.{field}' is the wrong type '{found}', expected type '{expected}'");
        Failure::new(Code::TypeMismatch, message)
    }

    fn typed<T>(
        &self,
        field: &str,
        expected: &str,
        convert: impl FnOnce(Value<'a>) -> Option<T>,
    ) -> Outcome<Option<T>> {
        match self.doc.get(field) {
            None => Ok(None),
            Some(value) if value.is_nullish() => Ok(None),
            Some(value) => convert(value).map(Some).ok_or_else(|| self.mistyped(field, value, expected)),
        }
    }

    /// Returns the value of a required field.
    ///
    /// # Errors
    /// 40414.
    pub(crate) fn needed<T>(&self, field: &str, value: Option<T>) -> Outcome<T> {
        value.ok_or_else(|| {
            let message = format!("BSON field '{}.{field}' is missing but a required field", self.name);
            Failure::new(Code::MissingField, message)
        })
    }

    /// A string.
    ///
    /// # Errors
    /// `TypeMismatch`, as of all that follow.
    pub(crate) fn text(&self, field: &str) -> Outcome<Option<&'a str>> {
        self.typed(field, "string", Value::as_str)
    }

    /// A document.
    pub(crate) fn document(&self, field: &str) -> Outcome<Option<Doc<'a>>> {
        self.typed(field, "object", Value::as_document)
    }

    /// An array.
    pub(crate) fn array(&self, field: &str) -> Outcome<Option<Doc<'a>>> {
        self.typed(field, "array", Value::as_array)
    }

    fn elements<T>(
        &self,
        field: &str,
        expected: &str,
        convert: impl Fn(Value<'a>) -> Option<T>,
    ) -> Outcome<Vec<T>> {
        let Some(array) = self.array(field)? else { return Ok(Vec::new()) };
        let convert = |value| convert(value).ok_or_else(|| self.mistyped(field, value, expected));
        array.values().map(convert).collect()
    }

    /// An array of documents; empty when it is absent.
    pub(crate) fn documents(&self, field: &str) -> Outcome<Vec<Doc<'a>>> {
        self.elements(field, "object", Value::as_document)
    }

    /// An array of strings; empty when it is absent.
    pub(crate) fn texts(&self, field: &str) -> Outcome<Vec<&'a str>> {
        self.elements(field, "string", Value::as_str)
    }

    /// A boolean; numbers are converted as in MongoDB.
    pub(crate) fn flag(&self, field: &str) -> Outcome<Option<bool>> {
        self.typed(field, "bool", |value| match value {
            Value::Bool(_) => Some(value.is_truthy()),
            value if value.is_number() => Some(value.is_truthy()),
            _ => None,
        })
    }

    /// An integer.
    pub(crate) fn integer(&self, field: &str) -> Outcome<Option<i64>> {
        self.typed(field, "long", |value| match value {
            // MongoDB truncates fractions here, and old drivers send doubles.
            Value::Double(d) if d.is_finite() => Some(d.trunc() as i64),
            value => value.as_integer(),
        })
    }

    /// A number of documents.
    ///
    /// # Errors
    /// 51024 below zero, too.
    pub(crate) fn count(&self, field: &str) -> Outcome<Option<usize>> {
        self.at_least_zero(field, Code::OutOfBounds)
    }

    fn at_least_zero(&self, field: &str, code: Code) -> Outcome<Option<usize>> {
        let Some(number) = self.integer(field)? else { return Ok(None) };
        match usize::try_from(number) {
            Ok(number) => Ok(Some(number)),
            Err(_) => {
                let message = format!("BSON field '{field}' value must be >= 0, actual value '{number}'");
                Err(Failure::new(code, message))
            }
        }
    }

    /// `maxTimeMS`: how long the command may take.
    pub(crate) fn max_time(&self) -> Outcome<Option<Duration>> {
        let millis = self.at_least_zero("maxTimeMS", Code::BadValue)?.filter(|millis| *millis > 0);
        Ok(millis.map(|millis| Duration::from_millis(millis as u64)))
    }

    /// Options of the command for parsers of filters and updates.
    ///
    /// # Errors
    /// A collation other than the simple one.
    pub(crate) fn options(&self, now_ms: i64, seed: u64, patterns: Patterns) -> Outcome<Options> {
        Options::refuse_collation(self.get("collation"))?;
        let options = Options { now_ms, variables: None, random: Random::seeded(seed), patterns };
        let variables = self.document("let")?.map(|spec| evaluated(spec, &options)).transpose()?;
        Ok(Options { variables, ..options })
    }

    /// Rejects fields of MongoDB that are not supported here, unless they are off.
    ///
    /// # Errors
    /// `NotImplemented`.
    pub(crate) fn not_offered(&self, fields: &[&str]) -> Outcome<()> {
        for field in fields {
            if self.get(field).is_some_and(Value::is_truthy) {
                let message = format!("the option '{field}' of {} is not offered", self.name);
                return Err(Failure::new(Code::NotImplemented, message));
            }
        }
        Ok(())
    }
}
