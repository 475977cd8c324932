//! Completion of a word: shell commands, relations, columns, functions, SQL keywords.

use ropewalk::tables::Value;
use ropewalk_sql::Session;

use super::commands::{COMMANDS, FORMS};

/// SQL keywords to complete and to highlight.
pub(crate) const WORDS: &str = "ADD ALL ALTER ANALYZE AND ANY ARRAY AS ASC BEGIN BETWEEN BY CASCADE CASE CAST CHECK COLUMN COMMENT \
COMMIT CONFLICT CONSTRAINT COPY CREATE CROSS DEFAULT DELETE DESC DISTINCT DO DROP ELSE END EXCEPT EXISTS EXPLAIN FALSE FILTER FIRST \
FOREIGN FROM FULL GENERATED GROUP HAVING IDENTITY IF ILIKE IN INDEX INNER INSERT INTERSECT INTERVAL INTO IS JOIN KEY LAST LATERAL LEFT \
LIKE LIMIT MATCHED MERGE NATURAL NOT NOTHING NULL NULLS OFFSET ON OR ORDER OUTER OVER PARTITION PREPARE PRIMARY RECURSIVE REFERENCES \
RELEASE RENAME RETURNING RIGHT ROLLBACK ROWS SAVEPOINT SELECT SEQUENCE SET SHOW TABLE THEN TO TRANSACTION TRUE TRUNCATE UNION \
UNIQUE UPDATE USING VALUES VIEW WHEN WHERE WINDOW WITH";

const COLUMNS: &str = "SELECT quote_ident(table_name), quote_ident(column_name) FROM information_schema.columns \
WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY table_name, ordinal_position";

const FUNCTIONS: &str = "SELECT DISTINCT proname, '' FROM pg_proc";

/// The start of the last word of `before`, and its completions. `line` is the whole line.
pub(crate) fn complete(session: &mut Session, line: &str, before: &str) -> (usize, Vec<String>) {
    let word = last_word(before);
    let start = before.len() - word.len();
    let command = before.trim_start();
    let (start, word, mut found) = if !command.starts_with(['.', '\\']) {
        (start, word, of_statement(session, line, before, word))
    } else if !command.contains(char::is_whitespace) {
        (before.len() - command.len(), command, owned(COMMANDS))
    } else if command.starts_with(".mode") {
        (start, word, owned(FORMS))
    } else {
        (start, word, pairs(session, COLUMNS).into_iter().map(|(relation, _)| relation).collect())
    };
    found.retain(|name| begins_with(name, word));
    found.sort();
    found.dedup();
    (start, found)
}

fn of_statement(session: &mut Session, line: &str, before: &str, word: &str) -> Vec<String> {
    let columns = pairs(session, COLUMNS);
    let before = before.get(..before.len() - word.len()).unwrap_or_default();
    if let Some(before) = before.strip_suffix('.') {
        let relation = meant(line, last_word(before), &columns);
        let of = columns.iter().filter(|(table, _)| relation.is_none_or(|relation| relation == table));
        return of.map(|(_, column)| column.clone()).collect();
    }
    let is_small = word.chars().any(char::is_lowercase);
    let cased = |known: &str| if is_small { known.to_lowercase() } else { known.to_owned() };
    let functions = pairs(session, FUNCTIONS).into_iter().map(|(name, _)| format!("{name}("));
    let names = columns.into_iter().flat_map(|(table, column)| [table, column]);
    names.chain(functions).chain(WORDS.split_whitespace().map(cased)).collect()
}

fn owned(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

fn begins_with(name: &str, word: &str) -> bool {
    name.get(..word.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(word))
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn last_word(text: &str) -> &str {
    text.get(text.trim_end_matches(is_of_word).len()..).unwrap_or_default()
}

/// The relation that a name or alias in a statement refers to: `name`, or the relation before it in `relation
/// [AS] name`.
fn meant<'c>(line: &str, name: &str, columns: &'c [(String, String)]) -> Option<&'c str> {
    let relation = |name: &str| columns.iter().map(|(table, _)| table.as_str()).find(|table| *table == name);
    let words: Vec<&str> = line.split(|c: char| !is_of_word(c)).filter(|word| !word.is_empty()).collect();
    relation(name).or_else(|| {
        words.windows(3).find_map(|three| match three {
            [table, middle, last] if *last == name && middle.eq_ignore_ascii_case("as") => relation(table),
            [_, table, last] if *last == name => relation(table),
            [table, alias, _] if *alias == name => relation(table),
            _ => None,
        })
    })
}

/// Two strings for each row of a query; empty if it fails, as during a schema change.
fn pairs(session: &mut Session, sql: &str) -> Vec<(String, String)> {
    let rows = session.execute(sql, &[]).map(|outcome| outcome.rows).unwrap_or_default();
    let pair = |row: Vec<Value<'static>>| match row.as_slice() {
        [Value::Text(first), Value::Text(second)] => Some((first.to_string(), second.to_string())),
        _ => None,
    };
    rows.into_iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<String> {
        let mut session = Session::new(ropewalk::Database::in_memory().unwrap());
        session.execute("CREATE TABLE users (id int PRIMARY KEY, \"Full name\" text)", &[]).unwrap();
        session.execute("CREATE TABLE usage (bytes bigint)", &[]).unwrap();
        complete(&mut session, line, line).1
    }

    #[test]
    fn names_words_and_commands() {
        assert_eq!(found("SELECT * FROM us"), ["usage", "users", "using"]);
        assert_eq!(found("SELECT USE"), ["users"]);
        assert_eq!(found("SELECT UNI"), ["UNION", "UNIQUE"]);
        assert_eq!(found("SELECT users."), ["\"Full name\"", "id"]);
        assert_eq!(found("SELECT 1 FROM users AS u WHERE u.i"), ["id"]);
        assert_eq!(found("SELECT 1 FROM usage g WHERE g."), ["bytes"]);
        assert_eq!(found("\\dt"), ["\\dt"]);
        assert_eq!(found("\\d us"), ["usage", "users"]);
        assert_eq!(found(".mode m"), ["markdown"]);
        assert!(found("SELECT zz").is_empty());
    }
}
