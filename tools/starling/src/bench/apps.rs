//! The suite `apps`: its disk, Debian with the benchmark program, and a boot of either kernel with it. The disk is the same for all boots: what is written
//! to it is thrown away.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::guest_image::{self, Program};
use super::system::{self, Boot, Kind, Output, System};
use crate::failure::{Context, Failure, Outcome};
use crate::machine::Repository;
use crate::progress::Progress;
use crate::store::{ImageName, disk};

/// Packages, a line each: those that `tests/debian` has, so that both share a disk.
const PACKAGES: &str = include_str!("../../../../tests/debian/packages.txt");
/// Packages whose sources are on it.
const SOURCES: [&str; 2] = ["hello", "lua5.4"];
/// What the program is called there.
const PROGRAM: &str = "/bench";
/// As process 1 it would prepare a machine that is prepared already.
const NOT_FIRST: &str = "\"$@\"; exit $?";

/// The disk.
#[derive(Debug)]
pub(super) struct Apps {
    disk: PathBuf,
    _directory: tempfile::TempDir,
}

impl Apps {
    /// Makes it.
    ///
    /// # Errors
    /// When packages cannot be had, the caller is not root, or there is no room.
    pub(super) fn make(repository: &Repository, progress: &Progress) -> Outcome<Self> {
        let name: ImageName = "debian".parse()?;
        let packages: Vec<String> = PACKAGES.lines().map(str::to_owned).collect();
        let base = disk::make(&name, &packages, &SOURCES.map(str::to_owned), progress)?;
        let program = guest_image::build(Program::Bench, repository, progress)?;
        let directory = tempfile::tempdir_in(repository.target_directory()).context(|| "a disk".into())?;
        let disk = directory.path().join("disk");
        disk::copy_with(&base, &[(&program, PROGRAM)], &disk)?;
        Ok(Self { disk, _directory: directory })
    }

    /// Boots a system with it, and returns what the benchmark program printed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn run(&self, boot: &Boot, system: &System, words: &[&str]) -> Outcome<Output> {
        let mut command = Command::new(std::env::current_exe().context(|| "this program".into())?);
        let memory = format!("{}M", boot.memory >> 20);
        match system.kind {
            Kind::Starling => {
                command.args(["run", "--rw", "--qemu-arg=-snapshot", "--machine", "q35"]);
                command.arg("--kernel").arg(&system.kernel);
                command.args(system.arguments.iter().flat_map(|word| ["--kernel-arg", word]));
            }
            Kind::Linux => drop(command.arg("linux")),
        }
        command.args(["--accel", boot.accelerator.name(), "--cpus", &boot.cpus.to_string()]);
        command.args(["--memory", &memory, "--timeout", &system::LIMIT.as_secs().to_string()]);
        command.arg(&self.disk).args(["--", "/bin/sh", "-c", NOT_FIRST, "sh", PROGRAM]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| Failure::ours(format!("{}: {error}", system.name)))?;
        let lines = system::collect(child, system::LIMIT)?;
        Ok(Output {
            lines: lines.into_iter().map(|(_, line)| line).collect(),
            first_line: Duration::ZERO,
            first_instruction: None,
        })
    }
}
