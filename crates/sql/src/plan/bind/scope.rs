//! Names in scope of an expression, and the parameters of a statement.

use ropewalk::tables::{Schema, Type};

use crate::error::{Result, SqlError, state};
use crate::expr::Expr;
use crate::syntax::names::{own, said};
use crate::types::names::type_name;

/// Property of a catalog column beyond its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// PostgreSQL's `int2vector` or `oidvector`, here an array: indexed from 0, and displayed with blanks
    /// between elements.
    Vector,
    /// A row of `_pg_expandarray`, here an array of its `x` and `n`.
    Pair,
}

#[derive(Debug, Clone)]
struct Relation {
    /// A reference: includes the schema for a table or a view without an alias.
    name: String,
    columns: Vec<(String, Type)>,
    start: usize,
    /// Resolved by its qualified name only: `excluded` of ON CONFLICT.
    qualified_only: bool,
    /// A single-column function, whose name also refers to the column.
    is_scalar: bool,
    /// Positions of the columns of a table's primary key.
    key: Vec<usize>,
}

impl Relation {
    /// True when a reference refers to it: by its name alone, or with its schema.
    fn is_meant(&self, reference: &str) -> bool {
        match said(reference) {
            (None, name) => own(&self.name) == name,
            _ => self.name == reference,
        }
    }

    /// True when it conflicts with another relation: schemas distinguish tables of the same name.
    fn is_taken_by(&self, other: &str) -> bool {
        let ((schema, name), (other_schema, other_name)) = (said(&self.name), said(other));
        name == other_name && (schema.is_none() || other_schema.is_none() || schema == other_schema)
    }
}

/// A column that is accessible without a relation name, and part of `*`.
#[derive(Debug, Clone)]
enum Shown {
    /// The number of its relation, and its position there.
    Column(usize, usize),
    /// A merged column of a join with USING, where neither side alone has its values.
    Merged(String, Type, Expr),
}

/// The columns in scope, numbered through all relations.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    relations: Vec<Relation>,
    /// In the order of `*`: in each item of FROM the merged columns of USING first.
    shown: Vec<Shown>,
    /// Position in `shown` of the first column of the current FROM item.
    item: usize,
    /// Columns that have to be named: they are not part of `*`.
    system: Vec<usize>,
    marks: Vec<(usize, Mark)>,
}

/// The sides of a join that have a row in each row of its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Present {
    Both,
    Left,
    Right,
    /// FULL JOIN: one of them.
    Either,
}

/// A column of both sides of a join with USING: its positions among the visible columns, and the merged
/// expression.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) name: String,
    pub(crate) left: usize,
    pub(crate) right: usize,
    pub(crate) expr: Expr,
    pub(crate) ty: Type,
}

impl Scope {
    /// Number of columns.
    pub(crate) fn width(&self) -> usize {
        self.relations.last().map_or(0, |relation| relation.start + relation.columns.len())
    }

    /// Adds a relation under a reference, and returns the number of its first column.
    pub(crate) fn add(&mut self, name: String, columns: Vec<(String, Type)>) -> Result<usize> {
        if !name.is_empty() && self.relations.iter().any(|relation| relation.is_taken_by(&name)) {
            let message = format!("table name \"{}\" specified more than once", own(&name));
            return Err(SqlError::new(state::DUPLICATE_ALIAS, message));
        }
        let (start, relation) = (self.width(), self.relations.len());
        self.shown.extend((0..columns.len()).map(|place| Shown::Column(relation, place)));
        let (qualified_only, is_scalar, key) = (false, false, Vec::new());
        self.relations.push(Relation { name, columns, start, qualified_only, is_scalar, key });
        Ok(start)
    }

    /// Appends all relations of another scope.
    pub(crate) fn append(&mut self, other: &Self) -> Result<()> {
        let (width, relations, shown) = (self.width(), self.relations.len(), self.shown.len());
        for relation in &other.relations {
            self.add_function(relation.name.clone(), relation.columns.clone(), relation.is_scalar)?;
            self.set_key(&relation.key);
        }
        self.shown.truncate(shown);
        self.shown.extend(other.shown.iter().map(|shown| match shown {
            Shown::Column(relation, place) => Shown::Column(relation + relations, *place),
            Shown::Merged(name, ty, expr) => {
                Shown::Merged(name.clone(), *ty, expr.clone().renumber(&|column| column + width))
            }
        }));
        self.system.extend(other.system.iter().map(|column| column + width));
        self.marks.extend(other.marks.iter().map(|(column, mark)| (column + width, *mark)));
        Ok(())
    }

    pub(crate) fn add_table(&mut self, name: String, schema: &Schema) -> Result<usize> {
        let start = self.add(name, columns_of(schema))?;
        self.set_key(schema.key_columns());
        Ok(start)
    }

    /// Sets the columns of the primary key of the relation that was added last.
    pub(crate) fn set_key(&mut self, key: &[usize]) {
        if let Some(last) = self.relations.last_mut() {
            last.key = key.to_vec();
        }
    }

    /// The type of a column whose value follows from columns for which `is_known` is true: they include the
    /// primary key of its table.
    pub(crate) fn determined(&self, column: usize, is_known: &dyn Fn(usize) -> bool) -> Option<Type> {
        let relation = self.relations.iter().rfind(|relation| relation.start <= column)?;
        let is_known = |place: &usize| is_known(relation.start + place);
        let (_, ty) = relation.columns.get(column - relation.start)?;
        (!relation.key.is_empty() && relation.key.iter().all(is_known)).then_some(*ty)
    }

    /// Adds the relation of a function; the name of a single-column function also refers to its column.
    pub(crate) fn add_function(
        &mut self,
        name: String,
        columns: Vec<(String, Type)>,
        is_scalar: bool,
    ) -> Result<usize> {
        let start = self.add(name, columns)?;
        if let Some(last) = self.relations.last_mut() {
            last.is_scalar = is_scalar;
        }
        Ok(start)
    }

    /// The column of the single-column function with this name.
    pub(crate) fn scalar(&self, name: &str) -> Option<(usize, Type)> {
        let relation = self.relations.iter().find(|relation| relation.is_scalar && relation.name == name)?;
        relation.columns.first().map(|(_, ty)| (relation.start, *ty))
    }

    /// Adds a relation whose columns must be qualified.
    pub(crate) fn add_qualified(&mut self, name: &str, columns: Vec<(String, Type)>) -> Result<usize> {
        let shown = self.shown.len();
        let start = self.add(name.to_owned(), columns)?;
        self.shown.truncate(shown);
        if let Some(last) = self.relations.last_mut() {
            last.qualified_only = true;
        }
        Ok(start)
    }

    /// Starts an item of FROM at the visible column `place`.
    pub(crate) fn begin_item(&mut self, place: usize) {
        self.item = place;
    }

    /// Number of columns that are accessible without a relation name.
    pub(crate) fn shown_count(&self) -> usize {
        self.shown.len()
    }

    /// The visible column at a position: its name, type and expression, and whether it has to be named.
    fn shown_at(&self, place: usize) -> Option<(&str, Type, Expr, bool)> {
        match self.shown.get(place)? {
            Shown::Column(relation, place) => {
                let relation = self.relations.get(*relation)?;
                let (name, ty) = relation.columns.get(*place)?;
                let number = relation.start + place;
                Some((name, *ty, Expr::Column(number), self.system.contains(&number)))
            }
            Shown::Merged(name, ty, expr) => Some((name, *ty, expr.clone(), false)),
        }
    }

    /// Names shared by visible columns of the current item before position `right` and those from there on,
    /// each once.
    pub(crate) fn shared(&self, right: usize) -> Vec<String> {
        let name =
            |place: usize| self.shown_at(place).filter(|(.., is_system)| !is_system).map(|(name, ..)| name);
        let rights: Vec<&str> = (right..self.shown.len()).filter_map(name).collect();
        let mut names: Vec<String> = Vec::new();
        for name in (self.item..right).filter_map(name) {
            if rights.contains(&name) && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// The columns of a USING name on both sides of a join, whose right side starts at position `right`:
    /// position, type and expression.
    ///
    /// # Errors
    /// 42703: a side lacks the column; 42702: a side has several.
    pub(crate) fn sides(&self, name: &str, right: usize) -> Result<[(usize, Type, Expr); 2]> {
        let side = |places: std::ops::Range<usize>, side: &str| {
            let mut found = None;
            for place in places {
                let Some((_, ty, expr, _)) = self.shown_at(place).filter(|(known, ..)| *known == name) else {
                    continue;
                };
                if found.replace((place, ty, expr)).is_some() {
                    let message =
                        format!("common column name \"{name}\" appears more than once in {side} table");
                    return Err(SqlError::new(state::AMBIGUOUS_COLUMN, message));
                }
            }
            found.ok_or_else(|| {
                let message =
                    format!("column \"{name}\" specified in USING clause does not exist in {side} table");
                SqlError::new(state::UNDEFINED_COLUMN, message)
            })
        };
        Ok([side(self.item..right, "left")?, side(right..self.shown.len(), "right")?])
    }

    /// Merges the common columns of both sides of a join, in front of all others of the item.
    pub(crate) fn merge(&mut self, merged: Vec<Merged>) {
        let mut all: Vec<Option<Shown>> = self.shown.drain(self.item..).map(Some).collect();
        let item = self.item;
        let mut take = |place: usize| all.get_mut(place - item).and_then(Option::take);
        let sides: Vec<(Merged, Option<Shown>, Option<Shown>)> = merged
            .into_iter()
            .map(|merged| {
                let (left, right) = (take(merged.left), take(merged.right));
                (merged, left, right)
            })
            .collect();
        for (Merged { name, expr, ty, .. }, left, right) in sides {
            let is_it = |side: &Shown| match (side, &expr) {
                (Shown::Column(relation, place), Expr::Column(column)) => {
                    self.relations.get(*relation).is_some_and(|relation| relation.start + place == *column)
                }
                _ => false,
            };
            let own = left.into_iter().chain(right).find(is_it);
            self.shown.push(own.unwrap_or(Shown::Merged(name, ty, expr)));
        }
        self.shown.extend(all.into_iter().flatten());
    }

    /// Excludes a column from `*`.
    pub(crate) fn withhold(&mut self, column: usize) {
        self.system.push(column);
    }

    /// Sets the property of a column.
    pub(crate) fn mark(&mut self, column: usize, mark: Mark) {
        self.marks.push((column, mark));
    }

    pub(crate) fn mark_of(&self, column: usize) -> Option<Mark> {
        self.marks.iter().find(|(marked, _)| *marked == column).map(|(_, mark)| *mark)
    }

    /// A column and its type; `None` if it does not exist.
    ///
    /// # Errors
    /// 42702: there are several; 42P09: there are several relations of this name.
    pub(crate) fn find(&self, relation: Option<&str>, name: &str) -> Result<Option<(Expr, Type)>> {
        let mut found = None;
        let mut add = |expr: Expr, ty: Type| {
            if found.replace((expr, ty)).is_some() {
                let message = format!("column reference \"{name}\" is ambiguous");
                return Err(SqlError::new(state::AMBIGUOUS_COLUMN, message));
            }
            Ok(())
        };
        let Some(relation) = relation else {
            for place in 0..self.shown.len() {
                if let Some((_, ty, expr, _)) = self.shown_at(place).filter(|(known, ..)| *known == name) {
                    add(expr, ty)?;
                }
            }
            return Ok(found);
        };
        self.one_meant(relation)?;
        for candidate in self.relations.iter().filter(|candidate| candidate.is_meant(relation)) {
            for (place, (column, ty)) in candidate.columns.iter().enumerate() {
                if column == name {
                    add(Expr::Column(candidate.start + place), *ty)?;
                }
            }
        }
        Ok(found)
    }

    /// The column that a name which is unknown was probably meant to be: the nearest, if few characters differ and
    /// no other is as near.
    pub(crate) fn nearest(&self, relation: Option<&str>, name: &str) -> Option<String> {
        let differing_max = (name.chars().count() / 2).min(DIFFERING_MAX);
        let known = self.relations.iter().filter(|known| relation.is_none_or(|meant| known.is_meant(meant)));
        let columns = known.flat_map(|known| known.columns.iter().map(move |(column, _)| (known, column)));
        let mut near: Vec<_> = columns
            .map(|(known, column)| (differing(name, column), known, column))
            .filter(|(distance, ..)| *distance <= differing_max)
            .collect();
        near.sort_by_key(|(distance, ..)| *distance);
        match near.as_slice() {
            [(least, ..), (next, ..), ..] if least == next => None,
            [(_, known, column), ..] => Some(format!("{}.{column}", own(&known.name))),
            [] => None,
        }
    }

    /// The name of a column.
    pub(crate) fn name_of(&self, column: usize) -> Option<&str> {
        let relation = self.relations.iter().rfind(|relation| relation.start <= column)?;
        relation.columns.get(column - relation.start).map(|(name, _)| name.as_str())
    }

    /// True when a reference matches a relation.
    ///
    /// # Errors
    /// 42P09: it matches several.
    pub(crate) fn one_meant(&self, relation: &str) -> Result<bool> {
        match self.relations.iter().filter(|candidate| candidate.is_meant(relation)).count() {
            0 | 1 => Ok(self.knows(relation)),
            _ => {
                let message = format!("table reference \"{}\" is ambiguous", own(relation));
                Err(SqlError::new(state::AMBIGUOUS_ALIAS, message))
            }
        }
    }

    /// True when a reference matches one relation or several.
    pub(crate) fn knows(&self, relation: &str) -> bool {
        self.relations.iter().any(|candidate| candidate.is_meant(relation))
    }

    /// All columns of `*`, or of `relation.*`: their names, types and expressions.
    pub(crate) fn all(&self, relation: Option<&str>) -> Vec<(String, Type, Expr)> {
        let Some(relation) = relation else {
            let shown = (0..self.shown.len()).filter_map(|place| self.shown_at(place));
            let shown = shown.filter(|(.., is_system)| !is_system);
            return shown.map(|(name, ty, expr, _)| (name.to_owned(), ty, expr)).collect();
        };
        let mut all = Vec::new();
        for candidate in self.relations.iter().filter(|candidate| candidate.is_meant(relation)) {
            for (place, (name, ty)) in candidate.columns.iter().enumerate() {
                let number = candidate.start + place;
                if !self.system.contains(&number) {
                    all.push((name.clone(), *ty, Expr::Column(number)));
                }
            }
        }
        all
    }
}

/// The names and types of the columns of a table.
pub(crate) fn columns_of(schema: &Schema) -> Vec<(String, Type)> {
    schema.columns().iter().map(|column| (column.name().to_owned(), column.column_type())).collect()
}

/// Maximum number of parameters of a statement.
const PARAMETERS_MAX: usize = 65_535;

/// The parameters of a statement: a type is declared, or determined by the first use that needs one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Params {
    types: Vec<Option<Type>>,
}

impl Params {
    pub(crate) fn declared(types: &[Option<Type>]) -> Self {
        Self { types: types.to_vec() }
    }

    /// The number, from 0, of `$1`, and its type if it is known.
    pub(crate) fn find(&mut self, placeholder: &str) -> Result<(usize, Option<Type>)> {
        let number = placeholder.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
        let index = number.and_then(|number| number.checked_sub(1)).filter(|index| *index < PARAMETERS_MAX);
        let index = index.ok_or_else(|| {
            SqlError::new(state::UNDEFINED_PARAMETER, format!("there is no parameter {placeholder}"))
                .hint("parameters are $1 to $65535")
        })?;
        if self.types.len() <= index {
            self.types.resize(index + 1, None);
        }
        Ok((index, self.types.get(index).copied().flatten()))
    }

    /// Sets the type of a parameter if it is undetermined; returns its type.
    pub(crate) fn settle(&mut self, index: usize, ty: Type) -> Type {
        match self.types.get_mut(index) {
            Some(slot) => *slot.get_or_insert(ty),
            None => ty,
        }
    }

    /// The types in order; text where no use determines one.
    pub(crate) fn finished(&self) -> Vec<Type> {
        self.types.iter().map(|ty| ty.unwrap_or(Type::TEXT)).collect()
    }
}

/// Characters in which a misspelt name may differ from a column, as in PostgreSQL.
const DIFFERING_MAX: usize = 3;

/// Number of characters to insert, delete or replace to get from one text to the other (Levenshtein).
fn differing(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut before: Vec<usize> = (0..=other.len()).collect();
    for (place, character) in one.chars().enumerate() {
        let mut left = place + 1;
        let mut row = vec![left];
        for (known, pair) in other.iter().zip(before.windows(2)) {
            let [diagonal, above] = pair else { continue };
            left = (left + 1).min(above + 1).min(diagonal + usize::from(character != *known));
            row.push(left);
        }
        before = row;
    }
    before.last().copied().unwrap_or_default()
}

/// The error for an unknown column, in PostgreSQL's words.
pub(crate) fn unknown_column(relation: Option<&str>, name: &str) -> SqlError {
    let full = relation.map_or_else(|| format!("\"{name}\""), |relation| format!("{}.{name}", own(relation)));
    SqlError::new(state::UNDEFINED_COLUMN, format!("column {full} does not exist"))
}

/// The error for two types that no operator combines.
pub(crate) fn no_operator(symbol: &str, left: Option<Type>, right: Option<Type>) -> SqlError {
    let name = |ty: Option<Type>| ty.map_or_else(|| "unknown".to_owned(), type_name);
    no_operator_of(symbol, &name(left), &name(right))
}

/// Like [`no_operator`], by the names of the types.
pub(crate) fn no_operator_of(symbol: &str, left: &str, right: &str) -> SqlError {
    let message = format!("operator does not exist: {left} {symbol} {right}");
    SqlError::new(state::UNDEFINED_FUNCTION, message).hint("you might need to add explicit type casts")
}
