//! `ropewalk doc`: imports and exports documents: one JSON document per line, or BSON as `mongodump` writes it.
//!
//! Files are streamed, so their size does not matter. JSON is MongoDB Extended JSON. Export writes the
//! relaxed form, or the canonical one, which preserves all types; import reads both.

use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use bson::{Bson, Document};
use clap::{Subcommand, ValueEnum, ValueHint};
use ropewalk::Durability;
use ropewalk::documents::{Collection, Find};

use crate::database::context::Context;
use crate::output::failure::{Exit, Failure, Result};

#[derive(Debug, Subcommand)]
pub(crate) enum Doc {
    /// Add the documents of a file to a collection; stops at the first _id that exists already
    Import {
        /// DATABASE.COLLECTION
        collection: String,
        /// The file: JSON, one document per line, or BSON as mongodump writes it; - is standard input
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Format of the file [default: bson if its name ends so, else ndjson]
        #[arg(long, value_enum)]
        form: Option<DocForm>,
    },
    /// Write all documents of a collection, at one snapshot
    Export {
        /// DATABASE.COLLECTION
        collection: String,
        /// The file, replaced if it exists; - is standard output
        #[arg(value_hint = ValueHint::FilePath, default_value = "-")]
        file: PathBuf,
        /// Format of the file [default: bson if its name ends so, else ndjson]
        #[arg(long, value_enum)]
        form: Option<DocForm>,
        /// JSON with the type of every number, for a lossless round trip
        #[arg(long)]
        canonical: bool,
    },
    /// List databases and collections
    Collections,
}

/// Form of a file of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DocForm {
    /// Extended JSON, one document per line
    Ndjson,
    /// Concatenated BSON documents
    Bson,
}

/// Documents and bytes of one commit.
const BATCH: usize = 1000;
const BATCH_BYTES: usize = 8 << 20;
/// Largest document, and longest line: canonical Extended JSON is several times as large as BSON.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;
const LINE_BYTES_MAX: u64 = 128 << 20;

pub(crate) fn doc(context: &Context, command: Doc) -> Result {
    match command {
        Doc::Import { collection, file, form } => import(context, &collection, &file, form),
        Doc::Export { collection, file, form, canonical } => {
            export(context, &collection, &file, form, canonical)
        }
        Doc::Collections => collections(context),
    }
}

fn collections(context: &Context) -> Result {
    let db = context.open()?;
    let mut report = context.report(&["database", "collection", "documents", "bytes"])?;
    for database in db.documents().databases()? {
        for name in db.documents().collections(&database)? {
            let count = db.documents().collection(&database, &name)?.estimated_count()?;
            let cells = [database.clone().into(), name.into(), count.documents.into(), count.bytes.into()];
            report.row(cells.into())?;
        }
    }
    Ok(report.finish()?)
}

fn named(db: &ropewalk::Database, name: &str) -> Result<Collection> {
    let (database, collection) = name
        .split_once('.')
        .ok_or_else(|| Failure::invalid(format!("{name:?} is not DATABASE.COLLECTION like shop.orders")))?;
    Ok(db.documents().collection(database, collection)?)
}

/// The form of a file: the given one, else by the name of the file.
fn form_of(file: &Path, form: Option<DocForm>) -> DocForm {
    form.unwrap_or_else(|| match file.extension().is_some_and(|extension| extension == "bson") {
        true => DocForm::Bson,
        false => DocForm::Ndjson,
    })
}

/// Documents buffered for the next write.
struct Batch<'c> {
    collection: &'c Collection,
    file: &'c Path,
    /// Each with its ordinal in the file, from 1.
    documents: Vec<(u64, Vec<u8>)>,
    bytes: usize,
    written: u64,
}

impl Batch<'_> {
    fn push(&mut self, place: u64, document: Vec<u8>) -> Result {
        self.bytes += document.len();
        self.documents.push((place, document));
        if self.documents.len() >= BATCH || self.bytes >= BATCH_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result {
        let documents: Vec<&[u8]> = self.documents.iter().map(|(_, document)| document.as_slice()).collect();
        if documents.is_empty() {
            return Ok(());
        }
        let mut done = self.collection.insert_many(&documents, true, Durability::Buffered)?;
        self.written += done.inserted.len() as u64;
        if let Some((index, error)) = done.errors.pop() {
            let place = self.documents.get(index).map_or(0, |(place, _)| *place);
            let exit = if error.code() == 11000 { Exit::Conflict } else { Exit::Invalid };
            return Err(self.stopped(exit, place, &error));
        }
        self.documents.clear();
        self.bytes = 0;
        Ok(())
    }

    /// The failure of an import at the document `place`.
    fn stopped(&self, exit: Exit, place: u64, why: &dyn std::fmt::Display) -> Failure {
        let what = format!(
            "{}, document {place}: {why}; {} documents before it are in the collection",
            self.file.display(),
            self.written
        );
        Failure::new(exit, what, "")
    }
}

fn import(context: &Context, name: &str, file: &Path, form: Option<DocForm>) -> Result {
    let db = context.open()?;
    let collection = named(&db, name)?;
    let from: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(file).map_err(|error| Failure::file("read", file, &error))?),
    };
    let mut from = BufReader::with_capacity(256 << 10, from);
    let mut batch = Batch { collection: &collection, file, documents: Vec::new(), bytes: 0, written: 0 };
    let mut place = 0;
    loop {
        place += 1;
        let next = match form_of(file, form) {
            DocForm::Bson => bson_document(&mut from),
            DocForm::Ndjson => json_document(&mut from),
        };
        match next {
            Ok(Some(document)) if document.is_empty() => {}
            Ok(Some(document)) => batch.push(place, document)?,
            Ok(None) => break,
            Err(what) => {
                // The documents before it are valid and are imported.
                batch.write()?;
                return Err(batch.stopped(Exit::Invalid, place, &what));
            }
        }
    }
    batch.write()?;
    let written = batch.written;
    db.close()?;
    context.print_number(&["documents"], written)
}

/// The next document of a file of concatenated documents.
fn bson_document(from: &mut impl Read) -> std::result::Result<Option<Vec<u8>>, String> {
    let mut length = [0; 4];
    let mut begun = 0;
    while begun < length.len() {
        match from.read(length.get_mut(begun..).unwrap_or_default()) {
            Ok(0) if begun == 0 => return Ok(None),
            Ok(0) => return Err("the file ends within its length".to_owned()),
            Ok(read) => begun += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    let size = usize::try_from(i32::from_le_bytes(length)).unwrap_or(0);
    if !(5..=DOCUMENT_BYTES_MAX).contains(&size) {
        return Err(format!("{size} is not the length of a BSON document"));
    }
    let mut document = length.to_vec();
    let rest = (size - length.len()) as u64;
    let read = from.by_ref().take(rest).read_to_end(&mut document).map_err(|error| error.to_string())?;
    if read as u64 == rest { Ok(Some(document)) } else { Err("the file ends within it".to_owned()) }
}

/// The document of the next line; no bytes for an empty line.
fn json_document(from: &mut impl BufRead) -> std::result::Result<Option<Vec<u8>>, String> {
    let mut line = Vec::new();
    let read = from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
    if read.map_err(|error| error.to_string())? == 0 {
        return Ok(None);
    }
    if line.len() as u64 == LINE_BYTES_MAX {
        return Err(format!("a line of more than {LINE_BYTES_MAX} bytes"));
    }
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(Some(Vec::new()));
    }
    let json: serde_json::Value = serde_json::from_slice(&line).map_err(|error| error.to_string())?;
    match Bson::try_from(json) {
        Ok(Bson::Document(document)) => document.to_vec().map(Some).map_err(|error| error.to_string()),
        Ok(_) => Err("it is not a document".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn export(context: &Context, name: &str, file: &Path, form: Option<DocForm>, canonical: bool) -> Result {
    let db = context.open()?;
    let collection = named(&db, name)?;
    if collection.definition()?.is_none() {
        return Err(Failure::new(Exit::NotFound, format!("there is no collection {name}"), ""));
    }
    let failed = |error: std::io::Error| Failure::file("write", file, &error);
    let to: Box<dyn Write> = match file == Path::new("-") {
        true => Box::new(context.out()),
        false => Box::new(BufWriter::with_capacity(256 << 10, std::fs::File::create(file).map_err(failed)?)),
    };
    let (mut to, mut count) = (to, 0_u64);
    let mut cursor = collection.find(&Find::all())?;
    while !cursor.is_done() {
        for document in cursor.next_batch(BATCH, BATCH_BYTES)? {
            count += 1;
            match form_of(file, form) {
                DocForm::Bson => to.write_all(document.bytes()).map_err(failed)?,
                DocForm::Ndjson => {
                    let line = json_line(document.bytes(), canonical).map_err(Failure::invalid)?;
                    writeln!(to, "{line}").map_err(failed)?;
                }
            }
        }
    }
    to.flush().map_err(failed)?;
    if file == Path::new("-") { Ok(()) } else { context.print_number(&["documents"], count) }
}

fn json_line(bytes: &[u8], canonical: bool) -> std::result::Result<String, String> {
    let document = Document::from_reader(bytes).map_err(|error| error.to_string())?;
    let document = Bson::Document(document);
    let json = if canonical { document.into_canonical_extjson() } else { document.into_relaxed_extjson() };
    Ok(json.to_string())
}
