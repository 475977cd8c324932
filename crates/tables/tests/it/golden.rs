//! Runs the scripts of `tests/golden`: the anomalies of the literature, each at each isolation level. Lines
//! before a `---` are commands, lines after it their results. `UPDATE_GOLDENFILES=1` rewrites the results.
//!
//! The table is `t (id int8 primary key, v int8)`. A prefix names the session: `ann: set 1 10`.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;

use goldenscript::Command;
use ropewalk_engine::Isolation;
use ropewalk_tables::{KeyRange, Table, TableDef, TablesError, Value};

use crate::{Db, Tx, int, shown};

struct Runner {
    db: Db,
    table: Table,
    level: Isolation,
    sessions: HashMap<String, Tx>,
}

fn answer(result: Result<String, TablesError>) -> String {
    result.unwrap_or_else(|error| match error {
        TablesError::Conflict { what, .. } => format!("conflict: {what}"),
        other => format!("refused: {other}"),
    })
}

impl goldenscript::Runner for Runner {
    type Command = Command;

    fn run(&mut self, command: &Command, context: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
        let name = context.prefix.clone().unwrap_or_default();
        let numbers: Vec<i64> = command
            .args
            .iter()
            .filter_map(|argument| match argument {
                goldenscript::Argument::Positional(text) => text.parse().ok(),
                _ => None,
            })
            .collect();
        if numbers.len() != command.args.len() {
            return Err("arguments are numbers".into());
        }
        let number = |index: usize| Value::Int8(numbers.get(index).copied().unwrap_or_default());
        let table = self.table.clone();
        if command.name == "begin" {
            self.sessions.insert(name, self.db.begin_with(self.level));
            return Ok(String::new());
        }
        if command.name == "rows" {
            return Ok(self.db.lines(&table).join("\n"));
        }
        // Without a session: a transaction of one statement.
        let mut tx = self.sessions.remove(&name).unwrap_or_else(|| self.db.begin());
        let mut t = tx.t();
        let done = |found: bool| if found { String::new() } else { "no such row".to_owned() };
        let result = match command.name.as_str() {
            "insert" => t.insert_row(&table, &[number(0), number(1)]).map(|_| String::new()),
            "set" => t.update(&table, &[number(0)], &[("v", number(1))]).map(done),
            "add" => match t.get(&table, &[number(0)])? {
                Some(row) => {
                    let sum = row.get(1)?.as_integer().unwrap() + numbers[1];
                    t.update(&table, &[number(0)], &[("v", sum.into())]).map(done)
                }
                None => Ok(done(false)),
            },
            "delete" => t.delete(&table, &[number(0)]).map(done),
            "get" => {
                t.get(&table, &[number(0)]).map(|row| row.map_or("none".into(), |row| shown(&[row]).join("")))
            }
            "range" => {
                let range = KeyRange::all().from([number(0)]).to([number(1)]);
                t.collect(&table, &range, false, 99).map(|rows| shown(&rows).join("\n"))
            }
            "commit" => {
                return Ok(answer(tx.commit().map(|()| "committed".into())));
            }
            "rollback" => return Ok(String::new()),
            other => return Err(format!("unknown command {other}").into()),
        };
        if name.is_empty() {
            let result = result.and_then(|answer| tx.commit().map(|()| answer));
            return Ok(answer(result));
        }
        self.sessions.insert(name, tx);
        Ok(answer(result))
    }
}

#[test]
fn scripts() {
    for (level, name) in [
        (Isolation::Serializable, "serializable"),
        (Isolation::Snapshot, "snapshot"),
        (Isolation::ReadCommitted, "read-committed"),
    ] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
        let mut scripts: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
        scripts.sort();
        assert_eq!(scripts.len(), 10, "every anomaly has its script at level {name}");
        for script in scripts {
            let db = Db::memory();
            let table = db.create(TableDef::new("t").column(int("id")).column(int("v")).primary_key(["id"]));
            let mut runner = Runner { db, table, level, sessions: HashMap::new() };
            goldenscript::run(&mut runner, &script)
                .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
            runner.db.verify();
        }
    }
}
