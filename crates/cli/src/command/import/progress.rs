//! The progress bar of an import, on standard error.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that takes less time has no progress bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// A progress bar on standard error, if that is a terminal and the work takes long enough.
pub(crate) struct Progress {
    started: Instant,
    visible: bool,
    bar: OnceLock<ProgressBar>,
}

impl Progress {
    pub(crate) fn stderr() -> Self {
        Self { started: Instant::now(), visible: io::stderr().is_terminal(), bar: OnceLock::new() }
    }

    /// Reports that `done` of `total` are done; `unit` is one word.
    pub(crate) fn at(&self, done: u64, total: u64, unit: &'static str) {
        if !self.visible || self.started.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            let counts = if unit == "bytes" {
                "{bytes}/{total_bytes} {bytes_per_sec}"
            } else {
                "{human_pos}/{human_len} {per_sec}"
            };
            let template = format!("{{bar:30}} {counts} {unit}, {{eta}} left");
            bar.with_style(ProgressStyle::with_template(&template).expect("the template is well formed"))
        });
        bar.set_position(done);
    }

    /// The time since the beginning.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
