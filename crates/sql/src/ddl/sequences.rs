//! CREATE, ALTER and DROP SEQUENCE.
//!
//! The options of a sequence are stored with its number in the tables model and never change. ALTER SEQUENCE
//! creates a new sequence under the same name, so a rollback restores the old one. Drawn numbers are never
//! rolled back.

use std::sync::Arc;

use ropewalk::tables::{
    ColumnDef, DefaultValue, Identity, Schema, SequenceParams, TableDef, TablesError, Type, Value, qualify,
    schema_and_name, shown,
};

use crate::access::sequences::{
    SEQUENCES, Sequence, all, bytes_of_type, find, schema_of, tables_of, type_of_bytes,
};
use crate::ddl::Ddl;
use crate::error::{Result, SqlError, state};
use crate::expr::bug;
use crate::syntax::statements::{AddIdentity, SequenceChange, SequenceStatement};
use crate::types::names::type_name;

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

/// Applies options to a sequence: returns its type, its new options, and the restart value if any.
pub(crate) fn stepped(
    ty: Type,
    before: Option<SequenceParams>,
    changes: &[SequenceChange],
) -> Result<(Type, SequenceParams, Option<i64>)> {
    use SequenceChange as C;
    let old_bounds = Sequence::bounds(ty);
    let mut ty = ty;
    for change in changes {
        if let C::Type(bytes) = change {
            ty = type_of_bytes(*bytes)?;
        }
    }
    let (type_least, type_greatest) = Sequence::bounds(ty);
    let mut steps = before.unwrap_or_default();
    if let Some(increment) =
        changes.iter().find_map(|c| if let C::Increment(by) = c { Some(*by) } else { None })
    {
        steps.increment = increment;
    }
    if steps.increment == 0 {
        return Err(invalid("INCREMENT must not be zero"));
    }
    let rises = steps.increment > 0;
    let own = if rises { (1, type_greatest) } else { (type_least, -1) };
    if before.is_none() {
        (steps.least, steps.greatest) = own;
    } else if steps.greatest == old_bounds.1 || steps.greatest > type_greatest {
        // A bound that equals the type's bound changes with the type.
        steps.greatest = own.1;
    }
    if before.is_some() && steps.least < type_least {
        steps.least = own.0;
    }
    let (mut start, mut restart) = (None, None);
    for change in changes {
        match change {
            C::Least(least) => steps.least = least.unwrap_or(own.0),
            C::Greatest(greatest) => steps.greatest = greatest.unwrap_or(own.1),
            C::Start(at) => start = Some(*at),
            C::Restart(at) => restart = Some(*at),
            C::Cycle(cycles) => steps.cycles = *cycles,
            C::Type(_) | C::Increment(_) | C::OwnedBy(_) | C::Rename(_) => {}
        }
    }
    for (bound, word) in [(steps.least, "MINVALUE"), (steps.greatest, "MAXVALUE")] {
        if bound < type_least || bound > type_greatest {
            return Err(invalid(format!(
                "{word} ({bound}) is out of range for sequence data type {}",
                type_name(ty)
            )));
        }
    }
    if steps.least >= steps.greatest {
        let (least, greatest) = (steps.least, steps.greatest);
        return Err(invalid(format!("MINVALUE ({least}) must be less than MAXVALUE ({greatest})")));
    }
    steps.start = match (start, before) {
        (Some(start), _) => start,
        (None, Some(before)) => before.start,
        (None, None) => {
            if rises {
                steps.least
            } else {
                steps.greatest
            }
        }
    };
    let restart = restart.map(|at| at.unwrap_or(steps.start));
    for (number, word) in [(Some(steps.start), "START"), (restart, "RESTART")] {
        let Some(number) = number else { continue };
        if number < steps.least {
            return Err(invalid(format!(
                "{word} value ({number}) cannot be less than MINVALUE ({})",
                steps.least
            )));
        }
        if number > steps.greatest {
            return Err(invalid(format!(
                "{word} value ({number}) cannot be greater than MAXVALUE ({})",
                steps.greatest
            )));
        }
    }
    Ok((ty, steps, restart))
}

impl Ddl<'_> {
    pub(crate) fn sequence_named(&mut self, name: &str) -> Result<Option<Sequence>> {
        let created = self.created.clone();
        find(&mut self.access(), &created, name)
    }

    /// CREATE SEQUENCE and ALTER SEQUENCE.
    pub(crate) fn sequence(&mut self, statement: &SequenceStatement) -> Result<&'static str> {
        let SequenceStatement { alters, name, exists, changes } = statement;
        let command = if *alters { "ALTER SEQUENCE" } else { "CREATE SEQUENCE" };
        let name = &if *alters { self.meant(name)? } else { self.fresh(name)? };
        let known = self.sequence_named(name)?;
        match (known, alters) {
            (None, true) if *exists => {}
            (None, true) => return Err(Sequence::undefined(name)),
            (Some(sequence), true) => self.alter_sequence(sequence, changes)?,
            (None, false) => {
                self.free_name(name)?;
                self.create_sequence(name, changes)?;
            }
            (Some(_), false) if *exists => {}
            (Some(_), false) => return Err(taken(name)),
        }
        Ok(command)
    }

    fn free_name(&mut self, name: &str) -> Result<()> {
        if self.exists(name)? || crate::access::views::find(&mut self.access(), name)?.is_some() {
            return Err(taken(name));
        }
        Ok(())
    }

    fn create_sequence(&mut self, name: &str, changes: &[SequenceChange]) -> Result<()> {
        let (ty, steps, _) = stepped(Type::INT8, None, changes)?;
        let number = self.db.tables().new_sequence(steps)?;
        let owner = self.owner(changes)?.flatten();
        self.put_sequence(&Sequence { name: name.to_owned(), number, ty, owner, is_identity: false })
    }

    /// Resolves OWNED BY, if given.
    fn owner(&mut self, changes: &[SequenceChange]) -> Result<Option<Option<(u32, u16)>>> {
        let said = changes.iter().rev().find_map(|change| match change {
            SequenceChange::OwnedBy(owner) => Some(owner),
            _ => None,
        });
        let Some(said) = said else { return Ok(None) };
        let Some((table, column)) = said else { return Ok(Some(None)) };
        let table = self.meant(table)?;
        let schema = self.schema(&table)?;
        let place = schema.index_of(column)?;
        let column = schema.columns().get(place).ok_or_else(|| bug("a column"))?;
        Ok(Some(Some((schema.id(), column.id()))))
    }

    fn alter_sequence(&mut self, sequence: Sequence, changes: &[SequenceChange]) -> Result<()> {
        let old = sequence.clone();
        let mut sequence = sequence;
        for change in changes {
            if let SequenceChange::Rename(name) = change {
                if sequence.is_identity {
                    return Err(SqlError::unsupported(
                        "renaming the sequence of an identity column",
                        "its name is derived from the table and the column",
                    ));
                }
                let name = qualify(schema_and_name(&sequence.name).0, name);
                if self.sequence_named(&name)?.is_some() {
                    return Err(taken(&name));
                }
                self.free_name(&name)?;
                sequence.name = name;
            }
        }
        if let Some(owner) = self.owner(changes)? {
            if sequence.is_identity {
                let message = "cannot change ownership of identity sequence";
                return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message).hint("the column owns it"));
            }
            sequence.owner = owner;
        }
        let counts = |change: &SequenceChange| {
            !matches!(change, SequenceChange::OwnedBy(_) | SequenceChange::Rename(_))
        };
        if changes.iter().any(counts) {
            let (before, last, is_called) = self.db.tables().sequence(sequence.number)?;
            let (ty, steps, restart) = stepped(sequence.ty, Some(before), changes)?;
            if sequence.is_identity && ty != sequence.ty {
                return Err(SqlError::unsupported(
                    "changing the type of the sequence of an identity column",
                    "change the type of the column",
                ));
            }
            let (last, is_called) = restart.map_or((last, is_called), |restart| (restart, false));
            let number = self.db.tables().new_sequence(steps)?;
            self.db.tables().set_number(number, last, is_called).map_err(|error| match error {
                TablesError::OutOfBounds { number, least, greatest } => invalid(format!(
                    "RESTART value ({number}) must be from MINVALUE ({least}) to MAXVALUE ({greatest})"
                )),
                other => other.into(),
            })?;
            self.renumber(sequence.number, number)?;
            self.transaction.tables().drop_sequences([sequence.number]);
            (sequence.number, sequence.ty) = (number, ty);
        }
        if sequence.is_identity || sequence == old {
            return Ok(());
        }
        self.delete_sequence(&old.name)?;
        self.put_sequence(&sequence)
    }

    /// Makes all columns that draw from one sequence draw from another.
    fn renumber(&mut self, old: u32, new: u32) -> Result<()> {
        for (schema, _) in self.drawing(old)? {
            self.transaction.tables().replace_sequence(schema.name(), old, new)?;
        }
        Ok(())
    }

    /// The tables with a column that draws from a sequence, each with one such column.
    fn drawing(&mut self, number: u32) -> Result<Vec<(Arc<Schema>, String)>> {
        let created = self.created.clone();
        let mut access = self.access();
        let mut found = Vec::new();
        for table in tables_of(&access, &created)? {
            let Some(schema) = schema_of(&mut access, &table)? else { continue };
            let draws = schema.columns().iter().find(|column| {
                column.sequence() == Some(number) || *column.default_value() == DefaultValue::Next(number)
            });
            if let Some(column) = draws {
                let column = column.name().to_owned();
                found.push((schema, column));
            }
        }
        Ok(found)
    }

    pub(crate) fn drop_sequence(&mut self, name: &str, if_exists: bool, cascade: bool) -> Result<()> {
        let sequence = match self.sequence_named(name)? {
            Some(sequence) => sequence,
            None if if_exists => return Ok(()),
            None => {
                let message = format!("sequence \"{name}\" does not exist");
                return Err(SqlError::new(state::UNDEFINED_TABLE, message));
            }
        };
        let dependent = |table: &str, column: &str| {
            let message =
                format!("cannot drop sequence {name} because column {column} of table {table} depends on it");
            SqlError::new(state::DEPENDENT_OBJECTS_STILL_EXIST, message)
        };
        for (schema, column) in self.drawing(sequence.number)? {
            if sequence.is_identity || !cascade {
                return Err(dependent(schema.name(), &column).hint("drop the column's default first"));
            }
            self.transaction.tables().set_default(schema.name(), &column, DefaultValue::None)?;
        }
        self.delete_sequence(name)?;
        self.transaction.tables().drop_sequences([sequence.number]);
        self.uncomment(Some("sequence"), 0, Some(name))
    }

    /// Removes defaults of other tables that use sequences of these tables; without CASCADE such a default is
    /// an error.
    pub(crate) fn part_from_sequences(&mut self, tables: &[String], cascades: bool) -> Result<()> {
        let (mut going, mut sequences) = (Vec::new(), Vec::new());
        for table in tables {
            if !self.exists(table)? {
                continue;
            }
            let schema = self.schema(table)?;
            going.push(schema.id());
            let named = |column: &ropewalk::tables::Column| {
                let name = format!("{}_{}_seq", shown(schema.name()), column.name());
                column.sequence().map(|number| (number, name))
            };
            sequences.extend(schema.columns().iter().filter_map(named));
        }
        let owned = all(&mut self.access())?.into_iter();
        let owned = owned.filter(|sequence| sequence.owner.is_some_and(|(table, _)| going.contains(&table)));
        sequences.extend(owned.map(|sequence| (sequence.number, shown(&sequence.name))));
        for (number, name) in sequences {
            for (schema, column) in self.drawing(number)? {
                if going.contains(&schema.id()) {
                    continue;
                }
                if !cascades {
                    let table = shown(schema.name());
                    let message = format!(
                        "cannot drop sequence {name} because column {column} of table {table} depends on it"
                    );
                    return Err(SqlError::new(state::DEPENDENT_OBJECTS_STILL_EXIST, message)
                        .hint("use DROP ... CASCADE to drop the dependent objects too"));
                }
                self.transaction.tables().set_default(schema.name(), &column, DefaultValue::None)?;
            }
        }
        Ok(())
    }

    /// Drops the sequences owned by a table, or by one of its columns.
    pub(crate) fn drop_owned(&mut self, table: u32, column: Option<u16>) -> Result<()> {
        let owned = all(&mut self.access())?.into_iter().filter(|sequence| {
            sequence.owner.is_some_and(|(of, by)| of == table && column.is_none_or(|column| column == by))
        });
        for sequence in owned.collect::<Vec<_>>() {
            if let Some((schema, column)) = self.drawing(sequence.number)?.first() {
                let message = format!(
                    "cannot drop sequence {} because column {column} of table {} depends on it",
                    sequence.name,
                    schema.name()
                );
                return Err(SqlError::new(state::DEPENDENT_OBJECTS_STILL_EXIST, message));
            }
            self.delete_sequence(&sequence.name)?;
            self.transaction.tables().drop_sequences([sequence.number]);
            self.uncomment(Some("sequence"), 0, Some(&sequence.name))?;
        }
        Ok(())
    }

    /// TRUNCATE ... RESTART IDENTITY: restarts the sequences that the table owns.
    pub(crate) fn restart_owned(&mut self, table: u32) -> Result<()> {
        let owned = all(&mut self.access())?.into_iter();
        for sequence in owned.filter(|sequence| sequence.owner.is_some_and(|(of, _)| of == table)) {
            self.alter_sequence(sequence, &[SequenceChange::Restart(None)])?;
        }
        Ok(())
    }

    /// Sets the sequence options of an identity column.
    pub(crate) fn count_by(&mut self, table: &str, column: &str, steps: SequenceParams) -> Result<()> {
        let schema = self.schema(table)?;
        let place = schema.index_of(column)?;
        if let Some(old) = schema.columns().get(place).and_then(|column| column.sequence()) {
            let new = self.db.tables().new_sequence(steps)?;
            self.transaction.tables().replace_sequence(table, old, new)?;
            self.transaction.tables().drop_sequences([old]);
        }
        Ok(())
    }

    /// ALTER TABLE ... ALTER COLUMN ... ADD GENERATED.
    pub(crate) fn add_identity(&mut self, statement: &AddIdentity) -> Result<()> {
        let AddIdentity { table, column, always, changes } = statement;
        let schema = self.schema(table)?;
        let place = schema.index_of(column)?;
        let known = schema.columns().get(place).ok_or_else(|| bug("a column"))?;
        if known.identity().is_some() {
            let message =
                format!("column \"{column}\" of relation \"{table}\" is already an identity column");
            return Err(SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let (_, steps, _) = stepped(known.column_type(), None, changes)?;
        let identity = if *always { Identity::Always } else { Identity::ByDefault };
        let number = self.db.tables().new_sequence(steps)?;
        Ok(self.transaction.tables().set_identity(table, column, Some((identity, number)))?)
    }

    /// Renames a sequence.
    pub(crate) fn rename_sequence(&mut self, old: &str, new: &str) -> Result<()> {
        let Some(mut sequence) = self.sequence_named(old)?.filter(|sequence| !sequence.is_identity) else {
            return Ok(());
        };
        self.delete_sequence(old)?;
        sequence.name = new.to_owned();
        self.put_sequence(&sequence)
    }

    fn delete_sequence(&mut self, name: &str) -> Result<()> {
        let mut tables = self.transaction.tables();
        let table = tables.table(SEQUENCES)?;
        tables.delete(&table, &[Value::text(name)])?;
        Ok(())
    }

    fn put_sequence(&mut self, sequence: &Sequence) -> Result<()> {
        let mut tables = self.transaction.tables();
        let table = match tables.table(SEQUENCES) {
            Ok(table) => table,
            Err(TablesError::UnknownTable { .. }) => tables.create_table(
                TableDef::new(SEQUENCES)
                    .column(ColumnDef::new("name", Type::TEXT))
                    .column(ColumnDef::new("number", Type::INT8).not_null())
                    .column(ColumnDef::new("bytes", Type::INT4).not_null())
                    .column(ColumnDef::new("owner_table", Type::INT8))
                    .column(ColumnDef::new("owner_column", Type::INT4))
                    .primary_key(["name"]),
            )?,
            Err(error) => return Err(error.into()),
        };
        let (of, by) = match sequence.owner {
            Some((of, by)) => (Value::Int8(of.into()), Value::Int4(by.into())),
            None => (Value::Null, Value::Null),
        };
        tables.insert(
            &table,
            &[
                ("name", Value::text(sequence.name.as_str())),
                ("number", Value::Int8(sequence.number.into())),
                ("bytes", Value::Int4(bytes_of_type(sequence.ty))),
                ("owner_table", of),
                ("owner_column", by),
            ],
        )?;
        Ok(())
    }
}

fn taken(name: &str) -> SqlError {
    SqlError::new(state::DUPLICATE_TABLE, format!("relation \"{}\" already exists", schema_and_name(name).1))
}
