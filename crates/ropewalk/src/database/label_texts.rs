//! Cache of series labels in PromQL form, shared by all queries.
//!
//!   store and series ─▶ slot ─▶ same series? ── yes ─▶ a shared copy        no ─▶ built, and stored in the slot
//!
//! Entries never become stale, because the number and labels of a series never change. The size is bounded:
//! one label set per slot, each at most 1 KiB. Series whose numbers map to the same slot replace each other.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use ropewalk_promql::Labels;

const PAGES: usize = 64;
const PAGE_SLOTS: usize = 1024;
/// Longer label sets are not cached.
const BYTES_MAX: usize = 1024;

/// Store, series, and the labels of that series.
type Slot = Mutex<Option<(u32, u32, Labels)>>;

/// The cache of one database. A page is allocated with its first label set.
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

    /// Returns the labels of a series; `make` builds them if they are not cached.
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
