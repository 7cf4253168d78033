//! The stock Linux kernel to compare with: Debian's for virtual machines, downloaded by apt and unpacked into the cache, never
//! installed. With it its modules for file systems.

use std::collections::BTreeMap;
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
/// What an ext4 on a virtio disk, in memory or in a file needs, and file systems that programs make. What is not a module is in the kernel
/// itself.
const WANTED: [&str; 8] =
    ["virtio_pci", "virtio_blk", "brd", "loop", "crc32c_generic", "crc32c_intel", "ext4", "fuse"];

/// The kernel's file. It is downloaded if it is not in the cache.
///
/// # Errors
/// When apt cannot tell or download it.
pub(crate) fn find(progress: &Progress) -> Outcome<PathBuf> {
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

/// Modules for file systems and disks, in the order in which they must be loaded: file names and contents. A kernel that is named in the environment
/// must have all that in itself.
///
/// # Errors
/// When apt cannot tell or download them.
pub(crate) fn modules(progress: &Progress) -> Outcome<Vec<(String, Vec<u8>)>> {
    if std::env::var_os(KERNEL_VARIABLE).is_some() {
        return Ok(Vec::new());
    }
    let package = newest()?;
    let kept = cache::directory()?.join(format!("{package}.modules"));
    if !kept.exists() {
        progress.say(&format!("downloading {package}"));
        keep_modules(&unpacked(&package)?, &kept)?;
    }
    let doing = || kept.display().to_string();
    let mut modules = Vec::new();
    for entry in fs::read_dir(&kept).context(doing)? {
        let entry = entry.context(doing)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        modules.push((name, fs::read(entry.path()).context(doing)?));
    }
    modules.sort();
    Ok(modules)
}

/// Copies the wanted modules and those that they need into a directory, with numbers in front of their names.
fn keep_modules(unpacked: &tempfile::TempDir, kept: &Path) -> Outcome<()> {
    let doing = || kept.display().to_string();
    let mut files = BTreeMap::new();
    find_modules(&unpacked.path().join("unpacked/lib/modules"), &mut files)?;
    let mut ordered = Vec::new();
    for name in WANTED {
        order(name, &files, &mut ordered)?;
    }
    let parent = kept.parent().unwrap_or_else(|| Path::new("."));
    let directory = tempfile::tempdir_in(parent).context(doing)?;
    for (number, (name, bytes)) in ordered.iter().enumerate() {
        fs::write(directory.path().join(format!("{number:02}-{name}.ko")), bytes).context(doing)?;
    }
    fs::rename(directory.keep(), kept).context(doing)
}

/// All modules below a directory, by their names.
fn find_modules(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> Outcome<()> {
    let doing = || directory.display().to_string();
    for entry in fs::read_dir(directory).context(doing)? {
        let entry = entry.context(doing)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().context(doing)?.is_dir() {
            find_modules(&entry.path(), files)?;
        } else if let Some(name) = name.strip_suffix(".ko") {
            files.insert(name.replace('-', "_"), entry.path());
        }
    }
    Ok(())
}

/// Puts a module behind those that it needs.
fn order(name: &str, files: &BTreeMap<String, PathBuf>, ordered: &mut Vec<(String, Vec<u8>)>) -> Outcome<()> {
    let Some(path) = files.get(name).filter(|_| ordered.iter().all(|(known, _)| known != name)) else {
        return Ok(());
    };
    let bytes = fs::read(path).context(|| path.display().to_string())?;
    for needed in needs(&bytes) {
        order(&needed, files, ordered)?;
    }
    ordered.push((name.to_owned(), bytes));
    Ok(())
}

/// The modules that a module says it needs.
fn needs(module: &[u8]) -> Vec<String> {
    const FIELD: &[u8] = b"\0depends=";
    let Some(at) = module.windows(FIELD.len()).position(|window| window == FIELD) else { return Vec::new() };
    let list = module[at + FIELD.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let names = list.split(|byte| *byte == b',').filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8_lossy(name).replace('-', "_")).collect()
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
    let directory = unpacked(package)?;
    let kernel = entry(&directory.path().join("unpacked/boot"), |name| name.starts_with("vmlinuz-"))?;
    let bytes = fs::read(kernel).context(doing)?;
    cache::replace(kept, |file| std::io::Write::write_all(file, &bytes))
}

/// Downloads a package; what is in it is below `unpacked` in the directory.
fn unpacked(package: &str) -> Outcome<tempfile::TempDir> {
    let doing = || format!("downloading {package}");
    let directory = tempfile::tempdir().context(doing)?;
    let mut command = Command::new("apt-get");
    // As root apt would hand the download to a user that may not write here.
    command.args(["--quiet=2", "--option=APT::Sandbox::User=root", "download", package]);
    run(command.current_dir(directory.path()), &doing)?;
    let archive = entry(directory.path(), |name| name.ends_with(".deb"))?;
    let unpacked = directory.path().join("unpacked");
    run(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&unpacked), &doing)?;
    Ok(directory)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_behind_what_they_need() {
        let directory = tempfile::tempdir().expect("a directory");
        let put = |name: &str, needed: &str| {
            let text = format!("\x7fELF...\0license=GPL\0depends={needed}\0name={name}\0");
            fs::write(directory.path().join(format!("{name}.ko")), text).expect("written");
        };
        put("ext4", "mbcache,jbd2,crc16");
        put("jbd2", "");
        put("mbcache", "");
        put("crc32c-intel", "");
        let mut files = BTreeMap::new();
        find_modules(directory.path(), &mut files).expect("found");
        let mut ordered = Vec::new();
        WANTED.into_iter().for_each(|name| order(name, &files, &mut ordered).expect("read"));
        let names: Vec<&str> = ordered.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["crc32c_intel", "mbcache", "jbd2", "ext4"]);
    }
}
