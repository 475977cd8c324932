//! Hostile commands: short texts that cause much work. Each ends with a result or a typed error, within its
//! memory limit.
//!
//!   bombs/hand.txt, families × sizes, nested expressions ─▶ parse ─▶ run over small and over large documents ─▶ most bytes held
//!
//! The allocator counts memory. Each command is ended after a number of checks whether it may continue, so
//! that a loop that never checks is noticed: the test prints the time, and bounds it only generously.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ropewalk_documents::lang::{
    Applied, Budget, Code, Doc, DocBuf, Filter, LangError, Options, Owned, Pipeline, Projection,
    SharedMemory, Sort, Update, UpdateContext, Value, Writer,
};
use ropewalk_documents::{Collection, DocumentsError, Find, IndexDef};

use crate::allocations::most_held;
use crate::hostile_texts::{Numbers, written_out};
use crate::lang::notation;
use crate::store::{Db, SYNC};

/// Memory limit of one command.
const COMMAND_BYTES: usize = 32 << 20;
/// Memory that no budget counts: the document being read, a value of that size built from it, its copy in
/// the result, and both copies of a list while it grows.
const SLACK_BYTES: usize = 56 << 20;
/// Checks after which a command is ended.
const ASKED_MAX: u32 = 10;
/// Far more than such a command needs on a busy machine.
const TIME_MAX: Duration = Duration::from_secs(90);
const SMALL_DOCUMENTS: i64 = 200;

fn hand_written() -> impl Iterator<Item = String> {
    let lines = include_str!("../bombs/hand.txt").lines();
    lines.filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::to_owned)
}

/// Randomly nested expressions around a hostile core.
fn nested(numbers: &mut Numbers) -> String {
    const MIDDLES: [&str; 14] = [
        "\"$s\"",
        "\"$a\"",
        "\"$o\"",
        "\"$$ROOT\"",
        "\"$a.b\"",
        "\"<<1000*x>>\"",
        "{$range: [0, 1000000]}",
        "{$range: [0, 1000]}",
        "{$objectToArray: \"$$ROOT\"}",
        "{$split: [{$toString: \"$s\"}, \"x\"]}",
        "[\"$s\", \"$s\", \"$a\"]",
        "{x: \"$s\", y: \"$a\", z: \"$o\"}",
        "{$literal: [<<1000*%i,>>]}",
        "{$regexFindAll: {input: \"$s\", regex: \"(x)(y)?\"}}",
    ];
    /// `@` is replaced by the inner expression.
    const AROUND: [&str; 34] = [
        "[@, @]",
        "{a: @, b: @}",
        "{$concatArrays: [@, @]}",
        "{$concatArrays: [[@], [@]]}",
        "{$concat: [@, @]}",
        "{$map: {input: {$range: [0, 1000]}, in: @}}",
        "{$map: {input: @, in: [\"$$this\", \"$$ROOT\"]}}",
        "{$filter: {input: @, cond: {$ne: [\"$$this\", \"$s\"]}}}",
        "{$reduce: {input: @, initialValue: [], in: {$concatArrays: [\"$$value\", [\"$$this\"]]}}}",
        "{$reduce: {input: {$range: [0, 100]}, initialValue: @, in: {$concatArrays: [\"$$value\", \"$$value\"]}}}",
        "{$let: {vars: {v: @}, in: [\"$$v\", \"$$v\"]}}",
        "{$zip: {inputs: [@, @], useLongestLength: true}}",
        "{$setUnion: [@, {$range: [0, 100000]}]}",
        "{$setDifference: [@, @]}",
        "{$setIntersection: [@, @]}",
        "{$reverseArray: @}",
        "{$sortArray: {input: @, sortBy: -1}}",
        "{$sortArray: {input: @, sortBy: {b: 1, c: -1}}}",
        "{$slice: [@, -100000]}",
        "{$firstN: {input: @, n: 1000000}}",
        "{$maxN: {input: @, n: 1000000}}",
        "{$objectToArray: @}",
        "{$arrayToObject: {$map: {input: {$range: [0, 1000]}, in: [{$toString: \"$$this\"}, @]}}}",
        "{$mergeObjects: [@, {x: @}]}",
        "{$mergeObjects: {$map: {input: {$range: [0, 1000]}, in: {x: @}}}}",
        "{$setField: {field: \"f\", input: {g: @}, value: @}}",
        "{$replaceAll: {input: @, find: \"x\", replacement: \"yy\"}}",
        "{$toUpper: @}",
        "{$cond: [{$gt: [{$size: {$ifNull: [@, []]}}, 5]}, @, [@]]}",
        "{$switch: {branches: [{case: {$eq: [@, 1]}, then: 1}], default: @}}",
        "{$ifNull: [@, @]}",
        "{$arrayElemAt: [[@, @], -1]}",
        "{$in: [@, [@, @]]}",
        "{$size: [@]}",
    ];
    let mut expression = numbers.one_of(&MIDDLES).to_owned();
    for _ in 0..1 + numbers.below(9) {
        expression = numbers.one_of(&AROUND).replace('@', &expression);
        if expression.len() > 100_000 {
            break;
        }
    }
    format!("expression {expression}")
}

/// Families of growing texts, at several sizes.
fn grown() -> Vec<String> {
    let mut all = Vec::new();
    for size in [10, 5_000, 20_000] {
        for family in [
            "find {$or: [<<N*{n: %i},>>]}",
            "find {$and: [<<N*{n: {$ne: %i}},>>]}",
            "find {$or: [<<N*{a: {$elemMatch: {$gt: %i, $lt: 0}}},>>]}",
            "find {a: {$in: [<<N*%i,>>]}, k: {$nin: [<<N*%i,>>]}}",
            "find {<<N*f%i: 1,>>}",
            "find {$expr: {$and: [<<N*{$gt: [\"$n\", -%i]},>>]}}",
            "find {$expr: {$in: [\"$n\", [<<N*%i,>>]]}}",
            "find {$jsonSchema: {required: [<<N*\"f%i\",>>]}}",
            "find {$jsonSchema: {properties: {<<N*f%i: {maxItems: 1},>>}}}",
            "find {$jsonSchema: {anyOf: [<<N*{required: [\"f%i\"]},>>]}}",
            "expression [<<N*\"$s\",>>]",
            "expression {<<N*f%i: \"$a\",>>}",
            "expression {$concat: [<<N*\"$s\",>>]}",
            "expression {$concatArrays: [<<N*\"$a\",>>]}",
            "expression {$setUnion: [<<N*\"$a\",>>]}",
            "expression {$mergeObjects: [<<N*{f%i: \"$s\"},>>]}",
            "expression {$let: {vars: {<<N*v%i: 1,>>}, in: \"$$v1\"}}",
            "expression {$switch: {branches: [<<N*{case: {$eq: [\"$n\", -%i]}, then: 1},>>], default: \"$a\"}}",
            "expression {$zip: {inputs: [<<N*\"$a\",>>]}}",
            "pipeline [{$group: {_id: \"$_id\", <<N*f%i: {$push: \"$s\"},>>}}]",
            "pipeline [{$addFields: {<<N*f%i: \"$s\",>>}}]",
            "pipeline [{$bucket: {groupBy: \"$n\", boundaries: [<<N*%i,>>], default: -1}}]",
            "project {<<N*f%i: 1,>>}",
            "project {<<N*f%i: \"$a\",>>}",
            "update {$set: {<<N*\"x.%i\": 1,>>}}",
            "update {$set: {<<N*\"a.%i\": [],>>}}",
            "update {$unset: {<<N*\"o.f%i\": 1,>>}}",
            "update {$push: {a: {$each: [<<N*%i,>>], $sort: 1}}}",
            "update {$pullAll: {a: [<<N*%i,>>]}}",
            "update {$addToSet: {a: {$each: [<<N*%i,>>]}}}",
        ] {
            all.push(family.replace('N', &size.to_string()));
        }
    }
    all
}

fn corpus() -> Vec<String> {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut all: Vec<String> = hand_written().chain(grown()).collect();
    all.extend((0..80).map(|_| nested(&mut numbers)));
    all
}

fn array(writer: &mut Writer, count: usize, put: &dyn Fn(&mut Writer, usize)) {
    writer.open_array("a");
    (0..count).for_each(|n| put(writer, n));
    writer.close();
}

/// Documents that exhaust one of the limits each.
fn large_documents() -> Vec<DocBuf> {
    let mut id = 0_i64;
    let mut document = |put: &dyn Fn(&mut Writer)| {
        let mut writer = Writer::new();
        writer.put("_id", Value::Int64(id));
        writer.put("n", Value::Int64(id));
        writer.put("k", Value::Int64(id));
        id += 1;
        put(&mut writer);
        writer.finish()
    };
    let text = "x".repeat(4 << 20);
    vec![
        document(&|writer| writer.put("s", Value::String(&text))),
        document(&|writer| array(writer, 200_000, &|writer, n| writer.put("", Value::Int32(n as i32)))),
        document(&|writer| {
            array(writer, 200_000, &|writer, _| {
                writer.open_array("");
                writer.close();
            })
        }),
        document(&|writer| {
            array(writer, 150_000, &|writer, n| {
                writer.open_document("");
                writer.put("b", Value::Int32(n as i32));
                writer.close();
            })
        }),
        document(&|writer| {
            array(writer, 120_000, &|writer, n| writer.put("", Value::String(&format!("text {n}"))))
        }),
        document(&|writer| array(writer, 200_000, &|writer, _| writer.put("", Value::Double(1e300)))),
        document(&|writer| {
            writer.open_document("o");
            (0..200_000).for_each(|n| writer.put(&format!("f{n}"), Value::Int32(n)));
            writer.close();
        }),
        // Every name is also a position.
        document(&|writer| {
            (0..80).for_each(|_| {
                writer.open_array("0");
                writer.open_document("");
            });
            writer.put("0", Value::Int32(1));
            (0..160).for_each(|_| writer.close());
        }),
        document(&|writer| {
            (0..150).for_each(|_| writer.open_document("d"));
            writer.put("s", Value::String(&text[..1 << 20]));
            (0..150).for_each(|_| writer.close());
        }),
    ]
}

struct Field {
    db: Db,
    small: Collection,
    large: Collection,
    documents: Vec<DocBuf>,
}

impl Field {
    fn new() -> Self {
        let db = Db::new();
        let (small, large) = (db.coll("small"), db.coll("large"));
        let documents = large_documents();
        for document in &documents {
            large.insert_many(&[document.bytes()], true, SYNC).unwrap();
        }
        let small_document = |n: i64| {
            let array = "<<50*%i,>>";
            let text = format!(
                "{{_id: {n}, n: {n}, k: {}, s: \"<<1000*x>>\", a: [{array}], o: {{p: {n}}}, l: {}}}",
                n % 10,
                n + 1
            );
            notation::doc(&written_out(&text)).into_bytes()
        };
        let all: Vec<Vec<u8>> = (0..SMALL_DOCUMENTS).map(small_document).collect();
        small.insert_many(&all, true, SYNC).unwrap();
        for path in ["k", "a"] {
            small.create_index(&IndexDef::on([path])).unwrap();
        }
        Self { db, small, large, documents }
    }

    /// Parses and runs a command over the documents of a collection.
    fn run(
        &self,
        kind: &str,
        operand: &Owned,
        collection: &Collection,
        asked: &Asked,
    ) -> Result<usize, DocumentsError> {
        let options = Options { patterns: asked.patterns(), ..Options::default() };
        let value = operand.value();
        let doc = || value.as_document().unwrap_or(Doc::empty());
        let snapshot = self.db.documents.engine().snapshot();
        let look = || asked.look().map_err(DocumentsError::from);
        let mut at = self.db.documents.at(&snapshot).with_cancellation(&look);
        let mut shown = 0;
        let mut visit = |find: Find| {
            at.visit(collection, &find, &mut |_| {
                shown += 1;
                Ok(true)
            })
        };
        match kind {
            "find" => visit(Find::matching(Filter::parse(doc(), &options)?))?,
            "sort" => visit(Find::all().sort(Sort::parse(doc())?))?,
            "project" => visit(Find::all().project(Projection::parse(doc(), &options)?))?,
            "distinct" => {
                let path = value.as_str().unwrap_or_default();
                shown = at.distinct(collection, path, &Filter::all())?.len();
            }
            "pipeline" | "expression" => {
                let mut stages = Writer::array();
                stages.open_document("");
                stages.open_document("$replaceWith");
                stages.put("r", value);
                stages.close();
                stages.close();
                let stages = stages.into_owned();
                let stages = if kind == "pipeline" { value } else { stages.value() };
                let pipeline = Pipeline::parse(stages.as_array().unwrap(), &options)?;
                collection.aggregate_at(snapshot.clone(), &pipeline, &mut |_| {
                    shown += 1;
                    Ok(true)
                })?;
            }
            "update" => {
                let update = match value {
                    Value::Document(doc) if doc.get("u").is_some() => {
                        let filters = doc.get("arrayFilters").and_then(Value::as_array);
                        Update::parse(doc.get("u").unwrap(), filters, &options)?
                    }
                    value => Update::parse(value, None, &options)?,
                };
                // One after the other, as in a statement that changes many. An error concerns one document.
                for document in &self.documents {
                    match update.apply(document.doc(), &UpdateContext::default()) {
                        Ok(Applied::Changed(_)) => shown += 1,
                        Ok(Applied::Unchanged) => {}
                        Err(error) if error.code == Code::MaxTimeMSExpired => return Err(error.into()),
                        Err(_) => {}
                    }
                }
            }
            other => panic!("no such kind: {other}"),
        }
        Ok(shown)
    }
}

/// Number of checks whether the command may continue.
#[derive(Clone, Default)]
struct Asked(Arc<AtomicU32>);

impl Asked {
    fn look(&self) -> Result<(), LangError> {
        if self.0.fetch_add(1, Ordering::Relaxed) > ASKED_MAX {
            return Err(LangError::new(Code::MaxTimeMSExpired, "operation exceeded time limit"));
        }
        Ok(())
    }

    fn patterns(&self) -> ropewalk_documents::lang::Patterns {
        let asked = self.clone();
        ropewalk_documents::lang::Patterns::with_cancellation(move || asked.look())
    }
}

/// Resources used by a command.
struct Took {
    bytes: usize,
    time: Duration,
    end: String,
    text: String,
}

impl std::fmt::Display for Took {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (bytes, time, end, text) = (self.bytes >> 10, self.time.as_millis(), &self.end, &self.text);
        write!(f, "{bytes:>7} KiB {time:>6} ms {end}: {text}")
    }
}

fn take(field: &Field, line: &str) -> Vec<Took> {
    let (kind, text) = line.split_once(' ').unwrap();
    let operand = notation::value(&written_out(text));
    let mut took = Vec::new();
    for (name, collection) in [("small", &field.small), ("large", &field.large)] {
        let shared = SharedMemory::new(1 << 30);
        let asked = Asked::default();
        let budget = {
            let asked = asked.clone();
            Budget::new(COMMAND_BYTES, Some(shared.clone()), move || asked.look())
        };
        let began = Instant::now();
        let (bytes, answer) = most_held(|| budget.run(|| field.run(kind, &operand, collection, &asked)));
        let time = began.elapsed();
        let end = match &answer {
            Ok(shown) => format!("{shown} documents"),
            Err(error) => format!("{} {}", error.code(), error.code_name()),
        };
        assert_eq!(budget.used(), 0, "{line}");
        drop(budget);
        assert_eq!(shared.used(), 0, "{line}");
        let text: String = line.chars().take(110).collect();
        let bytes = usize::try_from(bytes).unwrap();
        took.push(Took { bytes, time, end, text: format!("{name}: {text}") });
    }
    took
}

#[test]
fn h6_every_bomb_ends_within_its_budget() {
    let (field, corpus) = (Field::new(), corpus());
    assert!(corpus.len() >= 300, "{} commands", corpus.len());
    // Set to a substring of a command to display its costs.
    let only = std::env::var("BOMB").ok();
    let mut took: Vec<Took> = Vec::new();
    for line in corpus.iter().filter(|line| only.as_ref().is_none_or(|only| line.contains(only))) {
        let new = take(&field, line);
        if only.is_some() {
            new.iter().for_each(|took| eprintln!("{took}"));
        }
        took.extend(new);
    }
    eprintln!("{} commands, each over small and over large documents", took.len() / 2);
    took.sort_by_key(|took| std::cmp::Reverse(took.time));
    took.iter().take(12).for_each(|took| eprintln!("{took}"));
    let slow: Vec<String> = took.iter().filter(|took| took.time > TIME_MAX).map(Took::to_string).collect();
    took.sort_by_key(|took| std::cmp::Reverse(took.bytes));
    took.iter().take(25).for_each(|took| eprintln!("{took}"));
    let over = took.iter().filter(|took| took.bytes > COMMAND_BYTES + SLACK_BYTES);
    let over: Vec<String> = over.map(Took::to_string).collect();
    assert!(over.is_empty() && slow.is_empty(), "{over:#?} {slow:#?}");
}

#[test]
fn large_inputs_pass() {
    let db = Db::new();
    let collection = db.coll("c");
    let mut writer = Writer::new();
    writer.put("_id", Value::Int32(0));
    array(&mut writer, 200_000, &|writer, n| {
        writer.open_document("");
        writer.put("n", Value::Int32(n as i32));
        writer.close();
    });
    let document = writer.finish();
    collection.insert_many(&[document.bytes()], true, SYNC).unwrap();
    let texts = db.coll("texts");
    let mut writer = Writer::new();
    writer.put("s", Value::String(&"word ".repeat(400_000)));
    texts.insert_many(&[writer.finish().bytes()], true, SYNC).unwrap();
    let numbers = |n: usize| -> Vec<Vec<u8>> {
        let document = |n: i32| notation::doc(&format!("{{_id: {n}, k: {}, s: \"<<100*x>>\"}}", n % 1000));
        (0..n as i32).map(|n| document(n).into_bytes()).collect()
    };
    let many = db.coll("many");
    for chunk in numbers(50_000).chunks(10_000) {
        many.insert_many(chunk, true, SYNC).unwrap();
    }
    // The memory limit of one command on the server.
    let budget = Budget::new(ropewalk_documents::lang::COMMAND_BYTES_MAX, None, || Ok(()));
    let run = |collection: &Collection, stages: &str| {
        let stages = notation::value(&written_out(stages));
        let pipeline = Pipeline::parse(stages.value().as_array().unwrap(), &Options::default()).unwrap();
        let mut shown = 0;
        collection
            .aggregate_at(db.documents.engine().snapshot(), &pipeline, &mut |_| {
                shown += 1;
                Ok(true)
            })
            .unwrap_or_else(|error| panic!("{stages:?}: {error}"));
        shown
    };
    budget.run(|| {
        for (stages, shown) in [
            ("[{$unwind: \"$a\"}, {$group: {_id: \"$a.n\"}}, {$count: \"n\"}]", 1),
            ("[{$unwind: \"$a\"}, {$project: {a: 1}}, {$sort: {\"a.n\": -1}}, {$limit: 10}]", 10),
            ("[{$project: {n: {$size: {$setUnion: [\"$a.n\", {$range: [0, 300000]}]}}}}]", 1),
            ("[{$project: {a: {$map: {input: \"$a\", in: {$add: [\"$$this.n\", 1]}}}}}]", 1),
            ("[{$project: {a: {$filter: {input: \"$a\", cond: {$gt: [\"$$this.n\", 5]}}}}}]", 1),
            ("[{$project: {n: {$size: {$split: [\"$s\", \" \"]}}}}]", 1),
            ("[{$project: {s: {$replaceAll: {input: \"$s\", find: \"word\", replacement: \"a longer word\"}}}}]", 1),
            ("[{$match: {s: /^(word )+$/}}]", 1),
            ("[{$match: {\"a.n\": {$in: [<<100000*%i,>>]}}}]", 1),
            ("[{$match: {$expr: {$in: [0, [<<100000*%i,>>]]}}}]", 1),
        ] {
            let collection = if stages.contains("$a") || stages.contains("a.n") || stages.contains("$expr") {
                &collection
            } else {
                &texts
            };
            assert_eq!(run(collection, stages), shown, "{}", stages.chars().take(80).collect::<String>());
        }
        for (stages, shown) in [
            ("[{$group: {_id: \"$_id\", all: {$push: \"$s\"}}}]", 50_000),
            ("[{$group: {_id: \"$k\", l: {$last: \"$s\"}, top: {$topN: {n: 3, sortBy: {_id: -1}, output: \"$_id\"}}}}]", 1_000),
            ("[{$sort: {s: 1, k: -1}}]", 50_000),
            ("[{$setWindowFields: {partitionBy: \"$k\", sortBy: {_id: 1}, output: {r: {$rank: {}}}}}]", 50_000),
            ("[{$limit: 300}, {$lookup: {from: \"many\", localField: \"_id\", foreignField: \"_id\", as: \"j\"}}]", 300),
        ] {
            assert_eq!(run(&many, stages), shown, "{stages}");
        }
        for (change, filters) in [
            ("{$set: {\"a.$[].x\": 1}}", None),
            ("{$inc: {\"a.$[e].n\": 1}}", Some("[{\"e.n\": {$gt: 50000}}]")),
            ("{$pull: {a: {n: {$lt: 100000}}}}", None),
            ("{$push: {a: {$each: [{n: -1}], $sort: {n: 1}}}}", None),
            ("{$set: {\"b.1000000\": 1}, $unset: {a: 1}}", None),
        ] {
            let filters = filters.map(notation::value);
            let filters = filters.as_ref().and_then(|filters| filters.value().as_array());
            let update = Update::parse(notation::value(change).value(), filters, &Options::default()).unwrap();
            let padded = notation::doc("{_id: 0, a: 1, b: []}");
            let document = if change.contains("b.1") { &padded } else { &document };
            let applied = update.apply(document.doc(), &UpdateContext::default());
            assert!(matches!(applied, Ok(Applied::Changed(_))), "{change}: {:?}", applied.err());
        }
    });
    assert_eq!(budget.used(), 0);
}
