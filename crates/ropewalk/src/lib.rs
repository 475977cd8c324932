//! Ropewalk: an embedded, durable, multi-model database over one commit log.
//!
//! A transaction is one log record, synced once and applied atomically, whichever models it writes.
//!
//! ```
//! use ropewalk::{AppendCondition, Database, Event, Query};
//!
//! # fn main() -> Result<(), ropewalk::Error> {
//! let db = Database::in_memory()?;
//! let users = db.events("users")?;
//! let taken = Query::from_tags(["username:ann"]);
//! let register = Event::new("UserRegistered").tag("username:ann").data(br#"{"name":"Ann"}"#);
//! users.append(&[register.clone()], Some(AppendCondition::none_match(taken.clone())))?;
//! let again = users.append(&[register], Some(AppendCondition::none_match(taken)));
//! assert!(again.is_err_and(|e| e.is_refused()));
//! # Ok(())
//! # }
//! ```
//!
//! SQL is in the crate `ropewalk-sql`: its `Session` runs statements over a [`Database`] and exposes the
//! [`Transaction`] that they run in.
#![deny(missing_docs)]

mod consumer_checkpoints;
mod database;
mod error;
pub mod groups;
mod idempotency;
mod keyspace;
mod names;
pub mod projections;
pub mod testing;

pub use database::options::Options;
pub use database::transaction::Transaction;
pub use database::{Database, Snapshot};
pub use error::{Class, Error};
pub use ropewalk_base::{Position, Seq};
#[cfg(feature = "derive")]
pub use ropewalk_derive::Event;
pub use ropewalk_engine::{Durability, Isolation};
pub use ropewalk_events::{AppendCondition, AppendOptions, Event, EventStore, Query};

/// The event store: queries, reads, subscriptions, decisions, typed events.
///
/// `#[derive(Event)]`, of the feature `derive` (a default), makes Rust types events: a struct is one type of
/// events, an enum one for each variant. The crate of the types needs `serde` and `serde_json`. The macro's
/// documentation lists all keys.
///
/// ```
/// use ropewalk::events::{FromEvent, PersonalData, ReadOptions, to_events};
/// use ropewalk::{Database, Event};
///
/// #[derive(Debug, PartialEq, Event)]
/// enum Shop {
///     // Type `OrderPlaced`, tags `order:o1` and `sku:rope`, data {"order":"o1","sku":"rope",...}.
///     #[event(version = 2, upcast_from(1) = without_email)]
///     OrderPlaced {
///         #[event(tag)]
///         order: String,
///         #[event(tag = "sku", each)]
///         products: Vec<String>,
///         #[event(personal)]
///         email: Option<String>,
///     },
///     OrderPaid {
///         #[event(tag)]
///         order: String,
///     },
/// }
///
/// /// The data of `OrderPlaced` in version 1.
/// #[derive(serde::Deserialize)]
/// struct OrderPlaced1 {
///     order: String,
///     product: String,
/// }
///
/// fn without_email(old: OrderPlaced1) -> Shop {
///     Shop::OrderPlaced { order: old.order, products: vec![old.product], email: None }
/// }
///
/// # fn main() -> Result<(), ropewalk::Error> {
/// let db = Database::in_memory()?;
/// let store = db.events("shop")?;
/// // An event that an earlier version of the program has appended.
/// let old = Event::new("OrderPlaced").tag("order:o1").data(r#"{"order":"o1","product":"rope"}"#);
/// store.append(&[old], None)?;
/// store.append(&to_events(&[Shop::OrderPaid { order: "o1".into() }])?, None)?;
///
/// let found = store.read(&Shop::tagged(["order:o1"]), ReadOptions::default())?.decoded::<Shop>();
/// let found = found.collect::<Result<Vec<_>, _>>()?;
/// let placed = Shop::OrderPlaced { order: "o1".into(), products: vec!["rope".into()], email: None };
/// assert_eq!(found[0].1, placed);
/// assert_eq!(found[1].1, Shop::OrderPaid { order: "o1".into() });
///
/// let shown = placed.redacted().to_string();
/// assert_eq!(shown, r#"OrderPlaced { order: "o1", products: ["rope"], email: [personal] }"#);
/// # Ok(())
/// # }
/// ```
///
/// A wrong key is an error at the key:
///
/// ```compile_fail
/// #[derive(ropewalk::Event)]
/// struct OrderPaid {
///     #[event(tags)] // unknown key `tags`; a field has `tag`, `each` and `personal`
///     order: String,
/// }
/// ```
pub mod events {
    pub use ropewalk_events::{
        Appended, ApplyError, Decision, DecisionError, Delivery, EventBatch, EventReader, EventsError,
        FromEvent, PendingAppend, PersonalData, Projection, QueryItem, ReadOptions, Recorded, Redacted,
        RetryPolicy, Scan, SequencedEvent, SequencedEventRef, Subscription, ToEvent, Tracking, VERSION_KEY,
        count, event_version, exists, projection, to_events, try_projection, typed_projection,
    };
}
/// Options, results and observed steps of transactions.
pub mod transaction {
    pub use crate::database::observer::Step;
    pub use crate::database::run::{RunOptions, RunResult};
    pub use crate::database::transaction::{AppendedEvents, AppendedSamples, Committed, PendingCommit};
    pub use crate::error::IdempotencyError;
}
/// The change feed over all models, and stored positions of its consumers.
pub mod changes {
    pub use crate::consumer_checkpoints::{ConsumerCheckpoint, ConsumerCheckpoints};
    pub use crate::database::committed::{ChangedRow, ChangedRows, ChangedSamples, CommittedSamples};
    pub use crate::database::{Change, ChangeFeed, ChangedPart};
}
/// The engine under the models: keyspaces of bytes, backups, statistics, environment.
pub mod engine {
    pub use ropewalk_base::Lsn;
    pub use ropewalk_engine::{
        Background, Backup, Compression, Damage as LogDamage, Difference, EngineError, EngineReport,
        EngineStats, FilterPolicy, KeyspaceOptions, KeyspaceWatch, NotNewest, TRANSACTION_BYTES_MAX, Value,
        WatchMark,
    };
    pub use ropewalk_vfs::{Env, process_memory};

    pub use crate::keyspace::Keyspace;
}
/// Several databases with one shared log: one leads and commits, the others follow it.
///
/// [`Options::shared`](crate::Options::shared) opens a database as a follower. A loop around
/// [`Database::engine`](crate::Database::engine) passes it the entries of the shared log, and makes it campaign; after that,
/// [`Database::begin_leading`](crate::Database::begin_leading) comes before its first transaction.
pub mod cluster {
    pub use ropewalk_engine::shared::*;
    pub use ropewalk_engine::{Followed, Role, SharedOptions};
    pub use ropewalk_log::{LogError, LogId};
}
/// Parts of the engine that SQL and the server build on. No stable API.
#[doc(hidden)]
pub mod hooks {
    pub use ropewalk_base::{
        HashedMap, civil, from_hex, hex, is_rebuild_name, put_bytes, put_varint, split_varint, unzigzag,
        varint_len, zigzag,
    };
    pub use ropewalk_engine::{
        Blocked, EngineStopped, InFlightCommit, KvWrite, LockError, LockHolder, LockMode, LockWait,
        LockWaitWaker, ReadMode, WaitVisible, WriteCapacity,
    };
    pub use ropewalk_events::{AppendSection, BodyRef, StoreMark};

    pub use crate::database::leading::UntilLeading;
    pub use crate::database::system_keyspace::{SystemKeyspace, WatchedKeyspace};

    /// Stored results of transactions by idempotency key.
    pub mod idempotency {
        pub use crate::idempotency::{
            AppendPositions, DELETED_MAX, IdempotencyRecords, KEY_BYTES_MAX, RESULTS_BYTES_MAX, RETENTION,
            RecordSize, RecordedResults, RequestKey, StoredResult,
        };
    }
}
/// PromQL, the Prometheus query language, evaluated over [`Snapshot::metrics`].
///
/// ```
/// use ropewalk::Database;
/// use ropewalk::promql::{Options, Query, Sample, Value};
/// use ropewalk::series::{Labels, SampleBatch};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let db = Database::in_memory()?;
/// let metrics = db.series("metrics")?;
/// let mut batch = SampleBatch::new();
/// for (pod, value) in [("a", 2.0), ("b", 3.0)] {
///     batch.push(&Labels::new([("__name__", "requests"), ("pod", pod)])?, 1_000, value);
/// }
/// metrics.append(&batch)?;
///
/// let snapshot = db.snapshot();
/// let answer = Query::parse("sum(requests)", Options::default())?.instant(&snapshot.metrics(&metrics), 2_000, &|| None)?;
/// let Value::Vector(rows) = answer.value else { unreachable!() };
/// assert_eq!(rows[0].1, Sample::Float(5.0));
/// # Ok(())
/// # }
/// ```
pub mod promql {
    pub use ropewalk_promql::*;

    pub use crate::database::metrics::Metrics;
}
/// Time series: labels, matchers, histograms, batches of samples, selections.
///
/// ```
/// use ropewalk::Database;
/// use ropewalk::series::{Labels, Matcher, SampleBatch, Samples};
///
/// # fn main() -> Result<(), ropewalk::Error> {
/// let db = Database::in_memory()?;
/// let metrics = db.series("metrics")?;
/// let mut batch = SampleBatch::new();
/// let up = Labels::new([("__name__", "up"), ("job", "api")])?;
/// batch.series(&up).push(1_000, 1.0).push(16_000, 0.0);
/// metrics.append(&batch)?;
///
/// let snapshot = db.snapshot();
/// let at = snapshot.series(&metrics);
/// let mut selection = at.select(&[Matcher::equal("job", "api")], 0, 20_000)?;
/// let mut samples = Samples::default();
/// while selection.next().is_some() {
///     selection.samples(&mut samples)?;
/// }
/// assert_eq!(samples.values, [1.0, 0.0]);
/// # Ok(())
/// # }
/// ```
pub mod series {
    pub use ropewalk_labels::{
        BUCKET, BUCKETS_MAX, Bounded, Bucket, CUSTOM_SCHEMA, Histogram, LABEL_NAME_BYTES_MAX,
        LABEL_SET_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX, LabelError, Labels, LabelsIter, LabelsRef,
        METRIC_NAME, METRIC_TYPE, METRIC_UNIT, MatchOp, Matcher, ResetHint, STALE, STALE_BITS, Samples,
        is_stale,
    };
    pub use ropewalk_series::*;
}
/// Documents: BSON in collections, with MongoDB's query and update language.
///
/// With the feature `serde`, [`Database::collection_of`] stores values of application types.
///
/// ```
/// use ropewalk::documents::lang::{Filter, Value, Writer};
/// use ropewalk::documents::{Find, IndexDef};
/// use ropewalk::{Database, Durability};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let db = Database::in_memory()?;
/// let users = db.collection("users")?;
/// users.create_index(&IndexDef::on(["age"]))?;
/// for (name, age) in [("ann", 41), ("bob", 17), ("cleo", 29)] {
///     let mut user = Writer::new(); // or the bytes of any BSON library
///     user.put("_id", Value::String(name));
///     user.put("age", Value::Int32(age));
///     users.insert_one(user.finish().bytes(), Durability::Sync)?;
/// }
/// assert!(users.get(Value::String("ann"))?.is_some());
///
/// let mut filter = Writer::new(); // { age: { $gte: 18 } }
/// filter.open_document("age");
/// filter.put("$gte", Value::Int32(18));
/// filter.close();
/// let adults = Find::filter(filter.finish().doc())?;
/// assert_eq!(users.find(&adults)?.count(), 2);
///
/// // Together with everything else in one commit:
/// let mut tx = db.begin();
/// tx.documents().delete_one(&users, &Filter::equals("_id", Value::String("bob")))?;
/// tx.commit()?;
/// # Ok(())
/// # }
/// ```
pub mod documents {
    pub use ropewalk_documents::*;

    pub use crate::database::DOCUMENT_DATABASE;
}
/// Typed tables: definitions, values, rows.
///
/// ```
/// use ropewalk::Database;
/// use ropewalk::tables::{ColumnDef, KeyRange, TableDef, Type};
///
/// # fn main() -> Result<(), ropewalk::Error> {
/// let db = Database::in_memory()?;
/// let mut tx = db.begin();
/// let users = tx.tables().create_table(
///     TableDef::new("users")
///         .column(ColumnDef::new("id", Type::INT8))
///         .column(ColumnDef::new("name", Type::TEXT).not_null())
///         .primary_key(["id"])
///         .unique(["name"]),
/// )?;
/// tx.tables().insert(&users, &[("id", 1_i64.into()), ("name", "Ann".into())])?;
/// assert!(tx.tables().insert(&users, &[("id", 2_i64.into()), ("name", "Ann".into())]).is_err());
/// tx.commit()?;
///
/// let snapshot = db.snapshot();
/// assert_eq!(snapshot.tables(&db).count(&users, &KeyRange::all())?, 1);
/// let ann = snapshot.tables(&db).get(&users, &[1_i64.into()])?;
/// assert_eq!(ann.map(|row| row.get_as::<String>("name")).transpose()?.as_deref(), Some("Ann"));
/// # Ok(())
/// # }
/// ```
pub mod tables {
    pub use ropewalk_tables::*;
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles and runs the examples of the guides.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/getting-started.md")]
    struct GettingStarted;

    #[doc = include_str!("../../../docs/guides/transactions.md")]
    struct Transactions;

    #[doc = include_str!("../../../docs/guides/projections-and-consumers.md")]
    struct ProjectionsAndConsumers;

    #[doc = include_str!("../../../docs/guides/order-service.md")]
    struct OrderService;

    #[doc = include_str!("../../../docs/guides/embedding-in-async-programs.md")]
    struct EmbeddingInAsyncPrograms;

    #[doc = include_str!("../../../docs/guides/from-postgresql.md")]
    struct FromPostgresql;

    #[doc = include_str!("../../../docs/guides/from-mongodb.md")]
    struct FromMongodb;

    #[doc = include_str!("../../../docs/guides/from-prometheus.md")]
    struct FromPrometheus;

    #[doc = include_str!("../../../docs/guides/from-an-event-store.md")]
    struct FromAnEventStore;

    #[doc = include_str!("../../../docs/guides/operations.md")]
    struct Operations;
}
