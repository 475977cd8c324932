//! Binding of expressions over the catalog and the session, and of forms that PostgreSQL's own clients write.

use std::sync::Arc;

use ropewalk::tables::{Type, Value};
use sqlparser::ast;
use sqlparser::ast::BinaryOperator;

use crate::access::schemas;
use crate::catalog::{BoundCall, CatalogFunction};
use crate::error::{Result, SqlError, state};
use crate::expr::Expr;
use crate::expr::arith::Arith;
use crate::expr::cast::Strength;
use crate::plan::bind::scope::Mark;
use crate::plan::bind::{Binder, Typed};
use crate::plan::{SetConfig, label};
use crate::syntax::names::{folded, parts};
use crate::types::names::{is_integer, shown};
use crate::types::zone::Zone;

impl Binder<'_, '_> {
    /// A call of a function over the catalog.
    pub(crate) fn catalog_call(&mut self, name: &str, arguments: Vec<Typed>) -> Result<Option<Typed>> {
        let types: Vec<Option<Type>> = arguments.iter().map(|argument| argument.ty).collect();
        let Some((function, wanted, result)) = CatalogFunction::resolve(name, &types) else {
            return Ok(None);
        };
        let mut settled = Vec::with_capacity(arguments.len());
        for (argument, ty) in arguments.into_iter().zip(wanted) {
            settled.push(self.settle(argument, ty, Strength::Explicit)?);
        }
        let catalog = self.planner.catalog()?;
        Ok(Some(Typed::new(Expr::Catalog(Arc::new(BoundCall { function, catalog }), settled), result)))
    }

    /// Casts to the types that name objects: a name becomes its number, a number its name.
    pub(crate) fn object_cast(
        &mut self,
        inner: &ast::Expr,
        data_type: &ast::DataType,
    ) -> Result<Option<Typed>> {
        let kind = data_type.to_string().to_lowercase().replace('"', "");
        let kind = kind.trim_start_matches("pg_catalog.");
        if let Some(kind) = kind.strip_suffix("[]").filter(|kind| *kind == "regtype" || *kind == "regclass")
            && let ast::Expr::Value(value) = inner
            && let ast::Value::SingleQuotedString(list) = &value.value
        {
            return self.object_casts(list, kind).map(Some);
        }
        if !is_of_objects(kind) {
            return Ok(None);
        }
        let bound = self.bind(inner)?;
        let is_number = bound.ty.is_some_and(is_integer);
        let name = if is_number { format!("*{kind}") } else { format!("*to_{kind}") };
        self.catalog_call(&name, vec![bound])
    }

    /// The cast of an object to text: its name.
    pub(crate) fn object_as_text(
        &mut self,
        inner: &ast::Expr,
        data_type: &ast::DataType,
    ) -> Result<Option<Typed>> {
        let is_text = matches!(data_type, ast::DataType::Text | ast::DataType::Varchar(None));
        let Some((object, kind)) = object(inner).filter(|_| is_text) else { return Ok(None) };
        let bound = match object {
            ast::Expr::Cast { expr, data_type, .. } => self.object_cast(expr, data_type)?,
            call => Some(self.bind(call)?),
        };
        match bound {
            Some(number) if number.ty.is_some_and(is_integer) => {
                self.catalog_call(&format!("*{kind}"), vec![number])
            }
            named => Ok(named),
        }
    }

    /// The cast of a vector such as `pg_index.indkey` to text: its elements with spaces between.
    pub(crate) fn vector_as_text(
        &mut self,
        inner: &ast::Expr,
        data_type: &ast::DataType,
    ) -> Result<Option<Typed>> {
        let is_text = matches!(data_type, ast::DataType::Text | ast::DataType::Varchar(None));
        let is_name = matches!(inner, ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_));
        if !is_text || !is_name {
            return Ok(None);
        }
        let bound = self.bind(inner)?;
        if self.mark_of(&bound.expr) != Some(Mark::Vector) {
            return Ok(None);
        }
        let space = Typed::new(Expr::Const(Value::text(" ")), Type::TEXT);
        self.call("array_to_string", vec![bound, space]).map(Some)
    }

    /// Converts an array of names to one of their numbers.
    fn object_casts(&mut self, list: &str, kind: &str) -> Result<Typed> {
        let names = crate::types::text_format::from_text_in(list, Type::TEXT.array(), self.zone())?;
        let Value::Array(names) = names else { return Err(crate::expr::bug("an array of names")) };
        let mut numbers = Vec::with_capacity(names.len());
        for name in names.iter() {
            let name = name.map_err(|_| crate::expr::bug("a name"))?.into_owned();
            let typed = Typed::new(Expr::Const(name), Type::TEXT);
            numbers.extend(self.catalog_call(&format!("*to_{kind}"), vec![typed])?);
        }
        let (numbers, ty) = self.unified(numbers, "ARRAY")?;
        let Type::Scalar(element) = ty else { return Err(crate::expr::bug("a number of an object")) };
        Ok(Typed::new(Expr::ArrayOf(element, numbers), Type::Array(element)))
    }

    /// `set_config`: the session applies it before the statement runs. Returns the value.
    pub(crate) fn set_config(&mut self, arguments: Vec<Typed>) -> Result<Typed> {
        let is_of_columns = arguments.iter().any(|argument| {
            let mut found = false;
            argument.expr.columns(&mut |_| found = true);
            found
        });
        if is_of_columns {
            // It fails for the first row, if there is one.
            let unknown = || crate::expr::bug("set_config");
            return self.catalog_call("*set_config", arguments)?.ok_or_else(unknown);
        }
        let types = [Type::TEXT, Type::TEXT, Type::BOOL];
        let mut settled = Vec::new();
        for (argument, ty) in arguments.into_iter().zip(types) {
            settled.push(self.settle(argument, ty, Strength::Implicit)?);
        }
        let [name, value, is_local] =
            <[Expr; 3]>::try_from(settled).map_err(|_| crate::expr::bug("three arguments"))?;
        self.planner.sets.push(SetConfig { name, value: value.clone(), is_local });
        Ok(Typed::new(value, Type::TEXT))
    }

    /// The first existing schema of the path.
    pub(crate) fn current_schema(&mut self) -> Result<Typed> {
        let settings = &self.planner.standing.settings;
        let first = schemas::path(&mut self.planner.access, settings)?.into_iter().next();
        // The next run may find another schema.
        self.planner.is_fleeting = true;
        Ok(Typed::new(Expr::Const(first.map_or(Value::Null, Value::text)), Type::TEXT))
    }

    /// The property of a bound column beyond its type.
    pub(crate) fn mark_of(&self, expr: &Expr) -> Option<Mark> {
        match expr {
            Expr::Column(column) => self.scope.mark_of(*column),
            Expr::Outer(depth, column) => self.planner.outer.iter().rev().nth(*depth)?.mark_of(*column),
            _ => None,
        }
    }

    /// `array[index]`, also after a dotted name, and `(pair).x`.
    pub(crate) fn field_access(
        &mut self,
        whole: &ast::Expr,
        root: &ast::Expr,
        mut chain: &[ast::AccessExpr],
    ) -> Result<Typed> {
        let mut name = match root {
            ast::Expr::Identifier(ident) => vec![ident.clone()],
            ast::Expr::CompoundIdentifier(idents) => idents.clone(),
            _ => Vec::new(),
        };
        // Dotted identifiers at the start form one name, up to a bracket.
        while let ([ast::AccessExpr::Dot(ast::Expr::Identifier(ident)), rest @ ..], false) =
            (chain, name.is_empty())
        {
            name.push(ident.clone());
            chain = rest;
        }
        let bound = match name.len() {
            0 | 1 => self.bind(root)?,
            _ => self.bind(&ast::Expr::CompoundIdentifier(name))?,
        };
        let mark = self.mark_of(&bound.expr);
        match chain {
            [ast::AccessExpr::Subscript(ast::Subscript::Index { index })] => {
                if bound.ty == Some(Type::TEXT) && self.planner.is_small {
                    return self.letter_of(bound, index);
                }
                let Some(Type::Array(element)) = bound.ty else {
                    let message = format!("cannot subscript type {}", shown(bound.ty));
                    return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
                };
                let mut index = self.bind_as(index, Type::INT4, Strength::Assignment)?;
                if mark == Some(Mark::Vector) {
                    index = plus_one(index);
                }
                let expr = Expr::Subscript(Box::new(bound.expr), Box::new(index));
                Ok(Typed::new(expr, Type::Scalar(element)))
            }
            [
                ast::AccessExpr::Subscript(ast::Subscript::Slice { lower_bound, upper_bound, stride: None }),
            ] => {
                if !matches!(bound.ty, Some(Type::Array(_))) {
                    let message = format!("cannot subscript type {}", shown(bound.ty));
                    return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
                }
                let mut bounds = Vec::with_capacity(2);
                for (given, otherwise) in [(lower_bound, 1), (upper_bound, i32::MAX)] {
                    bounds.push(match given {
                        Some(expr) => self.bind(expr)?,
                        None => Typed::new(Expr::Const(Value::Int4(otherwise)), Type::INT4),
                    });
                }
                let array = bound;
                self.call("*slice", [vec![array], bounds].concat())
            }
            [ast::AccessExpr::Dot(ast::Expr::Identifier(field))] if mark == Some(Mark::Pair) => {
                let number = match folded(field).as_str() {
                    "x" => 1,
                    "n" => 2,
                    other => return Err(crate::plan::bind::scope::unknown_column(None, other)),
                };
                let number = Expr::Const(Value::Int4(number));
                Ok(Typed::new(Expr::Subscript(Box::new(bound.expr), Box::new(number)), Type::INT8))
            }
            _ => Err(SqlError::unsupported(whole, "rewrite the expression without it")),
        }
    }

    /// A letter of a name, counted from 0: in PostgreSQL names are arrays of letters, here they are text.
    pub(crate) fn letter_of(&mut self, name: Typed, index: &ast::Expr) -> Result<Typed> {
        let index = self.bind_as(index, Type::INT4, Strength::Assignment)?;
        let one = Typed::new(Expr::Const(Value::Int4(1)), Type::INT4);
        self.call("substr", vec![name, Typed::new(plus_one(index), Type::INT4), one])
    }

    /// Accepts collations: all text is ordered by its bytes, whatever the collation.
    pub(crate) fn collated(&mut self, inner: &ast::Expr, collation: &ast::ObjectName) -> Result<Typed> {
        crate::catalog::collations::known(&parts(collation)?.pop().unwrap_or_default())?;
        self.bind(inner)
    }

    /// `AT TIME ZONE`: the local time of a zone at an instant, or the instant of a local time.
    pub(crate) fn at_time_zone(&mut self, timestamp: &ast::Expr, time_zone: &ast::Expr) -> Result<Typed> {
        let (bound, zone) = (self.bind(timestamp)?, self.bind(time_zone)?);
        let zone = match zone.expr {
            Expr::Const(Value::Interval(interval)) => {
                let seconds = i32::try_from(interval.micros / 1_000_000).ok();
                let found = seconds.filter(|_| interval.months == 0 && interval.days == 0);
                let found = found.and_then(Zone::of_offset).ok_or_else(|| {
                    let message = "an interval that is no offset of a time zone";
                    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
                })?;
                Typed::new(Expr::Const(Value::text(found.name().to_owned())), Type::TEXT)
            }
            expr => Typed { expr, ty: zone.ty },
        };
        self.call("timezone", vec![zone, bound])
    }
}

/// True for types whose values are catalog objects.
fn is_of_objects(kind: &str) -> bool {
    matches!(kind, "regclass" | "regtype" | "regnamespace" | "regrole" | "regproc")
}

/// The expression for an object's number where PostgreSQL displays its name, and its type in PostgreSQL.
fn object(expr: &ast::Expr) -> Option<(&ast::Expr, String)> {
    match expr {
        ast::Expr::Nested(inner) => object(inner),
        ast::Expr::Cast { data_type, kind: ast::CastKind::Cast | ast::CastKind::DoubleColon, .. } => {
            let kind = data_type.to_string().to_lowercase().replace('"', "");
            let kind = kind.trim_start_matches("pg_catalog.");
            is_of_objects(kind).then(|| (expr, kind.to_owned()))
        }
        ast::Expr::Function(function) => {
            let kind = parts(&function.name).ok()?.pop()?.strip_prefix("to_")?.to_owned();
            matches!(kind.as_str(), "regclass" | "regtype").then_some((expr, kind))
        }
        _ => None,
    }
}

/// The expression of an item of a select list, if it is one.
pub(crate) fn shown_expr(item: &ast::SelectItem) -> Option<&ast::Expr> {
    match item {
        ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// The query with objects in its select list displayed by name, if it has any. Elsewhere they are numbers,
/// and are compared as numbers.
pub(crate) fn with_names_shown(query: &ast::Query) -> Option<ast::Query> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
    let is_object = |item: &ast::SelectItem| shown_expr(item).is_some_and(|expr| object(expr).is_some());
    let is_grouped = select.group_by != ast::GroupByExpr::Expressions(Vec::new(), Vec::new());
    if select.distinct.is_some() || is_grouped || !select.projection.iter().any(is_object) {
        return None;
    }
    let mut query = query.clone();
    let ast::SetExpr::Select(select) = query.body.as_mut() else { return None };
    for item in &mut select.projection {
        let Some(expr) = shown_expr(item).filter(|expr| object(expr).is_some()).cloned() else { continue };
        let alias = match &*item {
            ast::SelectItem::ExprWithAlias { alias, .. } => alias.clone(),
            _ => ast::Ident::with_quote('"', label(&expr)),
        };
        let expr = ast::Expr::Cast {
            kind: ast::CastKind::Cast,
            expr: Box::new(expr),
            data_type: ast::DataType::Text,
            array: false,
            format: None,
        };
        *item = ast::SelectItem::ExprWithAlias { expr, alias };
    }
    Some(query)
}

pub(crate) fn plus_one(number: Expr) -> Expr {
    Expr::Arith(Arith::Add, Type::INT4, Box::new(number), Box::new(Expr::Const(Value::Int4(1))))
}

/// True for the columns of catalogs that are vectors in PostgreSQL.
pub(crate) fn is_vector(name: &str) -> bool {
    const VECTORS: [&str; 11] = [
        "indkey",
        "indclass",
        "indcollation",
        "indoption",
        "partattrs",
        "partclass",
        "partcollation",
        "prattrs",
        "proargtypes",
        "stxkeys",
        "tgattr",
    ];
    VECTORS.contains(&name)
}

/// The operator that `OPERATOR(pg_catalog.~)` means.
pub(crate) fn qualified(op: &BinaryOperator) -> Option<BinaryOperator> {
    let BinaryOperator::PGCustomBinaryOperator(parts) = op else { return None };
    Some(match parts.last()?.as_str() {
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "||" => BinaryOperator::StringConcat,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        _ => return None,
    })
}
