//! Runs `tests/golden/*.script`: operations and their outcome, written to be read. Update them with
//! `UPDATE_GOLDENFILES=1` and review the change as text.
//!
//! An event is written `Type tag tag`, a query as items separated by `|`, each of `@Type` and tags; `all` is
//! every event.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use goldenscript::{Argument, Command, Context};
use ropewalk_base::Position;
use ropewalk_engine::EngineOptions;
use ropewalk_events::{
    AppendCondition, AppendOptions, Event, EventStore, Query, QueryItem, ReadOptions, SequencedEvent,
    Tracking,
};
use ropewalk_vfs::Env;

use crate::Db;

struct Runner {
    env: Env,
    db: Option<Db>,
    snapshots: HashMap<String, ropewalk_engine::Snapshot>,
}

fn parse_event(text: &str, data: Option<&str>) -> Event {
    let mut words = text.split_whitespace();
    let event = Event::new(words.next().unwrap_or_default()).data(data.unwrap_or_default());
    words.fold(event, |event, tag| event.tag(tag))
}

fn parse_query(text: &str) -> Query {
    if text == "all" {
        return Query::all();
    }
    Query::from_items(text.split('|').map(|item| {
        let (types, tags): (Vec<&str>, Vec<&str>) =
            item.split_whitespace().partition(|word| word.starts_with('@'));
        QueryItem::new(types.iter().map(|t| &t[1..]), tags)
    }))
}

fn show(event: &SequencedEvent) -> String {
    let SequencedEvent { position, event, .. } = event;
    let mut line = format!("{position} {}", event.event_type);
    for tag in &event.tags {
        let _ = write!(line, " {tag}");
    }
    if !event.data.is_empty() {
        let _ = write!(line, " = {}", String::from_utf8_lossy(&event.data));
    }
    for (key, value) in &event.metadata {
        let _ = write!(line, " {{{key}: {value}}}");
    }
    line
}

fn options(command: &Command) -> Result<(ReadOptions, HashMap<String, String>), Box<dyn Error>> {
    let mut options = ReadOptions::default();
    let mut others = HashMap::new();
    for argument in &command.args {
        match argument {
            Argument::KeyValue(key, value) => {
                let position = || Ok::<_, Box<dyn Error>>(Some(Position(value.parse()?)));
                match key.as_str() {
                    "from" => options.from = position()?,
                    "after" => options.after = position()?,
                    "before" => options.before = position()?,
                    "limit" => options.limit = Some(value.parse()?),
                    _ => {
                        others.insert(key.clone(), value.clone());
                    }
                }
            }
            Argument::Positional(word) if word == "backwards" => options.backwards = true,
            _ => {}
        }
    }
    Ok((options, others))
}

impl Runner {
    fn store(&self, named: &HashMap<String, String>) -> EventStore {
        self.db.as_ref().unwrap().store(named.get("store").map_or("main", String::as_str))
    }

    fn append(&self, command: &Command) -> Result<String, Box<dyn Error>> {
        let (_, named) = options(command)?;
        let events: Vec<Event> = command
            .args
            .iter()
            .filter_map(|argument| match argument {
                Argument::Positional(text) => Some(parse_event(text, named.get("data").map(String::as_str))),
                _ => None,
            })
            .collect();
        let mut wanted = AppendOptions::default();
        // Conditions in the order of the script; an `after` belongs to the condition before it.
        for argument in &command.args {
            match argument {
                Argument::KeyValue(key, value) if key == "if-none" => {
                    wanted.conditions.push(AppendCondition::none_match(parse_query(value)));
                }
                Argument::KeyValue(key, value) if key == "after" => {
                    wanted.conditions.last_mut().ok_or("after belongs to if-none")?.after =
                        Some(Position(value.parse()?));
                }
                _ => {}
            }
        }
        wanted.idempotency_key = named.get("key").cloned();
        if let Some((source, position)) = named.get("tracking").and_then(|t| t.split_once('@')) {
            wanted.tracking = Some(Tracking { source: source.to_owned(), position: position.parse()? });
        }
        Ok(match self.store(&named).append_with(&events, wanted) {
            Ok(done) if done.first == done.last => format!("position {}", done.last),
            Ok(done) => format!("positions {} to {}", done.first, done.last),
            Err(error) => format!("refused: {error}"),
        })
    }
}

impl goldenscript::Runner for Runner {
    type Command = Command;

    fn run(&mut self, command: &Command, context: &Context) -> Result<String, Box<dyn Error>> {
        let first = command.args.iter().find_map(|a| match a {
            Argument::Positional(text) if text != "backwards" => Some(text.as_str()),
            _ => None,
        });
        let name = context.prefix.clone().unwrap_or_default();
        match command.name.as_str() {
            "append" => self.append(command),
            "read" => {
                let (options, named) = options(command)?;
                let query = parse_query(first.unwrap_or("all"));
                let store = self.store(&named);
                let reader = match self.snapshots.get(&name) {
                    Some(snapshot) => store.read_at(snapshot.clone(), &query, options),
                    None => store.read(&query, options),
                };
                let reader = match reader {
                    Ok(reader) => reader,
                    Err(error) => return Ok(format!("refused: {error}")),
                };
                let head = reader.head().map_or("empty".to_owned(), |head| format!("head {head}"));
                let mut lines: Vec<String> =
                    reader.map(|event| event.map(|e| show(&e))).collect::<Result<_, _>>()?;
                lines.push(head);
                Ok(lines.join("\n"))
            }
            "last" => {
                let (_, named) = options(command)?;
                let last = self.store(&named).read_last(&parse_query(first.unwrap_or("all")))?;
                Ok(last.map_or("nothing".to_owned(), |event| show(&event)))
            }
            "count" => {
                let (_, named) = options(command)?;
                Ok(self.store(&named).count(&parse_query(first.unwrap_or("all")))?.to_string())
            }
            "exists" => {
                let (options, named) = options(command)?;
                let query = parse_query(first.unwrap_or("all"));
                Ok(self.store(&named).exists(&query, options.after)?.to_string())
            }
            "tracking" => {
                let (_, named) = options(command)?;
                let stored = self.store(&named).tracking(first.unwrap_or_default())?;
                Ok(stored.map_or("nothing".to_owned(), |position| position.to_string()))
            }
            "stores" => {
                let stores = {
                    let db = self.db.as_ref().unwrap();
                    db.model.stores_at(db.engine.seq())
                };
                Ok(stores.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join("\n"))
            }
            "snapshot" => {
                let snapshot = self.db.as_ref().unwrap().engine.snapshot();
                self.snapshots.insert(name, snapshot);
                Ok(String::new())
            }
            "repin" => {
                self.snapshots.get_mut(&name).ok_or("no snapshot")?.refresh_sources();
                Ok(String::new())
            }
            "checkpoint" => {
                self.db.as_ref().unwrap().engine.checkpoint()?;
                Ok(String::new())
            }
            "compact" => {
                self.db.as_ref().unwrap().engine.compact()?;
                Ok(String::new())
            }
            "reopen" => {
                self.snapshots.clear();
                self.db = None;
                self.db = Some(Db::open(&self.env, EngineOptions::default()));
                Ok(String::new())
            }
            other => Err(format!("unknown command {other}").into()),
        }
    }
}

#[test]
fn scripts() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut scripts: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    scripts.sort();
    assert!(!scripts.is_empty());
    for script in scripts {
        let env = Env::memory();
        let db = Some(Db::open(&env, EngineOptions::default()));
        let mut runner = Runner { env, db, snapshots: HashMap::new() };
        goldenscript::run(&mut runner, &script)
            .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    }
}
