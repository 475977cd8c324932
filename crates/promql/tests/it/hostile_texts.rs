//! Notation and random choice of hostile texts.

/// A small pseudorandom generator with a fixed seed.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }

    pub(crate) fn one_of<'t>(&mut self, list: &[&'t str]) -> &'t str {
        list[self.below(list.len())]
    }
}

/// Expands `<<N*text>>`, from the inside to the outside; in each copy `%i` is its number, and `%o` the one before.
pub(crate) fn written_out(line: &str) -> String {
    let mut text = line.to_owned();
    while let Some(open) = text.rfind("<<") {
        let close = open + text[open..].find(">>").unwrap();
        let (times, part) = text[open + 2..close].split_once('*').unwrap();
        let mut copies = String::new();
        for copy in 0..times.parse::<usize>().unwrap() {
            let before = copy.saturating_sub(1).to_string();
            copies += &part.replace("%i", &copy.to_string()).replace("%o", &before);
        }
        text.replace_range(open..close + 2, &copies);
    }
    text
}
