//! Calls of functions, by name.

use ropewalk::tables::{Array, Precision, SECOND_DIGITS_MAX, Type, Value};
use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::expr::Expr;
use crate::expr::advisory::AdvisoryCall;
use crate::expr::arith::Compare;
use crate::expr::cast::{Strength, allowed};
use crate::expr::function::Function;
use crate::functions;
use crate::functions::aggregate;
use crate::plan::Planner;
use crate::plan::array_query::gathered;
use crate::plan::bind::{Binder, Typed, unsupported};
use crate::syntax::names::{folded, parts, table_name};
use crate::types::names::{common, is_integer, is_numeric, rank, unmodified};

impl Binder<'_, '_> {
    pub(crate) fn function(&mut self, function: &ast::Function) -> Result<Typed> {
        let name = match parts(&function.name)?.as_slice() {
            [name] => name.clone(),
            [schema, name] if schema == "pg_catalog" || schema == "information_schema" => name.clone(),
            _ => return Err(unsupported(format!("the function {}", function.name))),
        };
        let ast::Function {
            name: _,
            uses_odbc_syntax: false,
            parameters: ast::FunctionArguments::None,
            args,
            filter,
            null_treatment: None,
            over,
            within_group,
        } = function
        else {
            return Err(unsupported(format!("the call {function}")));
        };
        if !within_group.is_empty() && (over.is_some() || !aggregate::is_of_ordered_set(&name)) {
            return Err(unsupported(format!("the call {function}")));
        }
        if let Some(over) = over {
            return self.window(&name, function, over);
        }
        let none =
            ast::FunctionArgumentList { duplicate_treatment: None, args: Vec::new(), clauses: Vec::new() };
        let list = match args {
            ast::FunctionArguments::None => &none,
            ast::FunctionArguments::List(list) => list,
            ast::FunctionArguments::Subquery(query) if name == "array" && self.planner.is_small => {
                return self.array_of(query);
            }
            ast::FunctionArguments::Subquery(query) if name == "array" && filter.is_none() => {
                return self.bind(&ast::Expr::Subquery(Box::new(gathered(query)?)));
            }
            ast::FunctionArguments::Subquery(_) => return Err(unsupported(format!("the call {function}"))),
        };
        let with_rows = self.rows_as_json(&name, list);
        let list = with_rows.as_ref().unwrap_or(list);
        if aggregate::is_aggregate(&name) {
            return self.aggregate(&name, list, filter.as_deref(), within_group);
        }
        if filter.is_some() || list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
            return Err(unsupported(format!("the call {function}")));
        }
        if name == "make_interval" {
            return self.make_interval(&list.args);
        }
        if let Some(call) = self.sequence_call(&name, &list.args)? {
            return Ok(call);
        }
        if let Some(rows) = self.set_in_list(&name, &list.args)? {
            return Ok(rows);
        }
        let mut arguments = Vec::new();
        for argument in &list.args {
            match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => {
                    arguments.push(self.bind(expr)?)
                }
                other => return Err(unsupported(format!("the argument {other}"))),
            }
        }
        self.call(&name, arguments)
    }

    /// Replaces whole rows in the arguments of a function that makes JSON by separate calls: `json_agg(t)`,
    /// `to_jsonb(t.*)`, `row_to_json(row(a, b))`. `None` when no argument is a row.
    fn rows_as_json(
        &self,
        name: &str,
        list: &ast::FunctionArgumentList,
    ) -> Option<ast::FunctionArgumentList> {
        const TAKERS: [&str; 11] = [
            "row_to_json",
            "to_json",
            "to_jsonb",
            "json_agg",
            "jsonb_agg",
            "json_object_agg",
            "jsonb_object_agg",
            "json_build_array",
            "jsonb_build_array",
            "json_build_object",
            "jsonb_build_object",
        ];
        if !TAKERS.contains(&name) {
            return None;
        }
        let mut list = list.clone();
        let mut has_rows = false;
        for argument in &mut list.args {
            if let Some(row) = self.row_as_json(argument) {
                *argument = ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(row));
                has_rows = true;
            }
        }
        has_rows.then_some(list)
    }

    /// The call for an argument that is a whole row.
    fn row_as_json(&self, argument: &ast::FunctionArg) -> Option<ast::Expr> {
        use ast::FunctionArgExpr as A;
        let ast::FunctionArg::Unnamed(argument) = argument else { return None };
        let members: Vec<(String, ast::Expr)> = match argument {
            A::Expr(ast::Expr::Function(call)) if parts(&call.name).is_ok_and(|name| name == ["row"]) => {
                let ast::FunctionArguments::List(list) = &call.args else { return None };
                let part = |argument: &ast::FunctionArg| match argument {
                    ast::FunctionArg::Unnamed(A::Expr(expr)) => Some(expr.clone()),
                    _ => None,
                };
                let values: Option<Vec<ast::Expr>> = list.args.iter().map(part).collect();
                (1..).zip(values?).map(|(place, value)| (format!("f{place}"), value)).collect()
            }
            A::Expr(ast::Expr::Tuple(values)) => {
                (1..).zip(values).map(|(place, value)| (format!("f{place}"), value.clone())).collect()
            }
            _ => {
                let relation = match argument {
                    A::Expr(ast::Expr::Identifier(ident)) => {
                        let name = folded(ident);
                        let is_column = !matches!(self.scope.find(None, &name), Ok(None))
                            || self.scope.scalar(&name).is_some();
                        (!is_column).then_some(name)?
                    }
                    A::QualifiedWildcard(name) => table_name(name).ok()?,
                    _ => return None,
                };
                if !self.scope.one_meant(&relation).ok()? {
                    return None;
                }
                let quoted = |name: &str| ast::Ident::with_quote('"', name);
                let columns = self.scope.all(Some(&relation)).into_iter();
                let (schema, own) = crate::syntax::names::said(&relation);
                let path: Vec<ast::Ident> = schema.into_iter().chain([own]).map(quoted).collect();
                let column =
                    |name: &str| ast::Expr::CompoundIdentifier([path.as_slice(), &[quoted(name)]].concat());
                columns
                    .map(|(name, _, _)| {
                        let value = column(&name);
                        (name, value)
                    })
                    .collect()
            }
        };
        let word = |name: String| ast::Expr::Value(ast::Value::SingleQuotedString(name).into());
        let parts = members.into_iter().flat_map(|(name, value)| [word(name), value]);
        let args = parts.map(|part| ast::FunctionArg::Unnamed(A::Expr(part))).collect();
        let list = ast::FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() };
        Some(ast::Expr::Function(ast::Function {
            name: ast::ObjectName::from(vec![ast::Ident::with_quote('"', "*json_row")]),
            uses_odbc_syntax: false,
            parameters: ast::FunctionArguments::None,
            args: ast::FunctionArguments::List(list),
            filter: None,
            null_treatment: None,
            over: None,
            within_group: Vec::new(),
        }))
    }

    /// A call by name.
    pub(crate) fn call(&mut self, name: &str, arguments: Vec<Typed>) -> Result<Typed> {
        let arguments = null_array_as_empty(name, arguments)?;
        if let Some(call) = self.clock_call(name, &arguments)? {
            return Ok(call);
        }
        if let Some(call) = self.session_call(name, &arguments)? {
            return Ok(call);
        }
        match (name, arguments.as_slice()) {
            ("coalesce", [_, ..]) => {
                let (parts, ty) = self.unified(arguments, "COALESCE")?;
                return Ok(Typed::new(Expr::Coalesce(parts), ty));
            }
            ("nullif", [left, right]) => {
                let ty = type_of_nullif(left.ty, right.ty);
                let equal = self.compare(Compare::Eq, left.clone(), right.clone())?;
                let left = self.settle(left.clone(), ty, Strength::Implicit)?;
                let whens = vec![(equal, Expr::Const(Value::Null))];
                return Ok(Typed::new(Expr::Case(whens, Some(Box::new(left))), ty));
            }
            (name, [_]) if crate::syntax::current_of::is_call(name) => {
                return Err(SqlError::unsupported(
                    "WHERE CURRENT OF here",
                    "use it as the only condition, on a single table",
                ));
            }
            (name, numbers)
                if let Some((call, ty)) =
                    AdvisoryCall::named(name, numbers.len(), &self.planner.standing.advisory) =>
            {
                return self.advisory_call(call, ty, arguments);
            }
            ("pg_sleep_for", [_]) => return self.sleep_for(arguments),
            ("array_fill", [_, ..]) => return self.array_fill(arguments),
            ("set_config", [_, _, _]) => return self.set_config(arguments),
            _ => {}
        }
        if let Some(call) = self.enum_call(name, &arguments)? {
            return Ok(call);
        }
        if let Some(call) = self.jsonb_call(name, &arguments)? {
            return Ok(call);
        }
        if name == "append_event" {
            let hint = "make it the only item of a SELECT: SELECT append_event(...) FROM ...";
            return Err(SqlError::unsupported("append_event within an expression or a subquery", hint));
        }
        if crate::functions::set_returning::SetFunction::is_known(name) {
            return Err(unsupported(format!("the set-returning function {name} here")));
        }
        self.call_by_types(name, arguments)
    }

    /// A call of the clock, such as `current_date` or `localtime(2)`; `None` for other functions.
    fn clock_call(&mut self, name: &str, arguments: &[Typed]) -> Result<Option<Typed>> {
        let ty = match (name, arguments) {
            ("current_date", []) => Type::DATE,
            // PostgreSQL's type of current_time has an offset; this database has no such type.
            ("current_time" | "localtime", []) => Type::TIME,
            ("localtimestamp", []) => Type::TIMESTAMP,
            ("current_timestamp" | "current_time" | "localtimestamp" | "localtime", [digits]) => {
                let Expr::Const(digits) = &digits.expr else {
                    return Err(SqlError::new(
                        state::SYNTAX_ERROR,
                        format!("{name} takes a number of digits"),
                    ));
                };
                let digits = digits.as_integer().and_then(|digits| u8::try_from(digits).ok());
                let digits = digits.map_or(SECOND_DIGITS_MAX, |digits| digits.min(SECOND_DIGITS_MAX));
                let Typed { expr, ty } = self.call(name, Vec::new())?;
                let ty = ty.unwrap_or(Type::TIMESTAMPTZ);
                // The maximum number of digits needs no rounding.
                return Ok(Some(match digits {
                    SECOND_DIGITS_MAX => Typed::new(expr, ty),
                    digits => self.kept(expr, ty, Precision::digits(digits)),
                }));
            }
            _ => return Ok(None),
        };
        let now = Box::new(Expr::Call(Function::Now, Vec::new()));
        Ok(Some(Typed::new(Expr::Cast(now, ty), ty)))
    }

    /// A call whose value the session determines when it is bound; `None` for other functions.
    fn session_call(&mut self, name: &str, arguments: &[Typed]) -> Result<Option<Typed>> {
        Ok(Some(match (name, arguments) {
            ("version", []) => {
                let version = concat!("PostgreSQL 15.0 (Ropewalk ", env!("CARGO_PKG_VERSION"), ")");
                Typed::new(Expr::Const(Value::text(version)), Type::TEXT)
            }
            ("pg_backend_pid", []) => {
                let number = self.planner.standing.settings.number;
                Typed::new(Expr::Const(Value::Int4(number)), Type::INT4)
            }
            ("pg_client_encoding" | "getdatabaseencoding", []) => {
                Typed::new(Expr::Const(Value::text("UTF8")), Type::TEXT)
            }
            ("current_schema", []) => self.current_schema()?,
            ("pg_typeof", [argument]) => {
                let name = self.planner.shown(argument.ty);
                Typed::new(Expr::Const(Value::text(name)), Type::TEXT)
            }
            _ => return Ok(None),
        }))
    }

    fn advisory_call(&mut self, call: AdvisoryCall, ty: Type, arguments: Vec<Typed>) -> Result<Typed> {
        let number = if arguments.len() == 1 { Type::INT8 } else { Type::INT4 };
        let mut numbers = Vec::with_capacity(arguments.len());
        for argument in arguments {
            numbers.push(self.settle(argument, number, Strength::Implicit)?);
        }
        // The call runs in a separate program, exactly once.
        self.planner.may_draw()?;
        Ok(Typed::new(Expr::Advisory(Box::new(call), numbers), ty))
    }

    /// `pg_sleep_for(interval)`.
    fn sleep_for(&mut self, mut arguments: Vec<Typed>) -> Result<Typed> {
        let epoch = Typed::new(Expr::Const(Value::text("epoch")), Type::TEXT);
        let length = match arguments.pop() {
            Some(length) => self.settle(length, Type::INTERVAL, Strength::Implicit)?,
            None => return Err(unsupported("pg_sleep_for without its length")),
        };
        let seconds = self.call("date_part", vec![epoch, Typed::new(length, Type::INTERVAL)])?;
        self.call("pg_sleep", vec![seconds])
    }

    /// `array_fill(value, sizes)`: the value is passed as an array.
    fn array_fill(&mut self, mut arguments: Vec<Typed>) -> Result<Typed> {
        if let Some(value) = arguments.first_mut() {
            let Some(Type::Scalar(element)) = value.ty else {
                let message = "could not determine polymorphic type because input has type unknown";
                let error = SqlError::new(state::DATATYPE_MISMATCH, message);
                return Err(error.hint("cast the value to the type of the elements"));
            };
            let one = Expr::ArrayOf(element, vec![value.expr.clone()]);
            *value = Typed::new(one, Type::Array(element));
        }
        self.call("*array_fill", arguments)
    }

    /// A call of the function with this name and these argument types.
    fn call_by_types(&mut self, name: &str, arguments: Vec<Typed>) -> Result<Typed> {
        let types: Vec<Option<Type>> = arguments.iter().map(|argument| argument.ty).collect();
        let unknown = |planner: &mut Planner<'_>| {
            let types: Vec<String> = types.iter().map(|ty| planner.shown(*ty)).collect();
            let message = format!("function {name}({}) does not exist", types.join(", "));
            SqlError::new(state::UNDEFINED_FUNCTION, message).hint(
                "no function matches the name and argument types; you might need to add explicit type casts",
            )
        };
        let has_literal = arguments.iter().any(|argument| argument.ty.is_none());
        let resolved = match has_literal {
            true => functions::resolve(name, &types.iter().map(|ty| ty.map(unmodified)).collect::<Vec<_>>()),
            false => functions::resolve(name, &types),
        };
        let Some(resolved) = resolved else {
            return self.catalog_call(name, arguments)?.ok_or_else(|| unknown(self.planner));
        };
        // Functions that concatenate take values of any type; all others require their types.
        let strength =
            if matches!(name, "concat" | "concat_ws" | "format" | "quote_literal" | "quote_nullable") {
                Strength::Assignment
            } else {
                Strength::Implicit
            };
        let mut settled = Vec::with_capacity(arguments.len());
        for (argument, ty) in arguments.into_iter().zip(&resolved.arguments) {
            let fits = argument.ty.is_none_or(|found| allowed(found, *ty, strength))
                || argument.ty == Some(Type::INT8) && *ty == Type::INT4;
            if !fits {
                return Err(unknown(self.planner));
            }
            settled.push(self.settle(argument, *ty, Strength::Assignment)?);
        }
        Ok(Typed::new(Expr::Call(resolved.function, settled), resolved.result))
    }
}

/// The type of NULLIF: that of the left side, as the operator `=` takes it.
fn type_of_nullif(left: Option<Type>, right: Option<Type>) -> Type {
    let is_float = |ty| matches!(ty, Type::FLOAT4 | Type::FLOAT8);
    match (left, right) {
        // Integers are compared without conversion, and so are floats; other numbers are converted to one
        // type.
        (Some(l), Some(r))
            if rank(l).is_some()
                && rank(r).is_some()
                && !(is_integer(l) && is_integer(r))
                && !(is_float(l) && is_float(r))
                && !(is_numeric(l) && is_numeric(r)) =>
        {
            common(l, r).unwrap_or(l)
        }
        (None, Some(right)) => unmodified(right),
        (left, _) => left.unwrap_or(Type::TEXT),
    }
}

/// A NULL array counts as empty for functions that add an element. Its type is known here but not from its
/// value.
fn null_array_as_empty(name: &str, mut arguments: Vec<Typed>) -> Result<Vec<Typed>> {
    let place = match (name, arguments.len()) {
        ("array_append", 2) => 0,
        ("array_prepend", 2) => 1,
        _ => return Ok(arguments),
    };
    if let Some(array) = arguments.get_mut(place)
        && let Some(Type::Array(element)) = array.ty
    {
        let empty = Array::new(element, Vec::new()).map_err(|_| crate::expr::bug("an empty array"))?;
        let given = std::mem::replace(&mut array.expr, Expr::Const(Value::Null));
        array.expr = Expr::Coalesce(vec![given, Expr::Const(Value::Array(empty))]);
    }
    Ok(arguments)
}
