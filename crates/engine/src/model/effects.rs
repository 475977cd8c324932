//! Hash of effects: of every write that applying the commits has made, in order.
//!
//! ```text
//! apply ─▶ put, delete, delete range, effect of a model ─▶ item: commit, number in it, kind, parts ─▶ sum of all items
//!                              commit with a number that the interval divides ─▶ mark: the sum up to it
//! ```
//! Nodes with the same commits and a sum that began at the same one have the same sums, unless one has applied something
//! else. A checkpoint stores the sum, so that replay continues it. A sum that began elsewhere differs by a constant, which
//! the first statement of a leader tells: `origin` names the sums that can be compared.
//!
//! Not here: bytes of records, which the chain of entries covers; what became of a write in a memtable or a run, which the
//! hash of contents covers.

use core::cell::RefCell;

use ropewalk_base::{ContentHash, DecodeError, Decoder, Seq, SetHasher, put_u64};

use crate::model::ModelId;

/// Kinds of effects. Part of the hash, which all nodes of a cluster have to compute in the same way.
const PUT: u8 = 0;
const DELETE: u8 = 1;
const DELETE_RANGE: u8 = 2;
const MODEL: u8 = 3;

/// Most marks that wait for a statement of the leader. With twice the interval they reach back twice as far.
const MARKS_MAX: usize = 16;

/// One write.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect<'a> {
    /// Key and value of an entry; `None` deletes.
    Put(u16, &'a [u8], Option<&'a [u8]>),
    /// Start and end.
    DeleteRange(u16, &'a [u8], &'a [u8]),
    /// Outside of keyspaces: the model, and what it has written.
    Model(ModelId, &'a [&'a [u8]]),
}

/// The sum at a commit.
pub(crate) type Mark = (Seq, ContentHash);

/// The sum that a checkpoint stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SavedEffects {
    /// Zero: no statement of a leader was compared with it.
    pub(crate) origin: u64,
    pub(crate) sum: ContentHash,
}

/// Result of a comparison with the statement of a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    Equal,
    /// The sums of this node had another origin; they have that of the leader from now on.
    Adopted,
    /// The sum at that commit is not known.
    Unknown,
    /// The sum of this node.
    Differs(ContentHash),
}

/// The sum so far, and its marks.
pub(crate) struct Effects {
    hasher: SetHasher,
    /// Effects of the current commit.
    ordinal: u32,
    origin: u64,
    interval: u64,
    /// Marks are at multiples of this: the interval, doubled as often as there were too many.
    step: u64,
    /// Ascending, since the last statement.
    marks: Vec<Mark>,
    commits: u64,
}

impl Effects {
    /// Continues the sum of a checkpoint. `interval`: commits between two marks.
    pub(crate) fn new(saved: Option<SavedEffects>, interval: u64) -> RefCell<Self> {
        let SavedEffects { origin, sum } =
            saved.unwrap_or(SavedEffects { origin: 0, sum: ContentHash::default() });
        let (hasher, interval) = (SetHasher::new(sum), interval.max(1));
        let marks = Vec::new();
        RefCell::new(Self { hasher, ordinal: 0, origin, interval, step: interval, marks, commits: 0 })
    }

    pub(crate) fn note(&mut self, seq: Seq, effect: Effect<'_>) {
        let kind = match effect {
            Effect::Put(_, _, Some(_)) => PUT,
            Effect::Put(_, _, None) => DELETE,
            Effect::DeleteRange(..) => DELETE_RANGE,
            Effect::Model(..) => MODEL,
        };
        let mut head = [0; 13];
        let (number, rest) = head.split_at_mut(8);
        let (ordinal, last) = rest.split_at_mut(4);
        number.copy_from_slice(&seq.0.to_le_bytes());
        ordinal.copy_from_slice(&self.ordinal.to_le_bytes());
        last.copy_from_slice(&[kind]);
        self.ordinal += 1;
        match effect {
            Effect::Put(keyspace, key, value) => {
                self.hasher.add([&head[..], &keyspace.to_le_bytes(), key, value.unwrap_or_default()]);
            }
            Effect::DeleteRange(keyspace, start, end) => {
                self.hasher.add([&head[..], &keyspace.to_le_bytes(), start, end]);
            }
            Effect::Model(model, parts) => {
                let number = [model.0];
                self.hasher.add([&head[..], &number].into_iter().chain(parts.iter().copied()));
            }
        }
    }

    /// All effects of commit `seq` were noted.
    pub(crate) fn end_commit(&mut self, seq: Seq) {
        self.ordinal = 0;
        self.commits += 1;
        if !seq.0.is_multiple_of(self.step) {
            return;
        }
        self.marks.push((seq, self.hasher.hash()));
        while self.marks.len() > MARKS_MAX {
            self.step *= 2;
            let step = self.step;
            self.marks.retain(|(seq, _)| seq.0.is_multiple_of(step));
        }
    }

    pub(crate) fn saved(&self) -> SavedEffects {
        SavedEffects { origin: self.origin, sum: self.hasher.hash() }
    }

    /// The marks up to commit `newest`, which are of `origin`.
    pub(crate) fn marks(&self, newest: Seq) -> (u64, Vec<Mark>) {
        (self.origin, self.marks.iter().filter(|(seq, _)| *seq <= newest).copied().collect())
    }

    /// Compares with the statement of a leader about the commits up to `seq`, and forgets the marks up to there.
    pub(crate) fn compare(&mut self, origin: u64, seq: Seq, hash: ContentHash) -> Compared {
        let own = self.marks.iter().find(|(at, _)| *at == seq).map(|(_, own)| *own);
        self.marks.retain(|(at, _)| *at > seq);
        if self.marks.is_empty() {
            self.step = self.interval;
        }
        match own {
            None => Compared::Unknown,
            Some(own) if self.origin != origin => {
                let constant = hash.minus(own);
                self.origin = origin;
                self.hasher.set_hash(self.hasher.hash().plus(constant));
                self.marks.iter_mut().for_each(|(_, mark)| *mark = mark.plus(constant));
                Compared::Adopted
            }
            Some(own) if own == hash => Compared::Equal,
            Some(own) => Compared::Differs(own),
        }
    }

    /// Commits and bytes that were hashed since the engine was opened.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.commits, self.hasher.bytes())
    }
}

/// Metadata of a checkpoint of the engine: time of its last commit, and the sum of effects of a node.
/// ```text
/// time u64 | of a node: origin u64 | sum 16
/// ```
pub(crate) fn encode_meta(time_micros: i64, effects: Option<SavedEffects>) -> Vec<u8> {
    let mut meta = time_micros.to_le_bytes().to_vec();
    if let Some(SavedEffects { origin, sum }) = effects {
        put_u64(&mut meta, origin);
        meta.extend_from_slice(&sum.0.to_le_bytes());
    }
    meta
}

/// Reads [`encode_meta`]; an empty database has no metadata.
pub(crate) fn decode_meta(meta: &[u8]) -> Result<(i64, Option<SavedEffects>), DecodeError> {
    if meta.is_empty() {
        return Ok((i64::MIN, None));
    }
    let mut decoder = Decoder::new(meta);
    let time_micros = i64::from_le_bytes(decoder.array("time of the checkpoint")?);
    if decoder.is_empty() {
        return Ok((time_micros, None));
    }
    let origin = decoder.u64("origin of the sum of effects")?;
    let sum = ContentHash(u128::from_le_bytes(decoder.array("sum of effects")?));
    if !decoder.is_empty() {
        return Err(DecodeError { what: "end of the metadata of a checkpoint", offset: decoder.offset() });
    }
    Ok((time_micros, Some(SavedEffects { origin, sum })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commits(effects: &RefCell<Effects>, numbers: core::ops::RangeInclusive<u64>) {
        for number in numbers {
            let mut effects = effects.borrow_mut();
            effects.note(Seq(number), Effect::Put(1, b"k", Some(&number.to_le_bytes())));
            effects.note(Seq(number), Effect::DeleteRange(1, b"a", b"b"));
            effects.note(Seq(number), Effect::Model(ModelId(2), &[b"x"]));
            effects.end_commit(Seq(number));
        }
    }

    fn sum(notes: &[(u64, Effect<'_>)]) -> ContentHash {
        let effects = Effects::new(None, 4);
        notes.iter().for_each(|(seq, effect)| effects.borrow_mut().note(Seq(*seq), *effect));
        effects.borrow().saved().sum
    }

    #[test]
    fn order_commit_and_kind_of_effects_matter() {
        let (put, delete) = (Effect::Put(1, b"a", Some(b"1")), Effect::Put(1, b"b", None));
        let base = sum(&[(1, put), (1, delete)]);
        for other in [
            sum(&[(1, delete), (1, put)]),
            sum(&[(1, put), (2, delete)]),
            sum(&[(1, put), (1, Effect::Put(1, b"b", Some(b"")))]),
            sum(&[(1, put), (1, Effect::Put(2, b"b", None))]),
            sum(&[(1, put), (1, Effect::DeleteRange(1, b"b", b""))]),
            sum(&[(1, put)]),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn restart_continues_the_sum_of_the_checkpoint() {
        let whole = Effects::new(None, 4);
        commits(&whole, 1..=6);
        let first = Effects::new(None, 4);
        commits(&first, 1..=3);
        let meta = encode_meta(7, Some(first.borrow().saved()));
        let (time, saved) = decode_meta(&meta).unwrap();
        assert_eq!((time, meta.len()), (7, 32));
        let second = Effects::new(saved, 4);
        commits(&second, 4..=6);
        assert_eq!(second.borrow().saved(), whole.borrow().saved());
        assert_eq!(second.borrow().marks(Seq(9)), whole.borrow().marks(Seq(9)));
        assert_eq!(decode_meta(&encode_meta(7, None)), Ok((7, None)));
        assert_eq!(decode_meta(&[]), Ok((i64::MIN, None)));
        assert!(decode_meta(&meta[..20]).is_err() && decode_meta(&[meta, vec![0]].concat()).is_err());
    }

    #[test]
    fn nodes_have_marks_in_common_however_far_one_is_ahead() {
        let (near, far) = (Effects::new(None, 4), Effects::new(None, 4));
        commits(&near, 1..=4 * 12);
        commits(&far, 1..=4 * 100);
        let (near, far) = (near.borrow().marks(Seq::MAX).1, far.borrow().marks(Seq::MAX).1);
        assert!(far.len() <= MARKS_MAX && near.len() == 12);
        assert_eq!(near.iter().filter(|mark| far.contains(mark)).count(), 1);
    }

    #[test]
    fn statement_of_a_leader_is_compared_or_adopted() {
        let (leader, follower, wrong) = (Effects::new(None, 4), Effects::new(None, 4), Effects::new(None, 4));
        commits(&leader, 1..=8);
        commits(&follower, 3..=8);
        commits(&wrong, 1..=8);
        let state = |effects: &RefCell<Effects>, seq: u64| {
            effects.borrow().marks(Seq::MAX).1.iter().find(|(at, _)| at.0 == seq).map(|(_, hash)| *hash)
        };
        let hash = state(&leader, 4).unwrap();
        for node in [&leader, &follower, &wrong] {
            assert_eq!(node.borrow_mut().compare(5, Seq(4), hash), Compared::Adopted);
            assert_eq!(node.borrow().marks(Seq::MAX).1.len(), 1, "the mark of commit 8 remains");
        }
        wrong.borrow_mut().note(Seq(9), Effect::Put(1, b"k", Some(b"flipped")));
        for node in [&leader, &follower, &wrong] {
            commits(node, 9..=12);
        }
        let hash = state(&leader, 12).unwrap();
        let own = state(&wrong, 12).unwrap();
        assert_eq!(follower.borrow_mut().compare(5, Seq(12), hash), Compared::Equal);
        assert_eq!(wrong.borrow_mut().compare(5, Seq(12), hash), Compared::Differs(own));
        assert_eq!(leader.borrow_mut().compare(5, Seq(11), hash), Compared::Unknown);
        assert_eq!(leader.borrow_mut().compare(5, Seq(12), hash), Compared::Equal);
    }
}
