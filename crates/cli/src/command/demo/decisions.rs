//! Chapter 3: rules that hold under 32 threads, without locks. The examples are those of dcb.events.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use ropewalk::events::{DecisionError, EventsError, QueryItem, RetryPolicy, any, counter, projection};
use ropewalk::{AppendCondition, Database, Event, EventStore, Query};

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

/// Pseudo-random numbers (SplitMix64): the requests are the same in each run; their outcomes depend on the
/// race.
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

/// Runs `work` on 32 threads at once and collects the results.
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

/// Reason of a rejected subscription.
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

/// Course subscriptions: two limits at once, on the course and on the student. Returns the name of the store.
pub(super) fn courses(story: &mut Story, db: &Database) -> Result<String> {
    story.chapter("Decisions that stay right under 32 threads")?;
    story.say(&format!(
        "A course has {CAPACITY} seats; a student may take {COURSES_PER_STUDENT} courses. A subscription must check \
         both limits and then write, and another thread may write in between. Here each decision reads just the events \
         that it depends on and appends with a condition: \"only if no event that matches this query was appended since \
         my read\". If there is one, nothing is written and the decision is retried. The boundary of consistency is the \
         query, chosen for this one decision: that is what Dynamic Consistency Boundary (DCB) means. No locks, no table \
         of counters, no aggregate that serializes all writers.",
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
        "{THREADS} threads made {} requests in {}: {} subscribed, {} rejected because the course was full, {} because the \
         student had enough courses, {} because they were subscribed already. {} times a concurrent append intervened, and \
         the decision was retried.",
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
        format!("{}, {} retried", rate(asked, "decisions", elapsed), thousands(anew)),
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

/// Counts from the events alone, independently of the decision code.
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
    story.check(pair <= 1, "no student is subscribed to the same course twice")?;
    let stored = store.count(&query)?;
    story.check(
        stored == subscribed,
        &format!("each accepted subscription is one event: {}", thousands(stored)),
    )
}

/// Unique usernames: all threads compete for the same names. Returns the name of the store.
pub(super) fn usernames(story: &mut Story, db: &Database) -> Result<String> {
    story.say("")?;
    story.say(&format!(
        "The simplest decision: a username is assigned once. Each of {THREADS} threads tries to register the same \
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
        "{} attempts in {}: {given} registered, {} rejected.",
        thousands(asked),
        took(elapsed),
        thousands(asked - given)
    ))?;
    story.figure("username attempts, 32 threads", rate(asked, "appends or rejections", elapsed));
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
        &format!("each of the {USERNAMES} names was assigned exactly once"),
    )?;
    Ok(store.name().to_owned())
}
