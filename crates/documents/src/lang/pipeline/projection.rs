//! Projections: the returned fields of a document, and computed ones.
//!
//! ```text
//! { a: 1, "b.c": 1 }              these and _id           { a: 0 }                  all but these
//! { a: { $slice: 2 } }            part of an array        { "a.$": 1 }              the element that the filter found
//! { a: { $elemMatch: { .. } } }   the first that matches  { n: { $add: [..] } }     a computed field
//! ```
//!
//! Paths go through arrays: each document in them is projected. Fields retain the document's order; new
//! computed ones follow.
//!
//! Source: MongoDB manual, "Project Fields to Return from Query", and `$project`.

use crate::lang::budget::{byte_steps, steps};
use crate::lang::error::{LangResult, refuse};
use crate::lang::expression::functions::window;
use crate::lang::expression::{Expression, Scope};
use crate::lang::filter::Filter;
use crate::lang::options::Options;
use crate::lang::value::path;
use crate::lang::value::val::Val;
use crate::lang::value::writer::Writer;
use crate::lang::value::{DEPTH_MAX, DOCUMENT_BYTES_MAX, Doc, DocBuf, Owned, Value};

/// A parsed projection.
#[derive(Debug, Clone)]
pub struct Projection {
    including: bool,
    show_id: bool,
    fields: Fields,
}

/// Names, each with its rule.
type Fields = Vec<(String, Rule)>;

#[derive(Debug, Clone)]
enum Rule {
    /// Included or excluded: the opposite of fields without a rule.
    Named,
    Inner(Fields),
    Computed(Expression),
    Slice(i64, i64),
    /// The first element that matches, tested as `{ e: element }`.
    ElementMatches(Filter),
    /// `.$`: the element that the query's filter found.
    Found,
}

/// The dialect: only `find` has `$slice`, `$elemMatch` and `.$`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Find,
    Stage,
}

const ELEMENT: &str = "e";
/// A document between two stages may be larger than a stored one.
const PROJECTED_BYTES_MAX: usize = 2 * DOCUMENT_BYTES_MAX;
/// Most fields; each field of a document is looked up among them.
const FIELDS_MAX: usize = 5000;

impl Projection {
    /// Parses the projection of a find.
    ///
    /// # Errors
    /// Inclusion and exclusion mixed (31253, 31254), paths that collide (31249, 31250), unknown operators.
    pub fn parse(spec: Doc<'_>, options: &Options) -> LangResult<Self> {
        Self::parse_as(spec, options, Dialect::Find)
    }

    pub(crate) fn parse_as(spec: Doc<'_>, options: &Options, dialect: Dialect) -> LangResult<Self> {
        let mut parser = Parser { scope: Scope::of(options), options, dialect, including: None };
        let mut fields = Vec::new();
        let mut id = None;
        for (name, value) in spec {
            if name == "_id" && is_switch(value) {
                id = Some(value.is_truthy());
                continue;
            }
            parser.field(name, value, &mut fields, 0)?;
        }
        // `{ _id: 1 }` alone includes; a slice alone, or nothing, retains every field.
        let including = parser.including.unwrap_or(match id {
            Some(shown) => shown && !fields.iter().any(|(_, rule)| matches!(rule, Rule::Slice(..))),
            None => dialect == Dialect::Stage && !fields.is_empty() || has_computed(&fields),
        });
        Ok(Self { including, show_id: id.unwrap_or(true), fields })
    }

    /// `$addFields`: retains every field and sets computed ones.
    pub(crate) fn adding(spec: Doc<'_>, options: &Options) -> LangResult<Self> {
        let mut fields = Vec::new();
        let mut parser =
            Parser { scope: Scope::of(options), options, dialect: Dialect::Stage, including: None };
        for (name, value) in spec {
            parser.computed(name, value, &mut fields, 0)?;
        }
        Ok(Self { including: false, show_id: true, fields })
    }

    /// `$unset`: retains every field but these.
    pub(crate) fn removing(paths: &[&str]) -> LangResult<Self> {
        let mut fields = Vec::new();
        for path in paths {
            check_path(path)?;
            insert(&mut fields, path, Rule::Named, path)?;
        }
        Ok(Self { including: false, show_id: true, fields })
    }

    /// The projected document.
    ///
    /// # Errors
    /// Those of its expressions; `BadValue` for `.$` where the filter found no element.
    pub fn apply(&self, doc: Doc<'_>, filter: Option<&Filter>) -> LangResult<DocBuf> {
        let mut writer = Writer::new().with_room(PROJECTED_BYTES_MAX);
        let context = Context { root: doc, filter, including: self.including };
        if let (true, Some(id)) = (self.including && self.show_id, doc.get("_id"))
            && !self.fields.iter().any(|(name, _)| name == "_id")
        {
            writer.put("_id", id);
        }
        context.document(doc, &self.fields, &mut writer, !self.show_id)?;
        Ok(writer.within("a document that a projection makes")?.finish())
    }

    /// The paths of a plain inclusion, and `_id` unless excluded: an index that has them all covers it.
    #[must_use]
    pub fn only(&self) -> Option<Vec<String>> {
        let mut paths = Vec::new();
        if !self.including {
            return None;
        }
        if self.show_id {
            paths.push("_id".to_owned());
        }
        if collect(&self.fields, "", &mut paths) { Some(paths) } else { None }
    }
}

fn collect(fields: &Fields, prefix: &str, paths: &mut Vec<String>) -> bool {
    fields.iter().all(|(name, rule)| {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match rule {
            Rule::Named => {
                paths.push(path);
                true
            }
            Rule::Inner(inner) => collect(inner, &path, paths),
            _ => false,
        }
    })
}

fn has_computed(fields: &Fields) -> bool {
    fields.iter().any(|(_, rule)| match rule {
        Rule::Computed(_) | Rule::ElementMatches(_) | Rule::Found => true,
        Rule::Inner(inner) => has_computed(inner),
        Rule::Named | Rule::Slice(..) => false,
    })
}

/// True for a number or bool, which includes or excludes a field.
fn is_switch(value: Value<'_>) -> bool {
    value.is_number() || matches!(value, Value::Bool(_))
}

fn check_path(path: &str) -> LangResult<()> {
    for name in path.split('.') {
        if name.is_empty() {
            refuse!(15998, "FieldPath field names may not be empty strings: {path:?}");
        }
        if name.starts_with('$') {
            refuse!(16410, "FieldPath field names may not start with '$': {path:?}");
        }
    }
    if path.split('.').count() > DEPTH_MAX {
        refuse!(Overflow, "a path of more than {DEPTH_MAX} names");
    }
    Ok(())
}

struct Parser<'o> {
    scope: Scope<'o>,
    options: &'o Options,
    dialect: Dialect,
    including: Option<bool>,
}

impl Parser<'_> {
    fn field(&mut self, name: &str, value: Value<'_>, fields: &mut Fields, depth: usize) -> LangResult<()> {
        if depth > DEPTH_MAX {
            refuse!(Overflow, "a projection is nested deeper than {DEPTH_MAX} levels");
        }
        if is_switch(value) {
            let include = value.is_truthy();
            if let (Dialect::Find, Some(path)) = (self.dialect, name.strip_suffix(".$")) {
                self.mode(true, name)?;
                check_path(path)?;
                return insert(fields, path, Rule::Found, name);
            }
            self.mode(include, name)?;
            check_path(name)?;
            return insert(fields, name, Rule::Named, name);
        }
        check_path(name)?;
        if let Value::Document(doc) = value {
            match doc.first() {
                Some(("$slice", operand)) if self.dialect == Dialect::Find && is_slice(operand) => {
                    return insert(fields, name, slice(operand)?, name);
                }
                Some(("$elemMatch", operand)) if self.dialect == Dialect::Find => {
                    if name.contains('.') {
                        refuse!(31275, "Cannot use $elemMatch projection on a nested field.");
                    }
                    self.mode(true, name)?;
                    let mut writer = Writer::new();
                    writer.open_document(ELEMENT);
                    writer.put("$elemMatch", operand);
                    writer.close();
                    let filter = Filter::parse(writer.finish().doc(), self.options)?;
                    return insert(fields, name, Rule::ElementMatches(filter), name);
                }
                Some(("$meta", _)) => {
                    refuse!(NotImplemented, "a projection by {{$meta: ..}} is not implemented")
                }
                // Operands of `{ a: { b: 1 } }` are those of `{ "a.b": 1 }`.
                Some((first, _)) if !first.starts_with('$') => {
                    let mut inner = Vec::new();
                    for (name, value) in doc {
                        self.field(name, value, &mut inner, depth + 1)?;
                    }
                    return insert(fields, name, Rule::Inner(inner), name);
                }
                None => refuse!(
                    51270,
                    "An empty sub-projection is not a valid value. Found empty object at path {name}"
                ),
                _ => {}
            }
        }
        if self.including == Some(false) {
            refuse!(31252, "Cannot use expression other than $meta in exclusion projection: {name}");
        }
        // A text that is not a path, or any other value, is a constant.
        let expression = Expression::parse(value, &self.scope)?;
        insert(fields, name, Rule::Computed(expression), name)?;
        self.including.get_or_insert(true);
        Ok(())
    }

    fn mode(&mut self, include: bool, name: &str) -> LangResult<()> {
        match self.including {
            Some(true) if !include => {
                refuse!(31254, "Cannot do exclusion on field {name} in inclusion projection")
            }
            Some(false) if include => {
                refuse!(31253, "Cannot do inclusion on field {name} in exclusion projection")
            }
            _ => self.including = Some(include),
        }
        Ok(())
    }

    fn computed(
        &mut self,
        name: &str,
        value: Value<'_>,
        fields: &mut Fields,
        depth: usize,
    ) -> LangResult<()> {
        check_path(name)?;
        if let Value::Document(doc) = value
            && depth < DEPTH_MAX
            && doc.first().is_some_and(|(first, _)| !first.starts_with('$'))
        {
            let mut inner = Vec::new();
            for (name, value) in doc {
                self.computed(name, value, &mut inner, depth + 1)?;
            }
            return insert(fields, name, Rule::Inner(inner), name);
        }
        insert(fields, name, Rule::Computed(Expression::parse(value, &self.scope)?), name)
    }
}

/// Inserts a rule at its path and rejects collisions.
fn insert(fields: &mut Fields, path: &str, rule: Rule, whole: &str) -> LangResult<()> {
    if fields.len() >= FIELDS_MAX {
        refuse!(BadValue, "a projection names more than {FIELDS_MAX} fields");
    }
    let (name, rest) = path::split(path);
    let existing = fields.iter_mut().find(|(own, _)| own == name).map(|(_, rule)| rule);
    let rule = if rest.is_empty() {
        rule
    } else {
        match existing {
            Some(Rule::Inner(inner)) => return insert(inner, rest, rule, whole),
            Some(_) => refuse!(31249, "Path collision at {whole} remaining portion {rest}"),
            None => {
                let mut inner = Vec::new();
                insert(&mut inner, rest, rule, whole)?;
                fields.push((name.to_owned(), Rule::Inner(inner)));
                return Ok(());
            }
        }
    };
    match (existing, rule) {
        (None, rule) => {
            fields.push((name.to_owned(), rule));
            Ok(())
        }
        (Some(Rule::Inner(own)), Rule::Inner(inner)) => {
            inner.into_iter().try_for_each(|(name, rule)| insert(own, &name, rule, whole))
        }
        _ => refuse!(31250, "Path collision at {whole}"),
    }
}

/// Whether this is `$slice` of a find: a number, or position and number. If an array comes first, it is the
/// expression.
fn is_slice(operand: Value<'_>) -> bool {
    match operand {
        Value::Array(parts) => parts.values().count() == 2 && parts.values().all(Value::is_number),
        other => other.is_number(),
    }
}

fn slice(operand: Value<'_>) -> LangResult<Rule> {
    let number =
        |value: Option<Value<'_>>| value.and_then(crate::lang::value::number::truncated).unwrap_or(0);
    match operand {
        Value::Array(parts) => {
            let (position, count) = (number(parts.values().next()), number(parts.values().nth(1)));
            if count <= 0 {
                refuse!(28724, "First argument to $slice must be an array or the limit positive: {count}");
            }
            Ok(Rule::Slice(position, count))
        }
        value => {
            let n = number(Some(value));
            Ok(Rule::Slice(if n < 0 { n } else { 0 }, n.saturating_abs()))
        }
    }
}

struct Context<'c> {
    root: Doc<'c>,
    filter: Option<&'c Filter>,
    including: bool,
}

impl Context<'_> {
    /// The fields of one document. `hide_id`: without `_id`, whatever the rules say.
    fn document(&self, doc: Doc<'_>, fields: &Fields, writer: &mut Writer, hide_id: bool) -> LangResult<()> {
        for (name, value) in doc {
            steps(1 + fields.len())?;
            let rule = fields.iter().find(|(own, _)| own == name).map(|(_, rule)| rule);
            match rule {
                _ if hide_id && name == "_id" => {}
                None if !self.including => writer.put(name, value),
                None => {}
                Some(Rule::Named) if self.including => writer.put(name, value),
                Some(Rule::Named) => {}
                Some(Rule::Inner(inner)) => self.inner(name, value, inner, writer)?,
                Some(Rule::Computed(expression)) => self.computed(name, expression, writer)?,
                Some(Rule::Slice(position, count)) => match value {
                    Value::Array(array) => {
                        let (from, count) = window(array.values().count(), *position, *count);
                        writer.open_array(name);
                        array.values().skip(from).take(count).for_each(|value| writer.put("", value));
                        writer.close();
                    }
                    value => writer.put(name, value),
                },
                Some(Rule::ElementMatches(filter)) => {
                    let mut element = None;
                    if let Value::Array(array) = value {
                        let mut asked = Writer::new();
                        asked.put(ELEMENT, value);
                        let found = filter.matches_at(asked.finish().doc())?;
                        element = found.and_then(|found| array.values().nth(found.position?));
                    }
                    if let Some(element) = element {
                        writer.open_array(name);
                        writer.put("", element);
                        writer.close();
                    }
                }
                Some(Rule::Found) => match value {
                    Value::Array(array) => {
                        let found = match self.filter {
                            Some(filter) => filter.matches_at(self.root)?.and_then(|found| found.position),
                            None => None,
                        };
                        let Some(element) = found.and_then(|at| array.values().nth(at)) else {
                            refuse!(
                                51246,
                                "Executor error during find command :: caused by :: positional operator '.$' couldn't find a matching element in the array"
                            );
                        };
                        writer.open_array(name);
                        writer.put("", element);
                        writer.close();
                    }
                    value => writer.put(name, value),
                },
            }
        }
        // Computed fields that the document does not have.
        let computes = |rule: &Rule| match rule {
            Rule::Computed(_) => true,
            Rule::Inner(inner) => has_computed(inner),
            _ => false,
        };
        for (name, rule) in fields {
            if !computes(rule) {
                continue;
            }
            byte_steps(doc.bytes().len())?;
            if doc.get(name).is_none() {
                self.new_field(name, rule, writer)?;
            }
        }
        Ok(())
    }

    fn computed(&self, name: &str, expression: &Expression, writer: &mut Writer) -> LangResult<()> {
        if let Some(value) = expression.evaluate_root(self.root)?.get() {
            writer.put(name, value);
        }
        // Stop evaluating once the document is too large.
        if writer.is_full() {
            refuse!(BSONObjectTooLarge, "a projection makes more than {PROJECTED_BYTES_MAX} bytes");
        }
        Ok(())
    }

    /// Writes a field that the document does not have.
    fn new_field(&self, name: &str, rule: &Rule, writer: &mut Writer) -> LangResult<()> {
        match rule {
            Rule::Computed(expression) => self.computed(name, expression, writer),
            Rule::Inner(inner) => self.new_document(name, inner, writer),
            _ => Ok(()),
        }
    }

    /// Writes a document of computed fields that does not exist yet.
    fn new_document(&self, name: &str, fields: &Fields, writer: &mut Writer) -> LangResult<()> {
        writer.open_document(name);
        for (name, rule) in fields {
            self.new_field(name, rule, writer)?;
        }
        writer.close();
        Ok(())
    }

    fn inner(&self, name: &str, value: Value<'_>, inner: &Fields, writer: &mut Writer) -> LangResult<()> {
        match value {
            Value::Document(doc) => {
                writer.open_document(name);
                self.document(doc, inner, writer, false)?;
                writer.close();
            }
            Value::Array(array) => {
                writer.open_array(name);
                for element in array.values() {
                    match element {
                        Value::Document(_) | Value::Array(_) => self.inner("", element, inner, writer)?,
                        // A scalar element is neither included nor affected by exclusions. A computed field
                        // replaces it.
                        _ if has_computed(inner) => self.new_document("", inner, writer)?,
                        other if !self.including => writer.put("", other),
                        _ => {}
                    }
                }
                writer.close();
            }
            _ if has_computed(inner) => self.new_document(name, inner, writer)?,
            other if !self.including => writer.put(name, other),
            _ => {}
        }
        Ok(())
    }
}

/// A value as a complete document, for stages that replace documents.
pub(crate) fn document_of(value: &Val<'_>) -> Option<DocBuf> {
    value.get().and_then(Value::as_document).map(Doc::to_buf)
}

/// Sets one field, at a dotted path, of a document.
pub(crate) fn with_field(doc: Doc<'_>, path: &str, value: Owned) -> LangResult<DocBuf> {
    let mut tree = crate::lang::value::tree::Tree::of(doc);
    let steps: Vec<&str> = path.split('.').collect();
    *tree.create(&steps)? = crate::lang::value::tree::Branch::Owned(value);
    tree.into_document()
}
