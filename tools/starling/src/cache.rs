//! The user's cache: `$XDG_CACHE_HOME/starling`, by default `~/.cache/starling`.
//!
//! Everything in it can be made anew. Files appear by renaming, whole or not at all.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::{Context, Outcome};

/// The cache directory, made if it is not there. Without a home directory it is one in the temporary directory.
pub(crate) fn directory() -> Outcome<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    let path = base.unwrap_or_else(env::temp_dir).join("starling");
    fs::create_dir_all(&path).context(|| format!("cache {}", path.display()))?;
    Ok(path)
}

/// Writes a file under another name in the same directory and renames it to `path` when `fill` is done.
pub(crate) fn replace(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Outcome<()> {
    let doing = || format!("cache {}", path.display());
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory).context(doing)?;
    fill(file.as_file_mut()).context(doing)?;
    file.persist(path).map_err(|error| error.error).context(doing)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_fill_leaves_nothing_behind() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("file");
        replace(&path, |file| io::Write::write_all(file, b"old")).expect("written");
        replace(&path, |file| io::Write::write_all(file, b"half").and(Err(io::Error::other("full"))))
            .expect_err("fails");
        assert_eq!(fs::read(&path).expect("still there"), b"old");
        assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 1);
    }
}
