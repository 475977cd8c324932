//! Calls of nextval, currval, setval and lastval: their sequence is looked up when the statement is planned.

use ropewalk::tables::{Type, Value};
use sqlparser::ast;

use crate::access::sequences::meant;
use crate::access::standing::Standing;
use crate::error::{Result, SqlError, state};
use crate::expr::cast::Strength;
use crate::expr::sequence_call::{Asks, SequenceCall};
use crate::expr::{Context, Expr};
use crate::limits::interrupt::Interrupt;
use crate::plan::bind::{Binder, Typed};
use crate::types::zone::Zone;

impl Binder<'_, '_> {
    /// The call, if it is one of a sequence.
    pub(crate) fn sequence_call(
        &mut self,
        name: &str,
        arguments: &[ast::FunctionArg],
    ) -> Result<Option<Typed>> {
        let (asks, least, most) = match name {
            "nextval" => (Asks::Next, 1, 1),
            "currval" => (Asks::Current, 1, 1),
            "setval" => (Asks::Set, 2, 3),
            "lastval" => (Asks::Last, 0, 0),
            "last_event_position" => (Asks::Event, 0, 0),
            _ => return Ok(None),
        };
        let wrong = || {
            SqlError::new(state::UNDEFINED_FUNCTION, format!("function {name} does not take these arguments"))
        };
        let mut exprs = Vec::new();
        for argument in arguments {
            let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) = argument else {
                return Err(wrong());
            };
            exprs.push(expr);
        }
        if !(least..=most).contains(&exprs.len()) {
            return Err(wrong());
        }
        let mut exprs = exprs.into_iter();
        let (sequence, number) = match exprs.next() {
            None => (String::new(), 0),
            Some(argument) => {
                let argument = self.sequence_argument(argument)?;
                let Standing { settings, created, .. } = &self.planner.standing;
                let found = meant(&mut self.planner.access, settings, created, &argument)?;
                (found.name, found.number)
            }
        };
        let mut settled = Vec::new();
        for (expr, ty) in exprs.zip([Type::INT8, Type::BOOL]) {
            settled.push(self.bind_as(expr, ty, Strength::Implicit)?);
        }
        match asks {
            Asks::Next | Asks::Set => self.planner.may_draw()?,
            Asks::Current | Asks::Last | Asks::Event => self.planner.reads = true,
        }
        self.planner.is_fleeting = true;
        let call = SequenceCall {
            asks,
            name: sequence,
            number,
            tables: self.planner.access.database().tables().clone(),
            given: self.planner.standing.given.clone(),
        };
        Ok(Some(Typed::new(Expr::Sequence(Box::new(call), settled), Type::INT8)))
    }

    /// The value of a sequence's name, which must be a constant.
    fn sequence_argument(&mut self, argument: &ast::Expr) -> Result<Value<'static>> {
        let inner = match argument {
            ast::Expr::Nested(inner) => return self.sequence_argument(inner),
            // A name cast to regclass is the name.
            ast::Expr::Cast { expr: inner, data_type, .. }
                if data_type.to_string().eq_ignore_ascii_case("regclass") =>
            {
                inner
            }
            other => other,
        };
        let (expr, _) = self.bind_closed(inner)?;
        let env = self.planner.access.database().engine().env().clone();
        let never = Interrupt::never();
        let cx = Context {
            params: &[],
            answers: &[],
            now: 0,
            env: &env,
            zone: &Zone::UTC,
            interrupt: &never,
            nested: None,
        };
        expr.constant(&cx).map_err(|_| {
            SqlError::unsupported("a sequence whose name is not known before", "write its name as a constant")
        })
    }
}
