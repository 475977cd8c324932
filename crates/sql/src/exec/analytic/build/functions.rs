//! Functions in FROM whose arguments are constants: `generate_series` over integers, `unnest` of an array.

use ropewalk::tables::{Type, Value};

use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::exec::relations::{Part, RowSink, Rows, Scan};
use crate::expr::{Expr, Input, bug};
use crate::limits::interrupt::Watch;

#[derive(Clone)]
enum Kind {
    /// First, last, step.
    Series(i64, i64, i64),
    Items(Vec<Value<'static>>),
}

/// A function of one column.
pub(crate) struct FunctionRelation {
    kind: Kind,
    fields: Vec<(String, Type)>,
}

impl FunctionRelation {
    /// The relation of a call; `None` when no such function exists for these types.
    pub(crate) fn find(name: &str, arguments: &[Value<'static>], types: &[Type]) -> Result<Option<Self>> {
        let fields = |ty| vec![(name.to_owned(), ty)];
        match (name, types) {
            ("generate_series", [_, _] | [_, _, _])
                if types.iter().all(|ty| crate::types::names::is_integer(*ty)) =>
            {
                let wide = types.contains(&Type::INT8);
                let fields = fields(if wide { Type::INT8 } else { Type::INT4 });
                let numbers: Option<Vec<i64>> = arguments.iter().map(Value::as_integer).collect();
                let kind = match numbers.as_deref() {
                    // With a NULL argument there are no rows.
                    None => Kind::Items(Vec::new()),
                    Some([first, last]) => Kind::Series(*first, *last, 1),
                    Some([_, _, 0]) => {
                        let message = "step size cannot equal zero";
                        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
                    }
                    Some([first, last, step]) => Kind::Series(*first, *last, *step),
                    Some(_) => return Err(bug("arguments of generate_series")),
                };
                Ok(Some(Self { kind, fields }))
            }
            ("unnest", [Type::Array(element)]) => {
                let items = match arguments {
                    [Value::Array(array)] => array.iter().map(|item| item.map(Value::into_owned)).collect(),
                    _ => Ok(Vec::new()),
                };
                let items = items.map_err(|error| SqlError::new(state::DATA_CORRUPTED, error.to_string()))?;
                Ok(Some(Self { kind: Kind::Items(items), fields: fields(Type::Scalar(*element)) }))
            }
            _ => Ok(None),
        }
    }
}

struct One<'v>(&'v Value<'v>);

impl Input for One<'_> {
    fn column(&self, _: usize) -> Result<Value<'_>> {
        Ok(self.0.borrowed())
    }
}

impl Rows for FunctionRelation {
    fn name(&self) -> &str {
        self.fields.first().map_or("function", |(name, _)| name)
    }

    fn fields(&self) -> &[(String, Type)] {
        &self.fields
    }

    fn narrows(&self, _: &Expr) -> bool {
        false
    }

    fn scan(&self, _: &[Expr], _: bool, _: usize, _: Option<&mut Access<'_>>) -> Result<Scan> {
        let ty = self.fields.first().map_or(Type::INT8, |(_, ty)| *ty);
        let part: Box<dyn Part> = Box::new((self.kind.clone(), ty));
        Ok(Scan { parts: vec![part], shown: "values of a function".into(), estimate: None })
    }
}

impl Part for (Kind, Type) {
    fn read(&self, _: &mut Access<'_>, _: &Watch, row: &mut RowSink<'_>) -> Result<()> {
        match &self.0 {
            Kind::Items(items) => {
                for item in items {
                    if !row(&One(item))? {
                        break;
                    }
                }
            }
            Kind::Series(first, last, step) => {
                let mut next = Some(*first);
                while let Some(number) = next {
                    if *step > 0 && number > *last || *step < 0 && number < *last {
                        break;
                    }
                    let value = Value::Int8(number)
                        .assign(self.1)
                        .map_err(|_| crate::expr::arith::out_of_range(self.1))?;
                    if !row(&One(&value))? {
                        break;
                    }
                    next = number.checked_add(*step);
                }
            }
        }
        Ok(())
    }
}
