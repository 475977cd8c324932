//! TPC-H: its eight tables at any scale, generated here, and its 22 queries with their validation parameters.
//!
//! Row counts, keys, ranges and dependencies are those of the specification (clause 4.2). Texts are shorter
//! and use our words; the rare comments for queries 13 and 16 are somewhat more frequent, so that a small
//! scale has some. Every system gets the same bytes: tab-separated fields, no quotes.
//!
//! Results are compared without their order, since ties leave it open, and numbers to seven digits, since
//! some systems compute in floating point where others are exact.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use jiff::ToSpan as _;

use crate::harness::random::SplitMix;
use crate::workloads::sql::copying::{FNV, fnv};

/// Orders at scale 1.
pub const ORDERS: u64 = 1_500_000;
/// Number of queries.
pub const QUESTIONS: usize = 22;

/// Names and columns, in an order that satisfies the dependencies.
pub const TABLES: [(&str, &str); 8] = [
    ("region", "r_regionkey integer PRIMARY KEY, r_name text NOT NULL, r_comment text"),
    (
        "nation",
        "n_nationkey integer PRIMARY KEY, n_name text NOT NULL, n_regionkey integer NOT NULL, n_comment text",
    ),
    (
        "supplier",
        "s_suppkey integer PRIMARY KEY, s_name text NOT NULL, s_address text NOT NULL, s_nationkey integer NOT NULL, \
         s_phone text NOT NULL, s_acctbal numeric(15,2) NOT NULL, s_comment text NOT NULL",
    ),
    (
        "part",
        "p_partkey integer PRIMARY KEY, p_name text NOT NULL, p_mfgr text NOT NULL, p_brand text NOT NULL, \
         p_type text NOT NULL, p_size integer NOT NULL, p_container text NOT NULL, p_retailprice numeric(15,2) NOT NULL, \
         p_comment text NOT NULL",
    ),
    (
        "partsupp",
        "ps_partkey integer NOT NULL, ps_suppkey integer NOT NULL, ps_availqty integer NOT NULL, \
         ps_supplycost numeric(15,2) NOT NULL, ps_comment text NOT NULL, PRIMARY KEY (ps_partkey, ps_suppkey)",
    ),
    (
        "customer",
        "c_custkey integer PRIMARY KEY, c_name text NOT NULL, c_address text NOT NULL, c_nationkey integer NOT NULL, \
         c_phone text NOT NULL, c_acctbal numeric(15,2) NOT NULL, c_mktsegment text NOT NULL, c_comment text NOT NULL",
    ),
    (
        "orders",
        "o_orderkey integer PRIMARY KEY, o_custkey integer NOT NULL, o_orderstatus text NOT NULL, \
         o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority text NOT NULL, o_clerk text NOT NULL, \
         o_shippriority integer NOT NULL, o_comment text NOT NULL",
    ),
    (
        "lineitem",
        "l_orderkey integer NOT NULL, l_partkey integer NOT NULL, l_suppkey integer NOT NULL, l_linenumber integer NOT NULL, \
         l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL, l_discount numeric(15,2) NOT NULL, \
         l_tax numeric(15,2) NOT NULL, l_returnflag text NOT NULL, l_linestatus text NOT NULL, l_shipdate date NOT NULL, \
         l_commitdate date NOT NULL, l_receiptdate date NOT NULL, l_shipinstruct text NOT NULL, l_shipmode text NOT NULL, \
         l_comment text NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber)",
    ),
];

const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];
const NATIONS: [(&str, usize); 25] = [
    ("ALGERIA", 0),
    ("ARGENTINA", 1),
    ("BRAZIL", 1),
    ("CANADA", 1),
    ("EGYPT", 4),
    ("ETHIOPIA", 0),
    ("FRANCE", 3),
    ("GERMANY", 3),
    ("INDIA", 2),
    ("INDONESIA", 2),
    ("IRAN", 4),
    ("IRAQ", 4),
    ("JAPAN", 2),
    ("JORDAN", 4),
    ("KENYA", 0),
    ("MOROCCO", 0),
    ("MOZAMBIQUE", 0),
    ("PERU", 1),
    ("CHINA", 2),
    ("ROMANIA", 3),
    ("SAUDI ARABIA", 4),
    ("VIETNAM", 2),
    ("RUSSIA", 3),
    ("UNITED KINGDOM", 3),
    ("UNITED STATES", 1),
];
const COLORS: [&str; 24] = [
    "almond", "azure", "beige", "blue", "brown", "coral", "cream", "cyan", "dark", "forest", "gold", "green",
    "grey", "ivory", "khaki", "lime", "linen", "navy", "olive", "pink", "plum", "red", "rose", "white",
];
const TYPES: [&[&str]; 3] = [
    &["STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"],
    &["ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"],
    &["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"],
];
const CONTAINERS: [&[&str]; 2] =
    [&["SM", "LG", "MED", "JUMBO", "WRAP"], &["CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"]];
const SEGMENTS: [&str; 5] = ["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"];
const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
const INSTRUCTIONS: [&str; 4] = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"];
const MODES: [&str; 7] = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"];
const WORDS: [&str; 12] = [
    "quick", "silent", "bold", "ironic", "deposits", "accounts", "packages", "sleep", "haggle", "along",
    "above", "furious",
];
/// Days from the first order to the last.
const ORDER_DAYS: u64 = 2406;
/// 17 June 1995, counted from 1 January 1992: lines received until then were paid for or returned.
const TODAY: u64 = 1263;

/// Makes the tables of one scale.
#[derive(Debug)]
pub struct Tables {
    orders: u64,
    days: Vec<String>,
}

struct Line {
    part: u64,
    supplier: u64,
    quantity: u64,
    price: u64,
    discount: u64,
    tax: u64,
    shipped: u64,
    committed: u64,
    received: u64,
}

impl Tables {
    /// Tables with so many orders; all others are in proportion.
    pub fn new(orders: u64) -> Result<Self> {
        ensure!(orders.is_multiple_of(ORDERS / 1000), "the scale is a multiple of 0.001");
        let mut day = jiff::civil::date(1992, 1, 1);
        let mut days = Vec::new();
        while day.year() < 1999 {
            days.push(day.to_string());
            day = day.checked_add(1.day())?;
        }
        Ok(Self { orders, days })
    }

    fn suppliers(&self) -> u64 {
        self.orders / 150
    }

    fn parts(&self) -> u64 {
        self.orders * 2 / 15
    }

    fn customers(&self) -> u64 {
        self.orders / 10
    }

    fn day(&self, day: u64) -> &str {
        self.days.get(day as usize).map_or("1999-01-01", String::as_str)
    }

    /// Passes the rows of a table to `give` in chunks. Returns their number.
    pub fn rows(&self, table: &str, give: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<u64> {
        let count = match table {
            "region" => REGIONS.len() as u64,
            "nation" => NATIONS.len() as u64,
            "supplier" => self.suppliers(),
            "part" => self.parts(),
            "partsupp" => self.parts() * 4,
            "customer" => self.customers(),
            _ => self.orders,
        };
        let (mut text, mut rows) = (String::new(), 0);
        for place in 0..count {
            rows += self.row(table, place, &mut text)?;
            if text.len() >= 64 << 10 {
                give(text.as_bytes())?;
                text.clear();
            }
        }
        give(text.as_bytes())?;
        Ok(rows)
    }

    /// Writes row `place` of a table; for `lineitem` all lines of an order.
    fn row(&self, table: &str, place: u64, text: &mut String) -> Result<u64> {
        let key = place + 1;
        let random = &mut SplitMix::new(fnv(key, table.as_bytes()));
        match table {
            "region" => {
                writeln!(text, "{place}\t{}\t{}", at(&REGIONS, place), comment(random))?;
            }
            "nation" => {
                let (name, region) = NATIONS.get(place as usize).copied().unwrap_or_default();
                writeln!(text, "{place}\t{name}\t{region}\t{}", comment(random))?;
            }
            "supplier" => {
                let nation = random.below(25);
                let said = match key % 500 {
                    7 => "quick Customer sleep Complaints".to_owned(),
                    9 => "bold Customer haggle Recommends".to_owned(),
                    _ => comment(random),
                };
                let (phone, balance) = (phone(random, nation), balance(random));
                writeln!(
                    text,
                    "{key}\tSupplier#{key:09}\t{}\t{nation}\t{phone}\t{balance}\t{said}",
                    address(random)
                )?;
            }
            "part" => {
                let name: Vec<&str> = (0..5).map(|_| *random.pick(&COLORS)).collect();
                let maker = random.below(5) + 1;
                let brand = maker * 10 + random.below(5) + 1;
                let kind: Vec<&str> = TYPES.iter().map(|words| *random.pick(words)).collect();
                let container: Vec<&str> = CONTAINERS.iter().map(|words| *random.pick(words)).collect();
                let (name, kind, container) = (name.join(" "), kind.join(" "), container.join(" "));
                let (size, price) = (random.below(50) + 1, money(retail(key)));
                let said = comment(random);
                writeln!(
                    text,
                    "{key}\t{name}\tManufacturer#{maker}\tBrand#{brand}\t{kind}\t{size}\t{container}\t{price}\t{said}"
                )?;
            }
            "partsupp" => {
                let part = place / 4 + 1;
                let supplier = self.supplier_of(part, place % 4);
                let (count, cost) = (random.below(9999) + 1, money(random.below(99_901) + 100));
                writeln!(text, "{part}\t{supplier}\t{count}\t{cost}\t{}", comment(random))?;
            }
            "customer" => {
                let nation = random.below(25);
                let (phone, balance) = (phone(random, nation), balance(random));
                let segment = *random.pick(&SEGMENTS);
                let said = comment(random);
                writeln!(
                    text,
                    "{key}\tCustomer#{key:09}\t{}\t{nation}\t{phone}\t{balance}\t{segment}\t{said}",
                    address(random)
                )?;
            }
            "orders" => self.order(place, text)?,
            _ => return self.lines(place, text),
        }
        Ok(1)
    }

    /// The supplier `nth` of 4 of a part.
    fn supplier_of(&self, part: u64, nth: u64) -> u64 {
        let suppliers = self.suppliers();
        (part + nth * (suppliers / 4 + (part - 1) / suppliers)) % suppliers + 1
    }

    /// The day and the lines of an order.
    fn order_lines(&self, place: u64) -> (u64, Vec<Line>) {
        let random = &mut SplitMix::new(place ^ 0x5eed);
        let ordered = random.below(ORDER_DAYS);
        let count = random.below(7) + 1;
        let lines = (0..count).map(|_| {
            let part = random.below(self.parts()) + 1;
            let quantity = random.below(50) + 1;
            let shipped = ordered + random.below(121) + 1;
            Line {
                part,
                supplier: self.supplier_of(part, random.below(4)),
                quantity,
                price: quantity * retail(part),
                discount: random.below(11),
                tax: random.below(9),
                shipped,
                committed: ordered + random.below(61) + 30,
                received: shipped + random.below(30) + 1,
            }
        });
        (ordered, lines.collect())
    }

    fn order(&self, place: u64, text: &mut String) -> Result<()> {
        let (ordered, lines) = self.order_lines(place);
        let random = &mut SplitMix::new(place ^ 0x0dde);
        // A third of the customers has no orders.
        let nth = random.below(self.customers() / 3 * 2);
        let customer = nth / 2 * 3 + nth % 2 + 1;
        let open = lines.iter().filter(|line| line.shipped > TODAY).count();
        let status = match open {
            0 => "F",
            open if open == lines.len() => "O",
            _ => "P",
        };
        let each = |line: &Line| line.price * (100 + line.tax) * (100 - line.discount) / 10_000;
        let total = money(lines.iter().map(each).sum());
        let (day, priority, clerk) = (self.day(ordered), *random.pick(&PRIORITIES), random.below(1000) + 1);
        let said = match place % 97 {
            5 => "bold special packages requests".to_owned(),
            _ => comment(random),
        };
        let key = order_key(place);
        writeln!(
            text,
            "{key}\t{customer}\t{status}\t{total}\t{day}\t{priority}\tClerk#{clerk:09}\t0\t{said}"
        )?;
        Ok(())
    }

    fn lines(&self, place: u64, text: &mut String) -> Result<u64> {
        let (_, lines) = self.order_lines(place);
        let random = &mut SplitMix::new(place ^ 0x11e5);
        let key = order_key(place);
        let count = lines.len() as u64;
        for (line, number) in lines.into_iter().zip(1..) {
            let flag = match line.received <= TODAY {
                true => *random.pick(&["R", "A"]),
                false => "N",
            };
            let status = if line.shipped > TODAY { "O" } else { "F" };
            let Line { part, supplier, quantity, discount, tax, .. } = line;
            let [shipped, committed, received] =
                [line.shipped, line.committed, line.received].map(|day| self.day(day));
            let (price, instruction, mode) =
                (money(line.price), random.pick(&INSTRUCTIONS), random.pick(&MODES));
            let said = comment(random);
            writeln!(
                text,
                "{key}\t{part}\t{supplier}\t{number}\t{quantity}.00\t{price}\t0.{discount:02}\t0.{tax:02}\t{flag}\t{status}\t\
                 {shipped}\t{committed}\t{received}\t{instruction}\t{mode}\t{said}"
            )?;
        }
        Ok(count)
    }
}

/// Eight of thirty-two keys are used.
fn order_key(place: u64) -> u64 {
    place / 8 * 32 + place % 8 + 1
}

/// The price of a part, in cents.
fn retail(part: u64) -> u64 {
    90_000 + (part / 10) % 20_001 + 100 * (part % 1000)
}

fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

fn balance(random: &mut SplitMix) -> String {
    let cents = random.below(1_099_999).cast_signed() - 99_999;
    let sign = if cents < 0 { "-" } else { "" };
    format!("{sign}{}", money(cents.unsigned_abs()))
}

fn phone(random: &mut SplitMix, nation: u64) -> String {
    let [one, two, three] =
        [(900, 100), (900, 100), (9000, 1000)].map(|(end, least)| random.below(end) + least);
    format!("{}-{one}-{two}-{three}", nation + 10)
}

fn address(random: &mut SplitMix) -> String {
    format!("{} street {}", random.pick(&WORDS), random.below(10_000))
}

fn comment(random: &mut SplitMix) -> String {
    let count = random.below(5) + 3;
    (0..count).map(|_| *random.pick(&WORDS)).collect::<Vec<_>>().join(" ")
}

fn at<'a>(all: &[&'a str], place: u64) -> &'a str {
    all.get(place as usize).copied().unwrap_or_default()
}

/// The queries in order, for a scale, in PostgreSQL's syntax.
pub fn questions(orders: u64) -> Vec<String> {
    // Query 11 selects parts with more than this share of the total.
    let share = format!("{:.10}", 0.0001 * ORDERS as f64 / orders as f64);
    let text = include_str!("tpch.sql").replace("{share}", &share);
    text.split("\n-- ")
        .skip(1)
        .filter_map(|part| part.split_once('\n'))
        .map(|(_, sql)| sql.trim().to_owned())
        .collect()
}

/// A number in a form on which all systems agree: seven digits of a slightly scaled value, which avoids exact
/// halves.
pub fn number(value: f64) -> String {
    format!("{:.6e}", value * 1.000_000_012_3 + 0.0)
}

/// The number of rows of a result, and an order-independent digest of them; fields are joined by `|`.
pub fn digest(mut rows: Vec<String>) -> String {
    rows.sort_unstable();
    let hash = rows.iter().fold(FNV, |hash, row| fnv(fnv(hash, row.as_bytes()), b"\n"));
    let first = rows.first().map_or("", String::as_str);
    format!("{} rows, {hash:016x}, first {first}", rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_proportion_and_the_same_each_time() {
        let tables = Tables::new(1500).unwrap();
        let all = |table: &str| {
            let mut text = Vec::new();
            let rows = tables.rows(table, &mut |bytes| {
                text.extend_from_slice(bytes);
                Ok(())
            });
            (rows.unwrap(), String::from_utf8(text).unwrap())
        };
        for (table, columns) in TABLES {
            let (rows, text) = all(table);
            assert_eq!(rows, text.lines().count() as u64, "{table}");
            let fields =
                columns.split(", ").filter(|column| !column.starts_with("PRIMARY") && column.contains(' '));
            assert!(text.lines().all(|line| line.split('\t').count() == fields.clone().count()), "{table}");
            assert_eq!(text, all(table).1);
        }
        assert_eq!([all("orders").0, all("partsupp").0, all("supplier").0], [1500, 800, 10]);
        assert!((5000..7000).contains(&all("lineitem").0));
        assert_eq!(tables.days.get(TODAY as usize).map(String::as_str), Some("1995-06-17"));
        assert_eq!(tables.day(ORDER_DAYS - 1), "1998-08-02");
    }

    #[test]
    fn there_are_22_questions() {
        let questions = questions(ORDERS / 10);
        assert_eq!(questions.len(), QUESTIONS);
        assert!(questions[10].contains("0.0010000000"));
        assert!(questions.iter().all(|question| !question.contains('{')));
    }

    #[test]
    fn digests_do_not_depend_on_order_or_the_last_digits() {
        assert_eq!(number(1234.5), number(1_234.499_999_999_9));
        assert_ne!(number(1234.5), number(1234.6));
        assert_eq!(number(0.0), "0.000000e0");
        assert_eq!(digest(vec!["b".into(), "a".into()]), digest(vec!["a".into(), "b".into()]));
    }
}
