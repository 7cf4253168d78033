//! Where the checkout is, and how cargo is called in it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, Outcome};

/// The script sets this to the checkout it lies in.
const ROOT_VARIABLE: &str = "STARLING_ROOT";
/// The target that the kernel is built for.
pub(crate) const BARE_TARGET: &str = "x86_64-unknown-none";

/// A checkout of Starling.
#[derive(Clone, Debug)]
pub(crate) struct Repository {
    root: PathBuf,
    /// The toolchain has no library for the bare target, so cargo must build it.
    build_std: bool,
    /// Where cargo puts what it builds, if that is not for the environment to say.
    target: Option<PathBuf>,
    /// The environment may not change how the release profile builds.
    declared_profile: bool,
}

/// What starts like this in the environment changes the release profile.
const PROFILE_PREFIX: &str = "CARGO_PROFILE_RELEASE_";

impl Repository {
    /// The checkout that this tool belongs to.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn find() -> Outcome<Self> {
        let named = env::var_os(ROOT_VARIABLE).map(PathBuf::from);
        let compiled = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_path_buf);
        let root = named.into_iter().chain(compiled).find(|root| root.join("kernel").is_dir());
        let root = root.ok_or_else(|| {
            Failure::ours("the Starling repository is not where it was: run its ./starling")
        })?;
        let build_std = env::var_os("STARLING_BUILD_STD").is_some();
        Ok(Self { root, build_std, target: None, declared_profile: false })
    }

    /// Another checkout, which is built into a directory of its own.
    pub(crate) fn at(&self, root: PathBuf, target: PathBuf) -> Self {
        Self { root, target: Some(target), ..self.clone() }
    }

    /// The same checkout, built as its `Cargo.toml` says and not as the environment does.
    pub(crate) fn with_declared_profile(self) -> Self {
        Self { declared_profile: true, ..self }
    }

    /// Its top directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where cargo puts what it builds.
    pub(crate) fn target_directory(&self) -> PathBuf {
        if let Some(target) = &self.target {
            return target.clone();
        }
        match env::var_os("CARGO_TARGET_DIR") {
            Some(directory) => self.root.join(directory),
            None => self.root.join("target"),
        }
    }

    /// A call of cargo in the checkout.
    pub(crate) fn cargo(&self, subcommand: &str) -> Command {
        let mut command = Command::new("cargo");
        command.current_dir(&self.root).arg(subcommand).env("CARGO_TARGET_DIR", self.target_directory());
        if self.declared_profile {
            let names = env::vars_os().map(|(name, _)| name);
            names
                .filter(|name| name.to_string_lossy().starts_with(PROFILE_PREFIX))
                .for_each(|name| _ = command.env_remove(name));
        }
        command
    }

    /// A call of cargo for the bare target.
    pub(crate) fn bare_cargo(&self, subcommand: &str) -> Command {
        let mut command = self.cargo(subcommand);
        command.args(["--target", BARE_TARGET]);
        if self.build_std {
            // Debian's Rust has the sources of the library but not its build for this target.
            // Its linker is a package of its own too.
            command.env("RUSTC_BOOTSTRAP", "1").arg("-Zbuild-std=core,alloc,compiler_builtins");
            command.env("CARGO_TARGET_X86_64_UNKNOWN_NONE_LINKER", "ld.lld");
        }
        command
    }
}
