//! The line editor of a terminal: keys as in Emacs and shells, completion by Tab, history in a file, colours.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use reedline::{
    Color, ColumnarMenu, Completer, CompletionResult, DefaultHinter, Emacs, FileBackedHistory, Highlighter,
    KeyCode, KeyModifiers, MenuBuilder as _, Prompt, PromptEditMode, PromptHistorySearch, Reedline,
    ReedlineEvent, ReedlineMenu, Signal, Span, StyledText, Suggestion, ValidationResult, Validator,
    default_emacs_keybindings,
};
use ropewalk_sql::{Session, Status};

use super::highlight::{self, Kind};
use super::shell::{self, Source};
use super::{complete, split};
use crate::output::failure::{Exit, Failure, Result};

/// Most statements in the history.
const HISTORY_ENTRIES: usize = 10_000;
const MENU: &str = "completion";

/// Line editor for an interactive session.
pub(crate) struct Editor(Reedline);

impl Editor {
    /// Creates an editor that completes the names that `session` sees.
    ///
    /// It needs a separate session: its reads must not become part of the transaction that is typed.
    pub(crate) fn new(session: Session) -> Self {
        let mut keys = default_emacs_keybindings();
        let menu = ReedlineEvent::Menu(MENU.into());
        let next = ReedlineEvent::UntilFound(vec![menu, ReedlineEvent::MenuNext]);
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, next);
        keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
        let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let mut editor = Reedline::create()
            .with_edit_mode(Box::new(Emacs::new(keys)))
            .with_validator(Box::new(Whole))
            .with_completer(Box::new(Names(session)))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(
                ColumnarMenu::default().with_name(MENU).with_marker(""),
            )))
            .with_quick_completions(true)
            .with_partial_completions(true)
            .with_highlighter(Box::new(Colours))
            .with_hinter(Box::new(DefaultHinter::default().with_style(Color::DarkGray.normal())))
            .with_ansi_colors(has_colours)
            .use_bracketed_paste(true);
        // The history is optional.
        if let Some(history) = history_place().and_then(|path| history(&path)) {
            editor = editor.with_history(Box::new(history));
        }
        Self(editor)
    }
}

impl Source for Editor {
    fn next(&mut self, status: Status) -> Result<Option<String>> {
        loop {
            match self.0.read_line(&Signs(status)).map_err(broken)? {
                Signal::Success(text) => {
                    // If the file cannot be written, the history remains in memory.
                    let _ = self.0.sync_history();
                    return Ok(Some(text));
                }
                Signal::CtrlD => return Ok(None),
                _ => {}
            }
        }
    }
}

fn broken(error: std::io::Error) -> Failure {
    Failure::new(Exit::Io, format!("the terminal: {error}"), "")
}

/// The history file: `ROPEWALK_HISTORY`, else in the state directory of the user (XDG Base Directory
/// Specification).
fn history_place() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("ROPEWALK_HISTORY").or_else(|| {
        let state = named("XDG_STATE_HOME").or_else(|| Some(named("HOME")?.join(".local/state")))?;
        Some(state.join("ropewalk").join("sql_history"))
    })
}

/// Opens the history in a file that only its owner may read.
fn history(path: &Path) -> Option<FileBackedHistory> {
    std::fs::create_dir_all(path.parent()?).ok()?;
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).ok()?;
    FileBackedHistory::with_file(HISTORY_ENTRIES, path.to_owned()).ok()
}

/// The prompt: `*` in a transaction, `!` in a failed one.
struct Signs(Status);

impl Prompt for Signs {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        shell::prompt(self.0).into()
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        shell::CONTINUED.into()
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        format!("(history: {}) ", search.term).into()
    }

    fn get_prompt_color(&self) -> Color {
        if self.0 == Status::Failed { Color::Red } else { Color::Green }
    }

    fn get_prompt_multiline_color(&self) -> Color {
        Color::DarkGray
    }
}

struct Whole;

impl Validator for Whole {
    fn validate(&self, text: &str) -> ValidationResult {
        if shell::is_done(text) { ValidationResult::Complete } else { ValidationResult::Incomplete }
    }
}

struct Names(Session);

impl Completer for Names {
    fn complete(&mut self, line: &str, place: usize) -> CompletionResult {
        let before = line.get(..place).unwrap_or_default();
        // Complete statements contribute no names.
        let begun = before.len() - split::last(before).len();
        let (line, before) = (line.get(begun..).unwrap_or_default(), before.get(begun..).unwrap_or_default());
        let (start, words) = complete::complete(&mut self.0, line, before);
        let span = Span { start: begun + start, end: place };
        let suggestions = words.into_iter().map(|value| Suggestion { value, span, ..Suggestion::default() });
        CompletionResult::fresh(suggestions.collect::<Vec<_>>())
    }
}

struct Colours;

impl Highlighter for Colours {
    fn highlight(&self, line: &str, _: usize) -> StyledText {
        let mut styled = StyledText::new();
        for (kind, piece) in highlight::pieces(line) {
            let style = match kind {
                Kind::Plain => Color::Default.normal(),
                Kind::Word => Color::Blue.bold(),
                Kind::Text => Color::Green.normal(),
                Kind::Number => Color::Cyan.normal(),
                Kind::Comment => Color::DarkGray.normal(),
                Kind::Command => Color::Purple.normal(),
            };
            styled.push((style, piece.to_owned()));
        }
        styled
    }
}
