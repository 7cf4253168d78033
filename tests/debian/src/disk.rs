//! The disk that both kernels have as their root: Debian with its packages, the scripts of the invocations, and the runner.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::list::Invocation;

/// Where the project is.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Packages whose sources are made.
const SOURCES: &str = "hello,lua5.4";
/// What comes before each script.
const PROLOGUE: &str = "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive\n";
/// What Debian's kernel starts with: another start may make other answers.
const START: &str = include_str!("../../../tools/starling/src/linux/start.rs");
/// How the runner is compiled.
const FLAGS: [&str; 4] = ["-O2", "-std=gnu11", "-static", "-s"];

/// The disk, and what its packages are known by.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) file: PathBuf,
    pub(crate) mark: u64,
}

/// The directory of what is made here.
pub(crate) fn directory() -> Result<PathBuf, String> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| Path::new(ROOT).join("target"), PathBuf::from);
    let path = target.join("debian-tests");
    fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// Makes the disk, unless it is there with the same content. Of several that make it at once each has its turn.
pub(crate) fn make(starling: &Path, all: &[Invocation]) -> Result<Disk, String> {
    let base = base(starling)?;
    let directory = directory()?;
    let turn = fs::File::create(directory.join("disk.lock")).map_err(text)?;
    turn.lock().map_err(text)?;
    let runner = runner(&directory)?;
    let contents = contents(all);
    let mut hasher = DefaultHasher::new();
    (&base, START).hash(&mut hasher);
    let mark = hasher.finish();
    (&contents, fs::read(&runner).map_err(text)?).hash(&mut hasher);
    let file = directory.join("disk.ext4");
    let (stamp, wanted) = (directory.join("disk.stamp"), format!("{:016x}\n", hasher.finish()));
    if file.exists() && fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(Disk { file, mark });
    }
    // A machine that still runs with the former disk keeps it.
    let new = directory.join("disk.new");
    succeed(Command::new("cp").args(["--sparse=always", "--reflink=auto", "--"]).arg(&base).arg(&new))?;
    fill(&new, &runner, &contents)?;
    fs::rename(&new, &file).and_then(|()| fs::write(&stamp, wanted)).map_err(text)?;
    Ok(Disk { file, mark })
}

/// The disk with the packages, made when it is first asked for.
fn base(starling: &Path) -> Result<PathBuf, String> {
    let packages: Vec<_> = include_str!("../packages.txt").lines().collect();
    let mut command = Command::new(starling);
    command.args(["image", "disk", "debian"]);
    command.arg(format!("--include={}", packages.join(","))).arg(format!("--sources={SOURCES}"));
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(text)?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end());
    if output.status.success() { Ok(path) } else { Err("the disk was not made".into()) }
}

/// Compiles the runner.
fn runner(directory: &Path) -> Result<PathBuf, String> {
    let path = directory.join("runner");
    let source = Path::new(ROOT).join("user/separate/runner.c");
    succeed(Command::new("gcc").args(FLAGS).arg("-o").arg(&path).arg(source))?;
    Ok(path)
}

/// The files that are put on the disk: names below `/abi`, and what is in them.
fn contents(all: &[Invocation]) -> Vec<(String, String)> {
    let script = |one: &Invocation| (format!("s/{}", one.name), format!("{PROLOGUE}{}", one.script));
    let case = |one: &Invocation| format!("{0} {1} /bin/bash /abi/s/{0}\n", one.name, one.limit_seconds());
    let mut files: Vec<_> = all.iter().map(script).collect();
    files.push(("cases".into(), all.iter().map(case).collect()));
    files.push(("long_run.sh".into(), include_str!("../long_run.sh").into()));
    files
}

/// Writes the files into the file system, which nobody mounts for it.
fn fill(disk: &Path, runner: &Path, contents: &[(String, String)]) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let mut commands = format!("mkdir /abi\nmkdir /abi/s\nwrite {} /abi/runner\n", runner.display());
    for (number, (name, content)) in contents.iter().enumerate() {
        let path = folder.path().join(number.to_string());
        fs::write(&path, content).map_err(text)?;
        commands += &format!("write {} /abi/{name}\n", path.display());
    }
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = Command::new("debugfs");
    command.env("PATH", path).args(["-w", "-f", "-"]).arg(disk).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(text)?;
    child.stdin.take().ok_or("no input")?.write_all(commands.as_bytes()).map_err(text)?;
    let output = child.wait_with_output().map_err(text)?;
    // The first line of its errors is its version.
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() && errors.lines().count() <= 1 {
        Ok(())
    } else {
        Err(format!("debugfs: {errors}"))
    }
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)))
}

pub(crate) fn text(error: std::io::Error) -> String {
    error.to_string()
}
