//! The rules that decide which of two samples at one time is stored, if a store's setting has changed.
//!
//! The rule in force at the commit of the *later* sample decides: "keep first" leaves the earlier sample, "keep last"
//! replaces it. So the result follows from the commits alone, whenever flushes, merges and crashes occurred.
//! A change is in force for the commits after its own.
//!
//! ```text
//! in `series.meta`, from the first change on, per rule: in force after commit u64 (the first: 0) │ u8: 0 keep last, 1 keep first
//! ```

use std::sync::Arc;

use ropewalk_base::{DecodeError, Decoder, Seq, put_u64};

use crate::sample::types::Duplicates;

/// Most changes of the rule of one store: all of them are stored, because old samples stay.
const CHANGES_MAX: usize = 1000;

/// The rules of a store by commit. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DuplicateRules {
    /// The commit after which a rule is in force, and whether it keeps the first; ascending, beginning with commit zero.
    rules: Arc<[(Seq, bool)]>,
}

/// A store that refuses duplicates may have some from before; the last stays.
fn keeps_first(duplicates: Duplicates) -> bool {
    duplicates == Duplicates::KeepFirst
}

impl DuplicateRules {
    /// One rule for all commits.
    pub(crate) fn always(duplicates: Duplicates) -> Self {
        Self { rules: Arc::from([(Seq::ZERO, keeps_first(duplicates))]) }
    }

    /// True when commit `later` leaves an earlier sample at the same time in place.
    pub(crate) fn keep_first(&self, later: Seq) -> bool {
        let in_force = self.rules.partition_point(|(since, _)| *since < later).saturating_sub(1);
        self.rules.get(in_force).is_some_and(|(_, keep_first)| *keep_first)
    }

    /// The commits after which another rule is in force, ascending.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Seq> {
        self.rules.iter().skip(1).map(|(since, _)| *since)
    }

    /// True when commits from `first` to `last`, both inclusive, follow different rules.
    pub(crate) fn differ_within(&self, first: Seq, last: Seq) -> bool {
        self.changes().any(|change| first <= change && change < last)
    }

    /// The rules with a change by commit `seq`; `None` if it changes nothing.
    pub(crate) fn changed(&self, seq: Seq, duplicates: Duplicates) -> Option<Self> {
        let (since, keep_first) = *self.rules.last()?;
        debug_assert!(since < seq, "commits are applied in their order");
        let changed = keeps_first(duplicates);
        (changed != keep_first)
            .then(|| Self { rules: self.rules.iter().copied().chain([(seq, changed)]).collect() })
    }

    /// True when no further change can be stored.
    pub(crate) fn is_full(&self) -> bool {
        self.rules.len() > CHANGES_MAX
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (since, keep_first) in self.rules.iter() {
            put_u64(&mut out, since.0);
            out.push(u8::from(*keep_first));
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let mut rules: Vec<(Seq, bool)> = Vec::new();
        while !decoder.is_empty() {
            let offset = decoder.offset();
            let since = Seq(decoder.u64("commit of a change")?);
            let keep_first = match decoder.u8("rule")? {
                0 => false,
                1 => true,
                _ => return Err(DecodeError { what: "a known rule", offset: offset + 8 }),
            };
            let ascends = rules.last().map_or(since == Seq::ZERO, |(before, _)| *before < since);
            if !ascends {
                return Err(DecodeError { what: "commits of changes in order", offset });
            }
            rules.push((since, keep_first));
        }
        if rules.is_empty() {
            return Err(DecodeError { what: "at least one rule", offset: 0 });
        }
        Ok(Self { rules: rules.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_in_force_after_its_commit() {
        let rules = DuplicateRules::always(Duplicates::KeepLast);
        assert_eq!(rules.changed(Seq(4), Duplicates::Refuse), None, "both leave the last");
        let rules = rules.changed(Seq(5), Duplicates::KeepFirst).unwrap();
        let rules = rules.changed(Seq(9), Duplicates::KeepLast).unwrap();
        let keep_first: Vec<u64> = (1..12).filter(|seq| rules.keep_first(Seq(*seq))).collect();
        assert_eq!(keep_first, [6, 7, 8, 9]);
        assert_eq!(rules.changes().collect::<Vec<_>>(), [Seq(5), Seq(9)]);
        let spans = [(1, 5, false), (5, 6, true), (6, 9, false), (6, 10, true), (10, 99, false)];
        for (first, last, differ) in spans {
            assert_eq!(rules.differ_within(Seq(first), Seq(last)), differ, "{first} to {last}");
        }
    }

    #[test]
    fn golden_bytes() {
        let rules = DuplicateRules::always(Duplicates::KeepLast);
        let rules = rules.changed(Seq(0x0102), Duplicates::KeepFirst).unwrap();
        let bytes = rules.encode();
        assert_eq!(ropewalk_base::hex(&bytes), "000000000000000000020100000000000001");
        assert_eq!(DuplicateRules::decode(&bytes).unwrap(), rules);
        for length in 0..bytes.len() {
            assert_eq!(DuplicateRules::decode(&bytes[..length]).is_ok(), length == 9, "{length} bytes");
        }
        for wrong in [[&bytes[9..], &bytes[..9]].concat(), [&bytes[..8], &[2]].concat()] {
            assert!(DuplicateRules::decode(&wrong).is_err(), "{wrong:?}");
        }
    }
}
