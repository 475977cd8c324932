//! The server's metrics as series: the samples of `/metrics`, appended every few seconds with
//! `job="ropewalk"` and `instance`, so that PromQL can query them.

use std::time::Duration;

use ropewalk_monitoring::exposition::Format;
use tokio::time::MissedTickBehavior;

use crate::app::App;
use crate::ingest;
use crate::ingest::exposition;
use crate::request::time::now_ms;

/// Appends the server's metrics every `interval`, until the server stops.
pub(crate) async fn scrape_self(app: App, interval: Duration, instance: String) {
    let extra = [("instance".to_owned(), instance), ("job".to_owned(), "ropewalk".to_owned())];
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            () = app.service.stop().wait() => return,
            _ = ticks.tick() => {}
        }
        if let Err(why) = once(&app, &extra).await {
            tracing::warn!(why, "the server's own metrics could not be stored");
        }
    }
}

async fn once(app: &App, extra: &[(String, String)]) -> Result<(), String> {
    let text = app.service.metrics().render(app.service.database());
    let read = exposition::read(&text, Format::Text, extra, now_ms())?;
    ingest::store_own(app, read).await.map_err(|error| error.message)
}
