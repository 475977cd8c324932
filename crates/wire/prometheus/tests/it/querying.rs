//! The query API: requests of Grafana and promtool, compared byte for byte.

use std::time::Duration;

use ropewalk_auth::Caller;
use ropewalk_prometheus::PrometheusSettings;
use ropewalk_wire::Limits;
use serde_json::json;

use crate::kit::{Server, m};

const FORM: [(&str, &str); 1] = [("content-type", "application/x-www-form-urlencoded")];

async fn filled() -> Server {
    let server = Server::new();
    server
        .import(
            "up{job=\"a\"} 1 1000000\nup{job=\"a\"} 0 1060000\nup{job=\"b\"} 1 1000500\n\
             # TYPE requests_total counter\n# HELP requests_total How many.\n\
             requests_total{code=\"200\",path=\"/\\\"x\\\"\"} 10 1000000\nrequests_total{code=\"200\",path=\"/\\\"x\\\"\"} 40 1060000\n\
             big 1e+30 1000000\ntiny 1e-9 1000000\nnone NaN 1000000\nmore +Inf 1000000\nless -Inf 1000000\n",
        )
        .await;
    server
}

#[tokio::test]
async fn instant_queries() {
    let server = filled().await;
    for (query, result) in [
        ("1%2B1&time=1000", r#"{"resultType":"scalar","result":[1000,"2"]}"#),
        ("%22x%5C%22%22&time=1.5", r#"{"resultType":"string","result":[1.500,"x\""]}"#),
        (
            "up&time=1060",
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"up","job":"a"},"value":[1060,"0"]},{"metric":{"__name__":"up","job":"b"},"value":[1060,"1"]}]}"#,
        ),
        (
            "big&time=1000",
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"big"},"value":[1000,"1e+30"]}]}"#,
        ),
        (
            "tiny&time=1000",
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"tiny"},"value":[1000,"1e-09"]}]}"#,
        ),
        (
            "none&time=1000",
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"none"},"value":[1000,"NaN"]}]}"#,
        ),
        (
            "more&time=1000",
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"more"},"value":[1000,"+Inf"]}]}"#,
        ),
        (
            "less&time=1000",
            r#"{"resultType":"vector","result":[{"metric":{"__name__":"less"},"value":[1000,"-Inf"]}]}"#,
        ),
        (
            "up%7Bjob%3D%22a%22%7D%5B2m%5D&time=1970-01-01T00:18:20Z",
            r#"{"resultType":"matrix","result":[{"metric":{"__name__":"up","job":"a"},"values":[[1000,"1"],[1060,"0"]]}]}"#,
        ),
        ("absent_metric&time=1000", r#"{"resultType":"vector","result":[]}"#),
    ] {
        let reply = server.get(&format!("/api/v1/query?query={query}")).await;
        assert_eq!(reply.is(200).text(), format!("{{\"status\":\"success\",\"data\":{result}}}"), "{query}");
        assert_eq!(reply.header("content-type"), "application/json");
        let reply = server.send("POST", "/api/v1/query", &FORM, format!("query={query}").as_bytes()).await;
        assert_eq!(reply.is(200).text(), format!("{{\"status\":\"success\",\"data\":{result}}}"), "{query}");
    }
    // Without a time it is evaluated now, long after the samples.
    assert_eq!(server.get("/api/v1/query?query=up").await.is(200).json()["data"]["result"], json!([]));
}

#[tokio::test]
async fn range_queries() {
    let server = filled().await;
    let same = "/api/v1/query_range?query=increase(requests_total%5B2m%5D)";
    let text = server.get(&format!("{same}&start=1060&end=1090&step=30")).await.is(200).text().to_owned();
    assert!(text.starts_with(r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"code":"200","path":"/\"x\""},"values":[[1060,"#), "{text}");
    for params in [
        "start=1060.0&end=1970-01-01T00:18:10Z&step=30s&timeout=10s&limit=1",
        "start=1970-01-01T01:17:40%2B01:00&end=1090&step=30&unknown=1",
    ] {
        assert_eq!(server.get(&format!("{same}&{params}")).await.text(), text, "{params}");
    }
    let path = "/api/v1/query_range?query=up%7Bjob%3D%22a%22%7D&start=1000&end=1060&step=30";
    let expected = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"up","job":"a"},"values":[[1000,"1"],[1030,"1"],[1060,"0"]]}]}}"#;
    assert_eq!(server.get(path).await.text(), expected);
    let many = server.get("/api/v1/query_range?query=up&start=1000&end=1060&step=30&limit=1").await.json();
    assert_eq!(many["data"]["result"].as_array().unwrap().len(), 1);
    assert_eq!(many["warnings"], json!(["results truncated due to limit"]));
    let stats = server.get("/api/v1/query_range?query=up&start=1000&end=1060&step=30&stats=all").await.json();
    assert!(stats["data"]["stats"]["samples"]["totalQueryableSamples"].as_u64().unwrap() >= 3, "{stats}");
    assert!(stats["data"]["stats"]["timings"]["execQueueTime"].is_number(), "{stats}");
    let odd = server.get("/api/v1/query?query=1&stats=1").await.json();
    assert!(odd["warnings"][0].as_str().unwrap().contains("is deprecated"), "{odd}");
}

#[tokio::test]
async fn annotations_and_histograms() {
    let server = filled().await;
    let info = server.get("/api/v1/query?query=rate(up%5B5m%5D)&time=1060").await.json();
    assert!(info["infos"][0].as_str().unwrap().contains("metric might not be a counter"), "{info}");
    let warning = server.get("/api/v1/query?query=quantile(2,up)&time=1060").await.json();
    assert!(
        warning["warnings"][0].as_str().unwrap().contains("quantile value should be between 0 and 1"),
        "{warning}"
    );
    // Counts 1 in the zero bucket, 2 in (1, 1.41…] and 1 in [-2, -1.41…).
    let span = |offset| m().sint(1, offset).int(2, 1);
    let histogram = m().int(1, 4).double(3, 5.5).sint(4, 1).double(5, 0.25).int(6, 1);
    let histogram = histogram
        .message(8, span(2))
        .packed(9, &[2])
        .message(11, span(1))
        .packed(12, &[4])
        .int(15, 1_000_000);
    let series = m().message(1, m().bytes(1, "__name__").bytes(2, "h")).message(4, histogram);
    let headers = [("content-type", "application/x-protobuf"), ("content-encoding", "snappy")];
    server.send("POST", "/api/v1/write", &headers, &m().message(1, series).snappy()).await.is(204);
    let reply = server.get("/api/v1/query?query=h&time=1000").await;
    let histogram = r#"{"count":"4","sum":"5.5","buckets":[[1,"-2","-1.414213562373095","1"],[3,"-0.25","0.25","1"],[0,"1","1.414213562373095","2"]]}"#;
    let reply_text = reply.text().replace("1.4142135623730951", "1.414213562373095");
    assert_eq!(
        reply_text,
        format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{"__name__":"h"}},"histogram":[1000,{histogram}]}}]}}}}"#
        )
    );
    let range = server.get("/api/v1/query_range?query=h&start=1000&end=1000&step=1").await.json();
    assert_eq!(range["data"]["result"][0]["histograms"][0][1]["count"], "4");
}

#[tokio::test]
async fn names_of_things() {
    let server = filled().await;
    let data = async |path: &str| server.get(path).await.is(200).json()["data"].clone();
    assert_eq!(data("/api/v1/labels").await, json!(["__name__", "code", "job", "path"]));
    assert_eq!(data("/api/v1/labels?match%5B%5D=up").await, json!(["__name__", "job"]));
    assert_eq!(data("/api/v1/labels?start=1001&end=1070").await, json!(["__name__", "code", "job", "path"]));
    assert_eq!(data("/api/v1/labels?start=1061&end=1070").await, json!([]));
    assert_eq!(data("/api/v1/labels?start=1070&end=1000").await, json!([]));
    assert_eq!(data("/api/v1/label/job/values").await, json!(["a", "b"]));
    assert_eq!(data("/api/v1/label/job/values?match%5B%5D=up%7Bjob!%3D%22a%22%7D").await, json!(["b"]));
    assert_eq!(data("/api/v1/label/U__job/values?start=1050").await, json!(["a"]));
    assert_eq!(data("/api/v1/label/nothing/values").await, json!([]));
    let cut = server.get("/api/v1/label/job/values?limit=1").await.json();
    assert_eq!((&cut["data"], &cut["warnings"]), (&json!(["a"]), &json!(["results truncated due to limit"])));
    let both = "/api/v1/series?match%5B%5D=up&match%5B%5D=%7Bjob%3D%22a%22%7D";
    assert_eq!(data(both).await, json!([{"__name__": "up", "job": "a"}, {"__name__": "up", "job": "b"}]));
    let reply = server.send("POST", "/api/v1/series", &FORM, b"match[]=up&start=1050&end=1100").await;
    assert_eq!(reply.is(200).json()["data"], json!([{"__name__": "up", "job": "a"}]));
    assert_eq!(
        data("/api/v1/metadata?metric=requests_total").await,
        json!({"requests_total": [{"type": "counter", "help": "How many.", "unit": ""}]})
    );
    assert_eq!(data("/api/v1/metadata?limit=0&metric=up").await, json!({}));
}

#[tokio::test]
async fn exemplars() {
    let server = Server::new();
    let text = "a_total{x=\"1\"} 5 1.5 # {trace_id=\"t\"} 0.3 1.25\nb_total 1 1\n# EOF\n";
    let kind = [("content-type", "application/openmetrics-text")];
    server.send("POST", "/api/v1/import/prometheus", &kind, text.as_bytes()).await.is(204);
    let path = "/api/v1/query_exemplars?query=rate(a_total%5B5m%5D)%2Bb_total&start=1&end=2";
    let expected = r#"{"status":"success","data":[{"seriesLabels":{"__name__":"a_total","x":"1"},"exemplars":[{"labels":{"trace_id":"t"},"value":"0.3","timestamp":1.250}]}]}"#;
    assert_eq!(server.get(path).await.is(200).text(), expected);
    assert_eq!(
        server.get("/api/v1/query_exemplars?query=a_total&start=2&end=3").await.json()["data"],
        json!([])
    );
    // Prometheus sends exemplars as separate series.
    let labels = m().message(1, m().bytes(1, "__name__").bytes(2, "b_total"));
    let exemplar = m().message(1, m().bytes(1, "trace_id").bytes(2, "u")).double(2, 7.0).int(3, 1000);
    let request = m().message(1, labels.message(3, exemplar));
    let headers = [("content-type", "application/x-protobuf"), ("content-encoding", "snappy")];
    server.send("POST", "/api/v1/write", &headers, &request.snappy()).await.is(204);
    let found = server.get("/api/v1/query_exemplars?query=b_total&start=0&end=2").await.json();
    assert_eq!(found["data"][0]["exemplars"][0]["labels"], json!({"trace_id": "u"}), "{found}");
}

#[tokio::test]
async fn grafana_start_requests_are_answered() {
    let server = filled().await;
    let headers = [
        ("x-dashboard-uid", "d"),
        ("x-panel-id", "1"),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    let health = server.send("POST", "/api/v1/query", &headers, b"query=1%2B1&time=4").await;
    assert_eq!(health.is(200).json()["data"]["result"], json!([4, "2"]));
    assert_eq!(server.get("/api/v1/status/buildinfo").await.is(200).json()["data"]["version"], "3.15.0");
    let names =
        server.get("/api/v1/label/__name__/values?start=900&end=1100&limit=40000").await.is(200).json();
    assert_eq!(names["data"], json!(["big", "less", "more", "none", "requests_total", "tiny", "up"]));
    let query = b"query=up&start=1000&end=1060&step=15&direction=forward&limit=100";
    server.send("POST", "/api/v1/query_range", &headers, query).await.is(200);
    for path in [
        "rules",
        "alerts",
        "metadata?limit=100",
        "status/runtimeinfo",
        "status/flags",
        "labels?start=1&end=2",
    ] {
        server.get(&format!("/api/v1/{path}")).await.is(200);
    }
    let format = server.get("/api/v1/format_query?query=sum(up)by(job)").await.is(200).json();
    assert_eq!(format["data"], "sum by (job) (up)");
    let long = format!("sum(rate({}%5B5m%5D))%2Bup", "a".repeat(100));
    let format = server.get(&format!("/api/v1/format_query?query={long}")).await.is(200).json();
    let lines = format!("  sum(\n    rate(\n      {}[5m]\n    )\n  )\n+\n  up", "a".repeat(100));
    assert_eq!(format["data"], lines);
}

/// The responses of Prometheus 3.15.
#[tokio::test]
async fn syntax_trees_are_those_of_prometheus() {
    let server = Server::new();
    for (query, tree) in [
        (
            "sum%20by%20(a)%20(rate(foo%7Bb%3D~%22x%22%7D%5B5m%5D%20offset%201m))",
            r#"{"expr":{"args":[{"anchored":false,"matchers":[{"name":"b","type":"=~","value":"x"},{"name":"__name__","type":"=","value":"foo"}],"name":"foo","offset":60000,"offsetExpr":null,"range":300000,"rangeExpr":null,"smoothed":false,"startOrEnd":null,"timestamp":null,"type":"matrixSelector"}],"func":{"argTypes":["matrix"],"name":"rate","returnType":"vector","variadic":0},"type":"call"},"grouping":["a"],"op":"sum","param":null,"type":"aggregation","without":false}"#,
        ),
        (
            "max_over_time(foo%5B1h:5m%5D%20%40%20end()%20offset%20-5s)",
            r#"{"args":[{"expr":{"anchored":false,"matchers":[{"name":"__name__","type":"=","value":"foo"}],"name":"foo","offset":0,"offsetExpr":null,"smoothed":false,"startOrEnd":null,"timestamp":null,"type":"vectorSelector"},"offset":-5000,"offsetExpr":null,"range":3600000,"rangeExpr":null,"startOrEnd":"end","step":300000,"stepExpr":null,"timestamp":null,"type":"subquery"}],"func":{"argTypes":["matrix"],"name":"max_over_time","returnType":"vector","variadic":0},"type":"call"}"#,
        ),
        (
            "1%20%2F%20-bar%20%3E%20bool%20(2)",
            r#"{"bool":true,"lhs":{"bool":false,"lhs":{"type":"numberLiteral","val":"1"},"matching":null,"op":"/","rhs":{"expr":{"anchored":false,"matchers":[{"name":"__name__","type":"=","value":"bar"}],"name":"bar","offset":0,"offsetExpr":null,"smoothed":false,"startOrEnd":null,"timestamp":null,"type":"vectorSelector"},"op":"-","type":"unaryExpr"},"type":"binaryExpr"},"matching":null,"op":">","rhs":{"expr":{"type":"numberLiteral","val":"2"},"type":"parenExpr"},"type":"binaryExpr"}"#,
        ),
        (
            "foo%20%2F%20on(a)%20group_left(b)%20bar",
            r#"{"bool":false,"lhs":{"anchored":false,"matchers":[{"name":"__name__","type":"=","value":"foo"}],"name":"foo","offset":0,"offsetExpr":null,"smoothed":false,"startOrEnd":null,"timestamp":null,"type":"vectorSelector"},"matching":{"card":"many-to-one","fillValues":{"lhs":null,"rhs":null},"include":["b"],"labels":["a"],"on":true},"op":"/","rhs":{"anchored":false,"matchers":[{"name":"__name__","type":"=","value":"bar"}],"name":"bar","offset":0,"offsetExpr":null,"smoothed":false,"startOrEnd":null,"timestamp":null,"type":"vectorSelector"},"type":"binaryExpr"}"#,
        ),
    ] {
        let answer = server.get(&format!("/api/v1/parse_query?query={query}")).await.is(200).json();
        assert_eq!(answer["data"], serde_json::from_str::<serde_json::Value>(tree).unwrap(), "{query}");
    }
    server.get("/api/v1/parse_query?query=foo%7B").await.says(400, "invalid parameter \\\"query\\\"");
}

#[tokio::test]
async fn errors_have_prometheus_wording() {
    let server = filled().await;
    for (path, status, kind, error) in [
        ("query?query=", 400, "bad_data", "invalid parameter \"query\": "),
        ("query?query=up%7B", 400, "bad_data", "invalid parameter \"query\": 1:4: parse error: "),
        (
            "query?query=up&time=foo",
            400,
            "bad_data",
            "invalid parameter \"time\": invalid time value for 'time': cannot parse \"foo\" to a valid timestamp",
        ),
        (
            "query?query=up&timeout=foo",
            400,
            "bad_data",
            "invalid parameter \"timeout\": cannot parse \"foo\" to a valid duration",
        ),
        (
            "query?query=up&limit=-1",
            400,
            "bad_data",
            "invalid parameter \"limit\": limit must be non-negative",
        ),
        (
            "query?query=up&lookback_delta=x",
            400,
            "bad_data",
            "error parsing lookback delta duration: cannot parse \"x\" to a valid duration",
        ),
        (
            "query?query=up&limit=x",
            400,
            "bad_data",
            "invalid parameter \"limit\": strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            "query_range?query=up&end=1&step=1",
            400,
            "bad_data",
            "invalid parameter \"start\": cannot parse \"\" to a valid timestamp",
        ),
        (
            "query_range?query=up&start=2&end=1&step=1",
            400,
            "bad_data",
            "invalid parameter \"end\": end timestamp must not be before start time",
        ),
        (
            "query_range?query=up&start=1&end=2&step=0",
            400,
            "bad_data",
            "invalid parameter \"step\": zero or negative query resolution step widths are not accepted. Try a positive integer",
        ),
        (
            "query_range?query=up&start=0&end=11001&step=1",
            400,
            "bad_data",
            "exceeded maximum resolution of 11,000 points per timeseries.",
        ),
        (
            "query_range?query=up%5B5m%5D&start=0&end=1&step=1",
            0,
            "",
            "invalid expression type \"range vector\" for range query, must be Scalar or instant Vector",
        ),
        (
            "query_range?query=up&start=-9223309901257974&end=9223309901257974&step=1",
            400,
            "bad_data",
            "exceeded maximum resolution",
        ),
        ("series", 400, "bad_data", "no match[] parameter provided"),
        ("series?match%5B%5D=%7B%7D", 400, "bad_data", ""),
        ("series?match%5B%5D=up%7B", 400, "bad_data", "invalid parameter \"match[]\""),
        (
            "labels?match%5B%5D=%7Ba%3D~%22.*%22%7D",
            400,
            "bad_data",
            "match[] must contain at least one non-empty matcher",
        ),
        ("query?query=label_replace(up,%22a%22,%22b%22,%22c%22,%22(%22)&time=1000", 422, "execution", ""),
    ] {
        let reply = server.get(&format!("/api/v1/{path}")).await;
        if status > 0 {
            reply.is(status);
            assert_eq!(reply.json()["errorType"], kind, "{path}");
        }
        let json = reply.json();
        assert_eq!(json["status"], "error", "{path}");
        assert!(json["error"].as_str().unwrap().contains(error), "{path}: {json}");
    }
    server.send("POST", "/api/v1/query", &[("content-type", "application/json")], b"{}").await.is(415);
    server.send("DELETE", "/api/v1/series", &[], b"").await.is(500);
}

#[tokio::test]
async fn queries_over_the_limits() {
    let settings =
        PrometheusSettings { query_samples: 2, query_time: Duration::from_millis(20), ..Default::default() };
    let server = Server::with(Limits::default(), settings, Caller::everybody());
    server.import("up{job=\"a\"} 1 1000\nup{job=\"b\"} 1 1000\nup{job=\"c\"} 1 1000\n").await;
    server.get("/api/v1/query?query=up&time=1").await.says(422, "too many samples");
    server.get("/api/v1/query?query=up%7Bjob%3D%22a%22%7D&time=1").await.is(200);
    let long =
        "query_range?query=quantile_over_time(0.5,vector(time())%5B1000s:1s%5D)&start=0&end=10000&step=1";
    server.get(&format!("/api/v1/{long}")).await.says(503, "timed out");
    server.get("/api/v1/query?query=up&time=1&timeout=0").await.says(503, "timed out");
}

#[tokio::test]
async fn long_responses_are_streamed_in_chunks() {
    let server = Server::new();
    let text: String =
        (0..60_000).map(|i| format!("wide{{series=\"a-name-of-some-length-{i:05}\"}} {i} 1000\n")).collect();
    server.import(&text).await;
    let json = server.get("/api/v1/query?query=wide&time=1").await.is(200).json();
    let rows = json["data"]["result"].as_array().unwrap();
    assert_eq!(rows.len(), 60_000);
    let mut values: Vec<u32> =
        rows.iter().map(|row| row["value"][1].as_str().unwrap().parse().unwrap()).collect();
    values.sort_unstable();
    assert!(values.into_iter().eq(0..60_000));
}

#[tokio::test]
async fn federation_and_deletion() {
    let server = Server::new();
    server.import("up{job=\"a\"} 1\nup{job=\"b\"} 2\n{\"odd name\",x=\"q\\\"\"} 3\nold 1 1000\n").await;
    let reply = server.get("/federate?match%5B%5D=up&match%5B%5D=%7B__name__%3D~%22o.*%22%7D").await;
    let text: String = reply
        .is(200)
        .text()
        .lines()
        .map(|l| match l.rsplit_once(' ') {
            Some((head, time)) if time.len() == 13 => format!("{head}\n"),
            _ => format!("{l}\n"),
        })
        .collect();
    assert_eq!(
        text,
        "# TYPE \"odd name\" untyped\n{\"odd name\",x=\"q\\\"\",instance=\"\"} 3\n# TYPE up untyped\nup{job=\"a\",instance=\"\"} 1\nup{job=\"b\",instance=\"\"} 2\n"
    );
    // Its output can be imported again.
    server.import(reply.text()).await;
    let admin = "/api/v1/admin/tsdb";
    server.send("POST", &format!("{admin}/delete_series"), &[], b"").await.says(400, "no match[]");
    server
        .send("PUT", &format!("{admin}/delete_series?match%5B%5D=up%7Bjob%3D%22a%22%7D"), &[], b"")
        .await
        .is(204);
    server
        .send("POST", &format!("{admin}/delete_series?match%5B%5D=old&start=0&end=2"), &[], b"")
        .await
        .is(204);
    assert!(!server.dump().contains("job=\"a\"") && server.dump().contains("job=\"b\""), "{}", server.dump());
    server.send("POST", &format!("{admin}/clean_tombstones"), &[], b"").await.is(204);
    assert!(!server.dump().contains("1000:1"), "{}", server.dump());
}

#[tokio::test]
async fn a_snapshot_is_a_database() {
    let server = Server::new();
    server.import("up{job=\"a\"} 1 1000\n").await;
    let path = "/api/v1/admin/tsdb/snapshot";
    for (query, words) in
        [("true", "everything that was acknowledged"), ("perhaps", "unable to parse boolean")]
    {
        server.send("POST", &format!("{path}?skip_head={query}"), &[], b"").await.says(400, words);
    }
    let mut names = Vec::new();
    for (method, query) in [("POST", ""), ("PUT", "?skip_head=false")] {
        let json = server.send(method, &format!("{path}{query}"), &[], b"").await.is(200).json();
        assert_eq!(json["status"], "success");
        names.push(json["data"]["name"].as_str().unwrap().to_owned());
    }
    assert_ne!(names[0], names[1]);
    let env = server.service.database().engine().env().clone();
    for name in names {
        let db =
            ropewalk::Options::new().env(env.clone()).must_exist().open(format!("/backups/{name}")).unwrap();
        assert_eq!(db.series_stores(), ["default"]);
        assert_eq!(db.seq(), server.service.database().seq());
    }
}

#[tokio::test]
async fn cached_response_is_valid_until_past_changes() {
    let server = Server::new();
    server.import("up{job=\"a\"} 1 1000\nup{job=\"b\"} 2 1000\n").await;
    let sum = async || {
        let json = server.get("/api/v1/query?query=sum(up)&time=60").await.is(200).json();
        json["data"]["result"][0]["value"][1].as_str().unwrap().to_owned()
    };
    let range = async || {
        let json =
            server.get("/api/v1/query_range?query=sum(up)&start=0&end=60&step=30").await.is(200).json();
        json["data"]["result"][0]["values"].to_string()
    };
    assert_eq!((sum().await, sum().await), ("3".to_owned(), "3".to_owned()));
    assert_eq!(range().await, "[[30,\"3\"],[60,\"3\"]]");
    // A commit after the latest time that the result read does not invalidate it.
    server.import("up{job=\"a\"} 10 61000\n").await;
    assert_eq!(sum().await, "3");
    // A late sample does, and so do a new series and a deletion.
    server.import("up{job=\"a\"} 5 2000\n").await;
    assert_eq!((sum().await, range().await), ("7".to_owned(), "[[30,\"7\"],[60,\"7\"]]".to_owned()));
    server.import("up{job=\"c\"} 1 60000\n").await;
    assert_eq!((sum().await, range().await), ("8".to_owned(), "[[30,\"7\"],[60,\"8\"]]".to_owned()));
    let delete = "/api/v1/admin/tsdb/delete_series?match%5B%5D=up%7Bjob%3D%22b%22%7D";
    server.send("POST", delete, &[], b"").await.is(204);
    assert_eq!((sum().await, range().await), ("6".to_owned(), "[[30,\"5\"],[60,\"6\"]]".to_owned()));
    let fresh = server.get("/api/v1/query?query=sum(up)&time=60&nocache=1").await.is(200).json();
    assert_eq!(fresh["data"]["result"][0]["value"][1], "6");
}

/// Windows that move, grow and go back over samples that arrive in order, arrive late, and are deleted: the
/// results are the same with and without cached steps.
#[tokio::test]
async fn cached_steps_equal_evaluated_steps() {
    let server = Server::new();
    let queries = [
        "up",
        "sum by (job) (rate(up[60s]))",
        "up offset 20s",
        "up offset -30s",
        "max_over_time(sum(up)[2m:20s])",
        "max_over_time(sum(up)[50s:7s])",
        "up @ 100",
        "topk(1, up)",
        "absent(up{job=\"b\"})",
        "time()",
        "histogram_quantile(0.5, up)",
        "up{job=\"a\"} and on () (up{job=\"b\"} > 20)",
        "count_over_time(up[range() + 10s])",
        "up offset (range() / 2)",
        "sum_over_time(up[step() * 2])",
        "max_over_time(sum(up)[1m:step() * 3])",
        "running_sum(up)",
        "keep_last_value(up > 20)",
        "(up > 20) default 7",
        "up if (up > 20)",
        "topk_avg(1, up)",
        "any(up > 20)",
        "sum(up > 20) by (job) limit 1",
        "sum(up) offset 20s",
        "sum(up) offset (range() / 2)",
        "max(up) @ end()",
        "sum_over_time(up)",
        "up{job=\"a\" or job=\"b\"}",
    ];
    let mut seed = 7_u64;
    let mut below = move |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let mut asked = 0;
    for round in 0..150_u64 {
        let now = 100 + round * 10;
        match below(12) {
            0 => server.import(&format!("up{{job=\"b\"}} {} {}\n", below(50), below(now) * 1000)).await,
            1 if round > 40 => {
                let from = below(now);
                let path = "/api/v1/admin/tsdb/delete_series?match%5B%5D=up%7Bjob%3D%22b%22%7D";
                server
                    .send("POST", &format!("{path}&start={from}&end={}", from + below(60)), &[], b"")
                    .await
                    .is(204);
            }
            _ => {
                let (a, b) = (below(50), below(50));
                server
                    .import(&format!("up{{job=\"a\"}} {a} {0}000\nup{{job=\"b\"}} {b} {0}000\n", now))
                    .await;
            }
        }
        let query = queries[below(queries.len() as u64) as usize];
        let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        for _ in 0..3 {
            let (step, ahead) = ([10, 30][below(2) as usize], below(40));
            let end = now + ahead - if below(4) == 0 { below(80) } else { 0 };
            let start = end.saturating_sub(below(400));
            let path = format!("/api/v1/query_range?query={query}&start={start}&end={end}&step={step}");
            let (kept, new) = (server.get(&path).await, server.get(&format!("{path}&nocache=1")).await);
            assert_eq!(kept.is(200).json(), new.is(200).json(), "{path}");
            asked += 1;
        }
    }
    assert_eq!(asked, 450);
}

#[tokio::test]
async fn l7_conditions_that_the_store_refuses_are_mistakes_of_the_query() {
    let server = filled().await;
    let numbers: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
    for query in [format!("up{{job=~\"{}\"}}", numbers.join("|")), "{\"\"=\"x\"}".to_owned()] {
        let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let reply = server.send("POST", "/api/v1/query", &FORM, format!("query={query}").as_bytes()).await;
        assert_eq!((reply.is(400).json()["errorType"].as_str()), Some("bad_data"));
    }
}

#[tokio::test]
async fn h7_queries_share_memory() {
    let settings = PrometheusSettings { queries_bytes: 1000, ..PrometheusSettings::default() };
    let server = Server::with(Limits::default(), settings, Caller::everybody());
    server.import("up{job=\"a\"} 1 1000\n").await;
    for path in ["query?query=up&time=1", "query_range?query=up&start=0&end=9&step=1"] {
        let reply = server.get(&format!("/api/v1/{path}")).await;
        reply.says(429, "the queries of the server need too much memory together");
        assert_eq!(reply.json()["errorType"], "too_many_requests");
        assert_eq!(reply.header("retry-after"), "1");
    }
}

/// Lists that grow with the data take from the memory of all queries.
#[tokio::test]
async fn lists_share_memory_with_queries() {
    let filled = async |queries_bytes| {
        let settings = PrometheusSettings { queries_bytes, ..PrometheusSettings::default() };
        let server = Server::with(Limits::default(), settings, Caller::everybody());
        let text = "# TYPE requests_total counter\n# HELP requests_total How many.\n\
                    requests_total{job=\"a\"} 10 1000000\n";
        server.import(text).await;
        let kind = [("content-type", "application/openmetrics-text")];
        let text = "a_total{x=\"1\"} 5 1.5 # {trace_id=\"t\"} 0.3 1.25\n# EOF\n";
        server.send("POST", "/api/v1/import/prometheus", &kind, text.as_bytes()).await.is(204);
        server
    };
    let (little, enough) = (filled(50).await, filled(1_000).await);
    for path in [
        "labels",
        "labels?match%5B%5D=requests_total",
        "label/job/values",
        "label/job/values?match%5B%5D=requests_total",
        "series?match%5B%5D=requests_total",
        "metadata",
        "query_exemplars?query=a_total&start=1&end=2",
    ] {
        let path = format!("/api/v1/{path}");
        little.get(&path).await.says(429, "the queries of the server need too much memory together");
        // Sent responses count no longer.
        for _ in 0..20 {
            enough.get(&path).await.is(200);
        }
    }
}

#[tokio::test]
async fn h6_selectors_of_a_request_have_one_sum() {
    let server = filled().await;
    let pattern = |n: usize| format!("match[]=up{{job=~\"(\\\\w{{60}}{n})\"}}");
    let all: Vec<String> = (0..30).map(pattern).collect();
    let encoded =
        all.join("&").replace('\\', "%5C").replace('{', "%7B").replace('}', "%7D").replace('"', "%22");
    for path in ["series", "labels"] {
        let reply = server.send("POST", &format!("/api/v1/{path}"), &FORM, encoded.as_bytes()).await;
        reply.says(400, "too large together");
    }
}
