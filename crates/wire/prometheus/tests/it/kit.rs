//! A server without a listener, and protobuf messages written by hand.

use axum::Extension;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use http_body_util::BodyExt as _;
use ropewalk::Database;
use ropewalk::hooks::{put_varint, zigzag};
use ropewalk::series::{Matcher, Samples};
use ropewalk_auth::Caller;
use ropewalk_monitoring::Config;
use ropewalk_prometheus::{Prometheus, PrometheusSettings};
use ropewalk_wire::{Limits, Service, ServiceSettings};
use tower::ServiceExt;

pub(crate) struct Server {
    pub(crate) service: Service,
    pub(crate) prometheus: Prometheus,
    router: Router,
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: axum::http::HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: axum::http::HeaderMap,
}

impl Reply {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self
    }

    #[track_caller]
    pub(crate) fn says(&self, status: u16, words: &str) {
        self.is(status);
        assert!(self.text().contains(words), "{:?} is not in {}", words, self.text());
    }
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default(), PrometheusSettings::default(), Caller::everybody())
    }

    pub(crate) fn with(limits: Limits, settings: PrometheusSettings, caller: Caller) -> Self {
        Self::built(limits, settings, caller, Config::default())
    }

    /// A server with the background jobs of `config`, once its `prometheus` runs.
    pub(crate) fn with_config(settings: PrometheusSettings, config: Config) -> Self {
        Self::built(Limits::default(), settings, Caller::everybody(), config)
    }

    /// A server whose requests come from `caller`; `None`: without a caller.
    pub(crate) fn of(caller: Option<Caller>) -> Self {
        let server = Self::new();
        let routes = server.prometheus.routes().merge(server.prometheus.calls());
        let routes = match caller {
            Some(caller) => routes.layer(Extension(caller)),
            None => routes,
        };
        let router = routes.merge(ropewalk_prometheus::open_routes(server.service.clone()));
        Self { router, ..server }
    }

    fn built(limits: Limits, settings: PrometheusSettings, caller: Caller, config: Config) -> Self {
        let backups = Some("/backups".into());
        let service_settings = ServiceSettings { limits, backups, ..ServiceSettings::default() };
        let service = Service::new(Database::in_memory().unwrap(), service_settings).unwrap();
        let prometheus = Prometheus::new(service.clone(), settings, config).unwrap();
        let router = prometheus
            .routes()
            .merge(prometheus.calls())
            .layer(Extension(caller))
            .merge(ropewalk_prometheus::open_routes(service.clone()));
        Self { service, prometheus, router }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        self.send_body(method, path, headers, Body::from(body.to_vec())).await
    }

    pub(crate) async fn send_body(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Reply {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body).unwrap();
        let response: Response<Body> = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        let body = body.to_bytes().to_vec();
        Reply { status: head.status.as_u16(), headers: head.headers, body, trailers }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"").await
    }

    /// Samples in the text format, with times in milliseconds.
    pub(crate) async fn import(&self, text: &str) {
        self.send("POST", "/api/v1/import/prometheus", &[], text.as_bytes()).await.is(204);
    }

    /// Everything in the store, a line for each series.
    pub(crate) fn dump(&self) -> String {
        let db = self.service.database();
        let (store, snapshot) = (db.series("default").unwrap(), db.snapshot());
        let at = snapshot.series(&store);
        let mut selection = at.select(&[] as &[Matcher], i64::MIN, i64::MAX).unwrap();
        let mut lines = Vec::new();
        while selection.next().is_some() {
            let mut samples = Samples::default();
            selection.samples(&mut samples).unwrap();
            let mut line = selection.labels().unwrap().to_string();
            for (row, (time, value)) in samples.times_ms.iter().zip(&samples.values).enumerate() {
                match samples.histograms.get(row) {
                    Some(Some(histogram)) => line.push_str(&format!(" {time}:{histogram:?}")),
                    _ => line.push_str(&format!(" {time}:{value}")),
                }
                if let Some(start) = samples.starts_ms.get(row).filter(|start| **start != 0) {
                    line.push_str(&format!("@{start}"));
                }
            }
            lines.push(line);
        }
        lines.sort();
        lines.join("\n")
    }
}

/// A message being written.
#[derive(Default, Clone)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    pub(crate) fn varint(mut self, value: u64) -> Self {
        put_varint(&mut self.0, value);
        self
    }

    pub(crate) fn int(self, number: u64, value: i64) -> Self {
        self.varint(number << 3).varint(value as u64)
    }

    pub(crate) fn sint(self, number: u64, value: i64) -> Self {
        self.varint(number << 3).varint(zigzag(value))
    }

    pub(crate) fn double(self, number: u64, value: f64) -> Self {
        let mut this = self.varint(number << 3 | 1);
        this.0.extend(value.to_le_bytes());
        this
    }

    pub(crate) fn bytes(self, number: u64, bytes: impl AsRef<[u8]>) -> Self {
        let mut this = self.varint(number << 3 | 2).varint(bytes.as_ref().len() as u64);
        this.0.extend(bytes.as_ref());
        this
    }

    pub(crate) fn message(self, number: u64, message: Message) -> Self {
        self.bytes(number, message.0)
    }

    pub(crate) fn packed(self, number: u64, values: &[u64]) -> Self {
        let list = values.iter().fold(Message::default(), |list, value| list.varint(*value));
        self.bytes(number, list.0)
    }

    pub(crate) fn snappy(&self) -> Vec<u8> {
        snap::raw::Encoder::new().compress_vec(&self.0).unwrap()
    }
}

pub(crate) fn m() -> Message {
    Message::default()
}
