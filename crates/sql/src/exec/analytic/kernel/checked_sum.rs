//! Sums of decimals that fail when they exceed the digits of a numeric. The engine's own sums wrap around,
//! which numbers of 29 or more digits can cause.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array};
use datafusion::arrow::datatypes::{DataType, Decimal128Type};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};
use ropewalk::tables::Type;

use crate::error::SqlError;
use crate::exec::analytic::kernel::scalar::through;
use crate::expr::arith::out_of_range;
use crate::expr::bug;

/// Even a few numbers with more digits than this may add up to more than a numeric holds.
pub(crate) const SAFE_DIGITS: u8 = 28;

/// The least number that exceeds a numeric.
const BEYOND: u128 = 10_u128.pow(38);

/// The sum of decimals.
pub(crate) fn checked_sum() -> Arc<AggregateUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(AggregateUDF::new_from_impl(CheckedSum { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedSum {
    signature: Signature,
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        "sum"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DfResult<DataType> {
        match arguments {
            [DataType::Decimal128(precision, scale)] => {
                Ok(DataType::Decimal128((precision + 10).min(38), *scale))
            }
            _ => Err(through(bug("a sum of no decimals"))),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> DfResult<Box<dyn Accumulator>> {
        Ok(Box::new(Sum { sum: 0, rows: 0, form: args.return_field.data_type().clone() }))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> DfResult<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Sums { sums: Vec::new(), form: args.return_field.data_type().clone() }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

fn beyond() -> SqlError {
    out_of_range(Type::NUMERIC)
}

fn added(sum: i128, value: i128) -> DfResult<i128> {
    sum.checked_add(value).ok_or_else(|| through(beyond()))
}

/// A final sum, checked. Intermediate sums may exceed the limit.
fn answered(sum: i128) -> DfResult<i128> {
    if sum.unsigned_abs() < BEYOND { Ok(sum) } else { Err(through(beyond())) }
}

fn decimals(arrays: &[ArrayRef]) -> DfResult<&Decimal128Array> {
    let array = arrays.first().and_then(|array| array.as_primitive_opt::<Decimal128Type>());
    array.ok_or_else(|| through(bug("a sum of no decimals")))
}

/// The sum of one group.
#[derive(Debug)]
struct Sum {
    sum: i128,
    /// Count of summed numbers: without any the sum is NULL.
    rows: u64,
    form: DataType,
}

impl Sum {
    fn scalar(&self, sum: i128) -> ScalarValue {
        let (precision, scale) = match self.form {
            DataType::Decimal128(precision, scale) => (precision, scale),
            _ => (38, 0),
        };
        ScalarValue::Decimal128((self.rows > 0).then_some(sum), precision, scale)
    }
}

impl Accumulator for Sum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        for value in decimals(values)?.iter().flatten() {
            self.sum = added(self.sum, value)?;
            self.rows += 1;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        Ok(self.scalar(answered(self.sum)?))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        Ok(vec![self.scalar(self.sum)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.update_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        for value in decimals(values)?.iter().flatten() {
            self.sum = self.sum.checked_sub(value).ok_or_else(|| through(beyond()))?;
            self.rows = self.rows.saturating_sub(1);
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}

/// The sums of many groups; `None` for a group without numbers so far.
struct Sums {
    sums: Vec<Option<i128>>,
    form: DataType,
}

impl Sums {
    fn array(&self, sums: Vec<Option<i128>>) -> ArrayRef {
        Arc::new(Decimal128Array::from_iter(sums).with_data_type(self.form.clone()))
    }

    fn add(&mut self, group: usize, value: i128) -> DfResult<()> {
        let sum = self.sums.get_mut(group).ok_or_else(|| through(bug("a group without a place")))?;
        *sum = Some(added(sum.unwrap_or(0), value)?);
        Ok(())
    }
}

impl GroupsAccumulator for Sums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> DfResult<()> {
        self.sums.resize(count, None);
        let values = decimals(values)?;
        if values.null_count() == 0 && filter.is_none() {
            return groups
                .iter()
                .zip(values.values())
                .try_for_each(|(group, value)| self.add(*group, *value));
        }
        let filtered = filtered(values, filter);
        let mut pairs = groups.iter().zip(filtered);
        pairs.try_for_each(|(group, value)| value.map_or(Ok(()), |value| self.add(*group, value)))
    }

    fn evaluate(&mut self, emit: EmitTo) -> DfResult<ArrayRef> {
        let sums = emit.take_needed(&mut self.sums);
        sums.iter().flatten().try_for_each(|sum| answered(*sum).map(drop))?;
        Ok(self.array(sums))
    }

    fn state(&mut self, emit: EmitTo) -> DfResult<Vec<ArrayRef>> {
        let sums = emit.take_needed(&mut self.sums);
        Ok(vec![self.array(sums)])
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], count: usize) -> DfResult<()> {
        self.update_batch(values, groups, None, count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> DfResult<Vec<ArrayRef>> {
        Ok(vec![self.array(filtered(decimals(values)?, filter).collect())])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<Option<i128>>()
    }
}

/// The values for which the filter is true; `None` for the others.
fn filtered<'a>(
    values: &'a Decimal128Array,
    filter: Option<&'a BooleanArray>,
) -> impl Iterator<Item = Option<i128>> + 'a {
    let counts = move |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
    values.iter().enumerate().map(move |(row, value)| value.filter(|_| counts(row)))
}
