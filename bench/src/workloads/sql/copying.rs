//! COPY: many rows as text into a table, and out of it. The output must equal the input.
//!
//! `lines (id bigint PRIMARY KEY, account integer, amount integer, note text)`: a line for each id from 0, about 60 bytes, fields
//! between tabs as PostgreSQL's text format has them.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::harness::random::SplitMix;
use crate::harness::worker::{Figure, Outcome, Task};

/// The table definition.
pub const TABLE: &str = "CREATE TABLE lines (id bigint PRIMARY KEY, account integer NOT NULL, amount integer NOT NULL, note text NOT NULL)";

/// Bytes read at a time.
pub const PIECE_BYTES: usize = 256 << 10;

/// A database with the empty table.
pub trait Copies: Sized {
    /// A new one in the empty directory `dir`.
    fn create(dir: &Path) -> Result<Self>;
    /// Copies the file into the table; all rows are durable when it returns.
    fn copy_in(&mut self, from: &Path) -> Result<()>;
    /// Copies the table into the file, by id.
    fn copy_out(&mut self, to: &Path) -> Result<()>;
}

/// Writes the rows.
pub fn write(to: &Path, rows: u64) -> Result<()> {
    const WORDS: [&str; 8] = ["rope", "hemp", "strand", "yarn", "twist", "tar", "splice", "hawser"];
    let mut random = SplitMix::new(7);
    let mut out = BufWriter::with_capacity(PIECE_BYTES, File::create(to)?);
    for id in 0..rows {
        let (account, amount) = (random.below(100_000), random.below(20_001).cast_signed() - 10_000);
        write!(out, "{id}\t{account}\t{amount}\t")?;
        for place in 0..6 {
            write!(out, "{}{}", if place == 0 { "" } else { " " }, random.pick(&WORDS))?;
        }
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

/// Length of a file and a digest of its bytes.
pub fn digest(file: &Path) -> Result<String> {
    let mut file = File::open(file)?;
    let mut piece = vec![0; PIECE_BYTES];
    let (mut length, mut hash) = (0, FNV);
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok(format!("{length} bytes, {hash:016x}"));
        }
        length += read;
        hash = fnv(hash, piece.get(..read).unwrap_or_default());
    }
}

/// Initial value of [`fnv`].
pub const FNV: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a (Fowler, Noll, Vo): easy to implement in every language that must agree.
pub fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Copies in, and out again.
pub fn run<C: Copies>(task: &Task) -> Result<Outcome> {
    let (from, to) = (task.dir.join("in.text"), task.dir.join("out.text"));
    write(&from, task.rows)?;
    let mut copies = C::create(&task.dir)?;
    let started = Instant::now();
    copies.copy_in(&from)?;
    let mut outcome = Outcome::default();
    outcome.figure("in", rate(task, started));
    let started = Instant::now();
    copies.copy_out(&to)?;
    outcome.figure("out", rate(task, started));
    let (went, came) = (digest(&from)?, digest(&to)?);
    ensure!(went == came, "{went} went in, {came} came out");
    outcome.digest("rows", came);
    Ok(outcome)
}

/// Rows per second since `started`.
pub fn rate(task: &Task, started: Instant) -> Figure {
    Figure::one(task.rows as f64 / started.elapsed().as_secs_f64())
}
