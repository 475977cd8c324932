//! Enum types: CREATE, ALTER and DROP TYPE, resolution of type names, conversion of strings to values.
//!
//! A value contains its label, so only parsing needs the type. A literal is parsed when it is bound, a
//! parameter when it is passed, any other string when the expression is evaluated; the expression holds the
//! type.

use std::sync::Arc;

use ropewalk::tables::{
    EnumChange, EnumPlace, EnumType, Scalar, TablesRead, Type, Value, name_in, schema_and_name,
};
use sqlparser::ast;

use crate::bind::{Binder, Typed};
use crate::ddl::{Ddl, schemas};
use crate::error::{Result, SqlError, state};
use crate::exec::row_source::Access;
use crate::expr::cast::Strength;
use crate::expr::enum_call::{Asks, EnumCall, labelled};
use crate::expr::{Expr, bug};
use crate::plan::Planner;
use crate::syntax::names::{custom_name, folded, ident, own, table_name};
use crate::types::names::{self, Modifiers};
use crate::types::settings::Settings;
use crate::types::text_format::from_text_in;

/// Maximum number of bytes of a label.
const LABEL_BYTES_MAX: usize = 63;

/// The number of an enum type, or of the element type of an array.
fn number_of(ty: Type) -> Option<u32> {
    match ty {
        Type::Scalar(Scalar::Enum(number)) | Type::Array(Scalar::Enum(number)) => Some(number),
        _ => None,
    }
}

fn is_text(ty: Type) -> bool {
    matches!(ty, Type::TEXT | Type::Array(Scalar::Text))
}

fn undefined(name: &str) -> SqlError {
    SqlError::new(state::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"))
}

/// The enum types that a statement uses.
#[derive(Debug, Clone, Default)]
pub(crate) struct Enums(Vec<Known>);

#[derive(Debug, Clone)]
struct Known {
    labels: Arc<EnumType>,
    /// It belongs to a table of the statement, whose definition changes with the type.
    is_of_table: bool,
}

impl Enums {
    /// The enum type of `ty`, or of its elements.
    pub(crate) fn of(&self, ty: Type) -> Option<&Arc<EnumType>> {
        let number = number_of(ty)?;
        self.0.iter().find(|known| known.labels.number() == number).map(|known| &known.labels)
    }

    fn named(&self, name: &str) -> Option<&Arc<EnumType>> {
        self.0.iter().find(|known| known.labels.name() == name).map(|known| &known.labels)
    }

    pub(crate) fn add(&mut self, labels: &Arc<EnumType>, is_of_table: bool) {
        match self.0.iter_mut().find(|known| known.labels.number() == labels.number()) {
            Some(known) => known.is_of_table |= is_of_table,
            None => self.0.push(Known { labels: labels.clone(), is_of_table }),
        }
    }

    /// True if no type has changed. Those of tables are covered by the definitions of the tables.
    pub(crate) fn are_current(&self, access: &mut Access<'_>) -> Result<bool> {
        for known in self.0.iter().filter(|known| !known.is_of_table) {
            if access.enum_named(known.labels.name())?.as_ref() != Some(&*known.labels) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Resolves `data_type`, including enum types, and its modifiers.
pub(crate) fn data_type(
    access: &mut Access<'_>,
    settings: &Settings,
    data_type: &ast::DataType,
) -> Result<(Type, Modifiers, Option<EnumType>)> {
    let error = match names::with_modifiers(data_type) {
        Ok((ty, modifiers)) => return Ok((ty, modifiers, None)),
        Err(error) if error.state == state::UNDEFINED_OBJECT => error,
        Err(error) => return Err(error),
    };
    let Some((name, is_array)) = custom_name(data_type) else { return Err(error) };
    let name = table_name(name).map_err(|_| error.clone())?;
    let name = schemas::of_type(access, settings, &name).map_err(|other| match other.state {
        state::INVALID_SCHEMA_NAME => other,
        _ => error.clone(),
    })?;
    let labels = access.enum_named(&name)?.ok_or(error)?;
    let ty = if is_array { labels.column_type().array() } else { labels.column_type() };
    Ok((ty, Modifiers::default(), Some(labels)))
}

impl Planner<'_> {
    /// Resolves the target type of a cast and its modifiers.
    pub(crate) fn cut(&mut self, wanted: &ast::DataType) -> Result<(Type, Modifiers)> {
        let (ty, modifiers, labels) = match self.table_enum(wanted) {
            Some(ty) => (ty, Modifiers::default(), None),
            None => data_type(&mut self.access, &self.standing.settings, wanted)?,
        };
        if let Some(labels) = labels {
            self.enums.add(&Arc::new(labels), false);
        }
        if modifiers.serial { Err(undefined(&wanted.to_string())) } else { Ok((ty, modifiers)) }
    }

    /// The enum type of a table of the statement, which needs no lookup.
    fn table_enum(&mut self, wanted: &ast::DataType) -> Option<Type> {
        if self.enums.0.is_empty() || names::with_modifiers(wanted).is_ok() {
            return None;
        }
        let (name, is_array) = custom_name(wanted)?;
        let reference = table_name(name).ok()?;
        let kept = schemas::of_type(&mut self.access, &self.standing.settings, &reference).ok()?;
        let ty = self.enums.named(&kept)?.column_type();
        Some(if is_array { ty.array() } else { ty })
    }

    /// The enum type of `ty`, or of its elements, if it is one.
    pub(crate) fn enum_of(&mut self, ty: Type) -> Result<Option<Arc<EnumType>>> {
        let Some(number) = number_of(ty) else { return Ok(None) };
        if let Some(known) = self.enums.of(ty) {
            return Ok(Some(known.clone()));
        }
        let labels = self.access.enum_numbered(number)?;
        let labels = Arc::new(labels.ok_or_else(|| undefined(&format!("number {number}")))?);
        self.enums.add(&labels, false);
        Ok(Some(labels))
    }

    /// The name of a type for messages.
    pub(crate) fn shown(&mut self, ty: Option<Type>) -> String {
        let labels = ty.and_then(|ty| self.enum_of(ty).ok().flatten());
        match (labels, ty) {
            (Some(labels), Some(Type::Array(_))) => {
                format!("{}[]", crate::syntax::names::ident(labels.own_name()))
            }
            (Some(labels), _) => crate::syntax::names::ident(labels.own_name()),
            (None, ty) => names::shown(ty),
        }
    }
}

impl Binder<'_, '_> {
    /// Binds a quoted literal as a value of type `ty`.
    pub(crate) fn constant(&mut self, text: &str, ty: Type) -> Result<Expr> {
        if let Some(moment) = self.moment_word(text, ty) {
            return Ok(moment);
        }
        let labels = self.planner.enum_of(ty)?;
        Ok(Expr::Const(labelled(from_text_in(text, ty, self.zone())?, labels.as_deref())?))
    }

    /// Binds `now`, `today`, `tomorrow` and `yesterday`, whose value depends on the time of evaluation.
    fn moment_word(&self, text: &str, ty: Type) -> Option<Expr> {
        let word = text.trim().to_ascii_lowercase();
        let days = match word.as_str() {
            "now" => None,
            "today" => Some(0),
            "tomorrow" => Some(1),
            "yesterday" => Some(-1),
            _ => return None,
        };
        if !matches!(ty, Type::DATE | Type::TIMESTAMP | Type::TIMESTAMPTZ)
            && (ty != Type::TIME || days.is_some())
        {
            return None;
        }
        let cast = |expr, ty| Expr::Cast(Box::new(expr), ty);
        let now = Expr::Call(crate::expr::function::Function::Now, Vec::new());
        let Some(days) = days else {
            return Some(if ty == Type::TIMESTAMPTZ { now } else { cast(now, ty) });
        };
        let day = Expr::Arith(
            crate::expr::arith::Arith::Add,
            Type::DATE,
            Box::new(cast(now, Type::DATE)),
            Box::new(Expr::Const(Value::Int4(days))),
        );
        Some(if ty == Type::DATE { day } else { cast(day, ty) })
    }

    /// Converts a text expression to an enum type; `None` for other types.
    pub(crate) fn read_labels(&mut self, expr: &Expr, found: Type, ty: Type) -> Result<Option<Expr>> {
        if number_of(ty).is_none() || !is_text(found) {
            return Ok(None);
        }
        let Some(labels) = self.planner.enum_of(ty)? else { return Ok(None) };
        let call = EnumCall { labels, asks: Asks::Read(ty) };
        Ok(Some(match expr {
            Expr::Const(value) => Expr::Const(call.call(&[value.borrowed()], self.zone())?),
            expr => Expr::Enum(Box::new(call), vec![expr.clone()]),
        }))
    }

    /// `enum_first`, `enum_last`, `enum_range`.
    pub(crate) fn enum_call(&mut self, name: &str, arguments: &[Typed]) -> Result<Option<Typed>> {
        let is_range = match (name, arguments.len()) {
            ("enum_first" | "enum_last", 1) => false,
            ("enum_range", 1 | 2) => true,
            _ => return Ok(None),
        };
        let ty = arguments.iter().find_map(|argument| argument.ty);
        let Some(ty @ Type::Scalar(Scalar::Enum(_))) = ty else {
            let message = format!("function {name}({}) does not exist", self.planner.shown(ty));
            return Err(SqlError::new(state::UNDEFINED_FUNCTION, message)
                .hint("the argument is of an enum type: enum_range(NULL::mood)"));
        };
        let labels = self.planner.enum_of(ty)?.ok_or_else(|| bug("an enum type"))?;
        let call = EnumCall { labels: labels.clone(), asks: Asks::Range };
        Ok(Some(match arguments {
            [_] if is_range => {
                Typed::new(Expr::Const(call.range(&Value::Null, &Value::Null)?), call.result())
            }
            [_] => {
                let mut values = labels.values();
                let value = if name == "enum_first" { values.next() } else { values.next_back() };
                Typed::new(Expr::Const(value.map_or(Value::Null, Value::into_owned)), ty)
            }
            arguments => {
                let mut settled = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    settled.push(self.settle(argument.clone(), ty, Strength::Implicit)?);
                }
                let result = call.result();
                Typed::new(Expr::Enum(Box::new(call), settled), result)
            }
        }))
    }
}

/// A label, which must be a quoted literal.
fn label(ident: &ast::Ident) -> Result<&str> {
    if ident.quote_style != Some('\'') {
        let message = format!("syntax error at or near \"{}\"", ident.value);
        return Err(SqlError::new(state::SYNTAX_ERROR, message).hint("labels are literals: 'label'"));
    }
    if ident.value.len() > LABEL_BYTES_MAX {
        let message = format!("invalid enum label \"{}\"", ident.value);
        return Err(SqlError::new(state::INVALID_NAME, message)
            .hint(format!("labels have at most {LABEL_BYTES_MAX} bytes")));
    }
    Ok(&ident.value)
}

impl Ddl<'_> {
    /// Resolves `wanted`, including enum types, and its modifiers.
    pub(crate) fn data_type(&mut self, wanted: &ast::DataType) -> Result<(Type, Modifiers)> {
        let settings = self.settings.clone();
        data_type(&mut self.access(), &settings, wanted).map(|(ty, modifiers, _)| (ty, modifiers))
    }

    /// The stored name of the type that a reference denotes.
    pub(crate) fn type_meant(&mut self, reference: &str) -> Result<String> {
        let settings = self.settings.clone();
        schemas::of_type(&mut self.access(), &settings, reference)
    }

    pub(crate) fn create_type(
        &mut self,
        name: &ast::ObjectName,
        representation: Option<&ast::UserDefinedTypeRepresentation>,
    ) -> Result<()> {
        let Some(ast::UserDefinedTypeRepresentation::Enum { labels }) = representation else {
            return Err(SqlError::unsupported(
                format!("CREATE TYPE {name} of this kind"),
                "CREATE TYPE name AS ENUM ('label', ...)",
            ));
        };
        let name = self.fresh(&table_name(name)?)?;
        let labels = labels.iter().map(label).collect::<Result<Vec<_>>>()?;
        if self.exists(&name)? || names::named(&name).is_some() {
            let message = format!("type \"{}\" already exists", own(&name));
            return Err(SqlError::new(state::DUPLICATE_OBJECT, message));
        }
        self.transaction.tables().create_enum(&name, &labels)?;
        Ok(())
    }

    pub(crate) fn alter_type(&mut self, alter: &ast::AlterType) -> Result<()> {
        let name = self.type_meant(&table_name(&alter.name)?)?;
        let change = match &alter.operation {
            ast::AlterTypeOperation::Rename(renamed) => {
                EnumChange::Rename(name_in(schema_and_name(&name).0, &folded(&renamed.new_name)))
            }
            ast::AlterTypeOperation::RenameValue(renamed) => {
                EnumChange::RenameLabel(label(&renamed.from)?.to_owned(), label(&renamed.to)?.to_owned())
            }
            ast::AlterTypeOperation::AddValue(added) => {
                let value = label(&added.value)?;
                let known = self.transaction.tables().enum_named(&name)?;
                let has = known.is_some_and(|known| known.value_of(value).is_some());
                if added.if_not_exists && has {
                    let message = format!("enum label \"{value}\" already exists, skipping");
                    self.notice = Some(SqlError::new(state::DUPLICATE_OBJECT, message));
                    return Ok(());
                }
                let place = match &added.position {
                    None => EnumPlace::Last,
                    Some(ast::AlterTypeAddValuePosition::Before(other)) => {
                        EnumPlace::Before(label(other)?.to_owned())
                    }
                    Some(ast::AlterTypeAddValuePosition::After(other)) => {
                        EnumPlace::After(label(other)?.to_owned())
                    }
                };
                EnumChange::Add(value.to_owned(), place)
            }
        };
        self.transaction.tables().alter_enum(&name, &change)?;
        Ok(())
    }

    /// DROP TYPE; CASCADE also drops columns of the type.
    pub(crate) fn drop_type(&mut self, name: &ast::ObjectName, if_exists: bool, cascade: bool) -> Result<()> {
        let name = match self.type_meant(&table_name(name)?) {
            Err(error) if if_exists && error.state == state::INVALID_SCHEMA_NAME => return Ok(()),
            found => found?,
        };
        if self.transaction.tables().enum_named(&name)?.is_some() {
            let views = if cascade { self.meaningful_views()? } else { Vec::new() };
            self.drop_kept_type(&name, cascade)?;
            return self.drop_meaningless(&views);
        }
        if !if_exists {
            return Err(undefined(&name));
        }
        let message = format!("type \"{name}\" does not exist, skipping");
        self.notice = Some(SqlError::new(state::SUCCESSFUL_COMPLETION, message));
        Ok(())
    }

    /// Drops the type with this stored name.
    pub(crate) fn drop_kept_type(&mut self, name: &str, cascade: bool) -> Result<()> {
        let known = self.transaction.tables().enum_named(name)?.ok_or_else(|| undefined(name))?;
        for table in if cascade { self.tables()? } else { Vec::new() } {
            let schema = self.schema(&table)?;
            let is_of = |column: &&ropewalk::tables::Column| {
                column.enum_type().is_some_and(|labels| labels.number() == known.number())
            };
            for column in schema.columns().iter().filter(is_of) {
                self.drop_column(&table, column.name())?;
            }
        }
        self.transaction.tables().drop_enum(name).map_err(crate::ddl::dependent)?;
        self.uncomment(Some("type"), i64::from(known.number()), None)
    }

    /// ALTER TYPE ... OWNER TO, as dumps contain it. Ignored: all objects have one owner.
    pub(crate) fn type_owned(&mut self, reference: &str) -> Result<()> {
        let name = &self.type_meant(reference)?;
        self.transaction.tables().enum_named(name)?.ok_or_else(|| undefined(name))?;
        self.notice = Some(SqlError::new(
            state::SUCCESSFUL_COMPLETION,
            "OWNER TO ignored: all objects have the same owner",
        ));
        Ok(())
    }
}
