//! Prometheus' query tests over series in memory.

use ropewalk_promql::script::Memory;

use crate::prometheus_scripts::conformance;

#[test]
fn prometheus_own_scripts() {
    conformance(Memory::default);
}
