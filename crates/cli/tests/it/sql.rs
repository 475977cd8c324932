//! `ropewalk sql`: statements and results in all output formats.

use crate::Place;

fn users() -> Place {
    let place = Place::with_database();
    let sql = "CREATE TABLE users (id int PRIMARY KEY, name varchar(20), score numeric(4,1), tags json);
               INSERT INTO users VALUES (1, 'Ann', 1.5, '[\"a\"]'), (2, NULL, 2, NULL)";
    assert_eq!(place.ok(&["sql", "-c", sql]), "");
    place
}

#[test]
fn results_in_every_form() {
    let place = users();
    let ann = "{\"id\":1,\"name\":\"Ann\",\"score\":1.5,\"tags\":[\"a\"]}";
    let nobody = "{\"id\":2,\"name\":null,\"score\":2.0,\"tags\":null}";
    let shown = |form: &str| {
        place.ok(&["sql", "-c", &format!(".mode {form}"), "-c", "SELECT * FROM users ORDER BY id"])
    };
    for (form, expected) in [
        ("table", " id   name   score   tags  \n───────────────────────────\n  1   Ann      1.5   [\"a\"]\n  2            2.0\n(2 rows)\n".to_owned()),
        ("vertical", "   id = 1\n name = Ann\nscore = 1.5\n tags = [\"a\"]\n\n   id = 2\n name = \nscore = 2.0\n tags = \n".to_owned()),
        ("csv", "id,name,score,tags\n1,Ann,1.5,\"[\"\"a\"\"]\"\n2,,2.0,\n".to_owned()),
        ("tsv", "id\tname\tscore\ttags\n1\tAnn\t1.5\t[\"a\"]\n2\t\t2.0\t\n".to_owned()),
        ("json", format!("[\n  {ann},\n  {nobody}\n]\n")),
        ("ndjson", format!("{ann}\n{nobody}\n")),
        ("markdown", "| id | name | score | tags |\n| ---: | --- | ---: | --- |\n| 1 | Ann | 1.5 | [\"a\"] |\n| 2 |  | 2.0 |  |\n".to_owned()),
    ] {
        let found = shown(form);
        let bare = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        assert_eq!(bare(&found), bare(&expected), "{form}");
    }
    assert_eq!(place.ok(&["sql", "--mode", "csv", "-c", "SELECT 1 AS one"]), "one\n1\n");
}

#[test]
fn sql_runs_scripts_and_shell_commands() {
    let place = users();
    let script = b"-- a comment; with a semicolon\nINSERT INTO users (id, name) VALUES (3, 'it''s; fine');\n-- all\n\\dt\nSELECT count(*) FROM users;";
    let answer = place.run_with(&["sql", "--mode", "csv"], script);
    assert_eq!((answer.code, answer.out.as_str()), (0, "name,kind\nusers,table\ncount\n3\n"), "{answer:?}");
    std::fs::write(place.path().join("more.sql"), "SELECT 1 AS one;\n\nSELECT nothing;\nSELECT 2").unwrap();
    let answer = place.run(&["sql", "--mode", "csv", "-f", "more.sql"]);
    assert_eq!((answer.code, answer.out.as_str()), (2, "one\n1\n"));
    assert!(answer.err.contains("more.sql:3: 42703"), "{answer:?}");
    let described = place.ok(&["sql", "--mode", "csv", "-c", "\\d users"]);
    assert!(described.contains("name,character varying(20),,"), "{described}");
    assert!(described.contains("btree (id)"), "{described}");
    for (command, known) in
        [(".mode cards", "vertical"), ("\\nonsense", ".help"), ("\\d nobody", "\\d lists")]
    {
        let answer = place.run(&["sql", "-c", command]);
        assert!(answer.code != 0 && answer.err.contains(known), "{answer:?}");
    }
}

#[test]
fn copy_data_is_read_from_stdin_or_after_the_statement() {
    let place = users();
    let copy = "COPY users (id, name) FROM STDIN (FORMAT csv)";
    let copied = place.run_with(&["sql", "-c", copy], b"4,Dora\n5,\"E, f\"\n");
    assert_eq!((copied.code, copied.err.as_str()), (0, ""));
    let script = b"COPY users (id, name) FROM stdin;\n6\tg;h\n7\t\\N\n\\.\n\nSELECT count(*) FROM users;\n";
    let copied = place.run_with(&["sql", "--mode", "csv"], script);
    assert_eq!((copied.code, copied.out.as_str()), (0, "count\n6\n"), "{copied:?}");
    let out = "COPY (SELECT id, name FROM users WHERE id > 3 ORDER BY id) TO STDOUT";
    assert_eq!(place.ok(&["sql", "-c", out]), "4\tDora\n5\tE, f\n6\tg;h\n7\t\\N\n");
}

#[test]
fn failed_statement_reports_sqlstate_and_changes_nothing() {
    let place = users();
    place.refused(&["sql", "-c", "SELECT * FROM nothing"], 3, &["42P01", "nothing"]);
    place.refused(&["sql", "-c", "SELECT 1 +"], 2, &["42601"]);
    place.refused(&["sql", "-c", "INSERT INTO users (id) VALUES (1)"], 2, &["23505"]);
    // The statements of one -c are one transaction.
    place.refused(&["sql", "-c", "DELETE FROM users; SELECT 1 / 0"], 2, &["22012"]);
    assert_eq!(place.ok(&["sql", "--mode", "csv", "-c", "SELECT count(*) FROM users"]), "count\n2\n");
}
