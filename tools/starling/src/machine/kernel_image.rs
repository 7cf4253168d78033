//! Builds the kernel, quickly when there is nothing to do.

use std::path::PathBuf;
use std::process::Stdio;

use super::repository::{BARE_TARGET, Repository};
use crate::failure::{Context, Failure, Outcome};
use crate::progress::Progress;

/// The kernel's package, and the name of its ELF file.
const KERNEL: &str = "starling-kernel";

/// Builds the kernel and tells where it is.
///
/// # Errors
/// When it does not build; what cargo said is on standard error then.
pub(crate) fn build(repository: &Repository, progress: &Progress) -> Outcome<PathBuf> {
    progress.say("building the kernel");
    let mut cargo = repository.bare_cargo("build");
    cargo.args(["--quiet", "--release", "--package", KERNEL]);
    let output = cargo.stdin(Stdio::null()).output().context(|| "cargo".into())?;
    progress.finish();
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(Failure::ours("the kernel does not build"));
    }
    Ok(repository.target_directory().join(BARE_TARGET).join("release").join(KERNEL))
}

/// The packages that are part of the kernel, by name.
///
/// # Errors
/// When cargo cannot tell.
pub(crate) fn kernel_packages(repository: &Repository) -> Outcome<Vec<String>> {
    let mut cargo = repository.cargo("metadata");
    let output = cargo.args(["--format-version", "1", "--no-deps"]).output().context(|| "cargo".into())?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).context(|| "cargo metadata".into())?;
    let kernel = repository.root().join("kernel");
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let inside = packages.filter(|package| {
        let manifest = package["manifest_path"].as_str().map(PathBuf::from);
        manifest.is_some_and(|manifest| manifest.starts_with(&kernel))
    });
    Ok(inside.filter_map(|package| package["name"].as_str().map(str::to_owned)).collect())
}
