//! Random tables and expressions from a seed, for the self-checks and the comparisons with other databases.
//!
//! Expressions are limited to forms with the same meaning in PostgreSQL, SQLite and here: columns of integers
//! and text, comparisons, logic with NULL, arithmetic without division, LIKE, IN, BETWEEN, CASE, COALESCE.

/// A number from the environment.
pub(crate) fn chosen(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// A generator without a crate: splitmix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    pub(crate) fn odds(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// A table: its name, its columns, and which of them are text.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) numbers: Vec<String>,
    pub(crate) texts: Vec<String>,
}

impl Table {
    pub(crate) fn columns(&self) -> Vec<String> {
        self.numbers.iter().chain(&self.texts).cloned().collect()
    }
}

const WORDS: [&str; 8] = ["''", "'a'", "'ab'", "'b'", "'B'", "'a_%'", "'zz top'", "'0'"];

fn number(random: &mut Random) -> String {
    random.one(&["0", "1", "2", "3", "-1", "7", "10", "-20", "CAST(NULL AS int)"]).to_owned()
}

/// Two tables with few distinct values, some NULL; one with a primary key and perhaps an index, one without.
pub(crate) fn tables(random: &mut Random) -> (Vec<Table>, Vec<String>) {
    let mut statements = Vec::new();
    let mut all = Vec::new();
    for (place, name) in ["t", "u"].into_iter().enumerate() {
        let numbers: Vec<String> =
            (0..2 + random.below(2)).map(|n| format!("{}{n}", ["a", "c"][place])).collect();
        let texts: Vec<String> =
            (0..1 + random.below(2)).map(|n| format!("{}{n}", ["b", "d"][place])).collect();
        let has_key = place == 0;
        let defined: Vec<String> = (numbers.iter().map(|n| format!("{n} int")))
            .chain(texts.iter().map(|n| format!("{n} text")))
            .enumerate()
            .map(|(at, def)| if has_key && at == 0 { format!("{def} PRIMARY KEY") } else { def })
            .collect();
        statements.push(format!("CREATE TABLE {name} ({})", defined.join(", ")));
        if random.odds(2) {
            let column = if random.odds(2) { texts[0].clone() } else { numbers[numbers.len() - 1].clone() };
            statements.push(format!("CREATE INDEX {name}_i ON {name} ({column})"));
        }
        let rows: Vec<String> = (0..random.below(14))
            .map(|row| {
                let cells = (0..numbers.len()).map(|at| {
                    if has_key && at == 0 { (row as i64 * 3 - 6).to_string() } else { number(random) }
                });
                let mut cells: Vec<String> = cells.collect();
                for _ in &texts {
                    cells.push(if random.odds(5) {
                        "NULL".into()
                    } else {
                        WORDS[random.below(8)].to_owned()
                    });
                }
                format!("({})", cells.join(", "))
            })
            .collect();
        if !rows.is_empty() {
            statements.push(format!("INSERT INTO {name} VALUES {}", rows.join(", ")));
        }
        all.push(Table { name, numbers, texts });
    }
    (all, statements)
}

/// Expressions over some tables.
pub(crate) struct Expressions<'r> {
    pub(crate) random: &'r mut Random,
    pub(crate) tables: Vec<Table>,
    /// A table that subqueries may read.
    pub(crate) inner: Option<Table>,
}

impl Expressions<'_> {
    fn column(&mut self, is_text: bool) -> String {
        let table = self.tables[self.random.below(self.tables.len())].clone();
        let of = if is_text { &table.texts } else { &table.numbers };
        format!("{}.{}", table.name, of[self.random.below(of.len())])
    }

    pub(crate) fn number(&mut self, depth: usize) -> String {
        if depth == 0 || self.random.odds(3) {
            return if self.random.odds(4) { number(self.random) } else { self.column(false) };
        }
        let next = depth - 1;
        match self.random.below(7) {
            0 => format!("({} + {})", self.number(next), self.number(next)),
            1 => format!("({} - {})", self.number(next), self.number(next)),
            2 => format!("({} * {})", self.number(next), self.number(next)),
            3 => format!("(- {})", self.number(next)),
            4 => format!("coalesce({}, {})", self.number(next), self.number(next)),
            5 => format!(
                "CASE WHEN {} THEN {} ELSE {} END",
                self.condition(next),
                self.number(next),
                self.number(next)
            ),
            _ => format!("length({})", self.text(next)),
        }
    }

    pub(crate) fn text(&mut self, depth: usize) -> String {
        if depth == 0 || self.random.odds(2) {
            return if self.random.odds(3) {
                WORDS[self.random.below(8)].to_owned()
            } else {
                self.column(true)
            };
        }
        let next = depth - 1;
        match self.random.below(4) {
            0 => format!("({} || {})", self.text(next), self.text(next)),
            1 => format!("upper({})", self.text(next)),
            2 => format!("coalesce({}, {})", self.text(next), self.text(next)),
            _ => format!("CASE WHEN {} THEN {} END", self.condition(next), self.text(next)),
        }
    }

    /// A condition.
    pub(crate) fn condition(&mut self, depth: usize) -> String {
        let next = depth.saturating_sub(1);
        let not = if self.random.odds(3) { "NOT " } else { "" };
        let compare = self.random.one(&["=", "<>", "<", "<=", ">", ">="]).to_owned();
        if depth > 0 && self.random.odds(2) {
            return match self.random.below(4) {
                0 => format!("({} AND {})", self.condition(next), self.condition(next)),
                1 => format!("({} OR {})", self.condition(next), self.condition(next)),
                2 => format!("(NOT {})", self.condition(next)),
                _ => format!("(({}) IS {}NULL)", self.condition(next), not),
            };
        }
        match self.random.below(if self.inner.is_some() && depth > 0 { 11 } else { 8 }) {
            0 | 1 => format!("({} {compare} {})", self.number(next), self.number(next)),
            2 => format!("({} {compare} {})", self.text(next), self.text(next)),
            3 => format!("({} IS {not}NULL)", self.number(next)),
            4 => format!("({} {not}IN ({}, {}))", self.number(next), self.number(next), self.number(next)),
            5 => format!(
                "({} {not}BETWEEN {} AND {})",
                self.number(next),
                self.number(next),
                self.number(next)
            ),
            6 => {
                let pattern = self.random.one(&["'a%'", "'%b'", "'_'", "'%'", "''"]).to_owned();
                format!("({} {not}LIKE {pattern})", self.column(true))
            }
            7 => format!("({} {not}IN ({}, {}))", self.text(next), self.text(next), self.text(next)),
            kind => self.subquery(kind, not, &compare, next),
        }
    }

    fn subquery(&mut self, kind: usize, not: &str, compare: &str, depth: usize) -> String {
        let Some(inner) = self.inner.clone() else { return "true".into() };
        let left = self.number(depth);
        let mut within = Expressions { random: self.random, tables: vec![inner.clone()], inner: None };
        if within.random.odds(2) {
            within.tables.extend(self.tables.iter().cloned());
        }
        let condition = within.condition(depth);
        let column = format!("{}.{}", inner.name, inner.numbers[within.random.below(inner.numbers.len())]);
        let from = inner.name;
        match kind {
            8 => format!("({left} {not}IN (SELECT {column} FROM {from} WHERE {condition}))"),
            9 => format!("({not}EXISTS (SELECT 1 FROM {from} WHERE {condition}))"),
            _ => format!("({left} {compare} (SELECT max({column}) FROM {from} WHERE {condition}))"),
        }
    }
}
