//! The memory of one statement in the engine.
//!
//! ```text
//! sorts, groups    fair shares; each spills when its share is used ┐
//! hash joins       the rest, or an error                           ├▶ the statement's bytes
//! repartitions     a quarter in addition, or the statement fails
//! ```
//! A repartition that spills may wait forever (apache/datafusion#24883, in 55.2), so none may spill: when its
//! quarter is used up, the statement fails and restarts on one thread, where there are no repartitions.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::DataFusionError;
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use tokio::sync::Notify;

/// Memory of a statement, with a separate share for repartitions.
#[derive(Debug)]
pub(in crate::exec::analytic) struct StatementMemory {
    others: FairSpillPool,
    repartitions: AtomicUsize,
    repartitions_max: usize,
    bytes_max: usize,
    ended: Notify,
}

fn is_repartition(consumer: &MemoryConsumer) -> bool {
    consumer.name().starts_with("RepartitionExec")
}

impl StatementMemory {
    pub(in crate::exec::analytic) fn new(bytes_max: usize) -> Self {
        Self {
            others: FairSpillPool::new(bytes_max),
            repartitions: AtomicUsize::new(0),
            repartitions_max: bytes_max / 4,
            bytes_max,
            ended: Notify::new(),
        }
    }

    /// Returns when a repartition would have to spill.
    pub(in crate::exec::analytic) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// The error in that case.
    pub(in crate::exec::analytic) fn error(&self) -> DataFusionError {
        let message = format!("rows between threads take more than {} bytes", self.repartitions_max);
        DataFusionError::ResourcesExhausted(message)
    }
}

impl MemoryPool for StatementMemory {
    fn name(&self) -> &'static str {
        "statement"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        if !is_repartition(consumer) {
            self.others.register(consumer);
        }
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        if !is_repartition(consumer) {
            self.others.unregister(consumer);
        }
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        if is_repartition(reservation.consumer()) {
            self.repartitions.fetch_add(additional, Ordering::Relaxed);
        } else {
            self.others.grow(reservation, additional);
        }
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        if is_repartition(reservation.consumer()) {
            self.repartitions.fetch_sub(shrink, Ordering::Relaxed);
        } else {
            self.others.shrink(reservation, shrink);
        }
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<(), DataFusionError> {
        if !is_repartition(reservation.consumer()) {
            return self.others.try_grow(reservation, additional);
        }
        let more = |used: usize| used.checked_add(additional).filter(|used| *used <= self.repartitions_max);
        match self.repartitions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(()),
            Err(_) => {
                self.ended.notify_one();
                Err(self.error())
            }
        }
    }

    fn reserved(&self) -> usize {
        self.others.reserved() + self.repartitions.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes_max)
    }
}

impl fmt::Display for StatementMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({} of {} bytes)", self.name(), self.reserved(), self.bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn repartition_beyond_its_share_ends_the_statement() {
        let memory = Arc::new(StatementMemory::new(4000));
        let pool: Arc<dyn MemoryPool> = memory.clone();
        let passes = MemoryConsumer::new("RepartitionExec[1]").with_can_spill(true).register(&pool);
        let sorts = MemoryConsumer::new("ExternalSorter[0]").with_can_spill(true).register(&pool);
        passes.try_grow(1000).unwrap();
        sorts.try_grow(4000).unwrap();
        assert!(memory.ended().now_or_never().is_none());
        assert!(sorts.try_grow(1).is_err() && memory.ended().now_or_never().is_none());
        let error = passes.try_grow(1).unwrap_err();
        assert!(matches!(error, DataFusionError::ResourcesExhausted(_)));
        assert!(memory.ended().now_or_never().is_some());
        assert_eq!(memory.reserved(), 5000);
        drop((passes, sorts));
        assert_eq!(memory.reserved(), 0);
    }
}
