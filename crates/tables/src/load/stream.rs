//! Streams: entries in key order on their way into runs or the log.
//!
//! ```text
//! add ─┬─ the first ones ─▶ EntryWriter
//!      └─ then: batch ─▶ a writer thread ─▶ EntryWriter     (builds blocks while rows are encoded)
//! ```
//! A batch holds, per entry: length of the key u16, length of the value u32, key, value. At most [`BATCHES`]
//! are in transit, so a slow disk slows down the caller of `add`.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use ropewalk_engine::NewRun;

use crate::error::{Result, TablesError};
use crate::load::entry_writer::EntryWriter;

const BATCH_BYTES: usize = 256 << 10;
const BATCHES: usize = 4;
/// Bytes up to which a stream is written without a thread.
const ALONE_BYTES: usize = 2 << 20;

/// Writes entries. Dropping it before [`Stream::finish`] discards them.
pub(crate) struct Stream {
    way: Way,
    /// Buffer for object and key.
    full: Vec<u8>,
    /// Bytes added without a thread.
    alone: usize,
}

enum Way {
    Here(EntryWriter),
    There(Helper),
    /// Only during a change between the other states.
    Over,
}

/// The writer thread.
struct Helper {
    batch: Vec<u8>,
    /// Filled batches are sent here, emptied ones return. `None`: no more will be sent.
    filled: Option<SyncSender<Vec<u8>>>,
    emptied: Receiver<Vec<u8>>,
    thread: Option<JoinHandle<Result<Vec<NewRun>>>>,
}

impl Stream {
    pub(crate) fn new(writer: EntryWriter) -> Self {
        Self { way: Way::Here(writer), full: Vec::new(), alone: 0 }
    }

    /// Adds an entry with a key greater than the previous one.
    ///
    /// # Errors
    /// An error of the store, possibly for an earlier entry; the stream has ended then.
    pub(crate) fn add(&mut self, object: u32, key: &[u8], value: &[u8]) -> Result<()> {
        match &mut self.way {
            Way::Here(writer) => {
                self.full.clear();
                self.full.extend_from_slice(&object.to_be_bytes());
                self.full.extend_from_slice(key);
                writer.add(&self.full, value)?;
                self.alone += self.full.len() + value.len();
                if self.alone > ALONE_BYTES
                    && let Way::Here(writer) = std::mem::replace(&mut self.way, Way::Over)
                {
                    self.way = Helper::start(writer)?;
                }
                Ok(())
            }
            Way::There(helper) => helper.add(object, key, value),
            Way::Over => Err(gone()),
        }
    }

    /// Finishes and returns the runs.
    ///
    /// # Errors
    /// As [`Stream::add`].
    pub(crate) fn finish(mut self) -> Result<Vec<NewRun>> {
        match std::mem::replace(&mut self.way, Way::Over) {
            Way::Here(writer) => writer.finish(),
            Way::There(mut helper) => {
                helper.send()?;
                helper.join()
            }
            Way::Over => Err(gone()),
        }
    }
}

impl Helper {
    /// Hands the writer to a new thread; if none can be started, nothing changes.
    fn start(writer: EntryWriter) -> Result<Way> {
        let (filled, batches) = sync_channel(BATCHES);
        let (give_back, emptied) = sync_channel(BATCHES);
        // The writer is sent once the thread is running.
        let (hand, handed) = sync_channel::<EntryWriter>(1);
        let body = move || match handed.recv() {
            Ok(writer) => write(writer, &batches, &give_back),
            Err(_) => Ok(Vec::new()),
        };
        let Ok(thread) = std::thread::Builder::new().name("rope-load".to_owned()).spawn(body) else {
            return Ok(Way::Here(writer));
        };
        hand.send(writer).map_err(|_| gone())?;
        let batch = Vec::with_capacity(BATCH_BYTES);
        Ok(Way::There(Self { batch, filled: Some(filled), emptied, thread: Some(thread) }))
    }

    fn add(&mut self, object: u32, key: &[u8], value: &[u8]) -> Result<()> {
        let batch = &mut self.batch;
        let length = u16::try_from(4 + key.len()).expect("keys are checked to be shorter than 64 KiB");
        batch.extend_from_slice(&length.to_le_bytes());
        batch.extend_from_slice(&(value.len() as u32).to_le_bytes());
        batch.extend_from_slice(&object.to_be_bytes());
        batch.extend_from_slice(key);
        batch.extend_from_slice(value);
        if batch.len() < BATCH_BYTES { Ok(()) } else { self.send() }
    }

    fn send(&mut self) -> Result<()> {
        // Without an emptied batch a new one is filled.
        let next = self.emptied.try_recv().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, next);
        let sent = self.filled.as_ref().is_some_and(|filled| filled.send(batch).is_ok());
        // A thread that no longer receives has failed; joining returns its error.
        if sent { Ok(()) } else { self.join().and(Err(gone())) }
    }

    fn join(&mut self) -> Result<Vec<NewRun>> {
        self.filled = None;
        let thread = self.thread.take().ok_or_else(gone)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.filled = None;
        if let Some(thread) = self.thread.take() {
            // Its files are removed as well. Its result does not matter any more.
            let _ = thread.join();
        }
    }
}

/// Body of the writer thread.
fn write(
    mut writer: EntryWriter,
    batches: &Receiver<Vec<u8>>,
    give_back: &SyncSender<Vec<u8>>,
) -> Result<Vec<NewRun>> {
    for mut batch in batches {
        let mut rest = batch.as_slice();
        while let Some((key, value, after)) = entry(rest) {
            writer.add(key, value)?;
            rest = after;
        }
        assert!(rest.is_empty(), "a batch holds whole entries; {} bytes are left", rest.len());
        batch.clear();
        // The batch is dropped if the channel is full.
        let _ = give_back.try_send(batch);
    }
    writer.finish()
}

/// Decodes an entry: key, value, and the remaining bytes.
fn entry(batch: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (key, rest) = batch.split_first_chunk::<2>()?;
    let (value, rest) = rest.split_first_chunk::<4>()?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key)))?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value) as usize)?;
    Some((key, value, rest))
}

fn gone() -> TablesError {
    TablesError::Definition { table: String::new(), what: "the load has failed before".into() }
}
