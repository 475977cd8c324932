//! Workload and maintenance of the simulation: one step is one operation of one of them.

use std::time::Duration;

use ropewalk::events::{DecisionError, ReadOptions, RetryPolicy, Tracking, count};
use ropewalk::{AppendCondition, AppendOptions, Durability, Event, Position, Query};
use ropewalk_vfs::Clock;

use crate::events::generators;
use crate::events::oracle::{AppendAsk, Ask, Expect, Refusal};
use crate::events::scenario::{Answer, Bug, Check, Pending, Waiting, World, ensure};

/// Operations that the scheduler chooses from.
#[derive(Debug, Clone, Copy)]
enum Act {
    SubmitAppend,
    Append,
    Drive,
    SubmitKeys,
    Transaction,
    Decide,
    ExecuteDecision,
    Read,
    Scalars,
    Snapshot,
    Subscription,
    Feed,
    Background,
    Checkpoint,
    Compact,
    Backup,
    Clock,
    Verify,
}

const ACTS: [(u64, Act); 18] = [
    (24, Act::SubmitAppend),
    (12, Act::Append),
    (10, Act::Drive),
    (8, Act::SubmitKeys),
    (18, Act::Transaction),
    (4, Act::Decide),
    (2, Act::ExecuteDecision),
    (12, Act::Read),
    (4, Act::Scalars),
    (8, Act::Snapshot),
    (5, Act::Subscription),
    (5, Act::Feed),
    (10, Act::Background),
    (2, Act::Checkpoint),
    (1, Act::Compact),
    (2, Act::Backup),
    (5, Act::Clock),
    (1, Act::Verify),
];

/// Submitted transactions that may wait together.
const PENDING_MAX: usize = 20;

impl World {
    /// One step of one actor.
    pub(crate) fn step(&mut self) -> Check {
        self.counts.steps += 1;
        self.mark();
        let act = self.dice.weighted(&ACTS);
        match act {
            Act::SubmitAppend if self.boot().pending.len() >= PENDING_MAX => self.drive(),
            Act::SubmitAppend => self.submit_append(),
            Act::Append => self.append(),
            Act::Drive => self.drive(),
            Act::SubmitKeys => self.submit_keys(),
            Act::Transaction => self.use_transaction(),
            Act::Decide => self.decide(),
            Act::ExecuteDecision => self.execute_decision(),
            Act::Read => self.read_now(),
            Act::Scalars => self.read_scalars(),
            Act::Snapshot => self.use_snapshot(),
            Act::Subscription => self.use_subscription(),
            Act::Feed => self.use_feed(),
            Act::Background => self.background(),
            Act::Checkpoint => self.checkpoint(),
            Act::Compact => self.compact(),
            Act::Backup => self.backup(),
            Act::Clock => {
                self.move_clock();
                Ok(())
            }
            Act::Verify if self.dice.one_in(4) => self.verify(),
            Act::Verify => Ok(()),
        }
    }

    pub(crate) fn durability(&mut self) -> Durability {
        let interval = Duration::from_millis(self.dice.between(1, 200));
        self.dice.weighted(&[
            (5, Durability::Sync),
            (1, Durability::Buffered),
            (1, Durability::Async { interval }),
        ])
    }

    pub(crate) fn wall(&self) -> Option<i64> {
        Some(self.clock.wall_micros())
    }

    /// A store, with conditions, tracking and key of an append to it.
    pub(crate) fn append_options(&mut self) -> (String, AppendOptions) {
        let name = (*self.dice.pick(&generators::STORES).expect("there are stores")).to_owned();
        let visible = self.visible();
        let head = self.oracle.head(&name, visible);
        let count = self.dice.weighted(&[(5, 0), (4, 1), (1, 2), (1, 3)]);
        let conditions: Vec<_> = (0..count).map(|_| generators::condition(&self.dice, head)).collect();
        let tracking = self.dice.one_in(8).then(|| {
            let source = format!("source{}", self.dice.below(3));
            let stored = self.oracle.tracking(&name, &source, u64::MAX).unwrap_or(0);
            Tracking { position: (stored + self.dice.below(6)).saturating_sub(2), source }
        });
        let idempotency_key = self.dice.one_in(8).then(|| format!("request {}", self.dice.below(30)));
        // The combination of the two is refused.
        let prefixes = conditions.iter().any(|condition| condition.fail_if_events_match.has_prefixes());
        let idempotency_key = idempotency_key.filter(|_| !prefixes);
        let durability = self.durability();
        (name, AppendOptions { conditions, tracking, repeat_by_id: false, idempotency_key, durability })
    }

    fn append_ask(&mut self) -> AppendAsk {
        let (store, mut options) = self.append_options();
        let mut events = self.author.events(&self.dice);
        // A retry submits the same events again, and often the same conditions, which its own events now
        // match.
        if let Some(key) = &options.idempotency_key
            && let Some((sent, conditions)) = self.sent.get(&(store.clone(), key.clone()))
            && !self.dice.one_in(5)
        {
            events.clone_from(sent);
            if self.dice.one_in(2) {
                options.conditions.clone_from(conditions);
            }
        }
        if let Some(key) = &options.idempotency_key {
            let sent = (events.clone(), options.conditions.clone());
            self.sent.insert((store.clone(), key.clone()), sent);
        }
        AppendAsk { store, events, options, looked: 0 }
    }

    fn describe(ask: &AppendAsk) -> String {
        let AppendOptions { conditions, tracking, idempotency_key, durability, .. } = &ask.options;
        format!(
            "{} events to {} conditions {conditions:?} tracking {tracking:?} key {idempotency_key:?} {durability:?}",
            ask.events.len(),
            ask.store
        )
    }

    fn submit_append(&mut self) -> Check {
        let mut append = self.append_ask();
        let durability = append.options.durability;
        let visible = self.visible();
        let early = self.oracle.look_ahead(&mut append, visible);
        self.note(format!("submit {}", Self::describe(&append)));
        let store = self.db().events(&append.store).map_err(|e| Bug(e.to_string()))?;
        let submitted = store.submit(&append.events, append.options.clone());
        let ask = Ask { appends: vec![append], keys: None };
        match (submitted, early) {
            (Ok(_), Some(refusal)) => {
                Err(Bug(format!("accepted for the queue, but {refusal:?} is known already")))
            }
            (Ok(pending), None) => {
                self.boot().pending.push(Pending { ask, durability, waiting: Waiting::Append(pending) });
                Ok(())
            }
            (Err(error), early) => self.refused_early(Answer::from(ropewalk::Error::from(error)), early),
        }
    }

    /// Checks a result that was returned before the request was queued.
    fn refused_early(&mut self, answer: Answer, early: Option<Refusal>) -> Check {
        self.note(format!("  {answer:?}"));
        match answer {
            Answer::Refused(found) => {
                ensure!(Some(&found) == early.as_ref(), "expected the early answer {early:?}, got {found:?}");
                self.counts.refusals += 1;
            }
            Answer::Failed(class, text, _) => {
                ensure!(self.excused(class), "failed without a reason: {text} ({class:?})");
            }
            answer @ Answer::Committed { .. } => {
                return Err(Bug(format!("expected {early:?}, got {answer:?}")));
            }
        }
        Ok(())
    }

    /// Checks the result of a call that led everything submitted before it.
    pub(crate) fn settle_after(
        &mut self,
        ask: &Ask,
        durability: Durability,
        answer: Answer,
        early: Option<Refusal>,
        wall: Option<i64>,
    ) -> Check {
        if early.is_some() {
            return self.refused_early(answer, early);
        }
        self.settle_pending(wall)?;
        let (durable, last) = (self.durable, self.oracle.last());
        let time = wall.and_then(|wall| Some(wall.max(self.oracle.last_time()?)));
        self.settle(ask, durability, answer, time)?;
        if self.oracle.last() > last {
            self.claimed = durable;
        }
        Ok(())
    }

    fn append(&mut self) -> Check {
        let mut append = self.append_ask();
        let durability = append.options.durability;
        let visible = self.visible();
        let early = self.oracle.look_ahead(&mut append, visible);
        self.note(format!("append {}", Self::describe(&append)));
        let store = self.db().events(&append.store).map_err(|e| Bug(e.to_string()))?;
        let wall = self.wall();
        let answer = Answer::from(store.append_with(&append.events, append.options.clone()));
        self.settle_after(&Ask { appends: vec![append], keys: None }, durability, answer, early, wall)
    }

    pub(crate) fn drive(&mut self) -> Check {
        self.note(format!("drive {}", self.boot.as_ref().map_or(0, |b| b.pending.len())));
        let wall = self.wall();
        if !self.dice.one_in(4) {
            self.db().engine().drive();
        }
        self.settle_pending(wall)
    }

    /// Reads a decision model now and appends in a later step, under the condition returned with it.
    fn decide(&mut self) -> Check {
        if let Some((store, condition)) = self.decisions.pop().filter(|_| self.dice.one_in(2)) {
            let visible = self.visible();
            let mut append = AppendAsk {
                store,
                events: self.author.events(&self.dice),
                options: AppendOptions::condition(condition),
                looked: 0,
            };
            let early = self.oracle.look_ahead(&mut append, visible);
            self.note(format!("decided: {}", Self::describe(&append)));
            let store = self.db().events(&append.store).map_err(|e| Bug(e.to_string()))?;
            let wall = self.wall();
            let answer = Answer::from(store.append_with(&append.events, append.options.clone()));
            return self.settle_after(
                &Ask { appends: vec![append], keys: None },
                Durability::Sync,
                answer,
                early,
                wall,
            );
        }
        let name = (*self.dice.pick(&generators::STORES).expect("there are stores")).to_owned();
        let store = self.db().events(&name).map_err(|e| Bug(e.to_string()))?;
        let (one, two) = (some_query(self), some_query(self));
        let at = self.visible();
        self.note(format!("decision on {name}: {one:?} and {two:?}"));
        let result = store.decision(&(count(one.clone()), count(two.clone())));
        let Some(decision) = self.allow("decision", result)? else { return Ok(()) };
        let count = |query: &Query| self.oracle.query(&name, at, query, &ReadOptions::default()).len() as u64;
        let expected = (count(&one), count(&two));
        ensure!(
            decision.state == expected,
            "decision on {one:?}, {two:?}: expected {expected:?}, got {:?}",
            decision.state
        );
        let head = self.oracle.head(&name, at);
        ensure!(
            decision.condition.after == Some(Position(head)),
            "decision is for {:?}, expected {head}",
            decision.condition.after
        );
        self.decisions.push((name, decision.condition));
        Ok(())
    }

    /// Runs the complete loop at once, with its retry when a queued append got there first.
    fn execute_decision(&mut self) -> Check {
        let name = (*self.dice.pick(&generators::STORES).expect("there are stores")).to_owned();
        let query = some_query(self);
        let event = self.author.event(&self.dice);
        self.note(format!("execute a decision on {name}: {query:?}"));
        let store = self.db().events(&name).map_err(|e| Bug(e.to_string()))?;
        let wall = self.wall();
        let at = self.visible();
        let mut states = Vec::new();
        let result = store.execute_decision(&count(query.clone()), RetryPolicy::default(), |count| {
            states.push(*count);
            Ok::<_, std::convert::Infallible>(vec![Event {
                metadata: vec![("count".to_owned(), count.to_string())],
                ..event.clone()
            }])
        });
        self.settle_pending(wall)?;
        let answer = match result {
            Ok(Some(appended)) => Answer::from(Ok(appended)),
            Ok(None) => return Err(Bug("the decision was dropped".to_owned())),
            Err(DecisionError::Store(error)) => Answer::from(ropewalk::Error::from(error)),
            Err(DecisionError::Refused(never)) => match never {},
        };
        // The last attempt depends on the last state that was read, at the head of that time.
        let Some(state) = states.last() else { return self.refused_early(answer, None) };
        let seen = if states.len() == 1 { at } else { self.oracle.last() };
        let expected = self.oracle.query(&name, seen, &query, &ReadOptions::default()).len() as u64;
        ensure!(*state == expected, "attempt {} saw {state} events, expected {expected}", states.len());
        let condition = AppendCondition {
            fail_if_events_match: query,
            after: Some(Position(self.oracle.head(&name, seen))),
        };
        let events = vec![Event { metadata: vec![("count".to_owned(), state.to_string())], ..event }];
        let append =
            AppendAsk { store: name, events, options: AppendOptions::condition(condition), looked: 0 };
        let ask = Ask { appends: vec![append], keys: None };
        if states.len() == 1 && !matches!(answer, Answer::Committed { .. }) {
            return match answer {
                Answer::Failed(..) => self.settle(&ask, Durability::Sync, answer, None),
                answer => Err(Bug(format!("a decision that met a conflict was not tried again: {answer:?}"))),
            };
        }
        if states.len() > 1 {
            let conflict = matches!(self.oracle.decide(&ask), Expect::Refuse(_));
            ensure!(!conflict, "the second attempt is in conflict with nothing that could have come between");
        }
        self.settle(&ask, Durability::Sync, answer, None)
    }

    fn background(&mut self) -> Check {
        for _ in 0..self.dice.between(1, 6) {
            let now = self.clock.monotonic_nanos();
            let worked = self.db().engine().background_step();
            let Some(worked) = self.allow("background", worked)? else { return Ok(()) };
            self.note(format!("background worked {worked}"));
            if !self.stopped() {
                self.paid(now);
            }
            if !worked {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn checkpoint(&mut self) -> Check {
        self.note("checkpoint");
        let done = self.db().checkpoint();
        if self.allow("checkpoint", done)?.is_some() {
            self.all_durable();
        }
        Ok(())
    }

    pub(crate) fn compact(&mut self) -> Check {
        self.note("compact");
        let done = self.db().compact();
        if self.allow("compact", done)?.is_some() {
            self.all_durable();
        }
        Ok(())
    }

    fn move_clock(&mut self) {
        match self.dice.below(4) {
            0 => {
                let hours = self.dice.below(48) as i64 - 24;
                self.note(format!("the wall clock jumps by {hours} hours"));
                self.clock.jump_wall_micros(hours * 3_600_000_000);
            }
            _ => {
                let micros = self.dice.below(100_000);
                self.note(format!("{micros} µs pass"));
                self.clock.advance(Duration::from_micros(micros));
            }
        }
    }
}

fn some_query(world: &World) -> Query {
    loop {
        let query = generators::query(&world.dice);
        if !query.is_all() {
            return query;
        }
    }
}
