//! Transactions over four models, and transactions over one model that write the same bytes.
//!
//! ```text
//! four       event 128 B   document 128 B   row 128 B   8 samples of 16 B
//! event      event 512 B
//! document                 document 512 B
//! row                                       row 512 B
//! samples                                               32 samples
//! ```
//! Only texts and samples count; keys, labels and type names are the same in both forms. Each client has
//! separate documents, rows and series, so no transactions conflict. A document counts its replacements, and a
//! row its updates, so that every acknowledged write can be found afterwards.

use std::fmt::Write as _;
use std::ops::AddAssign;

use crate::harness::random::SplitMix;

/// Series of one client.
pub const SERIES: u64 = 8;
/// The metric.
pub const METRIC: &str = "one_tx";
/// Type of the events.
pub const EVENT: &str = "OrderPlaced";
/// Queries of the events, replacements, updates and samples in the database, in this order.
pub const TOTALS: [&str; 4] = [
    "SELECT count(*) FROM events.shop",
    "SELECT sum((doc->>'n')::bigint)::bigint FROM \"default\".carts",
    "SELECT sum(n)::bigint FROM stock",
    "SELECT count(*) FROM metrics.one_tx",
];

/// Bytes that a transaction over four models writes to each of them.
const PART: usize = 128;
/// A time and a value.
const SAMPLE_BYTES: usize = 16;
/// Time of the first samples, milliseconds since 1970.
const BEGIN_MS: i64 = 1_700_000_000_000;
const STEP_MS: i64 = 1_000;
/// Texts are parts of a random one of this length.
const POOL_BYTES: usize = 64 << 10;

/// The models that a transaction writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All of them.
    Four,
    /// One event.
    Event,
    /// One document is replaced.
    Document,
    /// One row is updated.
    Row,
    /// Samples are added.
    Samples,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Four, Self::Event, Self::Document, Self::Row, Self::Samples];
    /// Those that write one model.
    pub const SINGLE: [Self; 4] = [Self::Event, Self::Document, Self::Row, Self::Samples];

    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Four => "four_models",
            Self::Event => "event",
            Self::Document => "document",
            Self::Row => "row",
            Self::Samples => "samples",
        }
    }

    /// Bytes of the event, the document, the row and the samples.
    fn bytes(self) -> [usize; 4] {
        match self {
            Self::Four => [PART; 4],
            Self::Event => [4 * PART, 0, 0, 0],
            Self::Document => [0, 4 * PART, 0, 0],
            Self::Row => [0, 0, 4 * PART, 0],
            Self::Samples => [0, 0, 0, 4 * PART],
        }
    }
}

/// Number of events, replacements, updates and samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals(pub [i64; 4]);

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }
}

/// The writes of one transaction.
#[derive(Debug, Clone)]
pub struct Writes {
    /// Number of the client.
    pub client: u64,
    /// Key of the document and of the row.
    pub key: i64,
    /// Text of the event.
    pub event: Option<String>,
    /// Number of replacements and text of the document.
    pub document: Option<(i64, String)>,
    /// Text of the row.
    pub row: Option<String>,
    /// Times of the samples, which each series of the client gets.
    pub times: Vec<i64>,
}

impl Writes {
    /// The labels of a series of the client.
    pub fn labels(client: u64, series: u64) -> [(&'static str, String); 3] {
        [("__name__", METRIC.to_owned()), ("client", client.to_string()), ("n", series.to_string())]
    }

    /// The body of POST /v1/transactions.
    pub fn json(&self) -> String {
        let mut operations = Vec::with_capacity(4);
        let key = self.key;
        if let Some(text) = &self.event {
            operations.push(format!(
                r#"{{"append":{{"store":"shop","events":[{{"type":"{EVENT}","tags":["client:{}"],"data":"{text}"}}]}}}}"#,
                self.client
            ));
        }
        if let Some((n, text)) = &self.document {
            operations.push(format!(
                r#"{{"documents":{{"collection":"carts","update":{{"filter":{{"_id":{key}}},"update":{{"n":{n},"note":"{text}"}}}},"expect":1}}}}"#
            ));
        }
        if let Some(text) = &self.row {
            operations.push(format!(
                r#"{{"sql":{{"sql":"UPDATE stock SET n = n + 1, note = $1 WHERE id = $2","params":["{text}",{key}],"expect":1}}}}"#
            ));
        }
        if !self.times.is_empty() {
            operations.push(self.samples_json());
        }
        format!(r#"{{"operations":[{}]}}"#, operations.join(","))
    }

    fn samples_json(&self) -> String {
        let samples: Vec<String> = self.times.iter().map(|time| format!("[{time},1]")).collect();
        let samples = samples.join(",");
        let mut json = String::from(r#"{"samples":{"series":["#);
        for series in 0..SERIES {
            let comma = if series > 0 { "," } else { "" };
            // Writing to a string does not fail.
            let _ = write!(
                json,
                r#"{comma}{{"labels":{{"__name__":"{METRIC}","client":"{}","n":"{series}"}},"samples":[{samples}]}}"#,
                self.client
            );
        }
        json + "]}}"
    }
}

/// The transactions of one client.
#[derive(Debug)]
pub struct Client {
    number: u64,
    /// Its first key.
    first: u64,
    random: SplitMix,
    pool: String,
    /// Replacements of each of its documents.
    replaced: Vec<i64>,
    steps: i64,
    /// Number of its writes, if all its transactions were committed.
    pub written: Totals,
}

impl Client {
    /// The client with this number, of `clients` that share the keys below `keys`.
    pub fn new(number: u64, clients: u64, keys: u64) -> Self {
        let own = keys / clients;
        let mut random = SplitMix::new(1000 + number);
        let pool = (0..POOL_BYTES).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
        let replaced = vec![0; own as usize];
        Self { number, first: number * own, random, pool, replaced, steps: 0, written: Totals::default() }
    }

    /// Its next transaction.
    pub fn next(&mut self, kind: Kind) -> Writes {
        let [event, document, row, samples] = kind.bytes();
        let place = self.random.below(self.replaced.len() as u64);
        let steps = (samples / SAMPLE_BYTES) as i64 / SERIES as i64;
        let replaced = self.replaced.get_mut(place as usize).filter(|_| document > 0);
        let replaced = replaced.map(|replaced| {
            *replaced += 1;
            *replaced
        });
        let times = (self.steps..self.steps + steps).map(|step| BEGIN_MS + step * STEP_MS).collect();
        self.steps += steps;
        let count = |bytes: usize| i64::from(bytes > 0);
        self.written += Totals([count(event), count(document), count(row), steps * SERIES as i64]);
        Writes {
            client: self.number,
            key: (self.first + place).cast_signed(),
            event: (event > 0).then(|| self.text(event)),
            document: replaced.map(|n| (n, self.text(document))),
            row: (row > 0).then(|| self.text(row)),
            times,
        }
    }

    fn text(&mut self, bytes: usize) -> String {
        let at = self.random.below((POOL_BYTES - bytes) as u64) as usize;
        self.pool.get(at..at + bytes).unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of texts and samples.
    fn bytes(writes: &Writes) -> usize {
        let texts =
            [writes.event.as_ref(), writes.document.as_ref().map(|(_, text)| text), writes.row.as_ref()];
        let samples = writes.times.len() * SERIES as usize * SAMPLE_BYTES;
        texts.into_iter().flatten().map(String::len).sum::<usize>() + samples
    }

    #[test]
    fn transactions_of_every_kind_write_the_same_bytes() {
        let mut client = Client::new(1, 2, 100);
        for kind in Kind::ALL {
            let writes = client.next(kind);
            assert_eq!(bytes(&writes), 4 * PART, "{kind:?}");
            assert!((50..100).contains(&writes.key), "{}", writes.key);
        }
        assert_eq!(client.written, Totals([2, 2, 2, 40]));
    }

    #[test]
    fn request_names_each_model_that_is_written() {
        let mut client = Client::new(0, 1, 10);
        let all: serde_json::Value = serde_json::from_str(&client.next(Kind::Four).json()).unwrap();
        let operations = all["operations"].as_array().unwrap();
        let named = ["append", "documents", "sql", "samples"];
        assert!(operations.iter().zip(named).all(|(operation, name)| operation.get(name).is_some()));
        assert_eq!(operations.len(), 4);
        let one: serde_json::Value = serde_json::from_str(&client.next(Kind::Samples).json()).unwrap();
        assert_eq!(one["operations"][0]["samples"]["series"].as_array().unwrap().len(), SERIES as usize);
        assert_eq!(one["operations"][0]["samples"]["series"][7]["samples"].as_array().unwrap().len(), 4);
    }
}
