//! Imports the history of a git repository as events.
//!
//! ```text
//! git rev-list ─▶ commits, parents first ─▶ without those that the store has ─▶ git diff-tree --stdin ─▶ one append each
//! ```
//! Each git commit is one atomic append. Its condition is "no CommitAuthored with the tag of this commit", so
//! a commit is imported once, regardless of the number of imports, clones and concurrent importers. An
//! interrupted import resumes with the missing commits.
//!
//! | event | tags | data |
//! |---|---|---|
//! | `CommitAuthored` | `author:EMAIL` `commit:SHA` | sha, parents, author, email, date, subject |
//! | `FileAdded`, `FileChanged`, `FileRemoved` | `path:PATH` `author:EMAIL` `commit:SHA` | path, mode, blob (path_base64 when the path is not UTF-8) |
//!
//! A rename is a removed and an added file. A merge commit has no file events: the merged commits have them.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk::events::{QueryItem, Tracking};
use ropewalk::{AppendCondition, AppendOptions, Event, Query};
use serde_json::json;

use super::{Imported, Progress};
use crate::database::place::{Pending, Store};
use crate::output::failure::{Exit, Failure, Result};

/// Most concurrent appends: enough to fill each group commit, at little memory.
const PENDING_MAX: usize = 512;
/// Longest path in the name of a tracking source; names have at most 255 bytes.
const SOURCE_PATH_BYTES: usize = 200;

/// A repository and the commits to import.
#[derive(Debug, Clone)]
pub(crate) struct Repository {
    git_dir: String,
    /// The commit of the reference at the start.
    tip: String,
    /// Tracking source in the store.
    pub(super) source: String,
}

impl Repository {
    /// Finds the repository that contains `path`.
    pub(crate) fn find(path: &Path, reference: &str) -> Result<Self> {
        if !path.exists() {
            return Err(Failure::new(Exit::NotFound, format!("there is no {}", path.display()), ""));
        }
        let mut command = Command::new("git");
        command.arg("-C").arg(path).args(["rev-parse", "--absolute-git-dir"]);
        let git_dir = line(command)?;
        let mut command = Command::new("git");
        let commit = format!("{reference}^{{commit}}");
        command.arg("--git-dir").arg(&git_dir).args(["rev-parse", "--verify", "--end-of-options", &commit]);
        let tip = line(command)?;
        let tail_at = git_dir.len().saturating_sub(SOURCE_PATH_BYTES);
        let tail = git_dir
            .char_indices()
            .map(|(at, _)| at)
            .find(|at| *at >= tail_at)
            .and_then(|at| git_dir.get(at..));
        let source = format!("git:{}", tail.unwrap_or_default()).replace(char::is_control, "?");
        Ok(Self { git_dir, tip, source })
    }

    fn git(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.arg("--git-dir").arg(&self.git_dir).args(arguments).env("LC_ALL", "C");
        command
    }

    /// The commits reachable from the tip, parents first.
    fn commits(&self) -> Result<Vec<String>> {
        let mut git = Git::start(self.git(&["rev-list", "--topo-order", "--reverse", &self.tip, "--"]))?;
        let mut commits = Vec::new();
        while let Some(sha) = git.text(b'\n')? {
            commits.push(sha);
        }
        git.finish()?;
        Ok(commits)
    }
}

/// Returns the single output line of a git command.
fn line(command: Command) -> Result<String> {
    let mut git = Git::start(command)?;
    let line = git.text(b'\n')?.unwrap_or_default();
    git.finish()?;
    Ok(line)
}

/// A git process whose output is streamed.
struct Git {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    errors: JoinHandle<String>,
}

impl Git {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            let todo = "Importing git history needs the program `git` on PATH";
            Failure::new(Exit::NotFound, format!("run git: {error}"), todo)
        })?;
        let out = BufReader::with_capacity(256 << 10, child.stdout.take().expect("standard output is piped"));
        let mut stderr = child.stderr.take().expect("standard error is piped");
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            // Unreadable output is not printed; the exit code reports the failure.
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).trim().to_owned()
        });
        Ok(Self { child, out, errors })
    }

    /// Feeds `lines` to the process while its output is read.
    fn feed(&mut self, lines: Vec<String>) {
        let mut stdin = self.child.stdin.take().expect("standard input is piped and taken once");
        std::thread::spawn(move || {
            for line in lines {
                if writeln!(stdin, "{line}").is_err() {
                    return; // the process has ended; its exit code says why
                }
            }
        });
    }

    /// Bytes up to `end`, without it; `None` at the end of the output.
    fn bytes(&mut self, end: u8) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let read = self.out.read_until(end, &mut bytes);
        read.map_err(|error| Failure::new(Exit::Io, format!("reading from git: {error}"), ""))?;
        if bytes.is_empty() {
            return Ok(None);
        }
        if bytes.pop_if(|last| *last == end).is_none() {
            return Err(unexpected(&bytes));
        }
        Ok(Some(bytes))
    }

    fn text(&mut self, end: u8) -> Result<Option<String>> {
        Ok(self.bytes(end)?.map(|bytes| lossy(&bytes)))
    }

    fn field(&mut self) -> Result<Vec<u8>> {
        self.bytes(0)?.ok_or_else(|| unexpected(b"the end"))
    }

    fn finish(mut self) -> Result {
        let status =
            self.child.wait().map_err(|error| Failure::new(Exit::Io, format!("git: {error}"), ""))?;
        let said = self.errors.join().unwrap_or_default();
        if status.success() {
            return Ok(());
        }
        let what = if said.is_empty() { format!("git ended with {status}") } else { format!("git: {said}") };
        Err(Failure::new(
            Exit::NotFound,
            what,
            "The path must lie in a git repository that has the named commit",
        ))
    }
}

fn unexpected(found: &[u8]) -> Failure {
    let found: Vec<u8> = found.iter().copied().take(80).collect();
    Failure::new(Exit::Internal, format!("unexpected output of git: {:?}", lossy(&found)), "")
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Imports the commits that the store does not have yet.
pub(super) fn import(store: &Store, repository: &Repository, progress: &Progress) -> Result<Imported> {
    let mut imported = Imported::default();
    let mut missing = repository.commits()?;
    let all = missing.len() as u64;
    if store.is_used()? {
        let mut kept = Vec::new();
        for sha in missing {
            if !store.exists(&authored(&sha))? {
                kept.push(sha);
            }
        }
        missing = kept;
    }
    let total = missing.len() as u64;
    imported.before = all - total;
    let mut tracked = store.tracking(&repository.source)?.unwrap_or(0);
    let mut git = Git::start(repository.git(&[
        "diff-tree",
        "--stdin",
        "--root",
        "-r",
        "--raw",
        "-z",
        "--no-abbrev",
        "--no-renames",
        "--always",
        "--no-color",
        "--no-ext-diff",
        "--encoding=UTF-8",
        "--format=tformat:%x01%H%x00%P%x00%an%x00%ae%x00%aI%x00%s",
    ]))?;
    git.feed(missing);
    let mut commits = Commits { git, ahead: None };
    let mut pending: VecDeque<(u64, Pending)> = VecDeque::new();
    let settle = |imported: &mut Imported, (events, append): (u64, Pending)| -> Result {
        append.wait()?;
        imported.items += 1;
        imported.events += events;
        progress.at(imported.items, total, "commits");
        Ok(())
    };
    while let Some(commit) = commits.next()? {
        tracked += 1;
        let events = commit.events();
        let options = AppendOptions {
            conditions: vec![AppendCondition::none_match(authored(&commit.sha))],
            tracking: Some(Tracking { source: repository.source.clone(), position: tracked }),
            ..AppendOptions::default()
        };
        let append = store
            .submit(&events, options)
            .map_err(|failure| failure.at(&format!("git commit {}", commit.sha)))?;
        pending.push_back((events.len() as u64, append));
        if pending.len() == PENDING_MAX {
            settle(&mut imported, pending.pop_front().expect("the queue is full"))?;
        }
    }
    for append in pending {
        settle(&mut imported, append)?;
    }
    commits.git.finish()?;
    imported.took = progress.elapsed();
    Ok(imported)
}

/// Query for the event of a git commit.
fn authored(sha: &str) -> Query {
    Query::from_items([QueryItem::new(["CommitAuthored"], [format!("commit:{sha}")])])
}

/// Reads commits from the output of `git diff-tree`.
///
/// ```text
/// \x01 sha \0 parents \0 author \0 email \0 date \0 subject \0   and for each file:   [\n] : modes blobs status \0 path \0
/// ```
struct Commits {
    git: Git,
    /// The first field of the next commit.
    ahead: Option<Vec<u8>>,
}

impl Commits {
    fn next(&mut self) -> Result<Option<Commit>> {
        let first = match self.ahead.take() {
            Some(field) => field,
            None => match self.git.bytes(0)? {
                Some(field) => field,
                None => return Ok(None),
            },
        };
        let Some(([1], sha)) = first.split_at_checked(1) else { return Err(unexpected(&first)) };
        let mut field = || Ok::<_, Failure>(lossy(&self.git.field()?));
        let mut commit = Commit {
            sha: lossy(sha),
            parents: field()?.split(' ').filter(|p| !p.is_empty()).map(str::to_owned).collect(),
            author: field()?,
            email: field()?,
            date: field()?,
            subject: field()?,
            files: Vec::new(),
        };
        while let Some(field) = self.git.bytes(0)? {
            if field.first() == Some(&1) {
                self.ahead = Some(field);
                break;
            }
            let path = self.git.field()?;
            commit.files.push(FileChange::parse(&field, path)?);
        }
        Ok(Some(commit))
    }
}

struct Commit {
    sha: String,
    parents: Vec<String>,
    author: String,
    email: String,
    date: String,
    subject: String,
    files: Vec<FileChange>,
}

struct FileChange {
    kind: &'static str,
    mode: String,
    blob: String,
    path: Vec<u8>,
}

impl FileChange {
    fn parse(field: &[u8], path: Vec<u8>) -> Result<Self> {
        let text = lossy(field);
        let mut words = text.trim_start_matches('\n').strip_prefix(':').unwrap_or_default().split(' ');
        let mut word = || words.next().ok_or_else(|| unexpected(field));
        let (mode_before, mode, blob_before, blob, status) = (word()?, word()?, word()?, word()?, word()?);
        let (kind, mode, blob) = match status.bytes().next() {
            Some(b'A') => ("FileAdded", mode, blob),
            Some(b'M' | b'T') => ("FileChanged", mode, blob),
            Some(b'D') => ("FileRemoved", mode_before, blob_before),
            _ => return Err(unexpected(field)),
        };
        Ok(Self { kind, mode: mode.to_owned(), blob: blob.to_owned(), path })
    }
}

impl Commit {
    fn events(&self) -> Vec<Event> {
        let author = format!("author:{}", self.email);
        let commit = format!("commit:{}", self.sha);
        let data = json!({
            "sha": self.sha, "parents": self.parents, "author": self.author, "email": self.email,
            "date": self.date, "subject": self.subject,
        });
        let authored = Event::new("CommitAuthored").tag(&author).tag(&commit).data(data.to_string());
        let files = self.files.iter().map(|file| {
            let path = lossy(&file.path);
            let mut data = json!({ "path": path, "mode": file.mode, "blob": file.blob });
            if path.as_bytes() != file.path
                && let Some(fields) = data.as_object_mut()
            {
                fields.insert("path_base64".to_owned(), STANDARD.encode(&file.path).into());
            }
            Event::new(file.kind).tag(format!("path:{path}")).tag(&author).tag(&commit).data(data.to_string())
        });
        std::iter::once(authored).chain(files).collect()
    }
}
