//! Runs the examples of `docs/http.md`, one after the other, with the real `curl`.

use std::time::Duration;

use ropewalk_http::HttpSettings;
use ropewalk_wire::Limits;

use crate::client::Server;

const PAGE: &str = include_str!("../../../../../docs/http.md");

/// Commands and their output.
fn examples() -> Vec<(String, String)> {
    let mut examples: Vec<(String, String)> = Vec::new();
    for block in PAGE.split("```console\n").skip(1) {
        let block = block.split("\n```").next().unwrap();
        let mut quoted = false;
        for line in block.lines() {
            let (command, output) = match line.strip_prefix("$ ") {
                Some(command) if !quoted => {
                    examples.push((String::new(), String::new()));
                    (Some(command), None)
                }
                _ if quoted => (Some(line), None),
                _ => (None, Some(line)),
            };
            let (commands, outputs) = examples.last_mut().unwrap();
            if let Some(command) = command {
                commands.push_str(command);
                commands.push('\n');
                quoted ^= command.matches('\'').count() % 2 == 1;
            }
            if let Some(output) = output {
                outputs.push_str(output);
                outputs.push('\n');
            }
        }
    }
    examples
}

/// Removes times, which differ between runs.
fn without_times(text: &str) -> String {
    let mut rest = text;
    let mut out = String::new();
    for (name, end) in [("\"recorded_at\":\"", '"'), ("\"durationInMicroseconds\":", ',')] {
        while let Some(at) = rest.find(name) {
            let (before, after) = rest.split_at(at + name.len());
            out.push_str(before);
            rest = &after[after.find(end).unwrap()..];
        }
    }
    out + rest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn examples_print_the_documented_output() {
    // A pipe into `head` ends with the next write.
    let settings = HttpSettings { heartbeat: Duration::from_millis(50), ..HttpSettings::default() };
    let server = Server::with(Limits::default(), settings).await;
    let examples = examples();
    assert!(examples.len() > 15);
    for (command, expected) in examples {
        let script = command.replace("http://127.0.0.1:4780", &format!("http://{}", server.address));
        let run = || std::process::Command::new("sh").arg("-c").arg(&script).output();
        let output = tokio::task::block_in_place(run).unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let printed = if printed.ends_with('\n') { printed } else { printed + "\n" };
        assert_eq!(without_times(&printed), without_times(&expected), "{command}");
    }
}
