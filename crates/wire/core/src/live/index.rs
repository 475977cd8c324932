//! Finds the groups whose filter may match an event, without evaluating the others.
//!
//! Each query item is indexed by its first tag or, without tags, by each of its types. An event looks up its
//! type and each of its tags; only the items found can match, and they are checked. An item with neither, or
//! with prefixes of types in addition to its types, is checked for every event.

use std::collections::HashMap;
use std::sync::Arc;

use ropewalk::Query;
use ropewalk::events::{QueryItem, SequencedEventRef};

use crate::live::feed::Group;

/// The filters of a store's followers.
#[derive(Default)]
pub(crate) struct Index {
    all: Vec<Arc<Group>>,
    by_tag: HashMap<String, Vec<Arc<Group>>>,
    by_type: HashMap<String, Vec<Arc<Group>>>,
}

impl Index {
    fn places<'q>(query: &'q Query) -> impl Iterator<Item = (bool, &'q str)> {
        let of_item = |item: &'q QueryItem| {
            let tag = item.tags.first().map(|tag| (true, tag.as_str()));
            let types = if tag.is_some() || Self::is_placeless(item) { &[] } else { item.types.as_slice() };
            tag.into_iter().chain(types.iter().map(|name| (false, name.as_str())))
        };
        query.items.iter().flat_map(of_item)
    }

    /// True when neither a tag nor the types narrow what the item may match.
    fn is_placeless(item: &QueryItem) -> bool {
        item.tags.is_empty() && (item.types.is_empty() || !item.type_prefixes.is_empty())
    }

    pub(crate) fn add(&mut self, group: &Arc<Group>) {
        if group.query.is_all() || group.query.items.iter().any(Self::is_placeless) {
            self.all.push(group.clone());
        }
        for (is_tag, name) in Self::places(&group.query) {
            let map = if is_tag { &mut self.by_tag } else { &mut self.by_type };
            map.entry(name.to_owned()).or_default().push(group.clone());
        }
    }

    pub(crate) fn remove(&mut self, group: &Arc<Group>) {
        self.all.retain(|other| !Arc::ptr_eq(other, group));
        for (is_tag, name) in Self::places(&group.query) {
            let map = if is_tag { &mut self.by_tag } else { &mut self.by_type };
            let Some(groups) = map.get_mut(name) else { continue };
            groups.retain(|other| !Arc::ptr_eq(other, group));
            if groups.is_empty() {
                map.remove(name);
            }
        }
    }

    /// Calls `each` with every group that may match `event`, some of them more than once.
    pub(crate) fn candidates(&self, event: &SequencedEventRef<'_>, mut each: impl FnMut(&Arc<Group>)) {
        self.all.iter().for_each(&mut each);
        self.by_type.get(event.event_type()).into_iter().flatten().for_each(&mut each);
        for tag in event.tags() {
            self.by_tag.get(tag).into_iter().flatten().for_each(&mut each);
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk::events::ReadOptions;
    use ropewalk::{Database, Event};

    use crate::live::follow::fill;

    use super::*;

    fn subsets<'a>(names: &[&'a str]) -> Vec<Vec<&'a str>> {
        let chosen = |bits: usize| {
            let named = names.iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1);
            named.map(|(_, name)| *name).collect()
        };
        (0..1 << names.len()).map(chosen).collect()
    }

    /// Every query of up to two items over two types and two tags, and every event over three of each.
    #[test]
    fn index_finds_all_matching_groups_and_drops_those_that_left() {
        let db = Database::in_memory().unwrap();
        let store = db.events("s").unwrap();
        for tags in subsets(&["x", "y", "z"]) {
            for event_type in ["A", "B", "C"] {
                let event = tags.iter().fold(Event::new(event_type), |event, tag| event.tag(*tag));
                store.append(&[event], None).unwrap();
            }
        }
        let events = fill(&mut store.read(&Query::all(), ReadOptions::default()).unwrap()).unwrap();
        let mut items = Vec::new();
        for types in subsets(&["A", "B"]) {
            let tags = subsets(&["x", "y"]).into_iter();
            items.extend(tags.map(|tags| QueryItem::new(types.clone(), tags)));
        }
        for item in items.clone() {
            items.push(item.clone().type_prefix("A"));
            items.push(item.tag_prefix("x"));
        }
        items.retain(|item| !item.is_empty());
        let mut queries = vec![Query::all()];
        for (at, item) in items.iter().enumerate() {
            queries.push(Query::from_items([item.clone()]));
            let pairs = items[at..].iter().map(|other| Query::from_items([item.clone(), other.clone()]));
            queries.extend(pairs);
        }
        let groups: Vec<Arc<Group>> = queries
            .into_iter()
            .map(|query| Arc::new(Group::new(Arc::new(query), Default::default())))
            .collect();
        let mut index = Index::default();
        groups.iter().for_each(|group| index.add(group));
        for event in events.iter() {
            let mut found = Vec::new();
            index.candidates(&event, |group| found.push(Arc::as_ptr(group)));
            for group in &groups {
                let matches = group.query.matches(event.event_type(), event.tags());
                assert!(!matches || found.contains(&Arc::as_ptr(group)), "{:?}", group.query);
            }
        }
        groups.iter().for_each(|group| index.remove(group));
        assert!(index.all.is_empty() && index.by_tag.is_empty() && index.by_type.is_empty());
    }
}
