//! Names in reach of an expression, and the parameters of a statement.

use ropewalk::tables::{Schema, Type};
use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};

use crate::error::{Result, SqlError, state};
use crate::schemas::{own, reference, said};
use crate::types::type_name;

/// The name that an identifier means: folded to lower case unless it is quoted.
pub(crate) fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// The parts of a dotted name.
pub(crate) fn parts(name: &ObjectName) -> Result<Vec<String>> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => Ok(folded(ident)),
        ObjectNamePart::Function(_) => Err(SqlError::unsupported("a computed name", "write the name")),
    };
    name.0.iter().map(part).collect()
}

/// The name of a relation or a type as it is written, see [`crate::schemas::reference`].
pub(crate) fn table_name(name: &ObjectName) -> Result<String> {
    let parts = parts(name)?;
    if let Some(part) = parts.iter().find(|part| part.contains('\u{1f}')) {
        let message = format!("the name {part:?} has a control character");
        return Err(SqlError::new(state::INVALID_NAME, message));
    }
    match parts.as_slice() {
        [table] => Ok(reference(None, table)),
        [schema, table] => Ok(reference(Some(schema), table)),
        _ => Err(SqlError::unsupported(format!("the name {name}"), "write schema.table or table")),
    }
}

/// What a column of the catalogs is beyond its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// PostgreSQL's `int2vector` or `oidvector`, here an array: its elements are counted from 0, and shown apart by blanks.
    Vector,
    /// A row of `_pg_expandarray`, here an array of its `x` and `n`.
    Pair,
}

#[derive(Debug, Clone)]
struct Relation {
    /// A reference: with its schema when it is a table or a view under no name but its own.
    name: String,
    columns: Vec<(String, Type)>,
    start: usize,
    /// Found by its qualified name only: `excluded` of ON CONFLICT.
    qualified_only: bool,
    /// A function of one column, which its own name means, too.
    is_scalar: bool,
}

impl Relation {
    /// True when a reference means it: by its name alone, or with its schema.
    fn is_meant(&self, reference: &str) -> bool {
        match said(reference) {
            (None, name) => own(&self.name) == name,
            _ => self.name == reference,
        }
    }

    /// True when it cannot stand beside another one: tables of one name are told apart by their schemas.
    fn is_taken_by(&self, other: &str) -> bool {
        let ((schema, name), (other_schema, other_name)) = (said(&self.name), said(other));
        name == other_name && (schema.is_none() || other_schema.is_none() || schema == other_schema)
    }
}

/// The columns in reach, numbered through all relations.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    relations: Vec<Relation>,
    /// Columns of joins with USING: the right one is hidden behind the left one.
    hidden: Vec<usize>,
    /// Columns that have to be named: no `*` shows them.
    system: Vec<usize>,
    marks: Vec<(usize, Mark)>,
}

impl Scope {
    /// Number of columns.
    pub(crate) fn width(&self) -> usize {
        self.relations.last().map_or(0, |relation| relation.start + relation.columns.len())
    }

    /// Adds a relation, named by a reference, and answers the number of its first column.
    pub(crate) fn add(&mut self, name: String, columns: Vec<(String, Type)>) -> Result<usize> {
        if !name.is_empty() && self.relations.iter().any(|relation| relation.is_taken_by(&name)) {
            let message = format!("table name \"{}\" specified more than once", own(&name));
            return Err(SqlError::new(state::DUPLICATE_ALIAS, message));
        }
        let start = self.width();
        self.relations.push(Relation { name, columns, start, qualified_only: false, is_scalar: false });
        Ok(start)
    }

    /// Adds all relations of another scope behind those of this one.
    pub(crate) fn append(&mut self, other: &Self) -> Result<()> {
        let width = self.width();
        for relation in &other.relations {
            self.add_function(relation.name.clone(), relation.columns.clone(), relation.is_scalar)?;
        }
        self.hidden.extend(other.hidden.iter().map(|column| column + width));
        self.system.extend(other.system.iter().map(|column| column + width));
        self.marks.extend(other.marks.iter().map(|(column, mark)| (column + width, *mark)));
        Ok(())
    }

    pub(crate) fn add_table(&mut self, name: String, schema: &Schema) -> Result<usize> {
        let columns = schema.columns().iter().map(|c| (c.name().to_owned(), c.column_type())).collect();
        self.add(name, columns)
    }

    /// Adds the relation of a function; where it has one column, its own name means that.
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

    /// The column of the function of one column that has this name.
    pub(crate) fn scalar(&self, name: &str) -> Option<(usize, Type)> {
        let relation = self.relations.iter().find(|relation| relation.is_scalar && relation.name == name)?;
        relation.columns.first().map(|(_, ty)| (relation.start, *ty))
    }

    /// Adds a relation whose columns must be qualified.
    pub(crate) fn add_qualified(&mut self, name: &str, schema: &Schema) -> Result<usize> {
        let start = self.add_table(name.to_owned(), schema)?;
        if let Some(last) = self.relations.last_mut() {
            last.qualified_only = true;
        }
        Ok(start)
    }

    /// Names of columns that relations from column `before` on share with those before, each once.
    pub(crate) fn shared(&self, before: usize) -> Vec<String> {
        let all = self.all(None);
        let here = |name: &String| all.iter().any(|(other, _, number)| *number >= before && other == name);
        let mut names: Vec<String> = Vec::new();
        for (name, _, number) in &all {
            if *number < before && here(name) && !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// The column `name` is from now on the left one only.
    pub(crate) fn hide(&mut self, column: usize) {
        self.hidden.push(column);
    }

    /// No `*` shows this column from now on.
    pub(crate) fn withhold(&mut self, column: usize) {
        self.system.push(column);
    }

    /// Says what a column is beyond its type.
    pub(crate) fn mark(&mut self, column: usize, mark: Mark) {
        self.marks.push((column, mark));
    }

    pub(crate) fn mark_of(&self, column: usize) -> Option<Mark> {
        self.marks.iter().find(|(marked, _)| *marked == column).map(|(_, mark)| *mark)
    }

    /// Number and type of a column; `None` when there is none.
    ///
    /// # Errors
    /// 42702: there are several; 42P09: there are several relations of this name.
    pub(crate) fn find(&self, relation: Option<&str>, name: &str) -> Result<Option<(usize, Type)>> {
        let mut found = None;
        if let Some(relation) = relation {
            self.one_meant(relation)?;
        }
        for candidate in &self.relations {
            let fits = relation.map_or(!candidate.qualified_only, |relation| candidate.is_meant(relation));
            if !fits {
                continue;
            }
            for (place, (column, ty)) in candidate.columns.iter().enumerate() {
                let number = candidate.start + place;
                if column != name || relation.is_none() && self.hidden.contains(&number) {
                    continue;
                }
                if found.is_some() {
                    let message = format!("column reference \"{name}\" is ambiguous");
                    return Err(SqlError::new(state::AMBIGUOUS_COLUMN, message));
                }
                found = Some((number, *ty));
            }
        }
        Ok(found)
    }

    /// True when a reference means a relation.
    ///
    /// # Errors
    /// 42P09: it means several.
    pub(crate) fn one_meant(&self, relation: &str) -> Result<bool> {
        match self.relations.iter().filter(|candidate| candidate.is_meant(relation)).count() {
            0 | 1 => Ok(self.knows(relation)),
            _ => {
                let message = format!("table reference \"{}\" is ambiguous", own(relation));
                Err(SqlError::new(state::AMBIGUOUS_ALIAS, message))
            }
        }
    }

    /// True when a reference means a relation, or several.
    pub(crate) fn knows(&self, relation: &str) -> bool {
        self.relations.iter().any(|candidate| candidate.is_meant(relation))
    }

    /// Names, types and numbers of all columns of `*`, or of `relation.*`.
    pub(crate) fn all(&self, relation: Option<&str>) -> Vec<(String, Type, usize)> {
        let shown = |candidate: &&Relation| {
            relation.map_or(!candidate.qualified_only, |relation| candidate.is_meant(relation))
        };
        let mut all = Vec::new();
        for candidate in self.relations.iter().filter(shown) {
            for (place, (name, ty)) in candidate.columns.iter().enumerate() {
                let number = candidate.start + place;
                let is_shown = relation.is_some() || !self.hidden.contains(&number);
                if is_shown && !self.system.contains(&number) {
                    all.push((name.clone(), *ty, number));
                }
            }
        }
        all
    }
}

/// Parameters that a statement may have.
const PARAMETERS_MAX: usize = 65_535;

/// The parameters of a statement: a type is known when it is declared, or from the first use that needs one.
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

    /// Settles the type of a parameter, if it is open; answers its type.
    pub(crate) fn settle(&mut self, index: usize, ty: Type) -> Type {
        match self.types.get_mut(index) {
            Some(slot) => *slot.get_or_insert(ty),
            None => ty,
        }
    }

    /// The types in order; what no use told is text.
    pub(crate) fn finished(&self) -> Vec<Type> {
        self.types.iter().map(|ty| ty.unwrap_or(Type::TEXT)).collect()
    }
}

/// No such column, in PostgreSQL's words.
pub(crate) fn unknown_column(relation: Option<&str>, name: &str) -> SqlError {
    let full = relation.map_or_else(|| format!("\"{name}\""), |relation| format!("{}.{name}", own(relation)));
    SqlError::new(state::UNDEFINED_COLUMN, format!("column {full} does not exist"))
}

/// Two types that an operator does not bring together.
pub(crate) fn no_operator(symbol: &str, left: Option<Type>, right: Option<Type>) -> SqlError {
    let name = |ty: Option<Type>| ty.map_or_else(|| "unknown".to_owned(), type_name);
    no_operator_of(symbol, &name(left), &name(right))
}

/// As [`no_operator`], by the names of the types.
pub(crate) fn no_operator_of(symbol: &str, left: &str, right: &str) -> SqlError {
    let message = format!("operator does not exist: {left} {symbol} {right}");
    SqlError::new(state::UNDEFINED_FUNCTION, message).hint("you might need to add explicit type casts")
}
