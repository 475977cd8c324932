//! ALTER TABLE.

use ropewalk::tables::{
    DefaultValue, Expr as TableExpr, Function as TableFunction, Precision, Scalar, Schema, TablesError, Type,
    Value, qualify, schema_and_name, shown,
};
use sqlparser::ast;

use super::Ddl;
use super::column::{fresh, key_at_once, plain_columns, sequence_changes, unique_index};
use super::dependent;
use super::unsupported;
use crate::access::row_source::Access;
use crate::catalog::collations;
use crate::error::{Result, SqlError, state};
use crate::expr::Expr;
use crate::expr::cast::cast_in;
use crate::plan::bind::scope::Scope;
use crate::syntax::names::{folded, in_full, own, table_name};
use crate::syntax::statements::AddIdentity;
use crate::syntax::type_collation;
use crate::types::names::type_name;

fn used_by_view(_: &str) -> SqlError {
    let message = "cannot alter type of a column used by a view or rule";
    SqlError::new(state::FEATURE_NOT_SUPPORTED, message).hint("drop the view first")
}

impl Ddl<'_> {
    pub(super) fn alter_table(&mut self, alter: &ast::AlterTable) -> Result<()> {
        let ast::AlterTable {
            name,
            if_exists,
            only: _,
            operations,
            location: None,
            on_cluster: None,
            table_type: None,
            end_token: _,
        } = alter
        else {
            return Err(unsupported(alter));
        };
        let reference = table_name(name)?;
        let mut table = match self.meant(&reference) {
            Err(error) if *if_exists && error.state == state::INVALID_SCHEMA_NAME => return Ok(()),
            found => found?,
        };
        if let [ast::AlterTableOperation::OwnerTo { .. }] = operations.as_slice() {
            return self.owned(&table, *if_exists);
        }
        if *if_exists && !self.exists(&table)? {
            return Ok(());
        }
        for operation in operations {
            if let Some(renamed) = self.alter(&table, operation)? {
                table = renamed;
            }
        }
        Ok(())
    }

    /// OWNER TO of a table, view or sequence, as dumps contain it. Ignored: all objects have one owner.
    fn owned(&mut self, name: &str, if_exists: bool) -> Result<()> {
        let mut access = Access::Transaction(self.db, self.transaction);
        let is_there = access.table(name).is_ok()
            || crate::access::views::find(&mut access, name)?.is_some()
            || crate::access::sequences::find(&mut access, self.created, name)?.is_some();
        if !is_there && !if_exists {
            let message = format!("relation \"{name}\" does not exist");
            return Err(SqlError::new(state::UNDEFINED_TABLE, message));
        }
        self.note("OWNER TO ignored: all objects have the same owner");
        Ok(())
    }

    /// Applies one change of a table; returns its new name after a rename.
    fn alter(&mut self, table: &str, operation: &ast::AlterTableOperation) -> Result<Option<String>> {
        use ast::AlterTableOperation as O;
        match operation {
            O::AddColumn { column_keyword: _, if_not_exists, column_def, column_position: None } => {
                let schema = self.schema(table)?;
                if *if_not_exists && schema.index_of(&folded(&column_def.name)).is_ok() {
                    return Ok(None);
                }
                self.add_column(table, &schema, column_def)?;
            }
            O::DropColumn { has_column_keyword: _, column_names, if_exists, drop_behavior } => {
                let cascades = *drop_behavior == Some(ast::DropBehavior::Cascade);
                for name in column_names {
                    let name = folded(name);
                    if *if_exists && self.schema(table)?.index_of(&name).is_err() {
                        continue;
                    }
                    let refused = |_: &str| {
                        let message = format!(
                            "cannot drop column {name} of table {} because other objects depend on it",
                            shown(table)
                        );
                        SqlError::new(state::DEPENDENT_OBJECTS_STILL_EXIST, message)
                            .hint("use DROP ... CASCADE to drop the dependent objects too")
                    };
                    self.part_from_column(table, cascades, &refused, &mut |ddl| {
                        ddl.drop_column(table, &name, cascades)
                    })?;
                }
            }
            O::RenameColumn { old_column_name, new_column_name } => {
                let (old, new) = (folded(old_column_name), folded(new_column_name));
                self.part_from_column(
                    table,
                    false,
                    &|view| {
                        SqlError::unsupported(
                            format!("renaming column \"{old}\", which the view \"{view}\" names,"),
                            "drop the view, rename the column, and create the view again",
                        )
                    },
                    &mut |ddl| ddl.rename_column(table, &old, &new),
                )?;
            }
            O::RenameTable { table_name: ast::RenameTableNameKind::To(name) } => {
                let new = qualify(schema_and_name(table).0, &table_name(name)?);
                self.transaction.tables().rename_table(table, &new)?;
                self.created.push(new.clone());
                return Ok(Some(new));
            }
            O::AlterColumn { column_name, op } => {
                let column = folded(column_name);
                let mut tables = self.transaction.tables();
                match op {
                    ast::AlterColumnOperation::SetNotNull => tables.set_nullable(table, &column, false)?,
                    ast::AlterColumnOperation::DropNotNull => tables.set_nullable(table, &column, true)?,
                    ast::AlterColumnOperation::DropDefault => {
                        tables.set_default(table, &column, DefaultValue::None)?
                    }
                    ast::AlterColumnOperation::SetDefault { value } => {
                        let schema = self.schema(table)?;
                        let place = schema.index_of(&column)?;
                        let ty =
                            schema.columns().get(place).map_or(Type::TEXT, |column| column.column_type());
                        let default = self.default(value, ty)?;
                        self.transaction.tables().set_default(table, &column, default)?;
                    }
                    ast::AlterColumnOperation::AddGenerated { generated_as, sequence_options } => {
                        let always = *generated_as == Some(ast::GeneratedAs::Always);
                        let changes = sequence_changes(sequence_options.as_deref().unwrap_or_default())?;
                        let table = table.to_owned();
                        self.add_identity(&AddIdentity { table, column, always, changes })?;
                    }
                    ast::AlterColumnOperation::SetDataType { data_type, using, had_set: _ } => {
                        self.kept_from_views(table, &column)?;
                        self.part_from_column(table, false, &used_by_view, &mut |ddl| {
                            ddl.set_type(table, &column, data_type, using.as_ref())
                        })?;
                    }
                }
            }
            O::AddConstraint { constraint, not_valid: false } => self.add_constraint(table, constraint)?,
            O::DropConstraint { if_exists, name, drop_behavior } => {
                let cascades = *drop_behavior == Some(ast::DropBehavior::Cascade);
                self.drop_constraint(table, &folded(name), *if_exists, cascades)?;
            }
            O::RenameConstraint { old_name, new_name } => {
                let (old, new) = (folded(old_name), folded(new_name));
                let id = i64::from(self.schema(table)?.id());
                self.transaction.tables().rename_constraint(table, &old, &new)?;
                self.recomment("constraint", id, &old, &new)?;
            }
            other => return Err(unsupported(format!("ALTER TABLE {other}"))),
        }
        Ok(None)
    }

    /// Rejects a type change of a column that a view uses: renames the column for a trial and checks that no
    /// view breaks.
    fn kept_from_views(&mut self, table: &str, column: &str) -> Result<()> {
        if self.views_over(&[table.to_owned()])?.is_empty() || self.schema(table)?.index_of(column).is_err() {
            return Ok(());
        }
        let other = "*no column is called so";
        self.part_from_column(table, false, &used_by_view, &mut |ddl| {
            Ok(ddl.transaction.tables().rename_column(table, column, other)?)
        })?;
        Ok(self.transaction.tables().rename_column(table, other, column)?)
    }

    /// Renames a column, and the check of its length, which is named after it.
    fn rename_column(&mut self, table: &str, old: &str, new: &str) -> Result<()> {
        let schema = self.schema(table)?;
        let place = schema.index_of(old)?;
        let bounds = |check: &&ropewalk::tables::Check| {
            crate::catalog::length_bound(&schema, check).is_some_and(|(at, _)| at == place)
        };
        let length = schema.checks().iter().find(bounds).map(|check| check.name().to_owned());
        let mut tables = self.transaction.tables();
        tables.rename_column(table, old, new)?;
        if let Some(length) = length {
            tables.rename_constraint(table, &length, &format!("{new}_length"))?;
        }
        Ok(())
    }

    fn drop_constraint(&mut self, table: &str, name: &str, if_exists: bool, cascades: bool) -> Result<()> {
        let schema = self.schema(table)?;
        let is_index = super::index::constrains(&schema, name);
        let is_key = is_index && name == schema.key_name();
        if is_index {
            let place = |place: &usize| schema.columns().get(*place).map(|column| column.id());
            let index = schema.indexes().iter().find(|index| index.name() == name);
            let columns: Option<Vec<u16>> = match index.filter(|_| !is_key) {
                Some(index) => index.plain_columns(),
                None => schema.key_columns().iter().map(place).collect(),
            };
            let serves =
                |key: &ropewalk::tables::ForeignKey| Some(key.parent_columns()) == columns.as_deref();
            self.part_from_references(&schema, &serves, cascades, &|| {
                format!(
                    "cannot drop constraint {name} on table {} because other objects depend on it",
                    shown(table)
                )
            })?;
        }
        self.uncomment(Some("constraint"), i64::from(schema.id()), Some(name))?;
        let mut tables = self.transaction.tables();
        let dropped = match (is_key, is_index) {
            (true, _) => tables.drop_primary_key(table),
            (false, true) => tables.drop_index(table, name),
            (false, false) => tables.drop_constraint(table, name),
        };
        match dropped {
            Err(TablesError::UnknownConstraint { .. }) if if_exists => Ok(()),
            other => other.map_err(dependent),
        }
    }

    /// ALTER COLUMN ... TYPE ... USING: rewrites every row, unless only the length of a text changes.
    fn set_type(
        &mut self,
        table: &str,
        column: &str,
        data_type: &ast::DataType,
        using: Option<&ast::Expr>,
    ) -> Result<()> {
        let schema = self.schema(table)?;
        let place = schema.index_of(column)?;
        let (ty, modifiers) = self.data_type(data_type)?;
        let (using, collation) = match using.and_then(type_collation::of) {
            Some((value, name)) => {
                let name = ast::ObjectName::from(vec![ast::Ident::with_quote('"', name)]);
                (Some(value), Some(collations::of_column(&name, ty)?))
            }
            None => (using, None),
        };
        if modifiers.serial {
            return Err(unsupported(format!("ALTER COLUMN TYPE {data_type}")));
        }
        let mut scope = Scope::default();
        scope.add_table(in_full(table), &schema)?;
        let own = ast::Expr::Identifier(ast::Ident::with_quote('"', column));
        let bound = self.bound(using.unwrap_or(&own), &scope, "USING", Some(ty));
        let (expr, _) = bound.map_err(|error| match error.state {
            state::DATATYPE_MISMATCH if using.is_none() => {
                let shown = match ty {
                    Type::Scalar(Scalar::Enum(_)) | Type::Array(Scalar::Enum(_)) => data_type.to_string(),
                    ty => type_name(ty),
                };
                let message = format!("column \"{column}\" cannot be cast automatically to type {shown}");
                SqlError::new(state::DATATYPE_MISMATCH, message)
                    .hint(format!("you might need to specify USING {column}::{shown}"))
            }
            _ => error,
        })?;
        // The default cast to the new type; a computed default is unchanged.
        let known = schema.columns().get(place).ok_or_else(|| crate::expr::bug("a column"))?;
        let default = match known.default_value() {
            DefaultValue::Value(value) => {
                Some(DefaultValue::Value(cast_in(value.borrowed(), ty, self.cx.zone)?.into_owned()))
            }
            _ => None,
        };
        let bounds = schema.checks().iter().filter_map(|check| {
            let (at, _) = crate::catalog::length_bound(&schema, check)?;
            (at == place).then(|| check.name().to_owned())
        });
        for name in bounds {
            self.transaction.tables().drop_constraint(table, &name)?;
        }
        let is_same = known.column_type() == ty && using.is_none();
        if !is_same || modifiers.precision.is_some() || known.precision().is_some() {
            if default.is_some() {
                self.transaction.tables().set_default(table, column, DefaultValue::None)?;
            }
            self.rewrite_column(table, column, ty, &expr, modifiers.precision)?;
        }
        let declared = schema.columns().get(place).and_then(|column| column.collation());
        let collation = collation.filter(|name| *name != collations::DEFAULT);
        if declared != collation {
            self.transaction.tables().set_collation(table, column, collation)?;
        }
        if modifiers.precision.is_some() {
            self.transaction.tables().set_precision(table, column, modifiers.precision)?;
        }
        if let Some(default) = default {
            self.transaction.tables().set_default(table, column, default)?;
        }
        if let Some(most) = modifiers.characters_max {
            let length = TableExpr::column(column).call(TableFunction::Length);
            let most = i64::try_from(most).map_err(|_| unsupported(data_type))?;
            self.transaction.tables().add_check(table, &format!("{column}_length"), length.le(most))?;
        }
        Ok(())
    }

    /// Gives every row the value of `expr` in a column, which has this type then.
    fn rewrite_column(
        &mut self,
        table: &str,
        column: &str,
        ty: Type,
        expr: &Expr,
        precision: Option<Precision>,
    ) -> Result<()> {
        let cx = self.cx;
        let mut failed = None;
        let changed = self.transaction.tables().set_type(table, column, ty, &mut |row| {
            let row: Vec<Value<'static>> = row.iter().map(|value| value.borrowed().into_owned()).collect();
            match expr.eval(&cx, &row).map(Value::into_owned) {
                Ok(value) => Some(precision.map_or(value.clone(), |kept| kept.keep(value))),
                Err(error) => {
                    failed = Some(error);
                    None
                }
            }
        });
        match (changed, failed) {
            (_, Some(error)) => Err(error),
            (changed, None) => Ok(changed?),
        }
    }

    fn add_column(&mut self, table: &str, schema: &Schema, def: &ast::ColumnDef) -> Result<()> {
        let name = folded(&def.name);
        let mut columns: Vec<(String, Type)> =
            schema.columns().iter().map(|column| (column.name().to_owned(), column.column_type())).collect();
        columns.push((name.clone(), self.data_type(&def.data_type)?.0));
        let mut scope = Scope::default();
        scope.add(in_full(table), columns)?;
        let defined = self.column(def, &scope)?;
        self.transaction.tables().add_column(table, defined.column)?;
        if let Some(steps) = defined.steps {
            self.count_by(table, &name, steps)?;
        }
        if defined.is_key {
            let key_name = defined.key_name.as_deref();
            self.transaction.tables().add_primary_key(table, key_name, std::slice::from_ref(&name))?;
        }
        for index in defined.unique {
            self.transaction.tables().create_index(table, index)?;
        }
        for (given, expr) in defined.checks {
            let taken: Vec<String> = schema.checks().iter().map(|check| check.name().to_owned()).collect();
            let label = given.unwrap_or_else(|| fresh(format!("{}_{name}_check", own(table)), &taken));
            self.transaction.tables().add_check(table, &label, expr)?;
        }
        for foreign in &defined.foreign {
            let foreign_key = self.foreign_key(foreign, table, &[])?;
            self.transaction.tables().add_foreign_key(table, foreign_key)?;
        }
        Ok(())
    }

    fn add_constraint(&mut self, table: &str, constraint: &ast::TableConstraint) -> Result<()> {
        let schema = self.schema(table)?;
        match constraint {
            ast::TableConstraint::Unique(unique) => {
                self.transaction.tables().create_index(table, unique_index(unique)?)?;
            }
            ast::TableConstraint::Check(check) => {
                let mut scope = Scope::default();
                scope.add_table(in_full(table), &schema)?;
                let expr = self.check(&check.expr, &scope)?;
                let taken: Vec<String> =
                    schema.checks().iter().map(|check| check.name().to_owned()).collect();
                let given = check.name.as_ref().map(folded);
                let label = given.unwrap_or_else(|| fresh(format!("{}_check", own(table)), &taken));
                self.transaction.tables().add_check(table, &label, expr)?;
            }
            ast::TableConstraint::ForeignKey(foreign) => {
                let key = |place: &usize| schema.columns().get(*place).map(|column| column.name().to_owned());
                let own: Vec<String> = schema.key_columns().iter().filter_map(key).collect();
                let foreign_key = self.foreign_key(foreign, table, &own)?;
                self.transaction.tables().add_foreign_key(table, foreign_key)?;
            }
            ast::TableConstraint::PrimaryKey(primary) => {
                key_at_once(primary.characteristics.as_ref())?;
                if !schema.key_columns().is_empty() {
                    let message =
                        format!("multiple primary keys for table \"{}\" are not allowed", own(table));
                    return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
                }
                let name = primary.name.as_ref().map(folded);
                let columns = plain_columns(&primary.columns)?;
                self.transaction.tables().add_primary_key(table, name.as_deref(), &columns)?;
            }
            other => return Err(unsupported(format!("the constraint {other}"))),
        }
        Ok(())
    }
}
