//! Builds the kernel, quickly when there is nothing to do.
//!
//! Cargo links the kernel; the crate `symbols` makes the bootable image from it, which is smaller and has the names of the
//! functions for panic reports. The linked file stays for debuggers.

use std::fs::{self, Metadata};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::ValueEnum;

use super::repository::{BARE_TARGET, Repository};
use crate::cache;
use crate::failure::{Context, Failure, Outcome};
use crate::progress::Progress;

/// The kernel's package, and the name of its linked file.
const KERNEL: &str = "starling-kernel";
/// The name of the bootable image, beside the linked file.
const IMAGE: &str = "starling-kernel.image";

/// A variant of the kernel, named as the profile it is built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Build {
    /// What is used
    Release,
    /// The same with the kernel's own tests; what `--kernel-arg test=…` boots
    Tested,
    /// With assertions and lock order checking
    Checked,
    /// With counts of lock acquisitions
    Counted,
    /// Without messages to other processors
    LocalIpc,
}

/// Names the variant to boot, where no option does.
const BUILD_VARIABLE: &str = "STARLING_BUILD";

impl Build {
    /// What the environment names.
    ///
    /// # Errors
    /// When there is no such variant.
    pub(crate) fn from_environment() -> Outcome<Self> {
        let Ok(name) = std::env::var(BUILD_VARIABLE) else { return Ok(Self::Release) };
        <Self as ValueEnum>::from_str(&name, false).map_err(|_| {
            Failure::ours(format!(
                "{BUILD_VARIABLE}={name}: not release, tested, checked, counted or local-ipc"
            ))
        })
    }

    /// The variant that can do what the words of the kernel's command line ask for.
    pub(crate) fn able_to<'a>(self, mut words: impl Iterator<Item = &'a str>) -> Self {
        match self {
            Self::Release if words.any(|word| word.starts_with("test=")) => Self::Tested,
            build => build,
        }
    }

    /// Its name.
    const fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Tested => "tested",
            Self::Checked => "checked",
            Self::Counted => "counted",
            Self::LocalIpc => "local-ipc",
        }
    }
}

/// A kernel to boot.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// What QEMU loads.
    pub(crate) image: PathBuf,
    /// What a debugger reads.
    pub(crate) symbols: PathBuf,
}

impl Kernel {
    /// A kernel that somebody else has built.
    ///
    /// # Errors
    /// When it is not there.
    pub(crate) fn given(path: &Path) -> Outcome<Self> {
        if !path.is_file() {
            return Err(Failure::ours(format!("kernel {}: no such file", path.display())));
        }
        Ok(Self { image: path.into(), symbols: path.into() })
    }

    /// The kernel of this repository, built if it is not up to date.
    ///
    /// # Errors
    /// When it does not build; what cargo said is on standard error then.
    pub(crate) fn build(repository: &Repository, progress: &Progress) -> Outcome<Self> {
        Self::build_as(Build::Release, repository, progress)
    }

    /// A variant of it.
    ///
    /// # Errors
    /// As [`Kernel::build`].
    pub(crate) fn build_as(build: Build, repository: &Repository, progress: &Progress) -> Outcome<Self> {
        progress.say("building the kernel");
        let mut cargo = repository.bare_cargo("build");
        cargo.args(["--quiet", "--profile", build.name(), "--package", KERNEL]);
        match build {
            Build::Release => {}
            Build::Tested | Build::Checked => _ = cargo.args(["--features", "tests"]),
            Build::Counted => _ = cargo.args(["--features", "tests,lcount"]),
            Build::LocalIpc => _ = cargo.args(["--features", "tests,local-ipc"]),
        }
        let output = cargo.stdin(Stdio::null()).output().context(|| "cargo".into())?;
        progress.finish();
        if !output.status.success() {
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            return Err(Failure::ours("the kernel does not build"));
        }
        let symbols = repository.target_directory().join(BARE_TARGET).join(build.name()).join(KERNEL);
        let image = symbols.with_file_name(IMAGE);
        let linked = fs::metadata(&symbols).context(|| symbols.display().to_string())?;
        if !fs::metadata(&image).is_ok_and(|image| is_newer(&image, &linked)) {
            let doing = || format!("making {}", image.display());
            let bytes = fs::read(&symbols).context(doing)?;
            let bytes = symbols::bootable_image(&bytes).context(doing)?;
            cache::replace(&image, |file| file.write_all(&bytes))?;
        }
        Ok(Self { image, symbols })
    }
}

/// Whether the first file was certainly made after the second one.
fn is_newer(first: &Metadata, second: &Metadata) -> bool {
    matches!((first.modified(), second.modified()), (Ok(first), Ok(second)) if first > second)
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
