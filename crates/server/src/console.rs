//! The built files of the web console, embedded in the program.
//!
//!   console/src ─▶ npm run build ─▶ console/dist, committed ─▶ build.rs ─▶ FILES
//!
//! A build of the server needs no Node: it takes the files of the last commit that built them.

use ropewalk_http::ConsoleFile;

include!(concat!(env!("OUT_DIR"), "/console_files.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_console_has_its_page_and_the_files_that_the_page_names() {
        let page = FILES.iter().find(|file| file.path == "index.html").expect("console/dist/index.html.gz");
        assert!(page.gzip.starts_with(b"\x1f\x8b"));
        for extension in ["js", "css"] {
            let is_hashed = |file: &ConsoleFile| {
                file.path.starts_with("assets/") && file.path.rsplit('.').next() == Some(extension)
            };
            assert!(FILES.iter().any(is_hashed), "{extension}");
        }
    }
}
