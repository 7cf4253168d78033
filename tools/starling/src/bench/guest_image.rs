//! The initramfs of benchmarks and traces: the default image, and their program in its root directory.

use std::fs;
use std::path::PathBuf;

use crate::failure::{Context, Failure, Outcome};
use crate::image::{self, Attributes, Content, Kind, Node, Tree};
use crate::machine::Repository;
use crate::progress::Progress;

/// The target that programs for Linux are built for.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The programs' package.
const PACKAGE: &str = "bench";

/// What runs in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// What is timed: `/bench`.
    Bench,
    /// What is traced: `/probes`.
    Probes,
}

impl Program {
    /// Its name, also in the image's root directory.
    const fn name(self) -> &'static str {
        match self {
            Self::Bench => "bench",
            Self::Probes => "probes",
        }
    }
}

/// Builds a program, if it is not up to date, and returns where it is.
///
/// # Errors
/// When it does not build.
pub(super) fn build(program: Program, repository: &Repository, progress: &Progress) -> Outcome<PathBuf> {
    let name = program.name();
    progress.say(&format!("building the program {name}"));
    let mut cargo = repository.cargo("build");
    cargo.args(["--quiet", "--release", "--package", PACKAGE, "--bin", name, "--target", TARGET]);
    // Only programs for this target are static: what cargo runs on the way is built for the host as it is.
    cargo.env(
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
        "-C target-feature=+crt-static -C strip=symbols",
    );
    // The same program whatever the environment says about the kernel's profile; a test that panics must be able to unwind.
    cargo.envs([
        ("CARGO_PROFILE_RELEASE_PANIC", "unwind"),
        ("CARGO_PROFILE_RELEASE_LTO", "fat"),
        ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
        ("CARGO_PROFILE_RELEASE_INCREMENTAL", "false"),
    ]);
    let output = cargo.output().context(|| "cargo".into())?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(Failure::ours(format!("the program {name} does not build")));
    }
    Ok(repository.target_directory().join(TARGET).join("release").join(name))
}

/// Puts a program into the default image.
///
/// # Errors
/// When it does not build or there is no default image.
pub(crate) fn tree(program: Program, repository: &Repository, progress: &Progress) -> Outcome<Tree> {
    let name = program.name();
    let path = build(program, repository, progress)?;
    let program = fs::read(&path).context(|| path.display().to_string())?;
    let mut tree = image::open(None, progress)?.tree;
    let kind = Kind::File(tree.add_content(Content::Bytes(program)));
    let node = Node { attributes: Attributes::root(0o755), kind };
    tree.insert(name.as_bytes(), node).context(|| "the program's image".into())?;
    Ok(tree)
}

/// Puts modules for Linux below `/modules`; the benchmark program loads them in the order of their names.
///
/// # Errors
/// When the image has something else in that place.
pub(crate) fn add_modules(tree: &mut Tree, modules: Vec<(String, Vec<u8>)>) -> Outcome<()> {
    let doing = || "Linux' modules".to_owned();
    let directory = Node { attributes: Attributes::root(0o755), kind: Kind::Directory };
    tree.insert(b"modules", directory).context(doing)?;
    for (name, bytes) in modules {
        let kind = Kind::File(tree.add_content(Content::Bytes(bytes)));
        let node = Node { attributes: Attributes::root(0o644), kind };
        tree.insert(format!("modules/{name}").as_bytes(), node).context(doing)?;
    }
    Ok(())
}

/// Puts the blocks of a disk in memory where the benchmark program looks for them.
///
/// # Errors
/// When the image has something else in that place.
pub(crate) fn add_disk(tree: &mut Tree, blocks: Vec<u8>) -> Outcome<()> {
    let kind = Kind::File(tree.add_content(Content::Bytes(blocks)));
    let node = Node { attributes: Attributes::root(0o644), kind };
    tree.insert(b"disk.blocks", node).context(|| "the disk in memory".into())
}
