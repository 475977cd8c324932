//! Tables: rows, definitions, sequences, loads.

use ropewalk::tables::{
    Action, ColumnDef, DefaultValue, EnumChange, EnumPlace, Expr, ForeignKeyDef, Identity, IndexDef,
    LoadOptions, Precision, SequenceParams, TableDef, TablesError, TablesTx, Type,
};
use ropewalk::{Database, Error, Isolation};

use super::Way;

/// Everything in many commits.
const IN_PARTS: LoadOptions = LoadOptions { log_bytes_max: 0, memory_bytes: Some(64 << 10) };

fn run<R>(db: &Database, mut work: impl FnMut(&mut TablesTx<'_>) -> Result<R, TablesError>) -> R {
    let result = db.transact(Isolation::Serializable, 1, |tx| Ok::<_, Error>(work(&mut tx.tables())?));
    result.unwrap()
}

/// A table with a primary key `id` and a text.
fn table(name: &str) -> TableDef {
    TableDef::new(name)
        .column(ColumnDef::new("id", Type::INT8).not_null())
        .column(ColumnDef::new("name", Type::TEXT))
        .primary_key(["id"])
}

/// Numbers below `n`, each once, in another order.
fn shuffled(n: i64) -> impl Iterator<Item = i64> {
    (0..n).map(move |i| (i * 7919 + 13) % n)
}

pub(super) const WAYS: &[Way] = &[
    ("a new table", |db| {
        run(db, |t| {
            let people = table("people")
                .column(ColumnDef::new("age", Type::INT8))
                .column(ColumnDef::new("at", Type::TIMESTAMP))
                .unique(["name"]);
            t.create_table(people)
        });
    }),
    ("rows", |db| {
        run(db, |t| {
            let people = t.table("people")?;
            for id in 1..40_i64 {
                let name = format!("person {id}");
                t.insert(&people, &[("id", id.into()), ("name", name.into()), ("age", (id % 9).into())])?;
            }
            Ok(())
        });
    }),
    ("rows are updated, upserted and deleted", |db| {
        run(db, |t| {
            let people = t.table("people")?;
            assert!(t.update(&people, &[1_i64.into()], &[("age", 50_i64.into())])?);
            t.upsert(&people, &[("id", 2_i64.into()), ("name", "Ann".into())])?;
            assert!(t.delete(&people, &[3_i64.into()])?);
            Ok(())
        });
    }),
    ("an index in a transaction", |db| {
        run(db, |t| t.create_index("people", IndexDef::on(["age"]).named("by_age")));
    }),
    ("an index of a table in use", |db| {
        db.tables().create_index("people", IndexDef::on(["at", "name"]).named("by_time")).unwrap();
    }),
    ("an index is dropped", |db| run(db, |t| t.drop_index("people", "by_age"))),
    ("a new column", |db| {
        let default = || DefaultValue::Value(5_i64.into());
        run(db, |t| t.add_column("people", ColumnDef::new("score", Type::INT8).default(default())));
    }),
    ("a column is renamed", |db| run(db, |t| t.rename_column("people", "score", "points"))),
    ("another default", |db| run(db, |t| t.set_default("people", "points", DefaultValue::None))),
    ("another precision", |db| run(db, |t| t.set_precision("people", "at", Some(Precision::digits(0))))),
    ("a column is dropped", |db| run(db, |t| t.drop_column("people", "points"))),
    ("NOT NULL", |db| run(db, |t| t.set_nullable("people", "name", false))),
    ("a check", |db| run(db, |t| t.add_check("people", "adult", Expr::column("age").ge(0_i64)))),
    ("a foreign key", |db| {
        run(db, |t| {
            let pets = t.create_table(table("pets").column(ColumnDef::new("owner", Type::INT8)))?;
            t.insert(&pets, &[("id", 1_i64.into()), ("owner", 4_i64.into())])
        });
        let owner = || ForeignKeyDef::new(["owner"], "people", ["id"]).named("owned");
        run(db, |t| t.add_foreign_key("pets", owner().on_delete(Action::Cascade)));
    }),
    ("a cascade", |db| {
        run(db, |t| {
            let people = t.table("people")?;
            t.delete(&people, &[4_i64.into()])
        });
    }),
    ("a constraint is dropped", |db| run(db, |t| t.drop_constraint("pets", "owned"))),
    ("a new enum", |db| {
        run(db, |t| t.create_enum("mood", &["sad", "ok"]));
    }),
    ("an enum is changed", |db| {
        run(db, |t| t.alter_enum("mood", &EnumChange::Add("fine".into(), EnumPlace::Last)));
    }),
    ("an enum is dropped", |db| run(db, |t| t.drop_enum("mood"))),
    ("a sequence", |db| {
        let sequence = db.tables().new_sequence(SequenceParams::default()).unwrap();
        assert_eq!(db.tables().next_number(sequence).unwrap(), 1);
        db.tables().set_number(sequence, 500, true).unwrap();
        assert_eq!(db.tables().next_number(sequence).unwrap(), 501);
    }),
    ("an identity column with another sequence", |db| {
        let new = || db.tables().new_sequence(SequenceParams::default()).unwrap();
        let (old, new) = (new(), new());
        run(db, |t| {
            t.set_identity("pets", "id", Some((Identity::ByDefault, old)))?;
            t.replace_sequence("pets", old, new)?;
            t.drop_sequences([old]);
            let pets = t.table("pets")?;
            t.insert(&pets, &[("name", "Rex".into())])
        });
    }),
    ("a primary key", |db| {
        run(db, |t| {
            let plain = TableDef::new("plain").column(ColumnDef::new("a", Type::INT8).not_null());
            let plain = t.create_table(plain)?;
            (0..20_i64).try_for_each(|a| t.insert(&plain, &[("a", a.into())]).map(|_| ()))
        });
        run(db, |t| t.add_primary_key("plain", None, &["a".to_owned()]));
    }),
    ("a table is truncated", |db| run(db, |t| t.truncate("plain", true))),
    ("a table is dropped", |db| run(db, |t| t.drop_table("plain"))),
    ("a table like another one", |db| {
        run(db, |t| t.create_table_like("people", "twins"));
    }),
    ("a table is renamed", |db| run(db, |t| t.rename_table("twins", "others"))),
    ("a load", |db| {
        let loaded = table("loaded").index(IndexDef::on(["name"]));
        let loaded = run(db, |t| t.create_table(loaded.clone()));
        let mut load = db.tables().load_with(&loaded, IN_PARTS).unwrap();
        for id in shuffled(2000) {
            load.row(&[id.into(), format!("{id:0>100}").into()]).unwrap();
        }
        assert_eq!(load.finish().unwrap(), 2000);
    }),
    ("a load in a transaction", |db| {
        let mut tx = db.begin();
        let loaded = tx.tables().create_table(table("loaded_too")).unwrap();
        let mut load = tx.tables().load(&loaded, IN_PARTS).unwrap().unwrap();
        for id in 0..2000_i64 {
            load.row(&mut tx.tables(), &[id.into(), format!("{id:0>100}").into()]).unwrap();
        }
        assert_eq!(load.finish(&mut tx.tables()).unwrap(), 2000);
        tx.commit().unwrap();
    }),
    ("a load that is rolled back", |db| {
        let never = run(db, |t| t.create_table(table("never")));
        let mut load = db.tables().load_with(&never, IN_PARTS).unwrap();
        for id in shuffled(2000) {
            load.row(&[id.into(), format!("{id:0>100}").into()]).unwrap();
        }
        drop(load);
    }),
    ("another type of a column of a large table", |db| {
        run(db, |t| {
            let large = t.create_table(table("large").column(ColumnDef::new("n", Type::INT8)))?;
            let text = "x".repeat(32 << 10);
            for id in 0..40_i64 {
                let row = [("id", id.into()), ("name", text.as_str().into()), ("n", (id * 2).into())];
                t.insert(&large, &row)?;
            }
            Ok(())
        });
        run(db, |t| {
            t.set_type("large", "n", Type::TEXT, &mut |row| {
                row.get(2)?.as_integer().map(|n| n.to_string().into())
            })
        });
    }),
];
