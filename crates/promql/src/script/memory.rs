//! The simplest storage: series in a map.

use std::collections::BTreeMap;

use ropewalk_labels::{Labels, Samples};

use super::Storage;
use crate::budget::Budget;
use crate::data::source::{Select, SeriesSet, Source, SourceError};

/// Series in memory.
#[derive(Debug, Default)]
pub struct Memory {
    series: BTreeMap<Labels, Samples>,
}

impl Storage for Memory {
    fn clear(&mut self) -> Result<(), String> {
        self.series.clear();
        Ok(())
    }

    fn load(&mut self, series: &[(Labels, Samples)]) -> Result<(), String> {
        for (labels, samples) in series {
            let mut all = self.series.remove(labels).unwrap_or_default();
            for (index, time) in samples.times_ms.iter().enumerate() {
                if all.times_ms.last().is_some_and(|last| last >= time) {
                    continue;
                }
                copy(samples, index, &mut all);
            }
            if !all.is_empty() {
                self.series.insert(labels.clone(), all);
            }
        }
        Ok(())
    }

    fn read(&self, ask: &mut dyn FnMut(&dyn Source)) -> Result<(), String> {
        ask(self);
        Ok(())
    }
}

fn copy(from: &Samples, index: usize, to: &mut Samples) {
    let Some(time) = from.times_ms.get(index) else { return };
    match from.histograms.get(index) {
        Some(Some(histogram)) => to.push_histogram(*time, histogram.clone()),
        _ => to.push(*time, from.values.get(index).copied().unwrap_or(f64::NAN)),
    }
    to.set_start(from.starts_ms.get(index).copied().unwrap_or(0));
}

impl Source for Memory {
    fn select<'s>(
        &'s self,
        request: &Select<'_>,
        budget: &'s Budget<'_>,
    ) -> Result<Box<dyn SeriesSet + 's>, SourceError> {
        let found: Vec<_> = self
            .series
            .iter()
            .filter(|(labels, _)| request.matchers.iter().all(|m| m.matches(labels.get(m.name()))))
            .collect();
        Ok(Box::new(Found {
            rest: found.into_iter(),
            samples: None,
            bounds: (request.start_ms, request.end_ms),
            starts: request.hints.starts,
            budget,
        }))
    }
}

struct Found<'s> {
    rest: std::vec::IntoIter<(&'s Labels, &'s Samples)>,
    samples: Option<&'s Samples>,
    bounds: (i64, i64),
    starts: bool,
    budget: &'s Budget<'s>,
}

impl SeriesSet for Found<'_> {
    fn next(&mut self) -> Result<Option<Labels>, SourceError> {
        let next = self.rest.next();
        self.samples = next.map(|(_, samples)| samples);
        Ok(next.map(|(labels, _)| labels.clone()))
    }

    fn samples(&mut self, into: &mut Samples) -> Result<(), SourceError> {
        let Some(samples) = self.samples else { return Ok(()) };
        let (start, end) = self.bounds;
        let from = samples.times_ms.partition_point(|time| *time < start);
        let to = samples.times_ms.partition_point(|time| *time <= end);
        self.budget.sample(to.saturating_sub(from))?;
        if samples.histograms.is_empty() && samples.starts_ms.is_empty() {
            let times = samples.times_ms.get(from..to).unwrap_or_default();
            into.extend(times, samples.values.get(from..to).unwrap_or_default());
            return Ok(());
        }
        for index in from..to {
            copy(samples, index, into);
        }
        if !self.starts {
            into.starts_ms.clear();
        }
        Ok(())
    }
}
