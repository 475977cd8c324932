//! The built files of the web console.

/// A file of the web console.
#[derive(Debug, Clone, Copy)]
pub struct ConsoleFile {
    /// Path below `/ui/`, such as `assets/index-5c1f.js`.
    pub path: &'static str,
    /// Its bytes, compressed with gzip.
    pub gzip: &'static [u8],
}

impl ConsoleFile {
    /// The media type by the extension of the path.
    pub(crate) fn media_type(&self) -> &'static str {
        match self.path.rsplit('.').next().unwrap_or_default() {
            "html" => "text/html; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            "txt" => "text/plain; charset=utf-8",
            _ => "application/octet-stream",
        }
    }
}
