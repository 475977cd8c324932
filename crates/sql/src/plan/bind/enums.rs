//! Enum types in expressions: resolution of type names, conversion of strings to values.
//!
//! A value contains its label, so only parsing needs the type. A literal is parsed when it is bound, a
//! parameter when it is passed, any other string when the expression is evaluated; the expression holds the
//! type.

use std::sync::Arc;

use ropewalk::tables::{EnumType, Scalar, Type, Value};
use sqlparser::ast;

use crate::access::enums::{data_type, undefined};
use crate::access::schemas;
use crate::error::{Result, SqlError, state};
use crate::expr::cast::Strength;
use crate::expr::enum_call::{Asks, EnumCall, labelled};
use crate::expr::{Expr, bug};
use crate::plan::Planner;
use crate::plan::bind::{Binder, Typed};
use crate::syntax::names::{custom_name, ident, table_name};
use crate::types::names::{self, Modifiers};
use crate::types::text_format::from_text_in;

fn is_text(ty: Type) -> bool {
    matches!(ty, Type::TEXT | Type::Array(Scalar::Text))
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
        if self.enums.is_empty() || names::with_modifiers(wanted).is_ok() {
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
        let Some(number) = ty.enum_number() else { return Ok(None) };
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
                format!("{}[]", ident(labels.unqualified_name()))
            }
            (Some(labels), _) => ident(labels.unqualified_name()),
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
            "now" | "now()" => None,
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
        if ty.enum_number().is_none() || !is_text(found) {
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
