//! Our expressions as functions of the query engine: the same code runs for each row, so every expression
//! keeps its meaning.
//!
//! Expressions with an exact counterpart in the engine do not come here; see `translate`.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{Array, ArrayRef, BinaryBuilder, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result as DfResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use ropewalk::Database;
use ropewalk::engine::Env;
use ropewalk::tables::{Type, Value};

use crate::error::{Result, SqlError};
use crate::exec::analytic::kernel::convert::{Builder, Reader};
use crate::exec::analytic::kernel::made::Made;
use crate::expr::{Context, Expr, Input, bug};
use crate::limits::budget::value_bytes;
use crate::limits::interrupt::{Canceller, Interrupt};
use crate::types::zone::Zone;

/// The context of expressions other than rows, for the duration of a statement.
#[derive(Clone)]
pub(crate) struct Around {
    pub(crate) db: Database,
    pub(crate) now: i64,
    pub(crate) zone: Zone,
    pub(crate) params: Arc<[Value<'static>]>,
    /// Bytes that the statement may hold.
    pub(crate) memory: usize,
    /// Cancelled when the statement ends, to stop evaluations that still run on the engine's threads.
    pub(crate) stop: Canceller,
    /// Bytes of the columns that expressions created.
    pub(crate) made: Made,
}

impl Around {
    pub(crate) fn env(&self) -> &Env {
        self.db.engine().env()
    }

    /// The interrupt for an evaluation on an engine thread. The session checks its own interrupt, and cancels
    /// `stop` when that ends the statement.
    pub(crate) fn interrupt(&self) -> Interrupt {
        Interrupt::begin(&self.stop, 0, self.env())
    }

    pub(crate) fn context<'a>(&'a self, interrupt: &'a Interrupt) -> Context<'a> {
        Context {
            params: &self.params,
            answers: &[],
            now: self.now,
            env: self.env(),
            zone: &self.zone,
            interrupt,
            nested: None,
        }
    }
}

impl std::fmt::Debug for Around {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Around")
    }
}

/// Wraps one of our errors for its way through the engine.
pub(crate) fn through(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// One row of several columns.
pub(crate) struct RowOf<'a> {
    pub(crate) columns: &'a [Reader<'a>],
    pub(crate) row: usize,
}

impl Input for RowOf<'_> {
    fn column(&self, index: usize) -> Result<Value<'_>> {
        self.columns.get(index).ok_or_else(|| bug("a column beyond its row"))?.get(self.row)
    }
}

/// An expression over its arguments, which are its columns in order.
#[derive(Debug)]
pub(crate) struct RowExpr {
    name: String,
    /// Two expressions are equal when their identities are.
    identity: String,
    expr: Expr,
    types: Vec<Type>,
    result: DataType,
    around: Around,
    signature: Signature,
    /// The cached value of an expression without arguments.
    kept: OnceLock<ScalarValue>,
}

impl PartialEq for RowExpr {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for RowExpr {}

impl Hash for RowExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity.hash(state);
    }
}

impl RowExpr {
    /// `expr` over arguments of `types`, its values in the form `result`.
    pub(crate) fn function(expr: Expr, types: Vec<Type>, result: DataType, around: Around) -> Arc<ScalarUDF> {
        // The engine copies a constant array for each row of a batch, however large both are.
        let is_copied = types.is_empty() && expr.fills_arrays();
        let is_volatile = expr.is_volatile() || is_copied;
        let volatility = if is_volatile { Volatility::Volatile } else { Volatility::Immutable };
        Self::built(expr, types, result, around, volatility)
    }

    /// Passes a value through, but makes the engine treat it as nullable, even if it is a constant.
    pub(crate) fn perhaps_null(ty: Type, form: DataType, around: Around) -> Arc<ScalarUDF> {
        Self::built(Expr::Column(0), vec![ty], form, around, Volatility::Volatile)
    }

    fn built(
        expr: Expr,
        types: Vec<Type>,
        result: DataType,
        around: Around,
        volatility: Volatility,
    ) -> Arc<ScalarUDF> {
        // The engine treats two equal functions as the same value, even volatile ones: each call of those
        // gets an identity.
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let call = match volatility {
            Volatility::Volatile => CALLS.fetch_add(1, Ordering::Relaxed) + 1,
            _ => 0,
        };
        let identity = format!("{expr:?} {types:?} {result} {call}");
        let mut hasher = std::hash::DefaultHasher::new();
        identity.hash(&mut hasher);
        let name = format!("row_{:016x}", hasher.finish());
        let signature = Signature::any(types.len(), volatility);
        let signature = if types.is_empty() { Signature::nullary(volatility) } else { signature };
        Arc::new(ScalarUDF::new_from_impl(Self {
            name,
            identity,
            expr,
            types,
            result,
            around,
            signature,
            kept: OnceLock::new(),
        }))
    }

    /// True when some row may make it fail.
    pub(crate) fn may_fail(&self) -> bool {
        self.expr.may_fail()
    }

    /// The expression with its columns renumbered by `places`.
    pub(crate) fn over(&self, places: &[usize]) -> Option<Expr> {
        let mut known = true;
        self.expr.columns(&mut |index| known &= places.get(index).is_some());
        known.then(|| self.expr.clone().renumber(&|index| places.get(index).copied().unwrap_or(index)))
    }

    /// The values for some rows. `is_kept`: the single value is held to the end of the statement.
    fn evaluate(&self, arrays: &[ArrayRef], rows: usize, is_kept: bool) -> Result<ArrayRef> {
        let readers: Result<Vec<Reader<'_>>> =
            arrays.iter().zip(&self.types).map(|(array, ty)| Reader::new(array.as_ref(), *ty)).collect();
        let readers = readers?;
        let interrupt = self.around.interrupt();
        let cx = self.around.context(&interrupt);
        let mut builder = Builder::new(&self.result, rows)?;
        let mut charge = self.around.made.column(self.around.memory.max(BATCH_BYTES_MIN));
        for row in 0..rows {
            interrupt.check(cx.env)?;
            let input = RowOf { columns: &readers, row };
            let value = self.expr.eval(&cx, &input)?;
            charge.grow(value_bytes(&value))?;
            builder.push(&value)?;
        }
        if is_kept {
            charge.keep();
            return Ok(builder.finish());
        }
        charge.attach(builder.finish())
    }
}

/// Runs `work`. Work that may wait is run so that the thread's other tasks move to another thread.
fn beside_others<R>(waits: bool, work: impl FnOnce() -> R) -> R {
    let is_shared = || {
        let runtime = tokio::runtime::Handle::try_current();
        runtime.is_ok_and(|runtime| runtime.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread)
    };
    if waits && is_shared() { tokio::task::block_in_place(work) } else { work() }
}

/// Minimum memory for the values of one batch: the engine does not reserve memory before it calls us, and
/// passes thousands of rows at a time.
const BATCH_BYTES_MIN: usize = 32 << 20;

impl ScalarUDFImpl for RowExpr {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.result.clone())
    }

    fn short_circuits(&self) -> bool {
        // CASE and COALESCE within do not evaluate all arguments.
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let all_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)))
            && self.signature.volatility != Volatility::Volatile;
        let is_kept = all_constant && args.args.is_empty();
        if let Some(kept) = self.kept.get().filter(|_| is_kept) {
            return Ok(ColumnarValue::Scalar(kept.clone()));
        }
        let rows = if all_constant { 1 } else { args.number_rows };
        let arrays = args.args.iter().map(|arg| arg.to_array(rows)).collect::<DfResult<Vec<_>>>()?;
        let array =
            beside_others(self.expr.sleeps(), || self.evaluate(&arrays, rows, is_kept)).map_err(through)?;
        if all_constant {
            let scalar = ScalarValue::try_from_array(&array, 0)?;
            if is_kept {
                let _ = self.kept.set(scalar.clone());
            }
            return Ok(ColumnarValue::Scalar(scalar));
        }
        Ok(ColumnarValue::Array(array))
    }
}

/// Bytes in the order of the values: compared instead of them where Arrow's order differs from SQL's.
#[derive(Debug)]
pub(crate) struct OrderKey {
    ty: Type,
    /// As text, a letter for each byte, in the same order.
    in_letters: bool,
    signature: Signature,
}

impl PartialEq for OrderKey {
    fn eq(&self, other: &Self) -> bool {
        (self.ty, self.in_letters) == (other.ty, other.in_letters)
    }
}

impl Eq for OrderKey {}

impl Hash for OrderKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        format!("{:?} {}", self.ty, self.in_letters).hash(state);
    }
}

/// The function that makes order keys of values of type `ty`.
pub(crate) fn order_key(ty: Type) -> Arc<ScalarUDF> {
    order_function(ty, false)
}

/// The function that makes order keys as text, where the engine takes no bytes.
pub(crate) fn order_letters(ty: Type) -> Arc<ScalarUDF> {
    order_function(ty, true)
}

fn order_function(ty: Type, in_letters: bool) -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(OrderKey { ty, in_letters, signature }))
}

impl ScalarUDFImpl for OrderKey {
    fn name(&self) -> &str {
        if self.in_letters { "order_letters" } else { "order_key" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(if self.in_letters { DataType::Utf8 } else { DataType::Binary })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let Some(argument) = args.args.first() else { return Err(through(bug("an order key of nothing"))) };
        let array = argument.to_array(args.number_rows)?;
        let reader = Reader::new(array.as_ref(), self.ty).map_err(through)?;
        let mut keys = BinaryBuilder::with_capacity(array.len(), array.len() * 16);
        let mut key = Vec::new();
        for row in 0..array.len() {
            match reader.get(row).map_err(through)? {
                Value::Null => keys.append_null(),
                value => {
                    key.clear();
                    value.put_key(&mut key);
                    keys.append_value(&key);
                }
            }
        }
        let keys = keys.finish();
        if !self.in_letters {
            return Ok(ColumnarValue::Array(Arc::new(keys)));
        }
        let letters = |key: &[u8]| key.iter().map(|byte| char::from(*byte)).collect::<String>();
        let keys: StringArray = keys.iter().map(|key| key.map(letters)).collect();
        Ok(ColumnarValue::Array(Arc::new(keys)))
    }
}
