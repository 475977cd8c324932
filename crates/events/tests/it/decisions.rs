//! Decision models: state and condition from one read, retried after conflicts.

use std::collections::HashMap;

use ropewalk_events::{
    DecisionError, Event, EventStore, Query, QueryItem, ReadOptions, RetryPolicy, count, exists, projection,
};

use crate::{Db, event, read};

const CAPACITY: u64 = 5;

/// The DCB example: a course has seats, a student takes at most two courses.
fn enrol(store: &EventStore, course: &str, student: &str) -> Result<(), DecisionError<&'static str>> {
    let (course, student) = (format!("course:{course}"), format!("student:{student}"));
    let enrolled = |tags: &[&str]| Query::from_items([QueryItem::new(["Enrolled"], tags.iter().copied())]);
    let model = (
        exists(Query::from_items([QueryItem::new(["CourseDefined"], [course.as_str()])])),
        count(enrolled(&[&course])),
        count(enrolled(&[&student])),
        exists(enrolled(&[&course, &student])),
    );
    let retry = RetryPolicy { attempts: 1000, ..RetryPolicy::default() };
    store.execute_decision(&model, retry, |(exists, taken, courses, already)| match () {
        () if !exists => Err("no such course"),
        () if *already => Err("enrolled already"),
        () if *taken >= CAPACITY => Err("course is full"),
        () if *courses >= 2 => Err("student has two courses"),
        () => Ok(vec![event("Enrolled", &[&course, &student])]),
    })?;
    Ok(())
}

#[test]
fn no_course_is_overbooked_whatever_the_interleaving() {
    let db = Db::memory();
    let store = db.store("courses");
    for course in 0..4 {
        store.append(&[event("CourseDefined", &[&format!("course:{course}")])], None).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let store = &store;
            scope.spawn(move || {
                for i in 0..20_usize {
                    let (course, student) = ((thread + i) % 4, (thread * 7 + i) % 20);
                    match enrol(store, &course.to_string(), &student.to_string()) {
                        Ok(()) | Err(DecisionError::Refused(_)) => {}
                        Err(DecisionError::Store(error)) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let mut seats: HashMap<String, u64> = HashMap::new();
    for enrolled in read(&store, &Query::from_types(["Enrolled"]), ReadOptions::default()) {
        for tag in enrolled.event.tags {
            *seats.entry(tag).or_default() += 1;
        }
    }
    assert!(
        seats.iter().all(|(tag, n)| *n <= if tag.starts_with("course") { CAPACITY } else { 2 }),
        "{seats:?}"
    );
    assert_eq!((0..4).filter(|c| seats.get(&format!("course:{c}")) == Some(&CAPACITY)).count(), 4);
    assert!(matches!(enrol(&store, "9", "1"), Err(DecisionError::Refused("no such course"))));
}

#[test]
fn each_projection_sees_only_its_own_events() {
    let store = Db::memory().store("s");
    for n in 1..=3_u8 {
        store
            .append(
                &[Event::new("Added").tag("a").data([n]), Event::new("Added").tag("b").data([10 * n])],
                None,
            )
            .unwrap();
    }
    let sum = |tag: &str| projection(Query::from_tags([tag]), 0_u64, |s, e| *s += u64::from(e.data()[0]));
    let decision = store.decision(&(sum("a"), sum("b"))).unwrap();
    assert_eq!(decision.state, (6, 60));
    assert_eq!(decision.condition.after.unwrap().0, 6);
    assert_eq!(decision.condition.fail_if_events_match.items.len(), 2);
    let (total, head) = store.fold(&Query::all(), 0_u64, |s, e| s + u64::from(e.data()[0])).unwrap();
    assert_eq!((total, head.unwrap().0), (66, 6));
}

#[test]
fn a_decision_without_events_appends_nothing() {
    let store = Db::memory().store("s");
    let none =
        store.execute_decision(&exists(Query::all()), RetryPolicy::default(), |_| Ok::<_, ()>(Vec::new()));
    assert_eq!(none.unwrap(), None);
    assert_eq!(store.head().unwrap(), None);
}

#[test]
fn retries_are_limited() {
    let store = Db::memory().store("s");
    let rival = store.clone();
    let retry = RetryPolicy { attempts: 3, ..RetryPolicy::default() };
    let result = store.execute_decision(&count(Query::all()), retry, |_| {
        rival.append(&[event("Rival", &[])], None).unwrap();
        Ok::<_, ()>(vec![event("Mine", &[])])
    });
    assert!(matches!(result, Err(DecisionError::Store(error)) if error.is_conflict()));
    assert_eq!(store.count(&Query::from_types(["Rival"])).unwrap(), 3);
}
