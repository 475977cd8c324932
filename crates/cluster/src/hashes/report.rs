//! The report of a node to its leader about its contents.

use core::fmt;

use ropewalk::Seq;
use ropewalk_base::ContentHash;
use ropewalk_engine::{Engine, HashMarks};
use ropewalk_log::shared::EntryIndex;

/// Most marks of a report: a node has sixteen.
const MARKS_MAX: usize = 32;

/// Hashes of a node that its leader compares with its own.
///
/// As text: `ORIGIN;COMMIT=HASH,COMMIT=HASH;ENTRY=HASH` with hexadecimal origin and hashes, and decimal commits and entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HashReport {
    /// The hashes of its effects.
    pub marks: HashMarks,
    /// The hash of the slice that it has hashed last, and the entry that requested it.
    pub slice: Option<(EntryIndex, ContentHash)>,
}

impl HashReport {
    /// That of a node with this engine.
    pub(crate) fn of(engine: &Engine) -> Self {
        let slice = engine.comparisons().slice.map(|(request, slice)| (request, slice.hash));
        Self { marks: engine.hash_marks(), slice }
    }

    /// Its text; `None` when there is nothing to report.
    pub fn to_text(&self) -> Option<String> {
        let is_empty = self.marks.marks.is_empty() && self.slice.is_none();
        (!is_empty).then(|| self.to_string())
    }

    /// Reads a text; `None` when it has another form.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(';');
        let (origin, marks, slice) = (fields.next()?, fields.next()?, fields.next()?);
        let pairs = |text: &str| -> Option<Vec<(u64, ContentHash)>> {
            let pairs = text.split(',').filter(|pair| !pair.is_empty()).take(MARKS_MAX);
            let pair = |pair: &str| {
                let (number, hash) = pair.split_once('=')?;
                Some((number.parse().ok()?, ContentHash::parse(hash)?))
            };
            pairs.map(pair).collect()
        };
        let marks = pairs(marks)?.into_iter().map(|(seq, hash)| (Seq(seq), hash)).collect();
        let slice = pairs(slice)?.first().map(|(entry, hash)| (EntryIndex(*entry), *hash));
        let marks = HashMarks { origin: u64::from_str_radix(origin, 16).ok()?, marks };
        fields.next().is_none().then_some(Self { marks, slice })
    }

    /// True when it has another hash of something than the other one. Hashes of effects compare if an origin is known.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        let HashMarks { origin, marks } = &other.marks;
        let effects = |(seq, hash): &(Seq, ContentHash)| {
            *origin != 0 && self.effects(*origin, *seq).is_some_and(|own| own != *hash)
        };
        let slices = self.slice.zip(other.slice);
        marks.iter().any(effects) || slices.is_some_and(|((a, own), (b, hash))| a == b && own != hash)
    }

    /// The hash of its effects up to `seq`, if it compares with hashes of `origin`.
    pub(crate) fn effects(&self, origin: u64, seq: Seq) -> Option<ContentHash> {
        let HashMarks { origin: own, marks } = &self.marks;
        marks.iter().find(|(at, _)| *own == origin && *at == seq).map(|(_, hash)| *hash)
    }
}

impl fmt::Display for HashReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x};", self.marks.origin)?;
        for (number, (seq, hash)) in self.marks.marks.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            write!(f, "{comma}{seq}={hash}")?;
        }
        f.write_str(";")?;
        match self.slice {
            Some((entry, hash)) => write!(f, "{entry}={hash}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_read_as_it_is_written() {
        let marks = vec![(Seq(4), ContentHash(1)), (Seq(8), ContentHash(u128::MAX))];
        let whole = HashReport {
            marks: HashMarks { origin: 0xab, marks },
            slice: Some((EntryIndex(3), ContentHash(2))),
        };
        let text = whole.to_text().unwrap();
        let expected = format!("ab;4={:032x},8={:032x};3={:032x}", 1, u128::MAX, 2);
        assert_eq!((text.as_str(), HashReport::parse(&text)), (expected.as_str(), Some(whole.clone())));
        for part in
            [HashReport { slice: None, ..whole.clone() }, HashReport { marks: HashMarks::default(), ..whole }]
        {
            assert_eq!(HashReport::parse(&part.to_text().unwrap()), Some(part));
        }
        assert_eq!(HashReport::default().to_text(), None);
        for bad in ["", "0", ";;", "0;1;", "0;x=1;", "0;;;", "0;1=00;", "g;;"] {
            assert_eq!(HashReport::parse(bad), None, "{bad}");
        }
    }
}
