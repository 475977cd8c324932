//! Background jobs: scraping, rules and alerts, against targets and an Alertmanager of the test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use ropewalk_monitoring::Config;
use ropewalk_prometheus::PrometheusSettings;
use serde_json::Value;

use crate::kit::Server;

/// State of the targets and the Alertmanager.
#[derive(Default)]
struct World {
    scrapes: AtomicUsize,
    broken: AtomicBool,
    short: AtomicBool,
    told: Mutex<Vec<Value>>,
    authorization: Mutex<String>,
}

async fn metrics(State(world): State<Arc<World>>, headers: HeaderMap) -> (StatusCode, String) {
    let count = world.scrapes.fetch_add(1, Ordering::Relaxed);
    if let Some(value) = headers.get("authorization") {
        *world.authorization.lock().unwrap() = value.to_str().unwrap().to_owned();
    }
    if world.broken.load(Ordering::Relaxed) {
        return (StatusCode::INTERNAL_SERVER_ERROR, String::new());
    }
    let mut text = format!(
        "# TYPE requests_total counter\nrequests_total{{job=\"own\",code=\"200\"}} {count}\ninternal_debug 1\nload 7\n"
    );
    if !world.short.load(Ordering::Relaxed) {
        text.push_str("queue{name=\"a\"} 3\n");
    }
    (StatusCode::OK, text)
}

async fn alerts(State(world): State<Arc<World>>, axum::Json(alerts): axum::Json<Vec<Value>>) {
    world.told.lock().unwrap().extend(alerts);
}

/// A listener of the test; its address.
async fn listen(world: Arc<World>, discovered: String) -> String {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/targets", get(move || async move { discovered }))
        .route("/api/v2/alerts", post(alerts))
        .with_state(world);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

struct Running {
    server: Server,
    stopped: tokio::task::JoinHandle<()>,
    _dir: tempfile::TempDir,
}

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// A server that runs the jobs of `config`.
fn start(files: &[(&str, &str)], config: &str) -> Running {
    let (server, dir) = configured(files, config);
    run(server, dir)
}

fn configured(files: &[(&str, &str)], config: &str) -> (Server, tempfile::TempDir) {
    configured_with(PrometheusSettings::default(), files, config)
}

fn configured_with(
    settings: PrometheusSettings,
    files: &[(&str, &str)],
    config: &str,
) -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        write(dir.path(), name, text);
    }
    let config = Config::read(&write(dir.path(), "prometheus.yml", config)).unwrap();
    (Server::with_config(settings, config), dir)
}

fn run(server: Server, dir: tempfile::TempDir) -> Running {
    let stopped = tokio::spawn(server.prometheus.clone().run());
    Running { server, stopped, _dir: dir }
}

impl Running {
    async fn result(&self, query: &str) -> Vec<Value> {
        let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let answer = self.server.get(&format!("/api/v1/query?query={query}")).await.is(200).json();
        answer["data"]["result"].as_array().unwrap().clone()
    }

    /// Waits until a query finds something; the first value.
    async fn found(&self, query: &str) -> f64 {
        loop {
            if let Some(row) = self.result(query).await.first() {
                return row["value"][1].as_str().unwrap().parse().unwrap();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn gone(&self, query: &str) {
        while !self.result(query).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Overwrites a configuration file.
    fn write(&self, name: &str, text: &str) {
        write(self._dir.path(), name, text);
    }

    async fn reload(&self) -> crate::kit::Reply {
        self.server.send("POST", "/-/reload", &[], b"").await
    }

    async fn stop(self) {
        self.server.service.stop().begin();
        self.stopped.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_are_scraped_relabelled_and_marked_stale() {
    let world = Arc::new(World::default());
    let address = listen(world.clone(), String::new()).await;
    let config = format!(
        "scrape_configs:\n- job_name: app\n  scrape_interval: 50ms\n  basic_auth: {{username: u, password: p}}\n  \
         static_configs: [{{targets: ['{address}'], labels: {{env: test}}}}, {{targets: ['dropped:1']}}]\n  \
         relabel_configs:\n  - {{source_labels: [__address__], regex: 'dropped.*', action: drop}}\n  \
         - {{source_labels: [__address__], regex: '(.*):.*', target_label: host}}\n  \
         metric_relabel_configs:\n  - {{source_labels: [__name__], regex: 'internal_.*', action: drop}}\n"
    );
    let running = start(&[], &config);
    assert!(
        running
            .found("requests_total{job=\"app\",exported_job=\"own\",env=\"test\",host=\"127.0.0.1\"}")
            .await
            >= 0.0
    );
    assert_eq!(running.found("up{job=\"app\"}").await, 1.0);
    assert_eq!(running.found("scrape_samples_scraped").await, 4.0);
    assert_eq!(running.found("scrape_samples_post_metric_relabeling").await, 3.0);
    assert!(running.result("internal_debug").await.is_empty());
    assert_eq!(world.authorization.lock().unwrap().as_str(), "Basic dTpw");
    let targets = running.server.get("/api/v1/targets").await.json();
    assert_eq!(targets["data"]["activeTargets"][0]["health"], "up");
    assert_eq!(targets["data"]["droppedTargetCounts"]["app"], 1);
    // One series is gone, the others stay; then only the series about the target are left.
    running.found("queue").await;
    world.short.store(true, Ordering::Relaxed);
    running.gone("queue").await;
    running.found("load").await;
    world.broken.store(true, Ordering::Relaxed);
    running.gone("load").await;
    assert_eq!(running.found("up").await, 0.0);
    let targets = running.server.get("/api/v1/targets?state=active").await.json();
    assert_eq!(
        targets["data"]["activeTargets"][0]["lastError"],
        "server returned HTTP status 500 Internal Server Error"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_come_from_files_and_urls_and_go() {
    let world = Arc::new(World::default());
    let address = listen(
        world.clone(),
        "[{\"targets\": [\"127.0.0.1:1\"], \"labels\": {\"by\": \"http\"}}]".to_owned(),
    )
    .await;
    let config = format!(
        "scrape_configs:\n- job_name: files\n  scrape_interval: 50ms\n  file_sd_configs: [{{files: ['t-*.json'], refresh_interval: 100ms}}]\n\
         - job_name: urls\n  scrape_interval: 50ms\n  http_sd_configs: [{{url: 'http://{address}/targets', refresh_interval: 100ms}}]\n"
    );
    let file = format!("[{{\"targets\": [\"{address}\"], \"labels\": {{\"by\": \"file\"}}}}]");
    let running = start(&[("t-1.json", &file)], &config);
    assert_eq!(running.found("up{by=\"file\"}").await, 1.0);
    assert_eq!(running.found("up{by=\"http\",job=\"urls\"}").await, 0.0);
    // A target that is no longer listed ends with its series.
    write(running._dir.path(), "t-1.json", "[]");
    running.gone("up{by=\"file\"}").await;
    running.gone("load").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_record_and_alerts_reach_the_alertmanager() {
    let world = Arc::new(World::default());
    let address = listen(world.clone(), String::new()).await;
    let rules = "groups:\n- name: g\n  interval: 50ms\n  rules:\n  - record: env:load:sum\n    expr: sum by (env) (load)\n    labels: {by: rule}\n  \
                 - record: env:load:double\n    expr: 2 * env:load:sum\n  \
                 - alert: Loaded\n    expr: load > 5\n    for: 100ms\n    labels: {severity: page}\n    annotations: {text: '{{ $labels.env }} at {{ $value }}'}\n  \
                 - record: wrong\n    expr: label_replace(load, 'a', '', 'b', '(')\n";
    let config = format!(
        "global: {{external_labels: {{cluster: c}}}}\nrule_files: ['rules.yml']\n\
         scrape_configs:\n- job_name: app\n  scrape_interval: 50ms\n  static_configs: [{{targets: ['{address}'], labels: {{env: test}}}}]\n\
         alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{address}']}}]}}]}}\n"
    );
    let running = start(&[("rules.yml", rules)], &config);
    assert_eq!(running.found("env:load:sum{env=\"test\",by=\"rule\"}").await, 7.0);
    assert_eq!(running.found("env:load:double").await, 14.0);
    assert_eq!(
        running.found("ALERTS{alertname=\"Loaded\",alertstate=\"firing\",severity=\"page\"}").await,
        1.0
    );
    let shown = running.server.get("/api/v1/alerts").await.json();
    assert_eq!(shown["data"]["alerts"][0]["annotations"]["text"], "test at 7");
    assert_eq!(shown["data"]["alerts"][0]["value"], "7e+00");
    // A federating server gets the external labels, and an empty instance.
    let page = running.server.get("/federate?match%5B%5D=env:load:sum").await;
    page.says(200, "env:load:sum{by=\"rule\",env=\"test\",cluster=\"c\",instance=\"\"} 7 ");
    let shown = running.server.get("/api/v1/rules?type=alert").await.json();
    assert_eq!(shown["data"]["groups"][0]["rules"][0]["state"], "firing");
    let shown = running.server.get("/api/v1/rules?rule_name[]=wrong").await.json();
    assert_eq!(shown["data"]["groups"][0]["rules"][0]["health"], "err");
    assert!(shown["data"]["groups"][0]["rules"][0]["lastError"].is_string());
    let shown = running.server.get("/api/v1/rules?rule_name[]=env:load:sum").await.json();
    assert!(shown["data"]["groups"][0]["rules"][0].get("lastError").is_none());
    let first = loop {
        if let Some(first) = world.told.lock().unwrap().first().cloned() {
            break first;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((&first["labels"]["alertname"], &first["labels"]["cluster"]), (&"Loaded".into(), &"c".into()));
    world.broken.store(true, Ordering::Relaxed);
    running.gone("ALERTS").await;
    running.gone("env:load:sum").await;
    while world.told.lock().unwrap().len() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let last = world.told.lock().unwrap().last().cloned().unwrap();
    let ended: jiff::Timestamp = last["endsAt"].as_str().unwrap().parse().unwrap();
    assert!(ended <= jiff::Timestamp::now(), "{last}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_shown_by_label_and_by_page() {
    let group = |name: &str, label: &str| {
        format!(
            "- name: {name}\n  rules: [{{record: 'r:{name}', expr: '1', labels: {{x: {label}}}}}, {{record: 's:{name}', expr: '1'}}]\n"
        )
    };
    let rules = format!("groups:\n{}{}{}", group("a", "one"), group("b", "two"), group("c", "one"));
    let (server, _dir) = configured(&[("rules.yml", &rules)], "rule_files: ['rules.yml']\n");
    let shown = async |query: &str| {
        let data = server.get(&format!("/api/v1/rules?{query}")).await.is(200).json()["data"].clone();
        let groups = data["groups"].as_array().unwrap().iter().map(|group| {
            let rules = group["rules"].as_array().unwrap().iter().map(|rule| rule["name"].as_str().unwrap());
            format!("{}: {}", group["name"].as_str().unwrap(), rules.collect::<Vec<_>>().join(" "))
        });
        (groups.collect::<Vec<_>>(), data["groupNextToken"].as_str().map(str::to_owned))
    };
    let of = |value: &str| format!("match[]=%7Bx%3D%22{value}%22%7D");
    assert_eq!(shown(&of("one")).await, (vec!["a: r:a".to_owned(), "c: r:c".to_owned()], None));
    let both = format!("{}&{}", of("one"), of("two"));
    assert_eq!(shown(&both).await.0, ["a: r:a", "b: r:b", "c: r:c"]);
    assert!(shown(&of("three")).await.0.is_empty());
    server.get("/api/v1/rules?match[]=%7B").await.says(400, "parse error");
    let (first, token) = shown("group_limit=2").await;
    assert_eq!(first, ["a: r:a s:a", "b: r:b s:b"]);
    let token: String = form_urlencoded::byte_serialize(token.unwrap().as_bytes()).collect();
    let last = shown(&format!("group_limit=2&group_next_token={token}")).await;
    assert_eq!(last, (vec!["c: r:c s:c".to_owned()], None));
    assert_eq!(shown(&format!("{}&group_limit=2", of("one"))).await.1, None);
    server.get("/api/v1/rules?group_limit=1&group_next_token=x").await.says(400, "were rule groups changed?");
}

/// Rules, alerts and targets take from the memory of all queries, until they are sent.
#[tokio::test(flavor = "multi_thread")]
async fn rules_alerts_and_targets_share_memory_with_queries() {
    let text = "x".repeat(5_000);
    let alert = format!("- alert: Always\n    expr: vector(1)\n    annotations: {{text: '{text}'}}\n");
    let group = |number: usize| format!("- {{name: g{number}, rules: [{{record: 'r', expr: '1'}}]}}\n");
    let many: String = (0..40).map(group).collect();
    let rules = format!("groups:\n{many}- name: last\n  interval: 50ms\n  rules:\n  {alert}");
    let config = "rule_files: ['rules.yml']\nscrape_configs:\n- job_name: app\n  \
                  static_configs: [{targets: ['127.0.0.1:1']}]\n";
    let running = async |queries_bytes| {
        let settings = PrometheusSettings { queries_bytes, ..PrometheusSettings::default() };
        let (server, dir) = configured_with(settings, &[("rules.yml", &rules)], config);
        run(server, dir)
    };
    let too_much = "the queries of the server need too much memory together";
    let little = running(4_000).await;
    little.server.get("/api/v1/rules").await.says(429, too_much);
    let page = little.server.get("/api/v1/rules?group_limit=2").await.is(200).json();
    assert_eq!(page["data"]["groups"].as_array().unwrap().len(), 2);
    assert!(page["data"]["groupNextToken"].is_string());
    little.stop().await;

    let least = running(30).await;
    for path in ["targets", "status/tsdb"] {
        least.server.get(&format!("/api/v1/{path}")).await.says(429, too_much);
    }
    least.stop().await;

    let enough = running(10_000_000).await;
    enough.found("ALERTS{alertname=\"Always\"}").await;
    for path in ["rules", "alerts", "targets", "status/tsdb"] {
        // Sent responses count no longer.
        for _ in 0..50 {
            enough.server.get(&format!("/api/v1/{path}")).await.is(200);
        }
    }
    let alerts = enough.server.get("/api/v1/alerts").await.json();
    assert_eq!(alerts["data"]["alerts"][0]["annotations"]["text"], text);
    enough.stop().await;
}

/// Pages that redirect, or are otherwise unusual.
async fn odd_pages(other: String) -> String {
    let sent = |to: String| (StatusCode::FOUND, [("location", to)]);
    let page = |text: &'static str| get(move || async move { text });
    let router = Router::new()
        .route("/moved/here", get(move || async move { sent("there".to_owned()) }))
        .route("/moved/there", page("moved 1\n"))
        .route("/away", get(move || async move { sent(format!("http://{other}/metrics")) }))
        .route("/round", get(move || async move { sent("/round".to_owned()) }))
        .route("/twice", page("fine 1\ntwice{a=\"1\",a=\"2\"} 1\n"))
        .route("/named", page("named{__name__=\"other\"} 1\n"))
        .route("/limited", page("limited{i=\"1\"} 1\nlimited{i=\"2\"} 1\nlimited{i=\"3\"} 1\n"))
        .route(
            "/bounds",
            page("# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"1000000\"} 2\nh_bucket{le=\"+Inf\"} 2\nh_count 2\nh_sum 2\n\
                  # TYPE s summary\ns{quantile=\"0\",le=\"1\"} 1\n# TYPE g gauge\ng{le=\"1\",quantile=\"1\"} 1\n"),
        );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn scrape_follows_redirects_and_rejects_contradictory_pages() {
    let world = Arc::new(World::default());
    let address = odd_pages(listen(world.clone(), String::new()).await).await;
    let job = |name: &str, path: &str, more: &str| {
        format!(
            "- {{job_name: {name}, scrape_interval: 1s, metrics_path: /{path}, static_configs: [{{targets: ['{address}']}}]{more}}}\n"
        )
    };
    let config = [
        job("moved", "moved/here", ""),
        job("stays", "moved/here", ", follow_redirects: false"),
        job("away", "away", ", basic_auth: {username: u, password: p}"),
        job("round", "round", ""),
        job("twice", "twice", ""),
        job("named", "named", ""),
        job("limited", "limited", ", sample_limit: 2"),
        job(
            "relabelled",
            "limited",
            ", sample_limit: 2, metric_relabel_configs: [{source_labels: [i], regex: '3', action: drop}]",
        ),
        job("bounds", "bounds", ""),
    ];
    let running = start(&[], &format!("scrape_configs:\n{}", config.concat()));
    assert_eq!(running.found("moved{job=\"moved\"}").await, 1.0);
    assert_eq!(running.found("load{job=\"away\"}").await, 7.0);
    // The password is not sent to the host that the first one redirects to.
    assert_eq!(world.authorization.lock().unwrap().as_str(), "");
    for (job, up, scraped) in [
        ("stays", 0.0, 0.0),
        ("round", 0.0, 0.0),
        ("twice", 0.0, 2.0),
        ("named", 0.0, 1.0),
        ("limited", 0.0, 3.0),
        ("relabelled", 1.0, 3.0),
    ] {
        assert_eq!(running.found(&format!("up{{job=\"{job}\"}}")).await, up, "{job}");
        assert_eq!(
            running.found(&format!("scrape_samples_scraped{{job=\"{job}\"}}")).await,
            scraped,
            "{job}"
        );
    }
    assert!(running.result("{job=~\"twice|named|limited\",__name__!~\"up|scrape_.*\"}").await.is_empty());
    for found in [
        "h_bucket{le=\"1.0\"}",
        "h_bucket{le=\"1e+06\"}",
        "s{quantile=\"0.0\",le=\"1\"}",
        "g{le=\"1\",quantile=\"1\"}",
    ] {
        running.found(found).await;
    }
    let targets = running.server.get("/api/v1/targets").await.json();
    let all = targets["data"]["activeTargets"].as_array().unwrap();
    for (job, why) in [
        ("stays", "302 Found"),
        ("round", "stopped after 10 redirects"),
        ("twice", "line 2: label name \"a\" is not unique"),
        ("named", "label name \"__name__\" is not unique"),
        ("limited", "sample limit of 2 exceeded"),
    ] {
        let target = all.iter().find(|target| target["labels"]["job"] == job).unwrap();
        assert!(target["lastError"].as_str().unwrap().contains(why), "{target}");
        assert_eq!(
            (&target["scrapeInterval"], &target["discoveredLabels"]["__scrape_interval__"]),
            (&"1s".into(), &"1s".into())
        );
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_survive_restart() {
    let rule = |name: &str| format!("  - {{alert: {name}, expr: vector(1), for: 15m}}\n");
    let rules =
        format!("groups:\n- name: g\n  interval: 50ms\n  rules:\n{}{}", rule("Lasting"), rule("Ended"));
    let (server, dir) = configured(&[("rules.yml", &rules)], "rule_files: ['rules.yml']\n");
    // State from before the restart: both alerts began an hour ago, and one of them ended.
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let began = now_ms / 1000 - 3600;
    let text = format!(
        "ALERTS_FOR_STATE{{alertname=\"Lasting\"}} {began} {}\nALERTS_FOR_STATE{{alertname=\"Ended\"}} {began} {}\n\
         ALERTS_FOR_STATE{{alertname=\"Ended\"}} NaN {}\n",
        now_ms - 120_000,
        now_ms - 120_000,
        now_ms - 110_000
    );
    server.send("POST", "/api/v1/import/prometheus", &[], text.as_bytes()).await.is(204);
    let running = run(server, dir);
    running.found("ALERTS{alertname=\"Lasting\",alertstate=\"firing\"}").await;
    running.found("ALERTS{alertname=\"Ended\",alertstate=\"pending\"}").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_with_changed_rules_preserves_alerts() {
    let group = |name: &str, rules: &str| format!("- name: {name}\n  interval: 50ms\n  rules:\n{rules}");
    let alert = "  - {alert: Lasting, expr: vector(1), for: 1h, annotations: {text: first}}\n";
    let record = |name: &str, value: u32| format!("  - {{record: {name}, expr: vector({value})}}\n");
    let changed = format!("{}{alert}{}", record("kept", 1), record("taken_out", 1));
    let first = format!(
        "groups:\n{}{}{}",
        group("changed", &changed),
        group("removed", &format!("{}{}", record("orphan", 1), record("moved", 1))),
        group("same", &record("untouched", 1))
    );
    let running = start(&[("rules.yml", &first)], "rule_files: ['rules.yml']\n");
    for name in ["kept", "taken_out", "orphan", "moved", "untouched", "ALERTS"] {
        running.found(name).await;
    }
    let alerts = async || running.server.get("/api/v1/alerts").await.json()["data"]["alerts"].clone();
    let before = alerts().await;
    assert_eq!(before[0]["annotations"]["text"], "first");
    // A file with one error changes nothing.
    running.write(
        "rules.yml",
        &first.replace("vector(1)", "vector(2)").replace("orphan, expr: vector(2)", "orphan, expr: vector("),
    );
    running.reload().await.says(500, "failed to reload config: ");
    let metrics = running.server.service.metrics().render(running.server.service.database());
    assert!(metrics.contains("ropewalk_config_last_reload_successful 0\n"), "{metrics}");
    let info = running.server.get("/api/v1/status/runtimeinfo").await.json();
    assert_eq!(info["data"]["reloadConfigSuccess"], false);
    let shown = running.server.get("/api/v1/rules?rule_name[]=kept").await.json();
    assert_eq!(shown["data"]["groups"][0]["rules"][0]["query"], "vector(1)");
    // One group with other rules in another order, one removed, one new that has a rule of the removed one.
    let alert = alert.replace("first", "second").replace("vector(1)", "vector(7)");
    let changed = format!("{alert}{}{}", record("new", 3), record("kept", 2));
    let second = format!(
        "groups:\n{}{}{}",
        group("changed", &changed),
        group("same", &record("untouched", 1)),
        group("successor", &record("moved", 5))
    );
    running.write("rules.yml", &second);
    running.reload().await.is(200);
    let metrics = running.server.service.metrics().render(running.server.service.database());
    assert!(metrics.contains("ropewalk_config_last_reload_successful 1\n"), "{metrics}");
    running.gone("taken_out").await;
    running.gone("orphan").await;
    assert_eq!(running.found("new").await, 3.0);
    running.found("kept == 2").await;
    running.found("moved == 5").await;
    running.found("ALERTS{alertname=\"Lasting\",alertstate=\"pending\"}").await;
    while alerts().await[0]["annotations"]["text"] != "second" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(alerts().await[0]["activeAt"], before[0]["activeAt"]);
    let names = running.server.get("/api/v1/rules").await.json();
    let names: Vec<_> =
        names["data"]["groups"].as_array().unwrap().iter().map(|group| group["name"].clone()).collect();
    assert_eq!(names, ["changed", "same", "successor"]);
    // Series that stayed were never marked stale; removed ones were, once.
    let dump = running.server.dump();
    for (name, marks) in
        [("kept", 0), ("untouched", 0), ("ALERTS_FOR_STATE{", 0), ("taken_out", 1), ("orphan", 1)]
    {
        let line = dump.lines().find(|line| line.starts_with(name)).unwrap();
        assert_eq!(line.matches(":NaN").count(), marks, "{line}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_with_changed_jobs_preserves_targets() {
    let address = listen(Arc::new(World::default()), String::new()).await;
    let config = |jobs: &[(&str, &str)]| {
        let job = |(name, more): &(&str, &str)| {
            format!("- {{job_name: {name}, {more} static_configs: [{{targets: ['{address}']}}]}}\n")
        };
        format!("scrape_configs:\n{}", jobs.iter().map(job).collect::<String>())
    };
    let often = "scrape_interval: 50ms,";
    let running = start(&[], &config(&[("same", often), ("changed", often), ("removed", often)]));
    for job in ["same", "changed", "removed"] {
        assert_eq!(running.found(&format!("up{{job=\"{job}\"}}")).await, 1.0);
    }
    let dropping = "scrape_interval: 60ms, metric_relabel_configs: [{source_labels: [__name__], regex: queue, action: drop}],";
    running.write("prometheus.yml", &config(&[("same", often), ("changed", dropping), ("new", often)]));
    running.reload().await.is(200);
    running.gone("up{job=\"removed\"}").await;
    running.gone("load{job=\"removed\"}").await;
    running.gone("queue{job=\"changed\"}").await;
    assert_eq!(running.found("up{job=\"new\"}").await, 1.0);
    let pools = running.server.get("/api/v1/scrape_pools").await.json();
    assert_eq!(pools["data"]["scrapePools"], serde_json::json!(["changed", "new", "same"]));
    let dump = running.server.dump();
    for (job, marks) in [("same", 0), ("changed", 0), ("removed", 1)] {
        for name in ["up", "load"] {
            let begin = format!("{name}{{instance=\"{address}\",job=\"{job}\"}}");
            let line = dump.lines().find(|line| line.starts_with(&begin)).unwrap();
            assert_eq!(line.matches(":NaN").count(), marks, "{line}");
        }
    }
    // A job that is added again is scraped again.
    running.write("prometheus.yml", &config(&[("removed", often)]));
    running.reload().await.is(200);
    running.found("up{job=\"removed\"}").await;
    running.gone("up{job=\"same\"}").await;
    running.stop().await;
}

#[tokio::test]
async fn reload_without_configuration_file_fails() {
    let server = Server::new();
    server.send("POST", "/-/reload", &[], b"").await.says(500, "no file");
    server.get("/-/reload").await.is(405);
}

#[tokio::test(flavor = "multi_thread")]
async fn drop_rules_and_derived_metrics_are_set_at_run_time() {
    let running = start(&[], "global: {}\n");
    let server = &running.server;
    let rules = "/api/v1/config/drop-rules";
    server.import("go_threads 1 1000\nup{job=\"a\"} 1 1000\n").await;
    server.send("POST", rules, &[], b"{__name__=~\"go_.*\"}").await.is(200);
    server.send("POST", rules, &[], b"up{job=\"a\"}").await.is(200);
    server.send("POST", rules, &[], b"up{").await.is(400);
    server.send("POST", rules, &[], b"{}").await.is(400);
    server.import("go_threads 2 2000\nup{job=\"a\"} 2 2000\nup{job=\"b\"} 2 2000\n").await;
    server.import("go_threads 3 3000\n").await;
    assert_eq!(server.dump(), "go_threads 1000:1\nup{job=\"a\"} 1000:1\nup{job=\"b\"} 2000:2");
    server.send("DELETE", rules, &[], b"up{job=\"a\"}").await.is(200);
    server.send("DELETE", rules, &[], b"up{job=\"a\"}").await.is(404);
    assert_eq!(server.get(rules).await.json()["data"], serde_json::json!(["{__name__=~\"go_.*\"}"]));
    server.import("up{job=\"a\"} 3 3000\n").await;
    assert!(server.dump().contains("3000:3"));
    let derived = "/api/v1/config/derived-metrics";
    for wrong in ["a|up", "a|up{|1000", "a|up|soon", "a|up|1", "|up|1000"] {
        server.send("POST", derived, &[], wrong.as_bytes()).await.is(400);
    }
    server.import("load{x=\"1|2\"} 4\n").await;
    server.send("POST", derived, &[], b"load:double|2 * load{x=~\"1.2|3\"}|100").await.is(200);
    assert_eq!(running.found("load:double").await, 8.0);
    server.send("DELETE", derived, &[], b"load:double").await.is(200);
    assert_eq!(server.get(derived).await.json()["data"], serde_json::json!({}));
    running.stop().await;
}

/// A replica applies the commits of another process; here plain writes to the keyspace stand for them.
#[tokio::test]
async fn rules_that_are_stored_elsewhere_apply_to_the_next_request() {
    let server = Server::new();
    let db = server.service.database();
    let keyspace = db.keyspace("prometheus", Default::default()).unwrap();
    let store = |key: &[u8], json: &str| {
        db.put(keyspace, key, json.as_bytes(), ropewalk::Durability::Sync).unwrap();
    };
    server.import("up 1 1000\n").await;
    store(b"drop-rules", r#"["up"]"#);
    server.import("up 2 2000\n").await;
    assert_eq!(server.dump(), "up 1000:1");
    store(b"drop-rules", "[]");
    server.import("up 3 3000\n").await;
    assert_eq!(server.dump(), "up 1000:1 3000:3");
    store(b"derived-metrics", r#"{"a": {"query": "up", "interval_ms": 100}}"#);
    let derived = server.get("/api/v1/config/derived-metrics").await.json()["data"].clone();
    assert_eq!(derived, serde_json::json!({ "a": { "query": "up", "interval_ms": 100 } }));
    // Rules that cannot be read leave those before in force.
    store(b"drop-rules", "no rules");
    server.import("up 4 4000\n").await;
    assert_eq!(server.dump(), "up 1000:1 3000:3 4000:4");
}

#[tokio::test]
async fn pushed_samples_are_relabelled() {
    let running = start(
        &[],
        "ingest_relabel_configs:
- {source_labels: [__name__], regex: 'debug_.*', action: drop}
- {source_labels: [pod], regex: '(.*)-[0-9]+', target_label: workload, replacement: '$1'}
- {regex: pod, action: labeldrop}
- {source_labels: [__name__], regex: nameless, target_label: __name__, replacement: ''}
",
    );
    let server = &running.server;
    server
        .import(
            "debug_x 1 1\nup{pod=\"web-1\"} 1 1000\nup{pod=\"web-2\"} 2 2000\nnameless 1 1\nplain 3 3000\n",
        )
        .await;
    server.send("POST", "/write", &[], b"debug_y v=1 1\nload,pod=db-7 v=2 4000000").await.is(204);
    let lines = ["load_v{workload=\"db\"} 4:2", "plain 3000:3", "up{workload=\"web\"} 1000:1 2000:2"];
    assert_eq!(server.dump(), lines.join("\n"));
    running.stopped.abort();
}
