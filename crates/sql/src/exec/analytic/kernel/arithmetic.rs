//! Arithmetic on whole columns that fails where PostgreSQL's does: overflow, division by zero.
//!
//! The engine's own arithmetic wraps around. Arrow's kernels are checked; batches that they reject are
//! computed again row by row, for the exact result or error.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Datum};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Float64Type};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use ropewalk::tables::Type;

use crate::error::Result;
use crate::exec::analytic::kernel::convert::{Builder, Reader};
use crate::exec::analytic::kernel::scalar::through;
use crate::expr::arith::{Arith, arithmetic};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    op: Arith,
    ty: Type,
    form: DataType,
    signature: Signature,
}

impl Hash for Checked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.op.symbol().hash(state);
        self.form.hash(state);
    }
}

/// `op` on numbers of type `ty` in the form `form`.
pub(crate) fn checked(op: Arith, ty: Type, form: DataType) -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Checked { op, ty, form, signature }))
}

impl Checked {
    fn by_column(&self, left: &dyn Datum, right: &dyn Datum) -> Option<ArrayRef> {
        let array = match self.op {
            Arith::Add => numeric::add(left, right),
            Arith::Sub => numeric::sub(left, right),
            Arith::Mul => numeric::mul(left, right),
            Arith::Div => numeric::div(left, right),
            Arith::Rem => numeric::rem(left, right),
            _ => return None,
        };
        let array = array.ok()?;
        match &self.form {
            DataType::Float64 => {
                let all_finite =
                    array.as_primitive_opt::<Float64Type>()?.iter().flatten().all(f64::is_finite);
                all_finite.then_some(array)
            }
            DataType::Decimal128(precision, scale) => {
                let decimals = array.as_primitive_opt::<Decimal128Type>()?;
                let fits = matches!(decimals.data_type(), DataType::Decimal128(_, found) if found == scale);
                let decimals = fits.then(|| decimals.clone().with_precision_and_scale(*precision, *scale));
                Some(Arc::new(decimals?.ok()?))
            }
            _ => Some(array),
        }
    }

    fn by_row(&self, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
        let (left, right) = (Reader::new(left.as_ref(), self.ty)?, Reader::new(right.as_ref(), self.ty)?);
        let rows = left.rows();
        let mut builder = Builder::new(&self.form, rows)?;
        for row in 0..rows {
            builder.push(&arithmetic(self.op, &left.get(row)?, &right.get(row)?, self.ty)?)?;
        }
        Ok(builder.finish())
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        self.op.symbol()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.form.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return Err(through(crate::expr::bug("arithmetic of two")));
        };
        let found = match (left, right) {
            (ColumnarValue::Array(left), ColumnarValue::Array(right)) => self.by_column(left, right),
            (ColumnarValue::Array(left), ColumnarValue::Scalar(right)) => {
                self.by_column(left, &right.to_scalar()?)
            }
            (ColumnarValue::Scalar(left), ColumnarValue::Array(right)) => {
                self.by_column(&left.to_scalar()?, right)
            }
            (ColumnarValue::Scalar(left), ColumnarValue::Scalar(right)) => {
                let (left, right) = (left.to_array()?, right.to_array()?);
                let array = self.by_row(&left, &right).map_err(through)?;
                return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?));
            }
        };
        let array = match found {
            Some(array) => array,
            None => {
                let (left, right) = (left.to_array(args.number_rows)?, right.to_array(args.number_rows)?);
                self.by_row(&left, &right).map_err(through)?
            }
        };
        Ok(ColumnarValue::Array(array))
    }
}
