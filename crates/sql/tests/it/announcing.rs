//! LISTEN and NOTIFY, as seen by the server that delivers the announcements.

use ropewalk::Database;
use ropewalk::tables::Value;
use ropewalk_sql::{Announcement, Session};

fn said(session: &mut Session, statements: &[&str]) -> Vec<String> {
    for sql in statements {
        session.execute(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let line = |announcement| match announcement {
        Announcement::Listen(channel) => format!("listen {channel}"),
        Announcement::Unlisten(channel) => format!("unlisten {}", channel.as_deref().unwrap_or("*")),
        Announcement::Notify { channel, payload } => format!("{channel}: {payload}"),
    };
    session.announced().into_iter().map(line).collect()
}

#[test]
fn notifications_of_a_transaction_are_sent_at_its_commit() {
    let mut session = Session::new(Database::in_memory().unwrap());
    assert_eq!(session.execute("NOTIFY a", &[]).unwrap_err().state.0, "0A000");
    session.announces();
    assert_eq!(
        said(&mut session, &["LISTEN Orders", "NOTIFY \"Orders\", 'x'"]),
        ["listen orders", "Orders: x"]
    );
    assert_eq!(said(&mut session, &["BEGIN", "NOTIFY a, '1'", "NOTIFY a, '1'"]), [""; 0]);
    assert_eq!(said(&mut session, &["SAVEPOINT s", "NOTIFY b", "ROLLBACK TO s", "NOTIFY c"]), [""; 0]);
    assert_eq!(said(&mut session, &["COMMIT"]), ["a: 1", "c: "]);
    assert_eq!(said(&mut session, &["BEGIN", "UNLISTEN *", "ROLLBACK", "UNLISTEN a"]), ["unlisten a"]);
    let listening = session.execute("SELECT pg_listening_channels() AS c ORDER BY c", &[]).unwrap().rows;
    assert!(listening.is_empty());
    session.is_heard(&["b", "a"].map(|channel| Announcement::Listen(channel.into())));
    session.is_heard(&[Announcement::Unlisten(Some("c".into()))]);
    let listening = session.execute("SELECT * FROM pg_listening_channels() AS c ORDER BY c", &[]).unwrap();
    assert_eq!(listening.rows, [[Value::text("a")], [Value::text("b")]]);
    session.is_heard(&[Announcement::Unlisten(None)]);
    assert!(session.execute("SELECT pg_listening_channels()", &[]).unwrap().rows.is_empty());
    let call = "SELECT pg_notify($1, 'n ' || $2)";
    session.execute(call, &[Value::text("mixed Case"), Value::text("7")]).unwrap();
    assert_eq!(said(&mut session, &[]), ["mixed Case: n 7"]);
    let long = format!("NOTIFY a, '{}'", "x".repeat(8000));
    assert_eq!(session.execute(&long, &[]).unwrap_err().state.0, "22023");
}
