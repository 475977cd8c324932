//! Chapter 3: rules that hold under 32 threads, without a lock. The examples are those of dcb.events.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use ropewalk::{
    AppendCondition, Database, DecisionError, Event, EventStore, EventsError, Query, QueryItem, RetryPolicy,
    any, counter, projection,
};

use super::story::Story;
use super::{fresh, rate, took};
use crate::output::cell::thousands;
use crate::output::failure::{Failure, Result};

const THREADS: u64 = 32;
const COURSES: u64 = 12;
const STUDENTS: u64 = 60;
const CAPACITY: u64 = 10;
const COURSES_PER_STUDENT: u64 = 3;
const ATTEMPTS_PER_THREAD: u64 = 30;
const USERNAMES: u64 = 100;

/// Pseudo-random numbers (SplitMix64): the demo makes the same wishes each time; what becomes of them is the race's.
struct Wishes(u64);

impl Wishes {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Runs `work` on 32 threads at once and sums up what they answer.
fn race<T: Send>(work: impl Fn(u64) -> Result<T> + Sync) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let work = &work;
                scope.spawn(move || work(thread))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread of the demo does not panic"))
            .collect()
    })
}

/// Why a subscription is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    CourseFull,
    StudentBusy,
    Already,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::CourseFull => "the course is full",
            Self::StudentBusy => "the student has enough courses",
            Self::Already => "subscribed already",
        })
    }
}

#[derive(Default)]
struct Tally {
    subscribed: u64,
    full: u64,
    busy: u64,
    already: u64,
}

/// Course subscriptions: two limits at once, one on the course and one on the student. Answers the store's name.
pub(super) fn courses(story: &mut Story, db: &Database) -> Result<String> {
    story.chapter("Decisions that stay right under 32 threads")?;
    story.say(&format!(
        "A course has {CAPACITY} seats; a student may take {COURSES_PER_STUDENT} courses. Whoever subscribes must look at \
         both and then write, and in between somebody else may write. Here each decision reads just the events that it \
         rests on and appends with a condition: \"only if nothing that matches this query came since I looked\". If \
         something came, nothing is written and the decision is made anew. The boundary of consistency is the query, \
         chosen for this one decision: that is what Dynamic Consistency Boundary (DCB) means. No locks, no table of \
         counters, no aggregate that everybody queues for.",
    ))?;
    let store = fresh(db, "courses")?;
    let defined: Vec<_> = (1..=COURSES)
        .map(|course| {
            let data = format!(r#"{{"capacity":{CAPACITY}}}"#);
            Event::new("CourseDefined").tag(format!("course:c{course}")).data(data)
        })
        .collect();
    store.append(&defined, Some(AppendCondition::none_match(Query::all())))?;
    let made = AtomicU64::new(0);
    let begun = Instant::now();
    let tallies = race(|thread| {
        let mut wishes = Wishes(thread);
        let mut tally = Tally::default();
        for _ in 0..ATTEMPTS_PER_THREAD {
            let (course, student) = (1 + wishes.below(COURSES), 1 + wishes.below(STUDENTS));
            match subscribe(&store, course, student, &made)? {
                Ok(()) => tally.subscribed += 1,
                Err(Refusal::CourseFull) => tally.full += 1,
                Err(Refusal::StudentBusy) => tally.busy += 1,
                Err(Refusal::Already) => tally.already += 1,
            }
        }
        Ok(tally)
    })?;
    let elapsed = begun.elapsed();
    let sum = |part: fn(&Tally) -> u64| tallies.iter().map(part).sum::<u64>();
    let (subscribed, asked) = (sum(|t| t.subscribed), THREADS * ATTEMPTS_PER_THREAD);
    let anew = made.load(Relaxed).saturating_sub(asked);
    story.say(&format!(
        "{THREADS} threads made {} requests in {}: {} subscribed, {} refused because the course was full, {} because the \
         student had enough courses, {} because they were subscribed already. {} times somebody else came in between, and the \
         decision was made anew.",
        thousands(asked),
        took(elapsed),
        thousands(subscribed),
        thousands(sum(|t| t.full)),
        thousands(sum(|t| t.busy)),
        thousands(sum(|t| t.already)),
        thousands(anew),
    ))?;
    story.figure(
        "course decisions, 32 threads",
        format!("{}, {} made anew", rate(asked, "decisions", elapsed), thousands(anew)),
    );
    check_courses(story, &store, subscribed)?;
    Ok(store.name().to_owned())
}

fn subscribe(store: &EventStore, course: u64, student: u64, made: &AtomicU64) -> Result<Result<(), Refusal>> {
    let (course, student) = (format!("course:c{course}"), format!("student:s{student}"));
    let subscribed =
        |tags: &[&String]| Query::from_items([QueryItem::new(["StudentSubscribed"], tags.iter().copied())]);
    let defined = Query::from_items([QueryItem::new(["CourseDefined"], [&course])]);
    let model = (
        projection(defined, 0, |seats, event| *seats = capacity(event.data())),
        counter(subscribed(&[&course])),
        counter(subscribed(&[&student])),
        any(subscribed(&[&course, &student])),
    );
    let retry = RetryPolicy { attempts: 1000, ..RetryPolicy::default() };
    let decided = store.execute_decision(&model, retry, |(seats, taken, own, already)| {
        made.fetch_add(1, Relaxed);
        match () {
            () if *already => Err(Refusal::Already),
            () if taken >= seats => Err(Refusal::CourseFull),
            () if *own >= COURSES_PER_STUDENT => Err(Refusal::StudentBusy),
            () => Ok(vec![Event::new("StudentSubscribed").tag(&course).tag(&student)]),
        }
    });
    match decided {
        Ok(_) => Ok(Ok(())),
        Err(DecisionError::Refused(refusal)) => Ok(Err(refusal)),
        Err(DecisionError::Store(error)) => Err(error.into()),
    }
}

fn capacity(data: &[u8]) -> u64 {
    let json: Option<serde_json::Value> = serde_json::from_slice(data).ok();
    json.and_then(|json| json.get("capacity")?.as_u64()).unwrap_or(0)
}

/// Counts from the events alone, without the code that decided.
fn check_courses(story: &mut Story, store: &EventStore, subscribed: u64) -> Result {
    let query = Query::from_types(["StudentSubscribed"]);
    let (counts, _) = store.fold(&query, HashMap::new(), |mut counts: HashMap<String, u64>, event| {
        for tag in event.tags() {
            *counts.entry(tag.to_owned()).or_default() += 1;
        }
        *counts.entry(event.tags().collect::<Vec<_>>().join(" ")).or_default() += 1;
        counts
    })?;
    let most = |prefix: &str, pairs: bool| {
        let named = counts.iter().filter(|(key, _)| key.starts_with(prefix) && key.contains(' ') == pairs);
        named.map(|(_, count)| *count).max().unwrap_or(0)
    };
    let (fullest, busiest, pair) = (most("course:", false), most("student:", false), most("course:", true));
    story.check(
        fullest <= CAPACITY,
        &format!("no course is over its capacity: the fullest has {fullest} of {CAPACITY}"),
    )?;
    story.check(
        busiest <= COURSES_PER_STUDENT,
        &format!("no student is over the limit: the busiest has {busiest} of {COURSES_PER_STUDENT}"),
    )?;
    story.check(pair <= 1, "nobody is subscribed to the same course twice")?;
    let stored = store.count(&query)?;
    story.check(
        stored == subscribed,
        &format!("every yes is an event, and nothing else is: {}", thousands(stored)),
    )
}

/// Unique usernames: all threads want the same names. Answers the store's name.
pub(super) fn usernames(story: &mut Story, db: &Database) -> Result<String> {
    story.say("")?;
    story.say(&format!(
        "And the shortest decision of all: a username is given once. Each of {THREADS} threads tries to register the same \
         {USERNAMES} names, each append under the condition that no event has the tag of that name.",
    ))?;
    let store = fresh(db, "usernames")?;
    let begun = Instant::now();
    let won = race(|thread| {
        let mut won = 0;
        for n in 0..USERNAMES {
            let tag = format!("username:user{}", (n + thread * 7) % USERNAMES);
            let event = Event::new("UserRegistered").tag(&tag).data(format!(r#"{{"by":{thread}}}"#));
            match store.append(&[event], Some(AppendCondition::none_match(Query::from_tags([tag])))) {
                Ok(_) => won += 1,
                Err(EventsError::AppendConditionFailed { .. }) => {}
                Err(error) => return Err(Failure::from(error)),
            }
        }
        Ok(won)
    })?;
    let elapsed = begun.elapsed();
    let (asked, given) = (THREADS * USERNAMES, won.iter().sum::<u64>());
    story.say(&format!(
        "{} attempts in {}: {given} registered, {} refused.",
        thousands(asked),
        took(elapsed),
        thousands(asked - given)
    ))?;
    story.figure("username attempts, 32 threads", rate(asked, "appends or refusals", elapsed));
    let (names, _) =
        store.fold(&Query::all(), HashMap::new(), |mut names: HashMap<String, u64>, event| {
            for tag in event.tags() {
                *names.entry(tag.to_owned()).or_default() += 1;
            }
            names
        })?;
    let once = names.len() as u64 == USERNAMES && names.values().all(|count| *count == 1);
    story.check(
        once && given == USERNAMES,
        &format!("each of the {USERNAMES} names was given exactly once"),
    )?;
    Ok(store.name().to_owned())
}
