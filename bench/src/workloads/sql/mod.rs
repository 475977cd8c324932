//! Short statements, TPC-H and COPY.

pub mod copy_plan;
pub mod copying;
pub mod sql_analytic_plan;
pub mod sql_point_plan;
pub mod tpch;
