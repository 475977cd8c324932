//! Projection mistakes that a rebuild would turn into lost or doubled data are rejected.

use std::sync::Arc;

use ropewalk::events::SequencedEventRef;
use ropewalk::projections::{
    ApplyError, MaterializedProjection, Output, ProjectionError, ProjectionRun, Projections, RebuildMode,
};
use ropewalk::tables::{ColumnDef, TableDef, Type};
use ropewalk::{AppendOptions, Database, Error, Event, EventStore, Query};

type Step = fn(&mut ProjectionRun<'_>, &EventStore) -> Result<(), ApplyError>;

struct Faulty {
    outputs: Vec<Output>,
    prepare: Step,
    apply: Step,
    log: EventStore,
}

impl MaterializedProjection for Faulty {
    fn query(&self) -> Query {
        Query::all()
    }

    fn outputs(&self) -> Vec<Output> {
        self.outputs.clone()
    }

    fn prepare(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        (self.prepare)(run, &self.log)
    }

    fn apply(&self, run: &mut ProjectionRun<'_>, _: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        (self.apply)(run, &self.log)
    }
}

fn nothing(_: &mut ProjectionRun<'_>, _: &EventStore) -> Result<(), ApplyError> {
    Ok(())
}

fn open(outputs: Vec<Output>, prepare: Step, apply: Step) -> (Database, Projections) {
    let db = Database::in_memory().unwrap();
    db.events("s").unwrap().append(&[Event::new("A"), Event::new("B")], None).unwrap();
    let log = db.events("log").unwrap();
    let projections = db.projections("s").unwrap();
    projections.register("p", Arc::new(Faulty { outputs, prepare, apply, log })).unwrap();
    (db, projections)
}

/// The text of an error, including its sources.
fn chain(error: &Error) -> String {
    let Error::Projection(ProjectionError::Failed { source, .. }) = error else { return error.to_string() };
    source.to_string()
}

#[test]
fn d1_11_output_that_is_not_declared_is_refused() {
    let steps: [(Step, &str); 4] = [
        (|run, _| Ok(run.table("unlisted").map(drop)?), "table unlisted"),
        (|run, _| Ok(run.collection("unlisted").map(drop)?), "collection default.unlisted"),
        (|run, _| Ok(run.collection_in("other", "listed").map(drop)?), "collection other.listed"),
        (|run, _| Ok(run.name("unlisted").map(drop)?), "unlisted"),
    ];
    for (apply, output) in steps {
        let (_db, projections) = open(vec![Output::collection("listed")], nothing, apply);
        let error = projections.catch_up("p").unwrap_err();
        let expected = ProjectionError::UnknownOutput {
            name: "p".into(),
            output: output.into(),
            declared: vec!["collection default.listed".into()],
        };
        assert_eq!(chain(&error), expected.to_string());
    }
}

#[test]
fn output_of_another_projection_is_refused() {
    let (db, projections) = open(vec![Output::table("t")], nothing, nothing);
    let second = |outputs| {
        let log = db.events("log").unwrap();
        Arc::new(Faulty { outputs, prepare: nothing, apply: nothing, log })
    };
    let outputs = vec![Output::collection("t"), Output::table("t")];
    let error = projections.register("q", second(outputs)).unwrap_err();
    let Error::Projection(ProjectionError::SharedOutput { name, other, output }) = &error else {
        panic!("{error}")
    };
    assert_eq!((name.as_str(), other.as_str(), output.as_str()), ("q", "p", "table t"));
    // A collection of the same name is another output.
    projections.register("r", second(vec![Output::collection("t")])).unwrap();
    assert!(projections.unregister("p"));
    projections.register("q", second(vec![Output::table("t")])).unwrap();
}

#[test]
fn d1_11_append_is_refused_while_a_rebuild_replays() {
    let append: Step =
        |run, log| Ok(run.tx().append(log, &[Event::new("Seen")], AppendOptions::default())?);
    let (db, projections) = open(Vec::new(), nothing, append);
    projections.catch_up("p").unwrap();
    let error = projections.rebuild("p", RebuildMode::ForceFullRebuild).unwrap_err();
    assert_eq!(chain(&error), ProjectionError::AppendsInReplay { store: "log".into() }.to_string());
    assert_eq!(db.events("log").unwrap().count(&Query::all()).unwrap(), 2);

    let careful: Step = |run, log| {
        if !run.is_replay() {
            run.tx().append(log, &[Event::new("Seen")], AppendOptions::default())?;
        }
        Ok(())
    };
    let (db, projections) = open(Vec::new(), nothing, careful);
    projections.catch_up("p").unwrap();
    assert!(projections.rebuild("p", RebuildMode::ForceFullRebuild).unwrap().unwrap().finished);
    assert_eq!(db.events("log").unwrap().count(&Query::all()).unwrap(), 2);
}

#[test]
fn d1_11_prepare_under_the_live_name_names_the_cause() {
    let prepare: Step = |run, _| {
        let table = TableDef::new("t").column(ColumnDef::new("id", Type::INT8)).primary_key(["id"]);
        run.tx().tables().create_table(table)?;
        Ok(())
    };
    let (_db, projections) = open(vec![Output::table("t")], prepare, nothing);
    projections.catch_up("p").unwrap();
    let error = projections.rebuild("p", RebuildMode::ForceFullRebuild).unwrap_err();
    let Error::Projection(ProjectionError::LiveName { generation: 2, table, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!(table, "t");
    assert!(error.to_string().contains("ProjectionRun::name"), "{error}");
}
