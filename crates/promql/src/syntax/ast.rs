//! The syntax tree of an expression. Every node has its position in the text, for errors and annotations.
//!
//! The tree preserves the notation (durations as expressions, `start()` as a word), so that it can be printed
//! again; `plan` replaces it by numbers when the query's times are known.

use std::fmt;

use ropewalk_labels::Matcher;

use crate::syntax::functions::Function;
use crate::syntax::position::Span;

/// The type of an expression's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// A number per step.
    Scalar,
    /// A string.
    String,
    /// Series with one sample per step.
    Vector,
    /// Series with a range of samples per step.
    Matrix,
}

impl ValueType {
    /// The name in the API and in some messages.
    pub fn name(self) -> &'static str {
        match self {
            ValueType::Scalar => "scalar",
            ValueType::String => "string",
            ValueType::Vector => "vector",
            ValueType::Matrix => "matrix",
        }
    }

    /// The name in the documentation and in most messages.
    pub(crate) fn documented(self) -> &'static str {
        match self {
            ValueType::Vector => "instant vector",
            ValueType::Matrix => "range vector",
            other => other.name(),
        }
    }
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// `1.5`, `0x1F`, `5m`
    Number(Number),
    /// `"text"`
    Text(Text),
    /// `up{job="a"} offset 5m`
    Selector(Box<Selector>),
    /// `up[5m]`
    Matrix(Box<Matrix>),
    /// `expr[30m:1m]`
    Subquery(Box<Subquery>),
    /// `rate(...)`
    Call(Box<Call>),
    /// `sum by (job) (...)`
    Aggregate(Box<Aggregate>),
    /// `a + b`
    Binary(Box<Binary>),
    /// `-a`
    Unary(Box<Unary>),
    /// `(a)`
    Paren(Box<Paren>),
    /// `sum(a) offset 5m`
    WithOffset(Box<WithOffset>),
    /// Created by the planner: this part has the same value at every step, so it is evaluated once.
    Invariant(Box<Expr>),
}

/// A number.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    /// Its value; seconds when written as a duration.
    pub value: f64,
    /// Written as a duration (`5m`).
    pub duration: bool,
    /// Its position.
    pub span: Span,
}

/// A string literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The unescaped value. Escapes can yield bytes that are not UTF-8.
    pub value: Vec<u8>,
    /// Its position.
    pub span: Span,
}

/// A duration in a selector: fixed, or calculated when the query's times are known.
#[derive(Debug, Clone, PartialEq)]
pub enum Duration {
    /// Milliseconds.
    Fixed(i64),
    /// `step() * 2`
    Expr(Box<DurationExpr>),
}

impl Duration {
    /// Zero: no offset, the default step.
    pub const NONE: Duration = Duration::Fixed(0);

    /// True for an omitted range.
    pub(crate) fn is_implicit(&self) -> bool {
        matches!(self, Duration::Expr(expr) if expr.kind == DurationKind::Window)
    }

    /// Milliseconds; 0 for an expression that the planner has not calculated yet.
    pub fn ms(&self) -> i64 {
        match self {
            Duration::Fixed(ms) => *ms,
            Duration::Expr(_) => 0,
        }
    }
}

/// An arithmetic expression of durations.
#[derive(Debug, Clone, PartialEq)]
pub struct DurationExpr {
    /// The operation.
    pub kind: DurationKind,
    /// Written in parentheses.
    pub wrapped: bool,
    /// Its position.
    pub span: Span,
}

/// An operation of a [`DurationExpr`].
#[derive(Debug, Clone, PartialEq)]
pub enum DurationKind {
    /// A number of seconds.
    Number(Number),
    /// `step()`: the query's step.
    Step,
    /// `range()`: the query's end less its start.
    Range,
    /// The omitted range of MetricsQL: the step, or the look-back when there is one step.
    Window,
    /// `-a`
    Negative(Box<DurationExpr>),
    /// `a + b`
    Binary(BinaryOp, Box<DurationExpr>, Box<DurationExpr>),
    /// `min_of(a, b)`
    MinOf(Box<DurationExpr>, Box<DurationExpr>),
    /// `max_of(a, b)`
    MaxOf(Box<DurationExpr>, Box<DurationExpr>),
}

/// The `@` of a selector or subquery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtModifier {
    /// Milliseconds since 1970.
    Time(i64),
    /// `@ start()`
    Start,
    /// `@ end()`
    End,
}

/// How a range selector treats its borders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RangeEdges {
    /// Samples inside only; rates extrapolate.
    #[default]
    Plain,
    /// The sample before the range is its beginning.
    Anchored,
    /// Borders are interpolated between the samples around them.
    Smoothed,
}

/// A vector selector.
#[derive(Debug, Clone, PartialEq)]
pub struct Selector {
    /// The metric name before the braces; empty when absent.
    pub name: String,
    /// All matchers, the name's last.
    pub matchers: Vec<Matcher>,
    /// Further lists of matchers, each after an `or` and including the name's: a series has to match one of
    /// the lists.
    pub others: Vec<Vec<Matcher>>,
    /// `offset`
    pub offset: Duration,
    /// `@`
    pub at: Option<AtModifier>,
    /// `anchored`, `smoothed`
    pub edges: RangeEdges,
    /// Set by the planner: only counts and sums of histograms are needed, and resets between neighbours are
    /// detected on reading.
    pub totals: bool,
    /// Its position.
    pub span: Span,
}

/// A range selector. Offset, `@` and edges are those of its vector selector.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// The vector selector.
    pub selector: Selector,
    /// Length of the range.
    pub range: Duration,
    /// Its position.
    pub span: Span,
}

/// A subquery.
#[derive(Debug, Clone, PartialEq)]
pub struct Subquery {
    /// The expression evaluated at each of its steps.
    pub expr: Expr,
    /// Length of the range.
    pub range: Duration,
    /// Distance of the steps; `Fixed(0)` for the default.
    pub step: Duration,
    /// `offset`
    pub offset: Duration,
    /// `@`
    pub at: Option<AtModifier>,
    /// Its position.
    pub span: Span,
}

/// A function call.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The function.
    pub function: &'static Function,
    /// Its arguments.
    pub args: Vec<Expr>,
    /// `keep_metric_names`
    pub keep_name: bool,
    /// Its position.
    pub span: Span,
}

/// An aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are the words of the language")]
pub enum AggregateOp {
    Sum,
    Avg,
    Count,
    Min,
    Max,
    Group,
    Stddev,
    Stdvar,
    Topk,
    Bottomk,
    CountValues,
    Quantile,
    Limitk,
    LimitRatio,
    Any,
    BottomkBy(Rank),
    Distinct,
    Geomean,
    Mad,
    Median,
    Mode,
    OutliersIqr,
    OutliersMad,
    Outliersk,
    Quantiles,
    Share,
    Sum2,
    TopkBy(Rank),
    Zscore,
}

/// The value by which `topk_max` and similar aggregations rank a series, over all its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are parts of the words of the language")]
pub enum Rank {
    Avg,
    Last,
    Max,
    Median,
    Min,
}

impl AggregateOp {
    /// The aggregations of PromQL.
    pub const ALL: [AggregateOp; 14] = {
        use AggregateOp::*;
        [
            Sum,
            Avg,
            Count,
            Min,
            Max,
            Group,
            Stddev,
            Stdvar,
            Topk,
            Bottomk,
            CountValues,
            Quantile,
            Limitk,
            LimitRatio,
        ]
    };

    /// The additional aggregations of MetricsQL.
    pub const OF_METRICSQL: [AggregateOp; 23] = {
        use AggregateOp::{
            Any, BottomkBy, Distinct, Geomean, Mad, Mode, OutliersIqr, OutliersMad, Outliersk, Quantiles,
            Share, Sum2, TopkBy, Zscore,
        };
        use Rank::{Avg, Last, Max, Median, Min};
        [
            Any,
            BottomkBy(Avg),
            BottomkBy(Last),
            BottomkBy(Max),
            BottomkBy(Median),
            BottomkBy(Min),
            Distinct,
            Geomean,
            Mad,
            AggregateOp::Median,
            Mode,
            OutliersIqr,
            OutliersMad,
            Outliersk,
            Quantiles,
            Share,
            Sum2,
            TopkBy(Avg),
            TopkBy(Last),
            TopkBy(Max),
            TopkBy(Median),
            TopkBy(Min),
            Zscore,
        ]
    };

    /// The aggregation of MetricsQL of this name.
    pub(crate) fn of_metricsql(name: &str) -> Option<Self> {
        Self::OF_METRICSQL.into_iter().find(|op| op.name().eq_ignore_ascii_case(name))
    }

    /// The keyword.
    pub fn name(self) -> &'static str {
        match self {
            AggregateOp::Sum => "sum",
            AggregateOp::Avg => "avg",
            AggregateOp::Count => "count",
            AggregateOp::Min => "min",
            AggregateOp::Max => "max",
            AggregateOp::Group => "group",
            AggregateOp::Stddev => "stddev",
            AggregateOp::Stdvar => "stdvar",
            AggregateOp::Topk => "topk",
            AggregateOp::Bottomk => "bottomk",
            AggregateOp::CountValues => "count_values",
            AggregateOp::Quantile => "quantile",
            AggregateOp::Limitk => "limitk",
            AggregateOp::LimitRatio => "limit_ratio",
            AggregateOp::Any => "any",
            AggregateOp::BottomkBy(Rank::Avg) => "bottomk_avg",
            AggregateOp::BottomkBy(Rank::Last) => "bottomk_last",
            AggregateOp::BottomkBy(Rank::Max) => "bottomk_max",
            AggregateOp::BottomkBy(Rank::Median) => "bottomk_median",
            AggregateOp::BottomkBy(Rank::Min) => "bottomk_min",
            AggregateOp::Distinct => "distinct",
            AggregateOp::Geomean => "geomean",
            AggregateOp::Mad => "mad",
            AggregateOp::Median => "median",
            AggregateOp::Mode => "mode",
            AggregateOp::OutliersIqr => "outliers_iqr",
            AggregateOp::OutliersMad => "outliers_mad",
            AggregateOp::Outliersk => "outliersk",
            AggregateOp::Quantiles => "quantiles",
            AggregateOp::Share => "share",
            AggregateOp::Sum2 => "sum2",
            AggregateOp::TopkBy(Rank::Avg) => "topk_avg",
            AggregateOp::TopkBy(Rank::Last) => "topk_last",
            AggregateOp::TopkBy(Rank::Max) => "topk_max",
            AggregateOp::TopkBy(Rank::Median) => "topk_median",
            AggregateOp::TopkBy(Rank::Min) => "topk_min",
            AggregateOp::Zscore => "zscore",
        }
    }

    /// True when a parameter comes before the vector.
    pub fn has_param(self) -> bool {
        use AggregateOp::*;
        matches!(
            self,
            Topk | Bottomk
                | CountValues
                | Quantile
                | Limitk
                | LimitRatio
                | BottomkBy(_)
                | OutliersMad
                | Outliersk
                | Quantiles
                | TopkBy(_)
        )
    }

    /// The type of its parameter, if it has one.
    pub(crate) fn param_type(self) -> ValueType {
        match self {
            AggregateOp::CountValues | AggregateOp::Quantiles => ValueType::String,
            _ => ValueType::Scalar,
        }
    }

    /// The type of [`Aggregate::more`].
    pub(crate) fn more_type(self) -> ValueType {
        match self {
            AggregateOp::Quantiles => ValueType::Scalar,
            AggregateOp::TopkBy(_) | AggregateOp::BottomkBy(_) => ValueType::String,
            _ => ValueType::Vector,
        }
    }

    /// Maximum number of [`Aggregate::more`].
    pub(crate) fn more_max(self) -> usize {
        match self {
            AggregateOp::TopkBy(_) | AggregateOp::BottomkBy(_) => 1,
            AggregateOp::Quantiles => usize::MAX,
            _ if self.has_param() => 0,
            _ => usize::MAX,
        }
    }

    /// True for those that must be enabled.
    pub fn experimental(self) -> bool {
        matches!(self, AggregateOp::Limitk | AggregateOp::LimitRatio)
    }
}

/// An aggregation.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    /// The operator.
    pub op: AggregateOp,
    /// The aggregated expression.
    pub expr: Expr,
    /// `k`, the quantile, the label.
    pub param: Option<Expr>,
    /// For `quantiles` the quantiles, for `topk_max` and similar the label of the rest; for the others
    /// further vectors.
    pub more: Vec<Expr>,
    /// Labels of `by` or `without`.
    pub grouping: Vec<String>,
    /// `without` instead of `by`.
    pub without: bool,
    /// `limit`: maximum number of groups.
    pub limit: Option<u64>,
    /// Its position.
    pub span: Span,
}

impl Aggregate {
    /// Its arguments, in order of the text.
    pub fn args(&self) -> Vec<&Expr> {
        let (more, none): (&[Expr], &[Expr]) = (&self.more, &[]);
        let (before, behind) = if self.op == AggregateOp::Quantiles { (more, none) } else { (none, more) };
        self.param.iter().chain(before).chain([&self.expr]).chain(behind).collect()
    }

    /// The vectors whose series are aggregated.
    pub(crate) fn vectors(&self) -> impl Iterator<Item = &Expr> {
        let more = self.more.iter().filter(|_| self.op.more_type() == ValueType::Vector);
        [&self.expr].into_iter().chain(more)
    }
}

/// A binary operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are the operators of the language")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterEqual,
    LessEqual,
    TrimUpper,
    TrimLower,
    And,
    Or,
    Unless,
    /// Gaps of the left side are filled with the right side.
    Default,
    /// The values of the left side that have a partner on the right.
    If,
    /// The values of the left side that have no partner.
    IfNot,
}

impl BinaryOp {
    /// The operators of PromQL.
    pub const ALL: [BinaryOp; 18] = {
        use BinaryOp::*;
        [
            Add,
            Sub,
            Mul,
            Div,
            Mod,
            Pow,
            Atan2,
            Equal,
            NotEqual,
            Greater,
            Less,
            GreaterEqual,
            LessEqual,
            TrimUpper,
            TrimLower,
            And,
            Or,
            Unless,
        ]
    };

    /// The symbol or keyword.
    pub fn name(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Mod => "%",
            BinaryOp::Pow => "^",
            BinaryOp::Atan2 => "atan2",
            BinaryOp::Equal => "==",
            BinaryOp::NotEqual => "!=",
            BinaryOp::Greater => ">",
            BinaryOp::Less => "<",
            BinaryOp::GreaterEqual => ">=",
            BinaryOp::LessEqual => "<=",
            BinaryOp::TrimUpper => "</",
            BinaryOp::TrimLower => ">/",
            BinaryOp::And => "and",
            BinaryOp::Or => "or",
            BinaryOp::Unless => "unless",
            BinaryOp::Default => "default",
            BinaryOp::If => "if",
            BinaryOp::IfNot => "ifnot",
        }
    }

    /// The operator of MetricsQL of this name.
    pub(crate) fn of_metricsql(name: &str) -> Option<Self> {
        let all = [BinaryOp::Default, BinaryOp::If, BinaryOp::IfNot];
        all.into_iter().find(|op| op.name().eq_ignore_ascii_case(name))
    }

    /// The precedence, and whether it is right-associative.
    pub(crate) fn precedence(self) -> (u8, bool) {
        match self {
            BinaryOp::Default => (1, false),
            BinaryOp::If | BinaryOp::IfNot => (2, false),
            BinaryOp::Or => (3, false),
            BinaryOp::And | BinaryOp::Unless => (4, false),
            BinaryOp::Equal
            | BinaryOp::NotEqual
            | BinaryOp::Greater
            | BinaryOp::Less
            | BinaryOp::GreaterEqual
            | BinaryOp::LessEqual
            | BinaryOp::TrimUpper
            | BinaryOp::TrimLower => (5, false),
            BinaryOp::Add | BinaryOp::Sub => (6, false),
            BinaryOp::Mul | BinaryOp::Div | BinaryOp::Mod | BinaryOp::Atan2 => (7, false),
            BinaryOp::Pow => (8, true),
        }
    }

    /// Comparison operators.
    pub fn compares(self) -> bool {
        use BinaryOp::*;
        matches!(self, Equal | NotEqual | Greater | Less | GreaterEqual | LessEqual)
    }

    /// `and`, `or`, `unless`.
    pub fn is_set(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or | BinaryOp::Unless)
    }

    /// `default`, `if`, `ifnot`, which depend on the presence of values only.
    pub fn fills(self) -> bool {
        matches!(self, BinaryOp::Default | BinaryOp::If | BinaryOp::IfNot)
    }

    /// True when the result is no longer the named metric.
    pub(crate) fn changes_meaning(self) -> bool {
        use BinaryOp::*;
        matches!(self, Add | Sub | Mul | Div | Mod | Pow | Atan2)
    }
}

/// How many series of each side may match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cardinality {
    /// One of the left, one of the right.
    OneToOne,
    /// `group_left`
    ManyToOne,
    /// `group_right`
    OneToMany,
    /// Set operators.
    ManyToMany,
}

/// How series of two vectors are matched.
#[derive(Debug, Clone, PartialEq)]
pub struct Matching {
    /// The cardinality of each side.
    pub card: Cardinality,
    /// Labels of `on` or `ignoring`.
    pub labels: Vec<String>,
    /// `on` instead of `ignoring`.
    pub on: bool,
    /// Labels of `group_left` or `group_right`.
    pub include: Vec<String>,
    /// Value for a missing left side.
    pub fill_left: Option<f64>,
    /// Value for a missing right side.
    pub fill_right: Option<f64>,
}

/// A binary operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Binary {
    /// The operator.
    pub op: BinaryOp,
    /// The left side.
    pub left: Expr,
    /// The right side.
    pub right: Expr,
    /// `bool`
    pub bool: bool,
    /// Only between two vectors.
    pub matching: Option<Matching>,
    /// `keep_metric_names`
    pub keep_name: bool,
}

/// A sign.
#[derive(Debug, Clone, PartialEq)]
pub struct Unary {
    /// `-` instead of `+`.
    pub negative: bool,
    /// The operand.
    pub expr: Expr,
    /// Its position.
    pub span: Span,
}

/// Parentheses.
#[derive(Debug, Clone, PartialEq)]
pub struct Paren {
    /// The expression inside.
    pub expr: Expr,
    /// Its position.
    pub span: Span,
}

/// An expression evaluated at other times.
#[derive(Debug, Clone, PartialEq)]
pub struct WithOffset {
    /// The shifted expression.
    pub expr: Expr,
    /// `offset`
    pub offset: Duration,
    /// `@`
    pub at: Option<AtModifier>,
    /// Its position.
    pub span: Span,
}

impl Expr {
    /// Its position in the text.
    pub fn span(&self) -> Span {
        match self {
            Expr::Number(e) => e.span,
            Expr::Text(e) => e.span,
            Expr::Selector(e) => e.span,
            Expr::Matrix(e) => e.span,
            Expr::Subquery(e) => e.span,
            Expr::Call(e) => e.span,
            Expr::Aggregate(e) => e.span,
            Expr::Binary(e) => e.left.span().to(e.right.span()),
            Expr::Unary(e) => e.span,
            Expr::Paren(e) => e.span,
            Expr::WithOffset(e) => e.span,
            Expr::Invariant(e) => e.span(),
        }
    }

    /// The type of its value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Expr::Number(_) => ValueType::Scalar,
            Expr::Text(_) => ValueType::String,
            Expr::Selector(_) | Expr::Aggregate(_) => ValueType::Vector,
            Expr::Matrix(_) | Expr::Subquery(_) => ValueType::Matrix,
            Expr::Call(e) => e.function.returns,
            Expr::Binary(e) => match (e.left.value_type(), e.right.value_type()) {
                (ValueType::Scalar, ValueType::Scalar) => ValueType::Scalar,
                _ => ValueType::Vector,
            },
            Expr::Unary(e) => e.expr.value_type(),
            Expr::Paren(e) => e.expr.value_type(),
            Expr::WithOffset(e) => e.expr.value_type(),
            Expr::Invariant(e) => e.value_type(),
        }
    }

    /// The direct subexpressions, in order of the text.
    pub fn children(&self) -> Vec<&Expr> {
        match self {
            Expr::Number(_) | Expr::Text(_) | Expr::Selector(_) | Expr::Matrix(_) => Vec::new(),
            Expr::Subquery(e) => vec![&e.expr],
            Expr::Call(e) => e.args.iter().collect(),
            Expr::Aggregate(e) => e.args(),
            Expr::Binary(e) => vec![&e.left, &e.right],
            Expr::Unary(e) => vec![&e.expr],
            Expr::Paren(e) => vec![&e.expr],
            Expr::WithOffset(e) => vec![&e.expr],
            Expr::Invariant(e) => vec![e],
        }
    }

    /// True when its value at a step depends on other steps, so that a range query differs from instant
    /// queries. Subexpressions are not checked.
    pub fn across_steps(&self) -> bool {
        use AggregateOp::{Any, BottomkBy, OutliersIqr, OutliersMad, Outliersk, Quantiles, TopkBy};
        match self {
            Expr::Call(e) => e.function.across_steps,
            Expr::Aggregate(e) => {
                e.limit.is_some()
                    || matches!(
                        e.op,
                        Any | BottomkBy(_) | OutliersIqr | OutliersMad | Outliersk | Quantiles | TopkBy(_)
                    )
            }
            Expr::Binary(e) => e.op == BinaryOp::Default,
            _ => false,
        }
    }

    /// The expression without enclosing parentheses and marks.
    pub(crate) fn bare(&self) -> &Expr {
        match self {
            Expr::Paren(e) => e.expr.bare(),
            Expr::Invariant(e) => e.bare(),
            other => other,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
