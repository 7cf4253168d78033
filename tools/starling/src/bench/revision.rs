//! The kernel of another commit, built in a work tree of its own below the target directory, which is kept for the next time.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::failure::{Context, Failure, Outcome};
use crate::machine::{Kernel, Repository};
use crate::progress::Progress;

/// The short name of a commit and its bootable image.
///
/// # Errors
/// When there is no such commit, or it does not build.
pub(crate) fn kernel(
    repository: &Repository,
    commit: &str,
    progress: &Progress,
) -> Outcome<(String, PathBuf)> {
    let name =
        git(repository, &["rev-parse", "--verify", "--quiet", "--short=12", &format!("{commit}^{{commit}}")])
            .map_err(|_| Failure::ours(format!("--against {commit}: neither linux, none nor a commit")))?;
    let directory = repository.target_directory().join("bench").join(&name);
    let tree = directory.join("tree");
    if !tree.join("Cargo.toml").exists() {
        progress.say(&format!("checking out {name}"));
        git(repository, &["worktree", "prune"])?;
        git(repository, &["worktree", "add", "--force", "--detach", &tree.display().to_string(), &name])?;
    }
    let other = repository.at(tree, directory.join("target"));
    progress.say(&format!("building the kernel of {name}"));
    let image = Kernel::build(&other, progress)?.image;
    Ok((name, image))
}

fn git(repository: &Repository, arguments: &[&str]) -> Outcome<String> {
    let mut command = Command::new("git");
    command.current_dir(repository.root()).args(arguments).stdin(Stdio::null());
    let output = command.output().context(|| "git".into())?;
    if !output.status.success() {
        return Err(Failure::ours(format!("git: {}", String::from_utf8_lossy(&output.stderr))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
