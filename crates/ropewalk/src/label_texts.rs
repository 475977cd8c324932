//! Label sets in the form in which queries have them, kept from one query to the next.
//!
//!   store and series ─▶ slot ─▶ is it theirs? ── yes ─▶ a shared copy        no ─▶ made anew, and left in the slot
//!
//! A series keeps its number and its labels for ever, so nothing in here is ever wrong. It is bounded: one set for each slot,
//! none of more than a kilobyte; series whose numbers lie so many apart take turns.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use ropewalk_promql::Labels;

const PAGES: usize = 64;
const PAGE_SLOTS: usize = 1024;
/// Longer sets are made anew each time.
const BYTES_MAX: usize = 1024;

/// Whose labels, and the labels.
type Slot = Mutex<Option<(u32, u32, Labels)>>;

/// The sets of one database. Pages come into being with their first set.
pub(crate) struct LabelTexts {
    pages: Box<[OnceLock<Box<[Slot]>>]>,
}

impl Default for LabelTexts {
    fn default() -> Self {
        Self { pages: std::iter::repeat_with(OnceLock::new).take(PAGES).collect() }
    }
}

impl LabelTexts {
    fn slot(&self, series: u32) -> Option<&Slot> {
        let series = series as usize;
        let page = self.pages.get(series / PAGE_SLOTS % PAGES)?;
        let page = page.get_or_init(|| std::iter::repeat_with(Slot::default).take(PAGE_SLOTS).collect());
        page.get(series % PAGE_SLOTS)
    }

    /// The labels of a series of a store; `make` makes them where they are not kept.
    pub(crate) fn get(
        self: &Arc<Self>,
        store: u32,
        series: u32,
        make: impl FnOnce() -> Option<Labels>,
    ) -> Option<Labels> {
        let mut slot = self.slot(series)?.lock();
        if let Some((of, number, labels)) = slot.as_ref()
            && (*of, *number) == (store, series)
        {
            return Some(labels.clone());
        }
        let labels = make()?;
        if labels.bytes() <= BYTES_MAX {
            *slot = Some((store, series, labels.clone()));
        }
        Some(labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_take_turns_in_a_slot() {
        let texts = Arc::new(LabelTexts::default());
        let apart = (PAGES * PAGE_SLOTS) as u32;
        let labels = |value: &str| Labels::from_pairs([("a", value)]);
        let get = |store, series, value| texts.get(store, series, || Some(labels(value))).unwrap();
        assert_eq!(get(1, 5, "x"), labels("x"));
        assert_eq!(get(1, 5, "not made"), labels("x"));
        assert_eq!(get(2, 5, "y"), labels("y"));
        assert_eq!(get(1, 5 + apart, "z"), labels("z"));
        assert_eq!(get(1, 5, "x"), labels("x"));
        assert!(texts.get(1, 6, || None).is_none());
        let long = "l".repeat(2 * BYTES_MAX);
        assert_eq!(get(1, 7, &long), labels(&long));
        assert_eq!(get(1, 7, "short"), labels("short"));
    }
}
