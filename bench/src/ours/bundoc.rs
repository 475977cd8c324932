//! Documents in one collection, through the API that an application uses.

use std::path::Path;

use anyhow::{Result, ensure};
use ropewalk::documents::lang::{Doc, Filter, Options as Language, Update, Value, Writer};
use ropewalk::documents::{Collection, UpdateSpec};
use ropewalk::{Database, Durability, Options};
use ropewalk_bench::workloads::bundoc::run::{DocumentSession, DocumentStore, Field, Fields};

/// The collection `docs`.
pub(crate) struct Store {
    collection: Collection,
    durability: Durability,
    _db: Database,
}

/// A document as BSON.
fn bson(id: &str, fields: Fields<'_>) -> Vec<u8> {
    let mut out = Writer::new();
    out.put("_id", Value::String(id));
    for (name, field) in fields {
        out.put(
            name,
            match field {
                Field::Number(number) => Value::Int64(*number),
                Field::Text(text) => Value::String(text),
                Field::Flag(flag) => Value::Bool(*flag),
            },
        );
    }
    out.finish().into_bytes()
}

impl DocumentStore for Store {
    type Session<'a> = &'a Store;

    fn open(dir: &Path, durable: bool) -> Result<Self> {
        let db = Options::new().open(dir)?;
        let collection = db.collection("docs")?;
        collection.create(Default::default())?;
        let durability = if durable { Durability::Sync } else { Durability::Buffered };
        Ok(Self { collection, durability, _db: db })
    }

    fn session(&self) -> Result<&Store> {
        Ok(self)
    }
}

impl DocumentSession for &Store {
    fn insert(&mut self, id: &str, fields: Fields<'_>) -> Result<()> {
        self.collection.insert_one(&bson(id, fields), self.durability)?;
        Ok(())
    }

    fn replace(&mut self, id: &str, fields: Fields<'_>) -> Result<()> {
        let document = bson(id, fields);
        let update = Update::parse(Value::Document(Doc::check(&document)?), None, &Language::default())?;
        let spec = UpdateSpec::new(Filter::equals("_id", Value::String(id)), update);
        let updated = self.collection.update_one(&spec, self.durability)?;
        ensure!(updated.matched == 1, "{id} does not exist");
        Ok(())
    }

    fn find(&mut self, id: &str) -> Result<Option<i64>> {
        let found = self.collection.get(Value::String(id))?;
        Ok(found.and_then(|document| document.doc().get("value")?.as_integer()))
    }

    fn insert_batch(&mut self, documents: &mut dyn Iterator<Item = (String, i64)>) -> Result<()> {
        let documents: Vec<Vec<u8>> =
            documents.map(|(id, value)| bson(&id, &[("value", Field::Number(value))])).collect();
        let done = self.collection.insert_many(&documents, true, self.durability)?;
        ensure!(done.errors.is_empty(), "{:?}", done.errors);
        Ok(())
    }

    fn count(&mut self) -> Result<u64> {
        Ok(self.collection.estimated_count()?.documents)
    }
}
