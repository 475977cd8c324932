//! Updates: operators on paths, a replacement, or a pipeline.
//!
//! ```text
//! { $set: { "a.$[x].b": 1 }, $inc: { n: 2 } }  ─▶  [ n: $inc 2 ] [ a.$[x].b: $set 1 ]     by path, each path once
//! apply: paths with `$`, `$[]`, `$[x]` ─▶ the paths of this document ─▶ the operator at each
//! ```
//!
//! Operators are applied in the order of their paths, so new fields have that order. The `_id` may be named,
//! not changed.
//!
//! Source: MongoDB manual, "Update Operators".

pub(crate) mod modify;

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::lang::budget::{byte_steps, held, steps};
use crate::lang::error::{LangResult, lang_error, refuse};
use crate::lang::filter::Filter;
use crate::lang::options::Options;
use crate::lang::pipeline::Pipeline;
use crate::lang::update::modify::Operator;
use crate::lang::value::order;
use crate::lang::value::path;
use crate::lang::value::tree::{Branch, Tree};
use crate::lang::value::writer::Writer;
use crate::lang::value::{DOCUMENT_BYTES_MAX, Doc, DocBuf, Value, tag};

/// Most changes; each path is looked up among the fields of the document.
const CHANGES_MAX: usize = 10_000;
/// Most array filters of one update; each is looked up among the paths.
const ARRAY_FILTERS_MAX: usize = 1000;
/// Memory of one position that a path with `$[]` matches. The capacity of its list may be twice its length.
const PLACE_BYTES: usize = 2 * size_of::<(Cow<'_, [String]>, &Operator)>();
/// Memory of one name in the path of a place.
const PLACE_STEP_BYTES: usize = size_of::<String>() + 8;

/// A parsed update.
#[derive(Debug, Clone)]
pub struct Update {
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Replacement(DocBuf),
    Pipeline(Pipeline),
    Operators { changes: Vec<Change>, filters: Vec<ArrayFilter> },
}

/// One operator at one path.
#[derive(Debug, Clone)]
struct Change {
    path: Vec<Step>,
    /// The path, if it identifies one place in every document.
    plain: Option<Vec<String>>,
    operator: Operator,
}

impl Change {
    fn new(path: Vec<Step>, operator: Operator) -> Self {
        let plain = path.iter().all(|step| matches!(step, Step::Name(_))).then(|| names(&path));
        Self { path, plain, operator }
    }
}

/// A name in an update's path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// A field, or a position in an array.
    Name(String),
    /// `$`: the element that the filter found.
    Found,
    /// `$[]`
    Every,
    /// `$[x]`
    Filtered(String),
}

#[derive(Debug, Clone)]
struct ArrayFilter {
    name: String,
    /// On a document `{ name: element }`.
    filter: Filter,
}

/// Information about the document that an update is applied to.
#[derive(Debug, Clone, Copy, Default)]
pub struct UpdateContext {
    /// Where the filter matched: [`crate::lang::Match::position`].
    pub position: Option<usize>,
    /// The command's time, milliseconds since 1970.
    pub now_ms: i64,
    /// True when the document is about to be inserted; then `$setOnInsert` applies.
    pub inserting: bool,
}

/// Result of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// The document is unchanged, byte for byte.
    Unchanged,
    /// The new document.
    Changed(DocBuf),
}

impl Update {
    /// Parses an update: a document of operators, a replacement, or an array of stages.
    ///
    /// # Errors
    /// `FailedToParse` for unknown operators and unused array filters, `ConflictingUpdateOperators` for a
    /// path that is named twice, and the operators' own.
    pub fn parse(update: Value<'_>, array_filters: Option<Doc<'_>>, options: &Options) -> LangResult<Self> {
        let filters = parse_filters(array_filters, options)?;
        let kind = match update {
            Value::Document(doc) if doc.first().is_some_and(|(name, _)| name.starts_with('$')) => {
                let changes = parse_changes(doc, options)?;
                for filter in &filters {
                    let name = &filter.name;
                    let used = |change: &Change| change.path.contains(&Step::Filtered(name.clone()));
                    if !changes.iter().any(used) {
                        refuse!(
                            FailedToParse,
                            "The array filter for identifier '{name}' was not used in the update {doc}"
                        );
                    }
                }
                for step in changes.iter().flat_map(|change| &change.path) {
                    if let Step::Filtered(name) = step
                        && !filters.iter().any(|filter| filter.name == *name)
                    {
                        refuse!(
                            BadValue,
                            "No array filter found for identifier '{name}' in the update {doc}"
                        );
                    }
                }
                Kind::Operators { changes, filters }
            }
            _ if !filters.is_empty() => {
                refuse!(
                    FailedToParse,
                    "Cannot specify arrayFilters for replacements or pipeline-style updates"
                )
            }
            Value::Document(doc) => {
                check_names(doc)?;
                Kind::Replacement(doc.to_buf())
            }
            Value::Array(stages) => {
                let pipeline = Pipeline::parse(stages, options)?;
                pipeline.check_update()?;
                Kind::Pipeline(pipeline)
            }
            other => refuse!(
                FailedToParse,
                "Update argument must be either an object or an array, not {}",
                other.type_name()
            ),
        };
        Ok(Self { kind })
    }

    /// True when the update is a document that replaces the old one.
    #[must_use]
    pub fn is_replacement(&self) -> bool {
        matches!(self.kind, Kind::Replacement(_))
    }

    /// True when the update is an array of stages.
    #[must_use]
    pub fn is_pipeline(&self) -> bool {
        matches!(self.kind, Kind::Pipeline(_))
    }

    /// Applies the update.
    ///
    /// # Errors
    /// `ImmutableField` if `_id` would change, `BSONObjectTooLarge`, and the operators' own.
    pub fn apply(&self, doc: Doc<'_>, context: &UpdateContext) -> LangResult<Applied> {
        let changed = self.changed(doc, context)?;
        if changed.bytes() == doc.bytes() {
            return Ok(Applied::Unchanged);
        }
        if let (Some(old), new) = (doc.get("_id"), changed.doc().get("_id"))
            && !new.is_some_and(|new| order::equal(old, new))
        {
            refuse!(
                ImmutableField,
                "Performing an update on the path '_id' would modify the immutable field '_id'"
            );
        }
        if changed.bytes().len() > DOCUMENT_BYTES_MAX {
            let size = changed.bytes().len();
            refuse!(
                BSONObjectTooLarge,
                "Resulting document after update is larger than {DOCUMENT_BYTES_MAX}: {size}"
            );
        }
        // Only the depth of nested values can be invalid here.
        Doc::check(changed.bytes())?;
        Ok(Applied::Changed(changed))
    }

    /// The document that an upsert inserts, with `_id` if the filter or the update names one.
    ///
    /// # Errors
    /// Those of [`Update::apply`].
    pub fn upsert(&self, filter: &Filter, context: &UpdateContext) -> LangResult<DocBuf> {
        let context = UpdateContext { inserting: true, ..*context };
        let seed = match &self.kind {
            // A replacement takes only the id from the filter.
            Kind::Replacement(_) => {
                let mut writer = Writer::new();
                if let Some(id) = filter.equality("_id") {
                    writer.put("_id", id);
                }
                writer.finish()
            }
            _ => filter.seed()?,
        };
        match self.apply(seed.doc(), &context)? {
            Applied::Unchanged => Ok(seed),
            Applied::Changed(doc) => Ok(doc),
        }
    }

    fn changed(&self, doc: Doc<'_>, context: &UpdateContext) -> LangResult<DocBuf> {
        match &self.kind {
            Kind::Replacement(replacement) => {
                let mut writer = Writer::new();
                let new = replacement.doc();
                // The old id, in its own bytes, unless the new one differs.
                let id = match (doc.get("_id"), new.get("_id")) {
                    (Some(old), Some(new)) if order::equal(old, new) => Some(old),
                    (old, new) => new.or(old),
                };
                if let Some(id) = id {
                    writer.put("_id", id);
                }
                for (name, value) in new.iter().filter(|(name, _)| *name != "_id") {
                    writer.put(name, filled(value, context.now_ms));
                }
                Ok(writer.finish())
            }
            Kind::Pipeline(pipeline) => {
                let changed = pipeline.transform(doc.to_buf())?;
                let mut tree = Tree::of(changed.doc());
                // A pipeline that removes the id retains the old one.
                if let (Some(id), None) = (doc.get("_id"), changed.doc().get("_id")) {
                    *tree.create(&["_id"])? = Branch::Raw(id);
                }
                tree.into_document()
            }
            Kind::Operators { changes, filters } => {
                let mut tree = Tree::of(doc);
                let mut places: Vec<(Cow<'_, [String]>, &Operator)> = Vec::with_capacity(changes.len());
                let held = held("an update");
                for change in changes.iter().filter(|change| change.operator.counts(context)) {
                    if let Some(path) = &change.plain {
                        places.push((path.into(), &change.operator));
                        continue;
                    }
                    resolve(&mut tree, &change.path, filters, context, &mut Vec::new(), &mut |path| {
                        held.take(PLACE_BYTES + path.len() * PLACE_STEP_BYTES)?;
                        places.push((path.to_vec().into(), &change.operator));
                        Ok(())
                    })?;
                }
                // Resolved paths may coincide with paths of other operators.
                if changes.iter().any(|change| change.plain.is_none()) {
                    places.sort_by(|(a, _), (b, _)| compare_paths(a, b));
                    refuse_conflicts(places.iter().map(|(path, _)| &**path))?;
                }
                for (path, operator) in places {
                    // Each path is looked up among the surrounding fields.
                    byte_steps(doc.bytes().len())?;
                    operator.apply(&mut tree, &path, context)?;
                }
                tree.into_document()
            }
        }
    }
}

/// Replaces an empty timestamp at the top level of an inserted document by the server's time.
fn filled(value: Value<'_>, now_ms: i64) -> Value<'_> {
    match value {
        Value::Timestamp(0) => Value::Timestamp(timestamp(now_ms)),
        other => other,
    }
}

/// The time as BSON's timestamp: seconds above, 1 below.
pub(crate) fn timestamp(now_ms: i64) -> u64 {
    (u64::try_from(now_ms / 1000).unwrap_or(0) << 32) | 1
}

/// Converts a document to its stored form: `_id` first, `id` if it has none, empty timestamps filled.
///
/// # Errors
/// `DollarPrefixedFieldName` within the `_id`, and `InvalidIdField` for an `_id` that is an array, a regular
/// expression or undefined.
pub fn prepare_insert(
    doc: Doc<'_>,
    now_ms: i64,
    id: impl FnOnce() -> crate::lang::value::Owned,
) -> LangResult<Cow<'_, [u8]>> {
    // A single pass over the fields: this runs for every inserted document.
    let (mut as_stored, mut first) = (true, true);
    for element in doc.elements() {
        let is_id = element.name == b"_id";
        if is_id && let Some(value) = element.value() {
            check_id(value)?;
        }
        as_stored &= is_id || !first;
        as_stored &= element.tag != tag::TIMESTAMP || element.payload != [0; 8];
        first = false;
    }
    if as_stored && !first {
        return Ok(doc.bytes().into());
    }
    let mut writer = Writer::new();
    match doc.get("_id") {
        Some(own) => writer.put("_id", own),
        None => writer.put("_id", id().value()),
    }
    for (name, value) in doc.iter().filter(|(name, _)| *name != "_id") {
        writer.put(name, filled(value, now_ms));
    }
    let bytes = writer.finish().into_bytes();
    if bytes.len() > DOCUMENT_BYTES_MAX {
        refuse!(BSONObjectTooLarge, "a document of {} bytes; the limit is {DOCUMENT_BYTES_MAX}", bytes.len());
    }
    Ok(bytes.into())
}

/// Checks the names and the `_id` of a replacement document.
fn check_names(doc: Doc<'_>) -> LangResult<()> {
    if let Some((name, _)) = doc.iter().find(|(name, _)| name.starts_with('$')) {
        refuse!(
            DollarPrefixedFieldName,
            "The dollar ($) prefixed field '{name}' is not allowed at the top of a document"
        );
    }
    doc.iter().filter(|(name, _)| *name == "_id").try_for_each(|(_, value)| check_id(value))
}

/// Checks an `_id`. Other names of an inserted document may begin with a dollar, as in MongoDB since 5.0.
fn check_id(value: Value<'_>) -> LangResult<()> {
    if let Value::Array(_) | Value::Regex(..) | Value::Undefined = value {
        refuse!(InvalidIdField, "The '_id' value cannot be of type {}", value.type_name());
    }
    if let Value::Document(inner) = value
        && let Some((name, _)) = inner.iter().find(|(name, _)| name.starts_with('$'))
        && !matches!(name, "$ref" | "$id" | "$db")
    {
        refuse!(
            DollarPrefixedFieldName,
            "_id fields may not contain '$'-prefixed fields: {name} is not valid for storage."
        );
    }
    Ok(())
}

fn parse_changes(update: Doc<'_>, options: &Options) -> LangResult<Vec<Change>> {
    let mut changes = Vec::new();
    for (name, operands) in update {
        if !name.starts_with('$') {
            refuse!(
                FailedToParse,
                "the update operator document must contain atomic operators only, '{name}' is not one"
            );
        }
        if !Operator::is_known(name) {
            refuse!(
                FailedToParse,
                "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update specified as an array"
            );
        }
        let Value::Document(operands) = operands else {
            refuse!(
                FailedToParse,
                "Modifiers operate on fields but we found type {} instead. For example: {{$mod: {{<field>: ...}}}} not {{{name}: {operands}}}",
                operands.type_name()
            );
        };
        for (path, operand) in operands {
            let steps = parse_path(path)?;
            let operator = Operator::parse(name, path, operand, options)?;
            if let Operator::Rename(target) = &operator {
                let target_steps = parse_path(target)?;
                let dynamic = |steps: &[Step]| steps.iter().any(|step| !matches!(step, Step::Name(_)));
                if dynamic(&steps) || dynamic(&target_steps) {
                    refuse!(
                        BadValue,
                        "The source and target field for $rename may not be dynamic: {path}: {target}"
                    );
                }
                if path == target {
                    refuse!(
                        BadValue,
                        "The source and target field for $rename must differ: {path}: \"{target}\""
                    );
                }
                // The target takes part in the check for conflicts.
                changes.push(Change::new(target_steps, Operator::Nothing));
            }
            changes.push(Change::new(steps, operator));
            if changes.len() > CHANGES_MAX {
                refuse!(BadValue, "an update names more than {CHANGES_MAX} paths");
            }
        }
    }
    changes.sort_by(|a, b| compare_paths(&names(&a.path), &names(&b.path)));
    let paths: Vec<_> = changes.iter().map(|change| names(&change.path)).collect();
    refuse_conflicts(paths.iter().map(Vec::as_slice))?;
    Ok(changes)
}

fn names(path: &[Step]) -> Vec<String> {
    path.iter()
        .map(|step| match step {
            Step::Name(name) => name.clone(),
            Step::Found => "$".to_owned(),
            Step::Every => "$[]".to_owned(),
            Step::Filtered(name) => format!("$[{name}]"),
        })
        .collect()
}

/// Positions by number, then names by their bytes.
fn compare_paths(a: &[String], b: &[String]) -> Ordering {
    let rank = |name: &String| path::position(name).unwrap_or(usize::MAX);
    a.iter().map(|name| (rank(name), name)).cmp(b.iter().map(|name| (rank(name), name)))
}

/// Rejects sorted paths of which one is a prefix of the next.
fn refuse_conflicts<'p>(paths: impl Iterator<Item = &'p [String]> + Clone) -> LangResult<()> {
    for (a, b) in paths.clone().zip(paths.skip(1)) {
        if b.starts_with(a) {
            refuse!(
                ConflictingUpdateOperators,
                "Updating the path '{}' would create a conflict at '{}'",
                b.join("."),
                a.join(".")
            );
        }
    }
    Ok(())
}

fn parse_path(path: &str) -> LangResult<Vec<Step>> {
    if path.is_empty() {
        refuse!(EmptyFieldName, "An empty update path is not valid.");
    }
    let mut steps: Vec<Step> = Vec::new();
    for name in path.split('.') {
        let step = match name {
            "" => refuse!(
                EmptyFieldName,
                "The update path '{path}' contains an empty field name, which is not allowed."
            ),
            "$" if steps.contains(&Step::Found) => {
                refuse!(BadValue, "Too many positional (i.e. '$') elements found in path '{path}'")
            }
            "$" => Step::Found,
            "$[]" => Step::Every,
            _ => match name.strip_prefix("$[").and_then(|rest| rest.strip_suffix(']')) {
                Some(identifier) => Step::Filtered(identifier.to_owned()),
                None if name.starts_with('$') && !matches!(name, "$ref" | "$id" | "$db") => refuse!(
                    DollarPrefixedFieldName,
                    "The dollar ($) prefixed field '{name}' in '{path}' is not valid for storage."
                ),
                None => Step::Name(name.to_owned()),
            },
        };
        if steps.is_empty() && !matches!(step, Step::Name(_)) {
            refuse!(
                BadValue,
                "Cannot have positional (i.e. '{name}') element in the first position in path '{path}'"
            );
        }
        steps.push(step);
    }
    if steps.len() > crate::lang::value::DEPTH_MAX {
        refuse!(BadValue, "an update path of {} names is too deep", steps.len());
    }
    Ok(steps)
}

fn parse_filters(filters: Option<Doc<'_>>, options: &Options) -> LangResult<Vec<ArrayFilter>> {
    let mut out: Vec<ArrayFilter> = Vec::new();
    for filter in filters.into_iter().flat_map(Doc::values) {
        let Value::Document(doc) = filter else {
            refuse!(TypeMismatch, "an array filter is a document, not of type {}", filter.type_name());
        };
        let mut names = Vec::new();
        identifiers(doc, &mut names, 0);
        names.sort_unstable();
        names.dedup();
        let name = match names.as_slice() {
            [name] => (*name).to_owned(),
            [] => refuse!(
                FailedToParse,
                "Cannot use an expression without a top-level field name in arrayFilters"
            ),
            [first, second, ..] => refuse!(
                FailedToParse,
                "Error parsing array filter :: caused by :: Expected a single top-level field name, found '{first}' and '{second}'"
            ),
        };
        let valid = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric());
        if !valid {
            refuse!(
                BadValue,
                "Error parsing array filter :: caused by :: The top-level field name must be an alphanumeric string beginning with a lowercase letter, found '{name}'"
            );
        }
        if out.iter().any(|filter| filter.name == name) {
            refuse!(FailedToParse, "Found multiple array filters with the same top-level field name {name}");
        }
        if out.len() >= ARRAY_FILTERS_MAX {
            refuse!(BadValue, "an update has more than {ARRAY_FILTERS_MAX} array filters");
        }
        out.push(ArrayFilter { name, filter: Filter::parse(doc, options)? });
    }
    Ok(out)
}

/// The first names of a filter's paths.
fn identifiers<'a>(doc: Doc<'a>, names: &mut Vec<&'a str>, depth: usize) {
    for (name, value) in doc {
        match value {
            Value::Array(branches) if name.starts_with('$') && depth < crate::lang::value::DEPTH_MAX => {
                for branch in branches.values().filter_map(Value::as_document) {
                    identifiers(branch, names, depth + 1);
                }
            }
            _ if name.starts_with('$') => {}
            _ => names.push(path::split(name).0),
        }
    }
}

/// Resolves a path with `$`, `$[]` and `$[x]` to the paths of this document.
fn resolve(
    tree: &mut Tree<'_>,
    rest: &[Step],
    filters: &[ArrayFilter],
    context: &UpdateContext,
    at: &mut Vec<String>,
    found: &mut dyn FnMut(&[String]) -> LangResult<()>,
) -> LangResult<()> {
    let Some((step, rest)) = rest.split_first() else {
        return found(at);
    };
    let positions: Vec<usize> = match step {
        Step::Name(name) => {
            at.push(name.clone());
            resolve(tree, rest, filters, context, at, found)?;
            at.pop();
            return Ok(());
        }
        Step::Found => match context.position {
            Some(position) => vec![position],
            None => {
                refuse!(BadValue, "The positional operator did not find the match needed from the query.")
            }
        },
        Step::Every | Step::Filtered(_) => {
            let path = at.join(".");
            let Some(branch) = tree.find(at.as_slice())? else {
                refuse!(
                    BadValue,
                    "The path '{path}' must exist in the document in order to apply array updates."
                );
            };
            let kind = branch.type_name();
            let Branch::Array(elements, _) = branch.open()? else {
                refuse!(BadValue, "Cannot apply array updates to non-array element {path} of type {kind}");
            };
            let mut positions = Vec::new();
            for (position, element) in elements.iter().enumerate() {
                steps(1 + filters.len())?;
                if passes(element, step, filters)? {
                    positions.push(position);
                }
            }
            positions
        }
    };
    for position in positions {
        at.push(position.to_string());
        resolve(tree, rest, filters, context, at, found)?;
        at.pop();
    }
    Ok(())
}

fn passes(element: &Branch<'_>, step: &Step, filters: &[ArrayFilter]) -> LangResult<bool> {
    let Step::Filtered(name) = step else { return Ok(true) };
    let filter = filters
        .iter()
        .find(|filter| filter.name == *name)
        .ok_or_else(|| lang_error!(BadValue, "No array filter found for identifier '{name}'"))?;
    let mut writer = Writer::new();
    element.with(|value| writer.put(name, value));
    filter.filter.matches(writer.finish().doc())
}
