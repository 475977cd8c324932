//! Runs the scripts of `tests/golden/lang`: documents, commands and results. `UPDATE_GOLDENFILES=1` rewrites
//! the results.
//!
//! ```text
//! docs '{..}' '{..}'                       replaces the collection; documents without _id are numbered
//! ids '{filter}' ..                       the documents that match
//! find '{filter}' [fields='{..}'] [sort='{..}']
//! update '{filter}' '{update}' [filters='[..]'] [upsert=true]       prints the changes without applying them
//! aggregate '[stages]' [memory=bytes]
//! expr '{expression}' ['{document}']       one expression
//! ```

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::path::Path;

use goldenscript::{Argument, Command};
use ropewalk_documents::lang::{
    Applied, DocBuf, Filter, LangError, Options, Owned, Pipeline, Projection, Random, Sort, Source, Stream,
    Update, UpdateContext, Value, Writer,
};

use super::notation::{doc, value};

const NOW: i64 = 1_795_219_200_123;

#[derive(Default)]
struct Runner {
    docs: Vec<DocBuf>,
}

/// The only collection of scripts, under any name.
impl Source for Runner {
    type Error = LangError;

    fn find(&self, _collection: &str, filter: &Filter) -> Result<Stream<'_, LangError>, LangError> {
        let mut found = Vec::new();
        for doc in &self.docs {
            if filter.matches(doc.doc())? {
                found.push(Ok(doc.clone()));
            }
        }
        Ok(Box::new(found.into_iter()))
    }
}

fn options() -> Options {
    Options {
        now_ms: NOW,
        variables: Some(doc(r#"{limit: 5, who: {name: "ann"}}"#)),
        random: Random::seeded(7),
        ..Options::default()
    }
}

fn shown(error: LangError) -> String {
    format!("{} ({}): {error}", error.code, error.code.number())
}

fn lines(docs: &[DocBuf]) -> String {
    if docs.is_empty() {
        return "nothing".to_owned();
    }
    docs.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The arguments of a command; named ones separately.
struct Args {
    positional: VecDeque<String>,
    named: HashMap<String, String>,
}

impl Args {
    fn of(command: &Command) -> Self {
        let mut args = Self { positional: VecDeque::new(), named: HashMap::new() };
        for argument in &command.args {
            match argument {
                Argument::Positional(text) => args.positional.push_back(text.clone()),
                Argument::KeyValue(name, text) => drop(args.named.insert(name.clone(), text.clone())),
                other => panic!("unknown argument {other}"),
            }
        }
        args
    }

    fn next(&mut self) -> Option<String> {
        self.positional.pop_front()
    }

    fn named(&mut self, name: &str) -> Option<String> {
        self.named.remove(name)
    }
}

impl Runner {
    /// The numbers of the documents that match.
    fn ids(&self, filter: &Filter) -> Result<String, LangError> {
        let mut ids = Vec::new();
        for doc in &self.docs {
            if filter.matches(doc.doc())? {
                ids.push(doc.doc().get("_id").unwrap().to_string());
            }
        }
        Ok(if ids.is_empty() { "nothing".to_owned() } else { ids.join(" ") })
    }

    fn answer(&mut self, command: &Command) -> Result<String, LangError> {
        let mut args = Args::of(command);
        match command.name.as_str() {
            "docs" => {
                self.docs.clear();
                while let Some(next) = args.next() {
                    let doc = doc(&next);
                    let number = Owned::from(Value::Int32(self.docs.len() as i32 + 1));
                    let bytes = ropewalk_documents::lang::prepare_insert(doc.doc(), NOW, || number)?;
                    self.docs.push(DocBuf::check(bytes.into_owned())?);
                }
                Ok(String::new())
            }
            "ids" => {
                let mut out = Vec::new();
                while let Some(next) = args.next() {
                    let filter = Filter::parse(doc(&next).doc(), &options());
                    let found = filter.and_then(|filter| self.ids(&filter));
                    out.push(format!("{next}   {}", found.unwrap_or_else(shown)));
                }
                Ok(out.join("\n"))
            }
            "find" => {
                let filter = Filter::parse(doc(&args.next().unwrap()).doc(), &options())?;
                let mut found = Vec::new();
                for doc in &self.docs {
                    if filter.matches(doc.doc())? {
                        found.push(doc.clone());
                    }
                }
                if let Some(spec) = args.named("sort") {
                    let sort = Sort::parse(doc(&spec).doc())?;
                    found.sort_by_key(|doc| sort.key(doc.doc()).unwrap());
                }
                if let Some(spec) = args.named("fields") {
                    let projection = Projection::parse(doc(&spec).doc(), &options())?;
                    for doc in &mut found {
                        *doc = projection.apply(doc.doc(), Some(&filter))?;
                    }
                }
                Ok(lines(&found))
            }
            "update" => {
                let filter = Filter::parse(doc(&args.next().unwrap()).doc(), &options())?;
                let update = value(&args.next().unwrap());
                let filters = args.named("filters").map(|filters| value(&filters));
                let upsert = args.named("upsert").is_some();
                let filters = filters.as_ref().and_then(|filters| filters.value().as_array());
                let update = Update::parse(update.value(), filters, &options())?;
                let mut out = Vec::new();
                let mut matched = false;
                for doc in &self.docs {
                    let Some(found) = filter.matches_at(doc.doc())? else { continue };
                    matched = true;
                    let context = UpdateContext { position: found.position, now_ms: NOW, inserting: false };
                    out.push(match update.apply(doc.doc(), &context)? {
                        Applied::Unchanged => format!("{doc}   as it was"),
                        Applied::Changed(doc) => doc.to_string(),
                    });
                }
                if upsert && !matched {
                    let context = UpdateContext { now_ms: NOW, ..UpdateContext::default() };
                    out.push(format!("inserted {}", update.upsert(&filter, &context)?));
                }
                Ok(if out.is_empty() { "nothing".to_owned() } else { out.join("\n") })
            }
            "aggregate" => {
                let stages = value(&args.next().unwrap());
                let memory = args.named("memory").map_or(1 << 20, |bytes| bytes.parse().unwrap());
                let pipeline = Pipeline::parse(stages.value().as_array().unwrap(), &options())?;
                let input = Box::new(self.docs.iter().cloned().map(Ok));
                let found = pipeline.run(input, self, memory)?.collect::<Result<Vec<_>, _>>()?;
                Ok(lines(&found))
            }
            "expr" => {
                let expression = value(&args.next().unwrap());
                let input = args.next().map_or_else(DocBuf::empty, |text| doc(&text));
                let mut stage = Writer::array();
                stage.open_document("");
                stage.open_document("$replaceWith");
                stage.put("is", expression.value());
                let stage = stage.into_owned();
                let pipeline = Pipeline::parse(stage.value().as_array().unwrap(), &options())?;
                let mut stream = pipeline.run(Box::new(std::iter::once(Ok(input))), self, 1 << 20)?;
                let found = stream.next().unwrap()?;
                Ok(found.doc().get("is").map_or("missing".to_owned(), |value| value.to_string()))
            }
            other => panic!("unknown command {other}"),
        }
    }
}

impl goldenscript::Runner for Runner {
    type Command = Command;

    fn run(&mut self, command: &Command, _context: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
        let answer = self.answer(command);
        Ok(answer.unwrap_or_else(shown))
    }
}

#[test]
fn scripts() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/lang");
    let mut scripts: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    assert!(scripts.len() >= 10);
    for script in scripts {
        goldenscript::run(&mut Runner::default(), &script)
            .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    }
}
