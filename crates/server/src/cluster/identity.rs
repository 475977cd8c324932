//! The name of this node, which no other node has: 16 random bytes in the file `node` of the database directory.
//!
//! A backup has no such file, so that a node restored from it gets its own name.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use ropewalk::hooks::{from_hex, hex};
use rustls::crypto::ring;

use crate::server::ServeError;

/// The file with the name.
pub(super) const FILE: &str = "node";

/// The name of the node in `dir`, which is made at its first start.
///
/// # Errors
/// The file cannot be read or written, or holds something else.
pub(super) fn of(dir: &Path) -> Result<[u8; 16], ServeError> {
    let path = dir.join(FILE);
    let failed = |what: &str, source| ServeError::Io { what: format!("{what} {}", path.display()), source };
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let name = from_hex(text.trim()).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
            let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not 32 hexadecimal digits");
            name.ok_or_else(|| failed("read", wrong()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = random().map_err(|source| failed("create", source))?;
            std::fs::create_dir_all(dir).map_err(|source| failed("create", source))?;
            write(dir, &path, &name).map_err(|source| failed("create", source))?;
            Ok(name)
        }
        Err(error) => Err(failed("read", error)),
    }
}

/// Writes the file. It is durable under another name first: after a power cut, it is complete or not there.
fn write(dir: &Path, path: &Path, name: &[u8; 16]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(format!("{}\n", hex(name)).as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(dir)?.sync_all()
}

/// Bytes that cannot be guessed.
///
/// # Errors
/// The system has none.
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = ring::default_provider().secure_random.fill(&mut bytes);
    filled.map(|()| bytes).map_err(|_| io::Error::other("the system has no random bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_lasts_and_differs_between_directories() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = of(a.path()).unwrap();
        assert_eq!(of(a.path()).unwrap(), name);
        assert_ne!(of(&b.path().join("new")).unwrap(), name);
        std::fs::write(a.path().join(FILE), "elsewhere").unwrap();
        assert!(of(a.path()).unwrap_err().to_string().contains("hexadecimal"));
    }
}
