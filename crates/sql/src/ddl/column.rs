//! Column definitions, and table constraints.

use ropewalk::tables::{
    Action, ColumnDef, Deferral, Expr as TableExpr, ForeignKeyDef, Function as TableFunction, Identity,
    IndexDef, SequenceParams,
};
use sqlparser::ast;

use super::Ddl;
use super::expr::{lowered, names};
use super::unsupported;
use crate::access::schemas;
use crate::catalog::collations;
use crate::error::{Result, SqlError, state};
use crate::plan::bind::scope::Scope;
use crate::syntax::names::{folded, table_name};
use crate::syntax::statements::SequenceChange;

/// A parsed column definition.
pub(super) struct Defined {
    pub(super) column: ColumnDef,
    pub(super) is_key: bool,
    /// Name of the primary key constraint on the column.
    pub(super) key_name: Option<String>,
    pub(super) unique: Vec<IndexDef>,
    pub(super) checks: Vec<(Option<String>, TableExpr)>,
    pub(super) foreign: Vec<ast::ForeignKeyConstraint>,
    /// Sequence options of an identity column, if given.
    pub(super) steps: Option<SequenceParams>,
}

impl Ddl<'_> {
    pub(super) fn column(&mut self, def: &ast::ColumnDef, scope: &Scope) -> Result<Defined> {
        let name = folded(&def.name);
        let (ty, modifiers) = self.data_type(&def.data_type)?;
        let mut column = ColumnDef::new(&name, ty);
        let mut defined = Defined {
            column: column.clone(),
            is_key: false,
            key_name: None,
            unique: Vec::new(),
            checks: Vec::new(),
            foreign: Vec::new(),
            steps: None,
        };
        if let Some(precision) = modifiers.precision {
            column = column.precision(precision);
        }
        if modifiers.serial {
            column = column.identity(Identity::ByDefault);
        }
        if modifiers.is_padded {
            self.note("char(n) is text of at most n characters, without padding");
        }
        if let Some(max) = modifiers.characters_max {
            let length = TableExpr::column(&name).call(TableFunction::Length);
            let max = i64::try_from(max).map_err(|_| unsupported(&def.data_type))?;
            defined.checks.push((Some(format!("{name}_length")), length.le(max)));
        }
        for option in &def.options {
            let label = option.name.as_ref().map(folded);
            match &option.option {
                ast::ColumnOption::Null => {}
                ast::ColumnOption::NotNull => column = column.not_null(),
                ast::ColumnOption::Default(expr) => {
                    let default = self.default(expr, ty)?;
                    column = column.default(default);
                }
                ast::ColumnOption::PrimaryKey(constraint) => {
                    key_at_once(constraint.characteristics.as_ref())?;
                    defined.is_key = true;
                    defined.key_name = label;
                }
                ast::ColumnOption::Unique(constraint) => {
                    let deferral = deferral(constraint.characteristics.as_ref())?;
                    let index = IndexDef::on([name.as_str()]).unique().deferral(deferral);
                    defined.unique.push(if let Some(label) = label { index.named(label) } else { index });
                }
                ast::ColumnOption::Check(check) => {
                    let expr = self.check(&check.expr, scope)?;
                    defined.checks.push((label, expr));
                }
                ast::ColumnOption::ForeignKey(foreign) => {
                    let mut foreign = foreign.clone();
                    foreign.columns = vec![def.name.clone()];
                    foreign.name = foreign.name.or_else(|| option.name.clone());
                    defined.foreign.push(foreign);
                }
                ast::ColumnOption::Generated {
                    generated_as: generated_as @ (ast::GeneratedAs::Always | ast::GeneratedAs::ByDefault),
                    sequence_options,
                    generation_expr: None,
                    generation_expr_mode: None,
                    generated_keyword: _,
                } => {
                    defined.steps = match sequence_options.as_deref() {
                        None | Some([]) => None,
                        Some(options) => {
                            Some(crate::ddl::sequences::stepped(ty, None, &sequence_changes(options)?)?.1)
                        }
                    };
                    column = column.identity(match generated_as {
                        ast::GeneratedAs::Always => Identity::Always,
                        _ => Identity::ByDefault,
                    });
                }
                ast::ColumnOption::Generated {
                    generation_expr: Some(expr),
                    generation_expr_mode: Some(ast::GeneratedExpressionMode::Stored),
                    ..
                } => {
                    let (expr, _) = self.bound(expr, scope, "GENERATED", Some(ty))?;
                    column = column.generated(lowered(&expr, &names(scope))?);
                }
                ast::ColumnOption::Collation(name) => {
                    column = column.collation(collations::of_column(name, ty)?)
                }
                other => return Err(unsupported(format!("the column option {other}"))),
            }
        }
        defined.column = column;
        Ok(defined)
    }

    /// The table that a foreign key references, which may be the one being created.
    fn parent(&mut self, name: &ast::ObjectName, table: &str) -> Result<String> {
        let reference = table_name(name)?;
        let settings = self.settings.clone();
        let mut candidates = schemas::candidates(&mut self.access(), &settings, &reference)?.into_iter();
        match candidates.next() {
            Some(first) if first == table => Ok(first),
            _ => self.meant(&reference),
        }
    }

    pub(super) fn foreign_key(
        &mut self,
        foreign: &ast::ForeignKeyConstraint,
        table: &str,
        own_key: &[String],
    ) -> Result<ForeignKeyDef> {
        if foreign.match_kind.is_some_and(|kind| kind != ast::ConstraintReferenceMatchKind::Simple)
            || foreign.index_name.is_some()
        {
            return Err(unsupported(format!("the foreign key {foreign}")));
        }
        let parent = self.parent(&foreign.foreign_table, table)?;
        let columns: Vec<String> = foreign.columns.iter().map(folded).collect();
        let mut referred: Vec<String> = foreign.referred_columns.iter().map(folded).collect();
        if referred.is_empty() {
            referred = if parent == table {
                own_key.to_vec()
            } else {
                let schema = self.schema(&parent)?;
                let name =
                    |place: &usize| schema.columns().get(*place).map(|column| column.name().to_owned());
                schema.key_columns().iter().filter_map(name).collect()
            };
        }
        if referred.len() != columns.len() {
            let message = "number of referencing and referenced columns for foreign key disagree";
            return Err(SqlError::new(state::INVALID_FOREIGN_KEY, message));
        }
        let mut def = ForeignKeyDef::new(columns, parent, referred)
            .on_delete(action(foreign.on_delete.as_ref()))
            .on_update(action(foreign.on_update.as_ref()))
            .deferral(deferral(foreign.characteristics.as_ref())?);
        if let Some(name) = &foreign.name {
            def = def.named(folded(name));
        }
        Ok(def)
    }
}

fn action(action: Option<&ast::ReferentialAction>) -> Action {
    match action {
        None | Some(ast::ReferentialAction::NoAction) => Action::NoAction,
        Some(ast::ReferentialAction::Restrict) => Action::Restrict,
        Some(ast::ReferentialAction::Cascade) => Action::Cascade,
        Some(ast::ReferentialAction::SetNull) => Action::SetNull,
        Some(ast::ReferentialAction::SetDefault) => Action::SetDefault,
    }
}

pub(super) fn plain_columns(columns: &[ast::IndexColumn]) -> Result<Vec<String>> {
    let plain = |column: &ast::IndexColumn| match &column.column {
        ast::OrderByExpr {
            expr: ast::Expr::Identifier(ident),
            options: ast::OrderByOptions { asc: None, nulls_first: None },
            with_fill: None,
        } if column.operator_class.is_none() => Ok(folded(ident)),
        other => Err(unsupported(format!("{other} in a constraint"))),
    };
    columns.iter().map(plain).collect()
}

/// When a constraint is checked.
pub(super) fn deferral(characteristics: Option<&ast::ConstraintCharacteristics>) -> Result<Deferral> {
    let Some(given) = characteristics else { return Ok(Deferral::NotDeferrable) };
    if given.enforced == Some(false) {
        return Err(unsupported(format!("a constraint {given}")));
    }
    let is_deferred = given.initially == Some(ast::DeferrableInitial::Deferred);
    match given.deferrable {
        Some(false) if is_deferred => {
            let message = "constraint declared INITIALLY DEFERRED must be DEFERRABLE";
            Err(SqlError::new(state::SYNTAX_ERROR, message))
        }
        _ if is_deferred => Ok(Deferral::InitiallyDeferred),
        Some(true) => Ok(Deferral::InitiallyImmediate),
        _ => Ok(Deferral::NotDeferrable),
    }
}

/// Rejects a primary key that is not checked at once.
pub(super) fn key_at_once(characteristics: Option<&ast::ConstraintCharacteristics>) -> Result<()> {
    if deferral(characteristics)?.is_deferrable() {
        return Err(SqlError::unsupported(
            "a deferrable primary key",
            "rows are stored by their primary key: leave DEFERRABLE out, or use a deferrable UNIQUE constraint",
        ));
    }
    Ok(())
}

pub(super) fn fresh(wanted: String, taken: &[String]) -> String {
    let numbered = |n: usize| if n == 0 { wanted.clone() } else { format!("{wanted}{n}") };
    (0..).map(numbered).find(|name| !taken.contains(name)).unwrap_or(wanted)
}

pub(super) fn unique_index(constraint: &ast::UniqueConstraint) -> Result<IndexDef> {
    let deferral = deferral(constraint.characteristics.as_ref())?;
    if constraint.nulls_distinct == ast::NullsDistinctOption::NotDistinct || constraint.index_type.is_some() {
        return Err(unsupported(format!("the constraint {constraint}")));
    }
    let index = IndexDef::on(plain_columns(&constraint.columns)?).unique().deferral(deferral);
    Ok(if let Some(name) = &constraint.name { index.named(folded(name)) } else { index })
}

/// Parses the options of an identity column.
pub(super) fn sequence_changes(options: &[ast::SequenceOptions]) -> Result<Vec<SequenceChange>> {
    use SequenceChange as C;
    let number = |expr: &ast::Expr| {
        let text = expr.to_string();
        text.parse::<i64>().map_err(|_| {
            SqlError::new(state::INVALID_PARAMETER_VALUE, format!("{text} is not a valid sequence value"))
        })
    };
    let change = |option: &ast::SequenceOptions| {
        Ok(match option {
            ast::SequenceOptions::IncrementBy(by, _) => Some(C::Increment(number(by)?)),
            ast::SequenceOptions::MinValue(least) => Some(C::Least(least.as_ref().map(number).transpose()?)),
            ast::SequenceOptions::MaxValue(greatest) => {
                Some(C::Greatest(greatest.as_ref().map(number).transpose()?))
            }
            ast::SequenceOptions::StartWith(start, _) => Some(C::Start(number(start)?)),
            // CACHE has no effect: numbers are handed out one by one from a block reserved in the log.
            ast::SequenceOptions::Cache(_) => None,
            ast::SequenceOptions::Cycle(no) => Some(C::Cycle(!no)),
        })
    };
    options.iter().filter_map(|option| change(option).transpose()).collect()
}
