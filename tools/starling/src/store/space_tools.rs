//! `starling image tools`: the guest's tools for private name spaces, `bind`, `newns` and `nsdup` (`user/spaces`), compiled into a directory.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::{Context, Failure, Outcome};
use crate::machine::Repository;

/// The sources, in the repository.
const SOURCES: &str = "user/spaces";
/// The one program, and what it is called by.
const PROGRAM: &str = "bind";
const OTHER_NAMES: [&str; 2] = ["newns", "nsdup"];

/// Makes them there, static, so that they run in every image. The directory is made if it is missing.
///
/// # Errors
/// When they do not compile, or the directory cannot be written.
pub(super) fn make(directory: &Path) -> Outcome<()> {
    let doing = || directory.display().to_string();
    fs::create_dir_all(directory).context(doing)?;
    let sources = Repository::find()?.root().join(SOURCES);
    let entries = fs::read_dir(&sources).context(|| sources.display().to_string())?;
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-std=gnu11", "-static", "-s", "-o"]).arg(directory.join(PROGRAM));
    compiler.args(files.filter(|path| path.extension() == Some(OsStr::new("c")))).stdin(Stdio::null());
    let output = compiler.output().context(|| "cc".into())?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(Failure::ours("the tools do not build"));
    }
    for name in OTHER_NAMES {
        let link = directory.join(name);
        if !link.is_symlink() {
            symlink(PROGRAM, &link).context(|| link.display().to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_run_on_this_machine() {
        let folder = tempfile::tempdir().expect("a directory");
        let place = folder.path().join("new/tools");
        // Twice: the second time everything is there.
        for _ in 0..2 {
            make(&place).map_err(|failure| failure.to_string()).expect("they build");
        }
        for name in [PROGRAM, OTHER_NAMES[0], OTHER_NAMES[1]] {
            let output = Command::new(place.join(name)).output().expect("it runs");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(text.starts_with(&format!("{name}: usage: {name} ")), "{text}");
            assert_eq!(output.status.code(), Some(125));
        }
    }
}
