//! Operations per second by MongoDB's Rust driver with its defaults and up to 64 connections: single documents, and YCSB's core workloads
//! (Cooper et al., SoCC 2010).
//!
//! `MONGO_URL=mongodb://127.0.0.1:27017/ figures SECONDS DOCUMENTS`: each row runs so many seconds by 1 and by 32 workers, YCSB
//! on so many documents of 100 bytes with zipfian keys (0.99). Prints lines `FIGURE rust NAME WORKERS RATE`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use mongodb::bson::{Document, doc};
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution as _, Zipf};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Clone, Copy)]
enum Operation {
    Insert,
    Read,
    Replace,
    Update,
    /// Reads, and writes what it makes of it.
    Modify,
    /// Up to 100 documents from one on.
    Scan,
}
use Operation::{Insert, Modify, Read, Replace, Scan, Update};

/// Which documents are met.
#[derive(Clone, Copy)]
enum Keys {
    Uniform,
    /// Some more often than others, scattered over the collection.
    Zipfian,
    /// New ones more often than old ones.
    Latest,
}
use Keys::{Latest, Uniform, Zipfian};

/// A row: the percentages of its operations, and their documents.
struct Row(&'static str, &'static [(u32, Operation)], Keys);

const SINGLE: &[Row] = &[
    Row("insert_one", &[(100, Insert)], Uniform),
    Row("find_one", &[(100, Read)], Uniform),
    Row("replace_one", &[(100, Replace)], Uniform),
];
/// In the order that YCSB advises.
const YCSB: &[Row] = &[
    Row("ycsb_a", &[(50, Read), (50, Update)], Zipfian),
    Row("ycsb_b", &[(95, Read), (5, Update)], Zipfian),
    Row("ycsb_c", &[(100, Read)], Zipfian),
    Row("ycsb_f", &[(50, Read), (50, Modify)], Zipfian),
    Row("ycsb_d", &[(95, Read), (5, Insert)], Latest),
    Row("ycsb_e", &[(95, Scan), (5, Insert)], Zipfian),
];

/// Documents whose `_id` are 1, 2, …
struct Documents {
    collection: Collection<Document>,
    newest: AtomicI64,
    zipf: Zipf<f64>,
}

impl Documents {
    async fn load(client: &Client, name: &str, count: i64) -> Result<Self> {
        let collection: Collection<Document> = client.database("figures").collection(name);
        collection.drop().await?;
        let ids: Vec<i64> = (1..=count).collect();
        for ids in ids.chunks(1000) {
            collection.insert_many(ids.iter().map(|id| document(*id))).await?;
        }
        Ok(Self { collection, newest: AtomicI64::new(count), zipf: Zipf::new(count.max(1) as f64, 0.99)? })
    }

    async fn run(
        &self,
        operation: Operation,
        keys: Keys,
        random: &mut SmallRng,
    ) -> mongodb::error::Result<()> {
        let rank = self.zipf.sample(random) as i64;
        let newest = self.newest.load(Ordering::Relaxed).max(1);
        let id = match keys {
            Uniform => random.random_range(1..=newest),
            Zipfian => rank.wrapping_mul(0x9E37_79B9).rem_euclid(newest) + 1,
            Latest => newest - rank + 1,
        };
        let value: i64 = random.random();
        match operation {
            Insert => {
                let id = self.newest.fetch_add(1, Ordering::Relaxed) + 1;
                self.collection.insert_one(document(id)).await.map(drop)
            }
            // One that is just being inserted may not be there yet.
            Read => self.collection.find_one(doc! { "_id": id }).await.map(drop),
            Replace => {
                let new = doc! { "value": value, "updated": true };
                self.collection.replace_one(doc! { "_id": id }, new).await.map(drop)
            }
            Update => {
                let change = doc! { "$set": { "value": value } };
                self.collection.update_one(doc! { "_id": id }, change).await.map(drop)
            }
            Modify => {
                let found = self.collection.find_one(doc! { "_id": id }).await?;
                let value = found.and_then(|found| found.get_i64("value").ok()).unwrap_or_default() ^ 1;
                let change = doc! { "$set": { "value": value } };
                self.collection.update_one(doc! { "_id": id }, change).await.map(drop)
            }
            Scan => {
                let cursor = self.collection.find(doc! { "_id": { "$gte": id } }).sort(doc! { "_id": 1 });
                let found: Vec<Document> =
                    cursor.limit(random.random_range(1..=100)).await?.try_collect().await?;
                assert!(!found.is_empty(), "the document {id} is there");
                Ok(())
            }
        }
    }
}

/// A hundred bytes or a little more.
fn document(id: i64) -> Document {
    doc! { "_id": id, "value": id, "data": "some test data that makes the document about a hundred bytes" }
}

/// Runs a row by so many workers for so long, and prints it.
async fn measure(documents: &Arc<Documents>, row: &'static Row, workers: u64, seconds: f64) -> Result<()> {
    let begin = Instant::now();
    let end = begin + Duration::from_secs_f64(seconds);
    let mut tasks = Vec::new();
    for worker in 0..workers {
        let documents = documents.clone();
        tasks.push(tokio::spawn(async move {
            let mut random = SmallRng::seed_from_u64(worker);
            let mut done = 0_u64;
            while Instant::now() < end {
                let mut dice = random.random_range(0..100);
                for (percent, operation) in row.1 {
                    if dice < *percent {
                        documents.run(*operation, row.2, &mut random).await?;
                        break;
                    }
                    dice -= percent;
                }
                done += 1;
            }
            mongodb::error::Result::Ok(done)
        }));
    }
    let mut done = 0;
    for task in tasks {
        done += task.await??;
    }
    println!("FIGURE rust {} {workers} {:.0}", row.0, done as f64 / begin.elapsed().as_secs_f64());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let seconds = arguments.get(1).ok_or("figures SECONDS DOCUMENTS")?.parse()?;
    let count = arguments.get(2).ok_or("figures SECONDS DOCUMENTS")?.parse()?;
    let mut options = ClientOptions::parse(std::env::var("MONGO_URL")?).await?;
    options.max_pool_size = Some(64);
    let client = Client::with_options(options)?;
    for workers in [1, 32] {
        let documents = Arc::new(Documents::load(&client, &format!("single{workers}"), 0).await?);
        for row in SINGLE {
            measure(&documents, row, workers, seconds).await?;
        }
    }
    for workers in [1, 32] {
        let documents = Arc::new(Documents::load(&client, &format!("ycsb{workers}"), count).await?);
        for row in YCSB {
            measure(&documents, row, workers, seconds).await?;
        }
    }
    Ok(())
}
