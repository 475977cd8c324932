//! Operators and functions of `jsonb`: the `json` ones under other names where they do the same.

use ropewalk::tables::Type;
use sqlparser::ast::BinaryOperator;

use crate::error::Result;
use crate::expr::Expr;
use crate::expr::cast::Strength;
use crate::plan::bind::{Binder, Typed};

/// Pairs of functions with the same implementation for json and jsonb.
const TWINS: [(&str, &str); 8] = [
    ("jsonb_array_length", "json_array_length"),
    ("jsonb_typeof", "json_typeof"),
    ("jsonb_extract_path", "json_extract_path"),
    ("jsonb_extract_path_text", "json_extract_path_text"),
    ("jsonb_build_array", "json_build_array"),
    ("jsonb_build_object", "json_build_object"),
    ("jsonb_object", "json_object"),
    ("to_jsonb", "to_json"),
];

/// Casts json to jsonb.
pub(crate) fn as_jsonb(typed: Typed) -> Typed {
    match typed.ty {
        Some(Type::JSON) => Typed::new(Expr::Cast(Box::new(typed.expr), Type::JSONB), Type::JSONB),
        _ => typed,
    }
}

impl Binder<'_, '_> {
    /// The call of a jsonb function that has a json counterpart.
    pub(crate) fn jsonb_call(&mut self, name: &str, arguments: &[Typed]) -> Result<Option<Typed>> {
        let Some((_, twin)) = TWINS.iter().find(|(known, _)| *known == name) else { return Ok(None) };
        let mut arguments = arguments.to_vec();
        // A literal is read as jsonb, whose normalized text may differ.
        if !name.contains("build")
            && name != "jsonb_object"
            && !name.starts_with("to_")
            && arguments.first().is_some_and(|a| a.ty.is_none())
        {
            let first = arguments.remove(0);
            let first = self.settle(first, Type::JSONB, Strength::Implicit)?;
            arguments.insert(0, Typed::new(first, Type::JSONB));
        }
        self.call(twin, arguments).map(as_jsonb).map(Some)
    }

    /// The operator, if one side is jsonb and the operator is specific to jsonb.
    pub(crate) fn jsonb_operator(
        &mut self,
        left: &Typed,
        op: &BinaryOperator,
        right: &Typed,
    ) -> Result<Option<Typed>> {
        use BinaryOperator as B;
        let is_its_own = match left.ty {
            Some(ty) => ty == Type::JSONB,
            None => right.ty == Some(Type::JSONB),
        };
        if !is_its_own {
            return Ok(None);
        }
        let name = match op {
            B::AtArrow => "*jsonb_contains",
            B::ArrowAt => "*jsonb_contained",
            B::Question => "jsonb_exists",
            B::QuestionPipe => "jsonb_exists_any",
            B::QuestionAnd => "jsonb_exists_all",
            B::StringConcat if matches!(right.ty, None | Some(Type::JSONB)) => "*jsonb_concat",
            B::Minus => "*jsonb_delete",
            B::HashMinus => "*jsonb_delete_path",
            B::HashArrow => {
                return self.call("*path", vec![left.clone(), right.clone()]).map(as_jsonb).map(Some);
            }
            _ => return Ok(None),
        };
        self.call(name, vec![left.clone(), right.clone()]).map(Some)
    }
}
