//! The test kit of applications: scenarios, the simulated machine, races and power cuts.

use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ropewalk::events::{SequencedEventRef, count};
use ropewalk::projections::{ApplyError, MaterializedProjection, Output, ProjectionRun};
use ropewalk::tables::{ColumnDef, KeyRange, TableDef, Type};
use ropewalk::testing::{Machine, Scenario, power_cut_at_each_operation, race};
use ropewalk::{AppendOptions, Class, Database, Error, Event, Query, Transaction};

#[derive(Debug, Clone, PartialEq, Event)]
struct Enrolled {
    #[event(tag)]
    student: String,
}

fn enrolled(student: &str) -> Enrolled {
    Enrolled { student: student.to_owned() }
}

#[derive(Debug)]
enum Refusal {
    Full(u64),
    Database(Error),
}

impl<E: Into<Error>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Database(error.into())
    }
}

/// Enrols a student on a course of two seats.
fn enrol(db: &Database, student: &str) -> Result<u64, Refusal> {
    let school = db.events("school")?;
    let done = db.run(|tx| match tx.decision(&school, &count(Query::all()))? {
        taken @ 2.. => Err(Refusal::Full(taken)),
        taken => {
            tx.publish(&school, &[enrolled(student)])?;
            Ok(taken + 1)
        }
    })?;
    Ok(done.value)
}

/// The message of the panic of `work`, if it panics.
fn panic_of(work: impl FnOnce()) -> Option<String> {
    let payload = catch_unwind(AssertUnwindSafe(work)).err()?;
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
}

#[test]
fn scenario_compares_events_and_refusals() {
    let scenario = Scenario::new("school")
        .given(&[enrolled("ann")])
        .when(|db| enrol(db, "bob"))
        .then(&[enrolled("bob")])
        .when(|db| enrol(db, "cleo"))
        .then_refused(|error| matches!(error, Refusal::Full(2)))
        .when(|_| Err::<(), _>("nothing happens"))
        .then_refused(|error| *error == "nothing happens");
    let invalid = scenario.when(|db| db.events("").map(drop).map_err(Refusal::from)).into_result();
    assert!(matches!(invalid, Err(Refusal::Database(error)) if error.class() == Class::Invalid));

    let unlimited = Scenario::new("school")
        .when_deciding(&count(Query::all()), |taken| match taken {
            0 => Ok(vec![Event::new("Enrolled").tag("student:ann").data(r#"{"student":"ann"}"#)]),
            _ => Err("full"),
        })
        .then(&[enrolled("ann")])
        .when_deciding(&count(Query::all()), |_| Err::<Vec<Event>, _>("full"))
        .then_refused(|error| *error == "full");
    assert!(matches!(unlimited.when(|db| enrol(db, "bob")).into_result(), Ok(2)));
}

#[test]
fn scenario_panics_when_an_expectation_does_not_hold() {
    let begin = || Scenario::new("school").given(&[enrolled("ann")]);
    let panics: [(&str, Box<dyn FnOnce()>); 5] = [
        ("assertion", Box::new(move || drop(begin().when(|db| enrol(db, "bob")).then(&[enrolled("cleo")])))),
        (
            "the command failed",
            Box::new(move || drop(begin().when(|_| Err::<(), _>("no")).then::<Enrolled>(&[]))),
        ),
        (
            "the command succeeded",
            Box::new(move || drop(begin().when(|db| enrol(db, "bob")).then_refused(|_| true))),
        ),
        (
            "for another reason",
            Box::new(move || {
                drop(begin().when(|_| Err::<(), _>("no")).then_refused(|error| *error == "yes"))
            }),
        ),
        (
            "failed and appended",
            Box::new(move || {
                let half = |db: &Database| {
                    enrol(db, "bob").unwrap();
                    Err::<(), _>("after the commit")
                };
                drop(begin().when(half).then_refused(|_| true));
            }),
        ),
    ];
    for (expected, work) in panics {
        let message = panic_of(work).unwrap_or_default();
        assert!(message.contains(expected), "{expected:?}: {message:?}");
    }
}

/// Counts the students, in a table of one row, and forgets a name in rebuilds if `is_wrong`.
struct Count {
    is_wrong: bool,
}

impl MaterializedProjection for Count {
    fn query(&self) -> Query {
        Query::from_types(["Enrolled"])
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::table("students")]
    }

    fn prepare(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        let table = TableDef::new(run.name("students")?).column(ColumnDef::new("name", Type::TEXT));
        run.tx().tables().create_table(table.primary_key(["name"]))?;
        Ok(())
    }

    fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        let (table, Enrolled { student }) = (run.table("students")?, event.decode()?);
        if !(self.is_wrong && run.is_replay()) {
            run.tx().tables().insert(&table, &[("name", student.into())])?;
        }
        Ok(())
    }
}

fn students(db: &Database) -> u64 {
    let table = db.table("students").unwrap();
    db.snapshot().tables(db).count(&table, &KeyRange::all()).unwrap()
}

#[test]
fn scenario_applies_projection_live_rebuilt_and_together() {
    let given = || Scenario::new("school").given(&[enrolled("ann"), enrolled("bob")]);
    let scenario = given().then_projection("count", Count { is_wrong: false }, students, &2);
    assert_eq!(students(scenario.database()), 2);
    let wrong = || drop(given().then_projection("count", Count { is_wrong: true }, students, &2));
    assert!(panic_of(wrong).unwrap().contains("failed: rebuilt"));
}

#[test]
fn machine_has_a_clock_that_only_the_test_moves() {
    let scenario = Scenario::new("school").given(&[enrolled("ann")]).after(Duration::from_secs(3_600));
    let scenario = scenario.given(&[enrolled("bob")]);
    let store = scenario.database().events("school").unwrap();
    let times =
        store.read(&Query::all(), Default::default()).unwrap().map(|event| event.unwrap().time_micros);
    let times: Vec<i64> = times.collect();
    assert!((3_600_000_000..3_601_000_000).contains(&(times[1] - times[0])), "{times:?}");
}

#[test]
fn rival_before_the_commit_makes_a_command_decide_again() {
    let machine = Machine::new(1);
    let db = machine.open().unwrap();
    let attempts = Arc::new(AtomicU64::new(0));
    for student in ["bob", "cleo"] {
        let (rival, attempts) = (db.clone(), attempts.clone());
        machine.before_next_commit(move || {
            attempts.fetch_add(1, Ordering::Relaxed);
            enrol(&rival, student).map(drop).unwrap();
        });
    }
    // The second attempt meets the second rival, after which the course is full.
    assert!(matches!(enrol(&db, "ann"), Err(Refusal::Full(2))));
    assert_eq!(attempts.load(Ordering::Relaxed), 2);
    let store = db.events("school").unwrap();
    assert_eq!(store.count(&Query::from_tags(["student:ann"])).unwrap(), 0);
}

#[test]
fn race_commits_in_the_order_of_its_arguments() {
    let db = Database::in_memory().unwrap();
    let store = db.events("school").unwrap();
    let enrol = |student: &'static str| {
        let store = store.clone();
        move |tx: &mut Transaction| -> Result<&'static str, Error> {
            tx.decision(&store, &count(Query::all()))?;
            tx.publish(&store, &[enrolled(student)])?;
            Ok(student)
        }
    };
    for (first, second) in [("ann", "bob"), ("bob", "ann")] {
        let (won, lost) = race(&db, enrol(first), enrol(second));
        let won = won.unwrap();
        assert_eq!((won.value, won.seq()), (first, Some(db.seq())));
        assert_eq!(lost.unwrap_err().class(), Class::Conflict);
    }
    let refused = |_: &mut Transaction| Err::<(), _>(Error::Invalid("no".into()));
    let (won, refused) = race(&db, enrol("cleo"), refused);
    assert!(won.is_ok() && refused.is_err());
    assert_eq!(store.head().unwrap().unwrap().0, 3);
}

#[test]
fn power_cut_at_each_operation_runs_the_work_up_to_each_cut() {
    let acknowledged = AtomicU64::new(0);
    let operations = power_cut_at_each_operation(
        |db, done: &mut u64| {
            let store = db.events("s")?;
            for _ in 0..3 {
                db.run(|tx| tx.append(&store, &[Event::new("E")], AppendOptions::default()))?;
                *done += 1;
            }
            Ok::<_, Error>(())
        },
        |db, done| {
            acknowledged.fetch_add(*done, Ordering::Relaxed);
            let stored = db.events("s").unwrap().head().unwrap().map_or(0, |head| head.0);
            assert!((*done..=done + 1).contains(&stored), "{done} acknowledged, {stored} stored");
        },
    );
    // Early cuts acknowledge nothing, and late ones everything.
    let acknowledged = acknowledged.into_inner();
    assert!(acknowledged > 3 && acknowledged < 3 * (operations + 1), "{acknowledged} of {operations}");

    let wrong = || {
        let work = |_: &Database, _: &mut ()| Err::<(), _>("without a cut");
        power_cut_at_each_operation(work, |_, _| {});
    };
    assert!(panic_of(wrong).unwrap().contains("without a cut"));
}
