//! Operators over addresses and networks.

use ropewalk::tables::Type;
use sqlparser::ast::BinaryOperator;

use crate::error::Result;
use crate::plan::bind::{Binder, Typed};

impl Binder<'_, '_> {
    /// An operator of inet and cidr; `None` for other types and operators.
    pub(crate) fn inet_operator(
        &mut self,
        left: &Typed,
        op: &BinaryOperator,
        right: &Typed,
    ) -> Result<Option<Typed>> {
        use BinaryOperator as B;
        let is_inet = |typed: &Typed| matches!(typed.ty, Some(Type::INET | Type::CIDR));
        if !is_inet(left) && !is_inet(right) {
            return Ok(None);
        }
        let (name, is_turned) = match op {
            B::PGBitwiseShiftLeft => ("*inet_within", false),
            B::PGBitwiseShiftRight => ("*inet_within", true),
            B::Custom(symbol) if symbol == "<<=" => ("*inet_within_or_equal", false),
            B::Custom(symbol) if symbol == ">>=" => ("*inet_within_or_equal", true),
            B::PGOverlap => ("*inet_overlaps", false),
            _ => return Ok(None),
        };
        let sides = if is_turned { [right, left] } else { [left, right] };
        self.call(name, Vec::from(sides.map(Clone::clone))).map(Some)
    }
}
