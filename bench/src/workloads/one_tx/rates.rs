//! Rates of transactions by the models that they write, measured in passes.

use std::collections::BTreeMap;

use super::input::Kind;
use crate::harness::worker::{Figure, Latencies, Outcome};

/// A rate for each kind and pass.
#[derive(Debug, Default)]
pub struct Rates(BTreeMap<&'static str, (Vec<f64>, Latencies)>);

impl Rates {
    /// Adds a pass of a kind: transactions per second, and their latencies.
    pub fn add(&mut self, kind: Kind, rate: f64, latencies: &Latencies) {
        let (rates, all) = self.0.entry(kind.name()).or_default();
        rates.push(rate);
        all.merge(latencies);
    }

    fn of(&self, kind: Kind) -> &[f64] {
        self.0.get(kind.name()).map(|(rates, _)| rates.as_slice()).unwrap_or_default()
    }

    /// The figures of the kinds, of the slowest single model, and of the time for four models relative to it.
    pub fn outcome(self) -> Outcome {
        let (mut slowest, mut ratio) = (Figure::default(), Figure::default());
        for (pass, four) in self.of(Kind::Four).iter().enumerate() {
            let single = Kind::SINGLE.iter().filter_map(|kind| self.of(*kind).get(pass));
            let single = single.copied().fold(f64::INFINITY, f64::min);
            slowest.samples.push(single);
            ratio.samples.push(single / four);
        }
        let mut outcome = Outcome::default();
        outcome.figure("slowest_single", slowest);
        outcome.figure("ratio", ratio);
        for (name, (samples, latencies)) in self.0 {
            outcome.figure(name, Figure { samples, ..Figure::default() }.with(&latencies));
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_of_four_models_to_the_slowest_single_one() {
        let mut rates = Rates::default();
        for (kind, rate) in Kind::ALL.into_iter().zip([80.0, 200.0, 100.0, 150.0, 300.0]) {
            rates.add(kind, rate, &Latencies::default());
        }
        let outcome = rates.outcome();
        let first = |name: &str| outcome.figures[name].samples[0];
        assert_eq!((first("slowest_single"), first("ratio"), first("four_models")), (100.0, 1.25, 80.0));
    }
}
