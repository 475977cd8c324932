//! Delta temporality: conversion of points that count since the previous point.
//!
//! ```text
//! delta     (t0,t1] 3     (t1,t2] 0     (t2,t3] 4
//! as is     3 at t1       0 at t2       4 at t3            gauges
//! totals    3 at t1       3 at t2       7 at t3            counters that began at t0
//! ```
//!
//! Totals are cached in memory by series. A total that is lost, by a restart or by eviction, restarts: a
//! counter reset, as when the client itself had restarted. A repeated point, sent because the first response
//! was lost, gives the same total again. A point older than the last of its series is rejected, since later
//! totals are already written.
//! Source: the data model of OpenTelemetry, "Sums: Delta-to-Cumulative".

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ropewalk::series::Histogram;

/// Memory for totals, approximately: with 200 bytes of labels a quarter of a million series.
const TOTALS_BYTES_MAX: usize = 64 << 20;
/// Memory of an entry in addition to its labels and buckets.
const ENTRY_BYTES: usize = 160;

/// A value that can be added up.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Amount {
    Number(f64),
    Histogram(Box<Histogram>),
}

impl Amount {
    /// Adds a later one; false when the two have incompatible types.
    fn add(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(total), Self::Number(value)) => {
                *total += value;
                true
            }
            (Self::Histogram(total), Self::Histogram(value)) => total.accumulate(value),
            _ => false,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Number(_) => 0,
            Self::Histogram(histogram) => (histogram.positive.len() + histogram.negative.len()) * 16,
        }
    }
}

#[derive(Debug, Clone)]
struct Total {
    start_ms: i64,
    time_ms: i64,
    amount: Amount,
}

/// The totals of all series. The least recently used are evicted first, by halves.
#[derive(Debug, Default)]
pub(crate) struct Totals(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Box<[u8]>, Total>,
    old: HashMap<Box<[u8]>, Total>,
    /// Of `young`.
    bytes: usize,
}

/// Error for a point older than the last one of its series: the time of the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Late(pub(crate) i64);

impl Totals {
    /// The total of a series including this point, and its start time. `layout` separates totals that cannot
    /// be added, such as those of histograms with different bounds.
    ///
    /// # Errors
    /// The point is older than the last one.
    pub(crate) fn add(
        &self,
        (labels, layout): (&[u8], u64),
        (start_ms, time_ms): (i64, i64),
        amount: Amount,
    ) -> Result<(Amount, i64), Late> {
        let key = [labels, &layout.to_le_bytes()].concat().into_boxed_slice();
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total = match generations.take(&key) {
            Some(total) if time_ms < total.time_ms => {
                let last = total.time_ms;
                generations.put(key, total);
                return Err(Late(last));
            }
            Some(total) => total,
            None => Total { start_ms, time_ms, amount: amount.clone() },
        };
        if time_ms > total.time_ms {
            if total.amount.add(&amount) {
                total.time_ms = time_ms;
            } else {
                total = Total { start_ms, time_ms, amount };
            }
        }
        let answer = (total.amount.clone(), total.start_ms);
        generations.put(key, total);
        Ok(answer)
    }
}

impl Generations {
    fn take(&mut self, key: &[u8]) -> Option<Total> {
        match self.young.remove(key) {
            Some(total) => {
                self.bytes -= entry_bytes(key, &total);
                Some(total)
            }
            None => self.old.remove(key),
        }
    }

    fn put(&mut self, key: Box<[u8]>, total: Total) {
        self.bytes += entry_bytes(&key, &total);
        self.young.insert(key, total);
        if self.bytes > TOTALS_BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
    }
}

fn entry_bytes(key: &[u8], total: &Total) -> usize {
    key.len() + ENTRY_BYTES + total.amount.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(totals: &Totals, key: &[u8], times: (i64, i64), value: f64) -> Result<(f64, i64), Late> {
        match totals.add((key, 0), times, Amount::Number(value))? {
            (Amount::Number(total), start) => Ok((total, start)),
            (other, _) => panic!("{other:?}"),
        }
    }

    #[test]
    fn numbers_add_up_from_where_they_began() {
        let totals = Totals::default();
        assert_eq!(number(&totals, b"a", (10, 20), 3.0), Ok((3.0, 10)));
        assert_eq!(number(&totals, b"a", (20, 30), 4.0), Ok((7.0, 10)));
        assert_eq!(number(&totals, b"b", (20, 30), 1.0), Ok((1.0, 20)));
        // Sent again, since the response was lost.
        assert_eq!(number(&totals, b"a", (20, 30), 4.0), Ok((7.0, 10)));
        assert_eq!(number(&totals, b"a", (10, 20), 3.0), Err(Late(30)));
        assert_eq!(number(&totals, b"a", (30, 40), 0.5), Ok((7.5, 10)));
    }

    #[test]
    fn histograms_add_up_in_the_coarser_layout() {
        let totals = Totals::default();
        let histogram = |schema, index, count: f64| {
            let positive = vec![ropewalk::series::Bucket { index, count }];
            let counts = Histogram { schema, count, sum: count, positive, ..Histogram::default() };
            Amount::Histogram(Box::new(counts))
        };
        totals.add((b"a", 0), (0, 10), histogram(2, 8, 1.0)).unwrap();
        let (total, start) = totals.add((b"a", 0), (10, 20), histogram(1, 3, 2.0)).unwrap();
        let Amount::Histogram(total) = total else { panic!() };
        let buckets: Vec<(i32, f64)> =
            total.positive.iter().map(|bucket| (bucket.index, bucket.count)).collect();
        assert_eq!((start, total.schema, total.count, buckets), (0, 1, 3.0, vec![(3, 2.0), (4, 1.0)]));
        // Another kind restarts the total.
        assert_eq!(number(&totals, b"a", (20, 30), 1.0), Ok((1.0, 20)));
    }

    #[test]
    fn memory_is_bounded_and_recent_totals_stay() {
        let totals = Totals::default();
        let long = vec![b'x'; 1 << 20];
        for round in 0..200_i64 {
            let key = [&long[..], &round.to_le_bytes()].concat();
            number(&totals, &key, (0, 1), 1.0).unwrap();
            assert_eq!(number(&totals, b"used", (0, round + 1), 1.0), Ok(((round + 1) as f64, 0)));
        }
        let generations = totals.0.lock().unwrap();
        assert!(generations.young.len() + generations.old.len() <= 66, "{}", generations.young.len());
    }
}
