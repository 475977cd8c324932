//! Functions that are called with keywords: `extract(year FROM x)`, `substring(x FROM 2)`, `trim(BOTH FROM x)`.
//!
//! These functions are not inlined, so that the recursive `Binder::bind` needs no stack for their variables.

use ropewalk::tables::{Type, Value};
use sqlparser::ast;

use crate::error::Result;
use crate::expr::Expr;
use crate::plan::bind::{Binder, Typed, number, unsupported};

impl Binder<'_, '_> {
    /// Calls a function of these expressions.
    #[inline(never)]
    pub(crate) fn bind_call(&mut self, name: &str, parts: &[&ast::Expr]) -> Result<Typed> {
        let arguments: Result<Vec<_>> = parts.iter().map(|part| self.bind(part)).collect();
        self.call(name, arguments?)
    }

    #[inline(never)]
    pub(crate) fn bind_extract(&mut self, field: &ast::DateTimeField, inner: &ast::Expr) -> Result<Typed> {
        let value = self.bind(inner)?;
        let field = Typed::new(Expr::Const(Value::text(field.to_string().to_lowercase())), Type::TEXT);
        self.call("extract", vec![field, value])
    }

    #[inline(never)]
    pub(crate) fn bind_position(&mut self, part: &ast::Expr, whole: &ast::Expr) -> Result<Typed> {
        let (part, whole) = (self.bind(part)?, self.bind(whole)?);
        self.call("strpos", vec![whole, part])
    }

    /// `substring(x FROM place FOR length)`, or FROM a pattern. `substr(x, place, length)` is the short form.
    #[inline(never)]
    pub(crate) fn bind_substring(
        &mut self,
        inner: &ast::Expr,
        from: Option<&ast::Expr>,
        length: Option<&ast::Expr>,
        is_short_form: bool,
    ) -> Result<Typed> {
        let mut arguments = vec![self.bind(inner)?];
        arguments.push(match from {
            Some(from) => self.bind(from)?,
            None => number("1")?,
        });
        // A substring from a pattern, not from a position.
        let is_pattern =
            matches!(arguments.as_slice(), [_, from] if matches!(from.ty, None | Some(Type::TEXT)));
        if is_pattern && !is_short_form && length.is_none() {
            return self.call("*substring", arguments);
        }
        if let Some(length) = length {
            arguments.push(self.bind(length)?);
        }
        self.call("substr", arguments)
    }

    /// `overlay(x PLACING what FROM place FOR length)`.
    #[inline(never)]
    pub(crate) fn bind_overlay(
        &mut self,
        inner: &ast::Expr,
        what: &ast::Expr,
        from: &ast::Expr,
        length: Option<&ast::Expr>,
    ) -> Result<Typed> {
        let parts: Vec<&ast::Expr> = [inner, what, from].into_iter().chain(length).collect();
        self.bind_call("overlay", &parts)
    }

    /// `trim(place what FROM x)` and `trim(place x, characters)`; `whole` is shown in errors.
    #[inline(never)]
    pub(crate) fn bind_trim(
        &mut self,
        whole: &ast::Expr,
        inner: &ast::Expr,
        place: Option<ast::TrimWhereField>,
        what: Option<&ast::Expr>,
        characters: Option<&[ast::Expr]>,
    ) -> Result<Typed> {
        let mut arguments = vec![self.bind(inner)?];
        match (what, characters) {
            (Some(what), None) => arguments.push(self.bind(what)?),
            (None, Some([what])) => arguments.push(self.bind(what)?),
            (None, None) => {}
            _ => return Err(unsupported(whole)),
        }
        let name = match place {
            Some(ast::TrimWhereField::Leading) => "ltrim",
            Some(ast::TrimWhereField::Trailing) => "rtrim",
            Some(ast::TrimWhereField::Both) | None => "btrim",
        };
        self.call(name, arguments)
    }
}
