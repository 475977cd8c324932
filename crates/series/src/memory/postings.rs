//! Postings: from each value of each label to the series that have it.
//!
//!   name ─▶ value ─▶ ids          (values sorted: a prefix of a pattern is a range)
//!
//! Series are added in the order of their numbers. Those that come together share most of their labels, so
//! each label is first searched where the previous series had it.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::ops::Bound;

use roaring::RoaringBitmap;

use ropewalk_labels::{LabelsRef, Lookup, Matcher};

/// Most label values of most systems belong to one series.
enum Ids {
    None,
    One(u32),
    Many(RoaringBitmap),
}

impl Ids {
    fn push(&mut self, id: u32) {
        match self {
            Self::None => *self = Self::One(id),
            Self::One(one) => {
                debug_assert!(*one < id, "series {id} is posted after series {one}");
                *self = Self::Many([*one, id].into_iter().collect());
            }
            Self::Many(many) => {
                debug_assert!(many.max() < Some(id), "series {id} is posted after series {:?}", many.max());
                // Numbers rise, so the new one belongs at the end.
                if many.try_push(id).is_err() {
                    many.insert(id);
                }
            }
        }
    }

    fn add_to(&self, all: &mut RoaringBitmap) {
        match self {
            Self::None => {}
            Self::One(one) => {
                all.insert(*one);
            }
            Self::Many(many) => *all |= many,
        }
    }

    fn meets(&self, ids: &RoaringBitmap) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => ids.contains(*one),
            Self::Many(many) => !many.is_disjoint(ids),
        }
    }

    fn common(&self, ids: &RoaringBitmap) -> u64 {
        match self {
            Self::None => 0,
            Self::One(one) => u64::from(ids.contains(*one)),
            Self::Many(many) => many.intersection_len(ids),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::None | Self::One(_) => 0,
            Self::Many(many) => many.serialized_size() as u64,
        }
    }
}

/// Values in order, each with its place in `Postings::lists`.
type Values = BTreeMap<Box<str>, u32>;

/// Values and recent use of one label name.
struct Name {
    name: Box<str>,
    values: Values,
    /// The value that came last, and its list.
    last: (String, u32),
}

/// The postings of one store.
#[derive(Default)]
pub(crate) struct Postings {
    /// In order, each with its place in `described`.
    names: BTreeMap<Box<str>, u32>,
    described: Vec<Name>,
    /// Places in `described` of the labels of the series that came last.
    recent: Vec<u32>,
    /// The series of each value of each name.
    lists: Vec<Ids>,
}

impl Postings {
    /// Adds a series; numbers rise.
    pub(crate) fn add(&mut self, id: u32, labels: LabelsRef<'_>) {
        for (at, (name, value)) in labels.byte_pairs().enumerate() {
            // Appends check labels. Others, without UTF-8, come only from damaged records.
            let Some(place) = self.place(at, name) else { return };
            let of = self.described.get_mut(place as usize).expect("names have places of descriptions");
            if of.last.0.as_bytes() != value {
                let Ok(value) = std::str::from_utf8(value) else { return };
                let list = match of.values.get(value) {
                    Some(list) => *list,
                    None => {
                        let list = self.lists.len() as u32;
                        self.lists.push(Ids::None);
                        of.values.insert(value.into(), list);
                        list
                    }
                };
                of.last.0.clear();
                of.last.0.push_str(value);
                of.last.1 = list;
            }
            // Only an empty value, which appends refuse, may have no list.
            if let Some(list) = self.lists.get_mut(of.last.1 as usize) {
                list.push(id);
            }
        }
    }

    /// Place of the description of a name that a series has as its label `at`.
    fn place(&mut self, at: usize, name: &[u8]) -> Option<u32> {
        let recent = self.recent.get(at).copied();
        let is_it =
            |place: &u32| self.described.get(*place as usize).is_some_and(|of| of.name.as_bytes() == name);
        if let Some(place) = recent.filter(is_it) {
            return Some(place);
        }
        let name = std::str::from_utf8(name).ok()?;
        let place = match self.names.get(name) {
            Some(place) => *place,
            None => {
                let place = self.described.len() as u32;
                // No list has this number: the first value is searched.
                let last = (String::new(), u32::MAX);
                self.described.push(Name { name: name.into(), values: Values::new(), last });
                self.names.insert(name.into(), place);
                place
            }
        };
        match self.recent.get_mut(at) {
            Some(recent) => *recent = place,
            None => self.recent.push(place),
        }
        Some(place)
    }

    fn list(&self, list: u32) -> &Ids {
        self.lists.get(list as usize).expect("values have places of lists")
    }

    fn of(&self, name: &str) -> Option<&Values> {
        let place = *self.names.get(name)?;
        self.described.get(place as usize).map(|of| &of.values)
    }

    /// Names in order, each with its values.
    fn all(&self) -> impl Iterator<Item = (&str, &Values)> {
        let described = |place: &u32| self.described.get(*place as usize).map(|of| &of.values);
        self.names.iter().filter_map(move |(name, place)| Some((&**name, described(place)?)))
    }

    /// Series with a value of the matcher's label for which its test returns `expected`.
    pub(crate) fn named(&self, matcher: &Matcher, expected: bool, among: &RoaringBitmap) -> RoaringBitmap {
        let mut ids = RoaringBitmap::new();
        let Some(values) = self.of(matcher.name()) else { return ids };
        match matcher.lookup() {
            Lookup::Texts(texts) if expected => {
                let lists = texts.iter().filter_map(|text| values.get(text.as_str()));
                lists.for_each(|list| self.list(*list).add_to(&mut ids));
            }
            Lookup::Prefix(prefix) if expected => {
                let all = matcher.accepts_all();
                for (_, list) in from_prefix(values, prefix).filter(|(value, _)| all || matcher.test(value)) {
                    self.list(list).add_to(&mut ids);
                }
            }
            _ => {
                for (_, list) in values.iter().filter(|(value, _)| !matcher.test(value)) {
                    self.list(*list).add_to(&mut ids);
                }
            }
        }
        ids &= among;
        ids
    }

    /// Names that occur among `ids`, sorted.
    pub(crate) fn names<'a>(&'a self, ids: &'a RoaringBitmap) -> impl Iterator<Item = &'a str> {
        let occurs = move |values: &Values| values.values().any(|list| self.list(*list).meets(ids));
        self.all().filter(move |(_, values)| occurs(values)).map(|(name, _)| name)
    }

    /// Values of `name` that occur among `ids`, sorted.
    pub(crate) fn values<'a>(&'a self, name: &str, ids: &'a RoaringBitmap) -> impl Iterator<Item = &'a str> {
        let values = self.of(name).into_iter().flatten();
        values.filter(move |(_, list)| self.list(**list).meets(ids)).map(|(value, _)| &**value)
    }

    /// Number of series of `alive` with this value of this name; with an empty value, of those without the
    /// name.
    pub(crate) fn with(&self, name: &str, value: &str, alive: &RoaringBitmap) -> u64 {
        let values = self.of(name);
        let common = |list: &u32| self.list(*list).common(alive);
        if value.is_empty() {
            let named: u64 = values.map_or(0, |values| values.values().map(common).sum());
            return alive.len() - named;
        }
        values.and_then(|values| values.get(value)).map_or(0, common)
    }

    /// Passes each value of each name with the number of series among `ids` that have it to `each`.
    pub(crate) fn census(&self, ids: &RoaringBitmap, mut each: impl FnMut(&str, &str, u64)) {
        for (name, values) in self.all() {
            for (value, list) in values {
                let series = self.list(*list).common(ids);
                if series > 0 {
                    each(name, value, series);
                }
            }
        }
    }

    /// Bytes of memory, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        let values = |values: &Values| values.keys().map(|value| 48 + value.len() as u64).sum::<u64>();
        self.all().map(|(_, all)| values(all)).sum::<u64>()
            + self.lists.iter().map(|ids| 32 + ids.bytes()).sum::<u64>()
    }
}

fn from_prefix<'a>(values: &'a Values, prefix: &str) -> impl Iterator<Item = (&'a str, u32)> {
    let range: Range<'a, Box<str>, u32> = values.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
    let prefix = prefix.to_owned();
    range.map(|(value, list)| (&**value, *list)).take_while(move |(value, _)| value.starts_with(&prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_labels::Labels;

    #[test]
    fn series_of_other_shapes_one_after_the_other() {
        let mut postings = Postings::default();
        // A label in the place of another one, one that is missing in between, values that come again.
        let sets: [&[(&str, &str)]; 6] = [
            &[("a", "1"), ("b", "1"), ("c", "1")],
            &[("a", "1"), ("c", "1")],
            &[("b", "1"), ("c", "2"), ("d", "1")],
            &[("a", "2"), ("b", "1"), ("c", "1")],
            &[("0", "1"), ("a", "1"), ("b", "1")],
            &[("c", "1")],
        ];
        for (id, set) in (1..).zip(sets) {
            postings.add(id, Labels::new(set.iter().copied()).unwrap().as_ref());
        }
        let all: RoaringBitmap = (1..=6).collect();
        let mut census = Vec::new();
        postings.census(&all, |name, value, series| census.push(format!("{name}={value}:{series}")));
        assert_eq!(census, ["0=1:1", "a=1:3", "a=2:1", "b=1:4", "c=1:4", "c=2:1", "d=1:1"]);
        let found = postings.named(&Matcher::equal("c", "1"), true, &all);
        assert_eq!(found.iter().collect::<Vec<_>>(), [1, 2, 4, 6]);
        assert_eq!((postings.with("a", "", &all), postings.with("a", "1", &all)), (2, 3));
    }
}
