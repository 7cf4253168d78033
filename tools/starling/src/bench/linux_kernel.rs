//! The stock Linux kernel to compare with: Debian's for virtual machines, downloaded by apt and unpacked into the cache, never
//! installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cache;
use crate::failure::{Context, Failure, Outcome};
use crate::progress::Progress;

/// The package whose dependency is the newest kernel for virtual machines.
const PACKAGE: &str = "linux-image-cloud-amd64";
/// Names another kernel to compare with.
const KERNEL_VARIABLE: &str = "STARLING_LINUX";

/// The kernel's file. It is downloaded if it is not in the cache.
///
/// # Errors
/// When apt cannot tell or download it.
pub(super) fn find(progress: &Progress) -> Outcome<PathBuf> {
    if let Some(named) = std::env::var_os(KERNEL_VARIABLE) {
        return Ok(named.into());
    }
    let package = newest()?;
    let kept = cache::directory()?.join(format!("{package}.vmlinuz"));
    if !kept.exists() {
        progress.say(&format!("downloading {package}"));
        download(&package, &kept)?;
    }
    Ok(kept)
}

/// The name of the package with the newest kernel.
fn newest() -> Outcome<String> {
    let output = Command::new("apt-cache").args(["depends", PACKAGE]).stdin(Stdio::null()).output();
    let output = output.context(|| "apt-cache".into())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.map(str::trim).find(|name| name.starts_with("linux-image-")).map(str::to_owned).ok_or_else(|| {
        Failure::ours(format!(
            "apt knows no {PACKAGE}: update its lists, or name a kernel in {KERNEL_VARIABLE}, or use --against none"
        ))
    })
}

fn download(package: &str, kept: &Path) -> Outcome<()> {
    let doing = || format!("downloading {package}");
    let directory = tempfile::tempdir().context(doing)?;
    let mut command = Command::new("apt-get");
    // As root apt would hand the download to a user that may not write here.
    command.args(["--quiet=2", "--option=APT::Sandbox::User=root", "download", package]);
    run(command.current_dir(directory.path()), &doing)?;
    let archive = entry(directory.path(), |name| name.ends_with(".deb"))?;
    let unpacked = directory.path().join("unpacked");
    run(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&unpacked), &doing)?;
    let kernel = entry(&unpacked.join("boot"), |name| name.starts_with("vmlinuz-"))?;
    let bytes = fs::read(kernel).context(doing)?;
    cache::replace(kept, |file| std::io::Write::write_all(file, &bytes))
}

fn run(command: &mut Command, doing: &impl Fn() -> String) -> Outcome<()> {
    let output = command.stdin(Stdio::null()).output().context(doing)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::ours(format!("{}: {}", doing(), String::from_utf8_lossy(&output.stderr))))
}

/// The file in a directory whose name is wanted.
fn entry(directory: &Path, wanted: impl Fn(&str) -> bool) -> Outcome<PathBuf> {
    let doing = || directory.display().to_string();
    for entry in fs::read_dir(directory).context(doing)? {
        let entry = entry.context(doing)?;
        if entry.file_name().to_str().is_some_and(&wanted) {
            return Ok(entry.path());
        }
    }
    Err(Failure::ours(format!("{}: the kernel is not in it", directory.display())))
}
