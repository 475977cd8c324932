//! Text imports and the line protocol.

use crate::kit::Server;

async fn import(server: &Server, path: &str, kind: &str, body: &str) -> (u16, String) {
    let reply = server.send("POST", path, &[("content-type", kind)], body.as_bytes()).await;
    (reply.status, reply.text().to_owned())
}

#[tokio::test]
async fn texts_are_one_commit() {
    let server = Server::new();
    let path = "/api/v1/import/prometheus";
    let text = "# TYPE up gauge\nup{job=\"a\"} 1 1000\n{\"näme\"} 2 2000\nlater 3\n";
    assert_eq!(
        import(&server, &format!("{path}?timestamp=7&extra_label=x=y"), "text/plain", text).await.0,
        204
    );
    let stored = "later{x=\"y\"} 7:3\nup{job=\"a\",x=\"y\"} 1000:1\n{__name__=\"näme\",x=\"y\"} 2000:2";
    assert_eq!(server.dump(), stored);
    let bad = import(&server, path, "text/plain", "a 1\nb one\n").await;
    assert_eq!(bad, (400, "line 2: \"one\" is no number\n".to_owned()));
    assert_eq!(server.dump(), stored);
    let open = "application/openmetrics-text; version=1.0.0";
    assert_eq!(import(&server, path, open, "b_total 1 1.5\n").await.0, 400);
    assert_eq!(import(&server, path, open, "b_total 1 1.5\n# EOF\n").await.0, 204);
    assert!(server.dump().contains("b_total 1500:1"));
    assert_eq!(import(&server, &format!("{path}?colour=red"), "text/plain", "a 1").await.0, 400);
    let gzip = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, b"zipped 1 5").unwrap();
        encoder.finish().unwrap()
    };
    server.send("POST", path, &[("content-encoding", "gzip")], &gzip).await.is(204);
    assert!(server.dump().contains("zipped 5:1"));
}

#[tokio::test]
async fn lines_of_json_are_one_commit() {
    let server = Server::new();
    let path = "/api/v1/import";
    let text = "{\"metric\":{\"__name__\":\"up\",\"job\":\"a\"},\"values\":[1,0.5,\"-Infinity\"],\"timestamps\":[1000,2000,3000]}\n\n\
                {\"metric\":{\"__name__\":\"none\"},\"values\":[],\"timestamps\":[]}\n\
                {\"metric\":{\"__name__\":\"gap\"},\"values\":[null],\"timestamps\":[5]}\n";
    assert_eq!(import(&server, &format!("{path}?extra_label=x=y"), "application/json", text).await.0, 204);
    let stored = "gap{x=\"y\"} 5:NaN\nup{job=\"a\",x=\"y\"} 1000:1 2000:0.5 3000:-inf";
    assert_eq!(server.dump(), stored);
    for (line, why) in [
        ("{\"metric\":{\"job\":\"a\"},\"values\":[1],\"timestamps\":[1]}", "there is no metric name"),
        (
            "{\"metric\":{\"__name__\":\"a\"},\"values\":[1,2],\"timestamps\":[1]}",
            "2 values with 1 timestamps",
        ),
        ("{\"metric\":{\"__name__\":\"a\"},\"values\":[\"x\"],\"timestamps\":[1]}", "\"x\" is no number"),
        ("{\"metric\":{\"__name__\":\"a\"},\"values\":[1],\"timestamps\":[1.5]}", "invalid type"),
        ("{\"metric\":{},\"colour\":1}", "unknown field"),
        ("nonsense", "expected"),
    ] {
        let (status, said) = import(&server, path, "application/json", &format!("{text}{line}\n")).await;
        assert_eq!(status, 400, "{said}");
        assert!(said.starts_with("line 5: ") && said.contains(why), "{said}");
    }
    assert_eq!(server.dump(), stored);
}

#[tokio::test]
async fn rows_of_fields_are_one_commit() {
    let server = Server::new();
    let path =
        "/api/v1/import/csv?format=2:metric:ask,3:metric:bid,1:label:ticker,5:label:market,4:time:unix_ms";
    let text = "GOOG,1.23,4.56,1000,NYSE\n\n\"A, \"\"B\"\"\",2,,2000,\n";
    assert_eq!(import(&server, &format!("{path}&extra_label=x=y"), "text/csv", text).await.0, 204);
    let stored = "ask{market=\"NYSE\",ticker=\"GOOG\",x=\"y\"} 1000:1.23\n\
                  ask{ticker=\"A, \\\"B\\\"\",x=\"y\"} 2000:2\n\
                  bid{market=\"NYSE\",ticker=\"GOOG\",x=\"y\"} 1000:4.56";
    assert_eq!(server.dump(), stored);
    for (row, why) in [
        ("a,1,2", "there is no column 5"),
        ("a,one,2,3,m", "\"one\" is no number"),
        ("a,1,2,1.5,m", "\"1.5\" is no such time"),
        ("\"a,1,2,3,m", "a quote is not closed"),
    ] {
        let (status, said) = import(&server, path, "text/csv", &format!("{text}{row}\n")).await;
        assert_eq!(status, 400, "{said}");
        assert!(said.starts_with("line 4: ") && said.contains(why), "{said}");
    }
    assert_eq!(server.dump(), stored);
    for (query, why) in [
        ("", "the columns have to be named"),
        ("?format=1:metric:a&colour=red", "format and extra_label"),
        ("?format=1:colour:a", "metric, label or time"),
    ] {
        let (status, said) = import(&server, &format!("/api/v1/import/csv{query}"), "text/csv", "1\n").await;
        assert!(status == 400 && said.contains(why), "{said}");
    }
    // Rows without a time get that of the request.
    assert_eq!(import(&server, "/api/v1/import/csv?format=1:metric:now", "text/csv", "7\n").await.0, 204);
    assert!(server.dump().contains("now ") && server.dump().contains(":7"));
}

#[tokio::test]
async fn lines_of_telegraf() {
    let server = Server::new();
    let lines = "cpu,host=a usage=0.5,idle=3i,ok=true 1500\n# comment\n\ncpu,host=b usage=1 2500\n";
    let reply = server.send("POST", "/write?db=tele&precision=ms", &[], lines.as_bytes()).await;
    reply.is(204);
    assert_eq!(
        server.dump(),
        "cpu_idle{db=\"tele\",host=\"a\"} 1500:3\ncpu_ok{db=\"tele\",host=\"a\"} 1500:1\n\
         cpu_usage{db=\"tele\",host=\"a\"} 1500:0.5\ncpu_usage{db=\"tele\",host=\"b\"} 2500:1"
    );
    let lines = "net,host=a name=\"eth0\",bytes=7i 1500000000\nnonsense\n";
    let reply = server.send("POST", "/api/v2/write?bucket=b&org=o&precision=ns", &[], lines.as_bytes()).await;
    reply.says(
        400,
        "partial write: 2 not taken, the rest is written; first: line 1: field \\\"name\\\" is a text",
    );
    assert!(server.dump().contains("net_bytes{host=\"a\"} 1500:7"));
    server.send("POST", "/write?precision=y", &[], b"a v=1").await.says(400, "precision");
}
