//! Transactions as protocols run them.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers outside of test functions

mod attempts;
mod open;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ropewalk::documents::lang::{DocBuf, Value, Writer};
use ropewalk::{AppendOptions, Database, Event};
use ropewalk_auth::Caller;
use ropewalk_transactions::{
    Answer, Documents, DocumentsWork, Done, Encode, Failure, OpenTransactions, Operation, Request,
};
use ropewalk_wire::{Bounds, Limits, Service, ServiceSettings, WireError};

/// Results as their debug text; runs a function for each.
struct Encoder<F> {
    each: F,
    restarts: AtomicUsize,
    places: Mutex<Vec<usize>>,
}

impl<F: Fn(usize) + Sync> Encoder<F> {
    fn new(each: F) -> Self {
        Self { each, restarts: AtomicUsize::new(0), places: Mutex::default() }
    }

    fn restarts(&self) -> usize {
        self.restarts.load(Ordering::SeqCst)
    }
}

impl<F: Fn(usize) + Sync> Encode for Encoder<F> {
    fn restart(&self) {
        self.restarts.fetch_add(1, Ordering::SeqCst);
        self.places.lock().unwrap().clear();
    }

    fn encode(&self, place: usize, _: Done) -> Result<Vec<u8>, WireError> {
        (self.each)(place);
        self.places.lock().unwrap().push(place);
        Ok(vec![1])
    }
}

fn service(limits: Limits) -> Service {
    let settings = ServiceSettings { limits, ..ServiceSettings::default() };
    Service::new(Database::in_memory().unwrap(), settings).unwrap()
}

/// Runs a transaction without sessions of earlier ones.
async fn transact(
    service: &Service,
    caller: &Caller,
    request: &Request,
    bounds: &Bounds,
    encoder: &dyn Encode,
) -> Result<Answer, Failure> {
    OpenTransactions::new(service.clone()).transact(caller, request, bounds, encoder).await
}

fn document(id: i32) -> DocBuf {
    let mut out = Writer::new();
    out.put("_id", Value::Int32(id));
    out.finish()
}

/// An operation on the collection `c`.
fn on_documents(work: DocumentsWork) -> Operation {
    let (database, collection) = ("default".to_owned(), "c".to_owned());
    Operation::Documents(Documents { database, collection, work, expected: None })
}

fn append(event_type: &str) -> Operation {
    let events = vec![Event::new(event_type)];
    Operation::Append { store: "s".to_owned(), events, options: AppendOptions::default() }
}
