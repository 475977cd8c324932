//! EXPLAIN: the access path of each table, and the operations on the rows.

use ropewalk::tables::shown;
use sqlparser::ast;

use crate::dml::model::ModelWrite;
use crate::dml::write::{Found, Source};
use crate::error::{Result, SqlError, state};
use crate::plan::{Asked, Groups, Select, Subquery};
use crate::session::explain_formats::Format;
use crate::session::prepared::Plan;

/// The value of an option; `None` if it is not a boolean.
fn truth(option: &ast::UtilityOption) -> Option<bool> {
    let Some(given) = &option.arg else { return Some(true) };
    match given.to_string().trim_matches('\'').to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Some(true),
        "false" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// True when the statement is run: ANALYZE is among the options.
///
/// # Errors
/// 0A000 for options that would show what the plan does not have; 42601.
pub(crate) fn analyzes(analyze: bool, options: &[ast::UtilityOption]) -> Result<bool> {
    let (mut analyzes, mut is_timed) = (analyze, false);
    for option in options {
        let name = option.name.value.to_ascii_lowercase();
        let refused = |hint: &str| {
            Err(SqlError::unsupported(format!("EXPLAIN with {}", option.to_string().to_uppercase()), hint))
        };
        let value = truth(option);
        match (name.as_str(), value) {
            ("format", _) if Format::of(std::slice::from_ref(option)).is_some() => {}
            ("format", _) => {
                let given = option.arg.as_ref().map(ToString::to_string).unwrap_or_default();
                let message = format!("unrecognized value for EXPLAIN option \"format\": \"{given}\"");
                return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
            }
            ("analyze", Some(value)) => analyzes = value,
            ("timing", Some(true)) => is_timed = true,
            ("costs" | "verbose" | "buffers" | "wal" | "settings" | "summary", Some(false)) => {}
            ("costs" | "verbose" | "buffers" | "wal" | "settings" | "summary", Some(true)) => {
                return refused("leave it out: EXPLAIN shows access paths, and with ANALYZE times");
            }
            ("timing", Some(false)) => return refused("leave it out: ANALYZE reports times"),
            (
                "costs" | "verbose" | "buffers" | "wal" | "settings" | "summary" | "timing" | "analyze",
                None,
            ) => {
                return Err(SqlError::new(state::SYNTAX_ERROR, format!("{name} requires a Boolean value")));
            }
            _ => {
                let message = format!("unrecognized EXPLAIN option \"{name}\"");
                return Err(SqlError::new(state::SYNTAX_ERROR, message));
            }
        }
    }
    if is_timed && !analyzes {
        let message = "EXPLAIN option TIMING requires ANALYZE";
        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
    }
    Ok(analyzes)
}

/// The format that a statement asks for.
pub(crate) fn format(statement: Option<&ast::Statement>) -> Format {
    let options = match statement {
        Some(ast::Statement::Explain { options, .. }) => options.as_deref().unwrap_or_default(),
        _ => &[],
    };
    Format::of(options).unwrap_or(Format::Text)
}

/// The lines that EXPLAIN returns.
pub(crate) fn lines(plan: &Plan, subqueries: &[Subquery]) -> Vec<String> {
    let mut lines = Vec::new();
    match plan {
        Plan::Select(select) => of_select(select, 0, &mut lines),
        Plan::Insert(insert) => {
            lines.push(format!("Insert into {}", shown(insert.schema.name())));
            of_source(&insert.source, &mut lines);
        }
        Plan::Model(write) => match write.as_ref() {
            ModelWrite::Insert(insert) => {
                lines.push(insert.line());
                of_source(&insert.source, &mut lines);
            }
            ModelWrite::Change(change) => lines.push(change.line()),
        },
        Plan::Update(update) => of_found("Update", &update.found, &mut lines),
        Plan::Delete(delete) => of_found("Delete", &delete.found, &mut lines),
        Plan::Keyed(keyed) => lines.push(keyed.line()),
        Plan::Merge(merge) => lines.push(merge.line()),
        Plan::Chain(chain) => lines.extend(chain.lines()),
        Plan::Small(_) => lines.push("Small: in memory, by nested loops".into()),
        Plan::Whole(_)
        | Plan::Explain(_)
        | Plan::Analyze(..)
        | Plan::Append(_)
        | Plan::Notify(_)
        | Plan::Copy(_)
        | Plan::Declare(_)
        | Plan::Other => lines.push("Nothing to explain".into()),
    }
    for (number, subquery) in subqueries.iter().enumerate() {
        let asked = match subquery.asked {
            Asked::Scalar => "value",
            Asked::List => "list",
            Asked::Exists => "exists",
        };
        lines.push(format!("Subquery {} ({asked}), once", number + 1));
        of_select(&subquery.select, 1, &mut lines);
    }
    lines
}

fn of_source(source: &Source, lines: &mut Vec<String>) {
    match source {
        Source::Values(rows) => lines.push(format!("  Values ({} rows)", rows.len())),
        Source::Select(select) => of_select(select, 1, lines),
        Source::Whole(..) => lines.push("  Query of the query engine".into()),
    }
}

fn of_found(what: &str, found: &Found, lines: &mut Vec<String>) {
    lines.push(format!("{what} {}", shown(found.schema.name())));
    let filter = if found.filter.is_empty() { "" } else { ", filter" };
    lines.push(format!("  {}{filter}", found.path.describe(&found.schema)));
}

fn of_select(select: &Select, depth: usize, lines: &mut Vec<String>) {
    let mut depth = depth;
    let mut push = |text: String| {
        lines.push("  ".repeat(depth) + &text);
        depth += 1;
    };
    if select.limit.is_some() || select.offset.is_some() {
        push("Limit".into());
    }
    let by_path =
        matches!(select.levels.as_slice(), [level] if level.path.is_ordered && select.groups.is_none());
    if !select.order.is_empty() && !by_path {
        push(format!("Sort ({} keys)", select.order.len()));
    }
    if select.is_distinct {
        push("Distinct".into());
    }
    if let Some(Groups { keys, aggregates, .. }) = &select.groups {
        push(format!("Aggregate ({} keys, {} aggregates)", keys.len(), aggregates.len()));
    }
    if let Some(values) = &select.values {
        push(format!("Values ({} rows)", values.len()));
    }
    if select.levels.is_empty() && select.values.is_none() {
        push("Result".into());
    }
    for (place, level) in select.levels.iter().enumerate() {
        let join = match (place, level.is_outer) {
            (0, _) => "",
            (_, true) => "Left join: ",
            (_, false) => "Join: ",
        };
        let filter = if level.filter.is_empty() && level.after.is_empty() { "" } else { ", filter" };
        let order = if by_path && !select.order.is_empty() { ", in order" } else { "" };
        push(format!(
            "{join}{} {}{filter}{order}",
            shown(level.schema.name()),
            level.path.describe(&level.schema)
        ));
    }
}
