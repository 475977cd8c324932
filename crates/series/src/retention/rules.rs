//! Retention and downsampling: rules that a store holds and [`SeriesStore::enforce`] enforces.
//!
//! ```text
//! `series.meta`   'r' store u32 big-endian → keep_ms varint, 0 none │ bytes_max varint, 0 none
//!                 │ varint, each: selector │ keep_ms varint                          retention by selector
//!                 │ varint, each: selector │ after_ms varint │ step_ms varint │ u8 keep: 0 last, 1 mean, 2 least, 3 greatest
//!                 'p' store u32 big-endian → varint, each: partition signed │ series varint
//!                                          how far each rule is, retention first; gone when the rules are set
//! selector        varint, each: label name str │ u8 0 =, 1 !=, 2 =~, 3 !~ │ value str
//! ```

use ropewalk_base::{DecodeError, Decoder, put_bytes, put_varint};
use ropewalk_engine::{Durability, ModelId, Operation, Outcome, ReadView, Rejection, Verdict};
use ropewalk_labels::{MatchOp, Matcher};

use crate::error::{Result, SeriesError};
use crate::model::{SERIES, SeriesModel, StoreState};
use crate::sample::pack::{put_signed, take_signed};
use crate::storage::keys::{progress_key, rules_key};
use crate::storage::section::{RulesPart, put_rules};
use crate::store::SeriesStore;

/// Most rules of each kind.
const RULES_MAX: usize = 1024;

/// Rules of a store. The default retains everything.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Drops days that ended so long ago, of all series, and refuses samples of such days. Days are in UTC.
    pub keep_ms: Option<u64>,
    /// Drops the oldest days until the chunks in files take no more.
    pub bytes_max: Option<u64>,
    /// Shorter retention of some series. A series under several rules has the shortest retention.
    pub retention: Vec<Retention>,
    /// Downsampling of old samples. Rules are enforced one by one, in this order.
    pub downsampling: Vec<Downsampling>,
}

/// Retention of some series.
#[derive(Debug, Clone)]
pub struct Retention {
    /// Selects the series for which all matchers hold.
    pub matchers: Vec<Matcher>,
    /// Drops their days that ended so long ago.
    pub keep_ms: u64,
}

/// One sample for many, once they are old. The others are deleted, so a query's window must be longer than
/// the step to find two samples.
#[derive(Debug, Clone)]
pub struct Downsampling {
    /// Selects the series for which all matchers hold.
    pub matchers: Vec<Matcher>,
    /// Downsamples days that ended so long ago.
    pub after_ms: u64,
    /// One sample remains of each step, at the time of the step's last one. Steps begin at multiples of
    /// themselves.
    pub step_ms: u64,
    /// Its value.
    pub keep: RetentionRule,
}

/// The value that remains of a step's samples. Histograms, samples with start timestamps and steps with only
/// staleness markers always leave their last sample; among other samples, staleness markers do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetentionRule {
    /// The last: exact for counters, their increase over whole steps stays what it was.
    #[default]
    Last,
    /// The mean.
    Mean,
    /// The least.
    Least,
    /// The greatest.
    Greatest,
}

/// Progress of a rule: the first partition, and the first series in it, that is not processed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) partition: i64,
    pub(crate) id: u32,
}

impl Progress {
    pub(crate) const START: Self = Self { partition: i64::MIN, id: 0 };
}

fn put_selector(out: &mut Vec<u8>, matchers: &[Matcher]) {
    put_varint(out, matchers.len() as u64);
    for matcher in matchers {
        put_bytes(out, matcher.name().as_bytes());
        out.push(matcher.op() as u8);
        put_bytes(out, matcher.value().as_bytes());
    }
}

fn take_selector(decoder: &mut Decoder<'_>) -> Result<Vec<Matcher>, DecodeError> {
    let mut matchers = Vec::new();
    for _ in 0..decoder.varint("number of matchers")? {
        let name = decoder.str("label of a matcher")?;
        let offset = decoder.offset();
        let op = MatchOp::from_number(decoder.u8("kind of matcher")?.into());
        let op = op.ok_or(DecodeError { what: "a known kind of matcher", offset })?;
        let value = decoder.str("value of a matcher")?;
        let matcher = Matcher::new(name, op, value).map_err(|_| DecodeError { what: "a matcher", offset })?;
        matchers.push(matcher);
    }
    Ok(matchers)
}

impl Rules {
    /// Refuses invalid rules.
    ///
    /// # Errors
    /// [`SeriesError::Invalid`].
    fn check(&self) -> Result<()> {
        let periods = self.retention.iter().map(|rule| rule.keep_ms).chain(self.keep_ms);
        let mut periods =
            periods.chain(self.downsampling.iter().flat_map(|rule| [rule.after_ms, rule.step_ms]));
        let what = if periods.any(|ms| i64::try_from(ms).is_err()) {
            "a period of more than 2^63 - 1 ms"
        } else if self.keep_ms == Some(0) || self.retention.iter().any(|rule| rule.keep_ms == 0) {
            "a retention of 0 ms; delete the series instead"
        } else if self.bytes_max == Some(0) {
            "a limit of 0 bytes; delete the series instead"
        } else if self.downsampling.iter().any(|rule| rule.step_ms == 0) {
            "a step of 0 ms"
        } else if self.retention.len() > RULES_MAX || self.downsampling.len() > RULES_MAX {
            "more than 1024 rules"
        } else {
            return Ok(());
        };
        Err(SeriesError::Invalid { what: format!("rules of a series store: {what}") })
    }

    /// Rules with selectors.
    pub(crate) fn len(&self) -> usize {
        self.retention.len() + self.downsampling.len()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.keep_ms.unwrap_or(0));
        put_varint(out, self.bytes_max.unwrap_or(0));
        put_varint(out, self.retention.len() as u64);
        for rule in &self.retention {
            put_selector(out, &rule.matchers);
            put_varint(out, rule.keep_ms);
        }
        put_varint(out, self.downsampling.len() as u64);
        for rule in &self.downsampling {
            put_selector(out, &rule.matchers);
            put_varint(out, rule.after_ms);
            put_varint(out, rule.step_ms);
            out.push(match rule.keep {
                RetentionRule::Last => 0,
                RetentionRule::Mean => 1,
                RetentionRule::Least => 2,
                RetentionRule::Greatest => 3,
            });
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let some = |number: u64| (number > 0).then_some(number);
        let keep_ms = some(decoder.varint("keep_ms")?);
        let bytes_max = some(decoder.varint("bytes_max")?);
        let mut rules = Self { keep_ms, bytes_max, ..Self::default() };
        for _ in 0..decoder.varint("number of rules")? {
            let matchers = take_selector(&mut decoder)?;
            rules.retention.push(Retention { matchers, keep_ms: decoder.varint("keep_ms")? });
        }
        for _ in 0..decoder.varint("number of rules")? {
            let matchers = take_selector(&mut decoder)?;
            let (after_ms, step_ms) = (decoder.varint("after_ms")?, decoder.varint("step_ms")?);
            let offset = decoder.offset();
            let keep = match decoder.u8("the kind of downsampling")? {
                0 => RetentionRule::Last,
                1 => RetentionRule::Mean,
                2 => RetentionRule::Least,
                3 => RetentionRule::Greatest,
                _ => return Err(DecodeError { what: "a known kind of downsampling", offset }),
            };
            rules.downsampling.push(Downsampling { matchers, after_ms, step_ms, keep });
        }
        if !decoder.is_empty() || rules.downsampling.iter().any(|rule| rule.step_ms == 0) {
            return Err(DecodeError { what: "rules and nothing more", offset: decoder.offset() });
        }
        Ok(rules)
    }
}

pub(crate) fn put_progress(out: &mut Vec<u8>, all: &[Progress]) {
    put_varint(out, all.len() as u64);
    for progress in all {
        put_signed(out, progress.partition);
        put_varint(out, u64::from(progress.id));
    }
}

pub(crate) fn take_progress(bytes: &[u8]) -> Result<Vec<Progress>, DecodeError> {
    let mut decoder = Decoder::new(bytes);
    let mut all = Vec::new();
    for _ in 0..decoder.varint("number of rules")? {
        let partition = take_signed(&mut decoder, "partition")?;
        let offset = decoder.offset();
        let id = u32::try_from(decoder.varint("series")?);
        all.push(Progress { partition, id: id.map_err(|_| DecodeError { what: "series", offset })? });
    }
    Ok(all)
}

fn damaged(place: &'static str) -> impl Fn(DecodeError) -> SeriesError {
    move |error| SeriesError::Damaged { place: place.to_owned(), what: error.to_string() }
}

/// The rules of a store, and the progress of each.
pub(crate) fn read_rules(
    read: ReadView<'_>,
    model: &SeriesModel,
    state: &StoreState,
) -> Result<(Rules, Vec<Progress>)> {
    let rules = match read.get(model.meta(), &rules_key(state.id))? {
        Some(bytes) => Rules::decode(&bytes).map_err(damaged("rules of a store"))?,
        None => Rules::default(),
    };
    let mut progress = match read.get(model.meta(), &progress_key(state.id))? {
        Some(bytes) => take_progress(&bytes).map_err(damaged("progress of rules"))?,
        None => Vec::new(),
    };
    progress.resize(rules.len(), Progress::START);
    Ok((rules, progress))
}

/// Sets rules, or their progress.
pub(crate) struct RulesOperation {
    pub(crate) model: std::sync::Arc<SeriesModel>,
    pub(crate) store: String,
    pub(crate) part: RulesPart,
    pub(crate) bytes: Vec<u8>,
}

impl Operation for RulesOperation {
    fn model(&self) -> ModelId {
        SERIES
    }

    fn bytes_max(&self) -> usize {
        self.store.len() + self.bytes.len() + 64
    }

    fn validate(&mut self, _latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        self.model.check_new(&self.store)?;
        Ok(Verdict::Write)
    }

    fn encode(&mut self, _seq: ropewalk_base::Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        let state = self.model.find(&self.store);
        let id = state.as_ref().map_or_else(|| self.model.new_id(), |state| state.id);
        let creates = state.is_none().then_some(self.store.as_str());
        put_rules(out, (id, creates), self.part, &self.bytes);
        (0, 0)
    }
}

impl SeriesStore {
    /// Replaces the store's rules; creates the store if it does not exist. They are enforced by
    /// [`SeriesStore::enforce`].
    ///
    /// # Errors
    /// [`SeriesError::Invalid`]; the engine's.
    pub fn set_rules(&self, rules: &Rules) -> Result<()> {
        rules.check()?;
        let mut bytes = Vec::new();
        rules.encode(&mut bytes);
        let (model, store) = (self.model.clone(), self.name().to_owned());
        let operation = RulesOperation { model, store, part: RulesPart::Rules, bytes };
        self.engine.commit(vec![Box::new(operation)], Durability::Sync)?;
        Ok(())
    }

    /// The rules in force.
    ///
    /// # Errors
    /// Damage.
    pub fn rules(&self) -> Result<Rules> {
        let Some(state) = self.model.find(self.name()) else { return Ok(Rules::default()) };
        let snapshot = self.engine.snapshot();
        Ok(read_rules(snapshot.read(), &self.model, &state)?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let matchers = || vec![Matcher::new("a", MatchOp::NotRegex, "b|c").unwrap()];
        let thin =
            Downsampling { matchers: Vec::new(), after_ms: 1, step_ms: 2, keep: RetentionRule::Greatest };
        let retention = vec![Retention { matchers: matchers(), keep_ms: 300 }];
        let rules = Rules { keep_ms: Some(5), bytes_max: None, retention, downsampling: vec![thin] };
        let mut bytes = Vec::new();
        rules.encode(&mut bytes);
        assert_eq!(bytes, [5, 0, 1, 1, 1, b'a', 3, 3, b'b', b'|', b'c', 0xac, 2, 1, 0, 1, 2, 3]);
        let back = Rules::decode(&bytes).unwrap();
        assert_eq!(format!("{back:?}"), format!("{rules:?}"));
        let mut bytes = Vec::new();
        put_progress(&mut bytes, &[Progress { partition: -1, id: 300 }]);
        assert_eq!(bytes, [1, 1, 0xac, 2]);
        assert_eq!(take_progress(&bytes).unwrap(), [Progress { partition: -1, id: 300 }]);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>) {
            let _ = Rules::decode(&bytes);
            let _ = take_progress(&bytes);
        }
    }
}
