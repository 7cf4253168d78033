//! The user's cache: `$XDG_CACHE_HOME/starling`, by default `~/.cache/starling`.
//!
//! Everything in it can be made anew. Files appear by renaming, whole or not at all.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::failure::{Context, Failure, Outcome};

/// The cache directory, made if it is not there. Without a home directory it is one in the temporary directory.
pub(crate) fn directory() -> Outcome<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    let doing = |path: &Path| format!("cache {}", path.display());
    let create = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
    if let Some(base) = base {
        let path = base.join("starling");
        create(&path).context(|| doing(&path))?;
        return Ok(path);
    }
    let own = rustix::process::geteuid().as_raw();
    let path = env::temp_dir().join(format!("starling-{own}"));
    create(&path).context(|| doing(&path))?;
    // Everybody can write to the temporary directory: what is there may be a trap.
    let metadata = fs::symlink_metadata(&path).context(|| doing(&path))?;
    if !metadata.is_dir() || metadata.uid() != own {
        return Err(Failure::ours(format!("{}: belongs to somebody else", doing(&path))));
    }
    Ok(path)
}

/// Writes a file under another name in the same directory and renames it to `path` when `fill` is done.
pub(crate) fn replace(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Outcome<()> {
    let doing = || path.display().to_string();
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = directory.unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory).context(doing)?;
    fill(file.as_file_mut()).context(doing)?;
    file.persist(path).map_err(|error| error.error).context(doing)?;
    Ok(())
}

/// Writes a file that is not ours but the user's: whole or not at all, and for all to read.
pub(crate) fn publish(path: &Path, content: &[u8]) -> Outcome<()> {
    replace(path, |file| {
        io::Write::write_all(file, content)?;
        file.set_permissions(fs::Permissions::from_mode(0o644))
    })
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
