//! One page of a list that is sorted by name.

use crate::error::{Result, WireError};

/// Most entries of a page, and their number if the client gives no limit.
const ENTRIES_MAX: usize = 1_000;
/// Bytes of entries after which a page ends, so that a page of large entries takes little memory.
const BYTES_MAX: usize = 4 << 20;
/// Longest name of an object.
const NAME_BYTES_MAX: usize = 255;

/// A page of a list that is sorted by name: at most 1,000 entries after a name.
///
/// The name need not exist, so that it may be deleted between two pages.
#[derive(Debug, Clone)]
pub struct Page {
    after: Option<String>,
    limit: usize,
}

impl Page {
    /// The page of at most `limit` entries after the name `after`; without it, the first page. A limit over
    /// the maximum is the maximum.
    ///
    /// # Errors
    /// [`crate::Code::InvalidArgument`]: a limit of 0, or a text that cannot be a name.
    pub fn new(after: Option<String>, limit: Option<u64>) -> Result<Self> {
        if limit == Some(0) {
            return Err(WireError::invalid("limit is 0; a page has at least one entry"));
        }
        if let Some(name) = &after
            && (name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0'))
        {
            let shown: String = name.chars().take(64).collect();
            return Err(WireError::invalid(format!(
                "after is {shown:?}; a name of 1 to {NAME_BYTES_MAX} bytes without zero bytes is needed"
            )));
        }
        let limit = limit.map_or(ENTRIES_MAX, |limit| usize::try_from(limit).unwrap_or(ENTRIES_MAX));
        Ok(Self { after, limit: limit.min(ENTRIES_MAX) })
    }

    /// The entries of the page come after this name.
    pub fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// Entries to look for: one more than the page has, which shows whether there is another page.
    pub fn sought(&self) -> usize {
        self.limit + 1
    }

    /// The entries of the page among those that were [sought](Self::sought), and the name after which the next
    /// page begins; `None` for the last page.
    pub fn cut<T>(&self, mut found: Vec<T>, name: impl Fn(&T) -> &str) -> (Vec<T>, Option<String>) {
        if found.len() <= self.limit {
            return (found, None);
        }
        found.truncate(self.limit);
        let next = found.last().map(|last| name(last).to_owned());
        (found, next)
    }

    /// Reads entries, sorted by name, until the page has its number of them, or 4 MiB. Returns them, and the name
    /// after which the next page begins; `None` for the last page.
    ///
    /// # Errors
    /// The first error of `entries`.
    pub fn fill<T, E>(
        &self,
        entries: impl IntoIterator<Item = Result<T, E>>,
        name: impl Fn(&T) -> String,
        bytes: impl Fn(&T) -> usize,
    ) -> Result<(Vec<T>, Option<String>), E> {
        let (mut page, mut page_bytes) = (Vec::new(), 0);
        for entry in entries {
            if page.len() >= self.limit || page_bytes >= BYTES_MAX {
                let next = page.last().map(name);
                return Ok((page, next));
            }
            let entry = entry?;
            page_bytes += bytes(&entry);
            page.push(entry);
        }
        Ok((page, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn pages_continue_after_their_last_name_until_the_list_ends() {
        let all = ["a", "b", "c", "d", "e"];
        let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = Page::new(after, Some(2)).unwrap();
            let later = all.into_iter().filter(|name| page.after().is_none_or(|after| after < *name));
            let found: Vec<&str> = later.take(page.sought()).collect();
            let (part, next) = page.cut(found, |name| name);
            seen.extend(part);
            pages += 1;
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((seen, pages), (all.to_vec(), 3));
    }

    #[test]
    fn page_of_large_entries_ends_after_its_bytes() {
        let fill = |limit, entry_bytes: usize| {
            let entries = ["a", "b", "c", "d", "e"].map(Ok::<_, WireError>);
            Page::new(None, Some(limit))
                .unwrap()
                .fill(entries, |name| (*name).to_owned(), |_| entry_bytes)
                .unwrap()
        };
        assert_eq!(fill(9, 1), (vec!["a", "b", "c", "d", "e"], None));
        assert_eq!(fill(5, 1).1, None);
        assert_eq!(fill(4, 1), (vec!["a", "b", "c", "d"], Some("d".to_owned())));
        assert_eq!(fill(9, BYTES_MAX / 2), (vec!["a", "b"], Some("b".to_owned())));
        assert_eq!(fill(9, usize::MAX / 8), (vec!["a"], Some("a".to_owned())));
        let failed = [Ok("a"), Err(WireError::invalid("no"))];
        assert!(Page::new(None, None).unwrap().fill(failed, |name| (*name).to_owned(), |_| 1).is_err());
    }

    #[test]
    fn limits_and_names_are_checked() {
        for (limit, sought) in [(None, 1_001), (Some(7), 8), (Some(1_001), 1_001), (Some(u64::MAX), 1_001)] {
            assert_eq!(Page::new(None, limit).unwrap().sought(), sought);
        }
        let names = [String::new(), "a\0".to_owned(), "x".repeat(256)];
        for (after, limit) in names.map(|name| (Some(name), None)).into_iter().chain([(None, Some(0))]) {
            assert_eq!(Page::new(after, limit).unwrap_err().code, Code::InvalidArgument);
        }
    }
}
