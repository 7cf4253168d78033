//! Debian as a disk: an ext4 with packages, made as images of Debian are and kept in the cache by what is in it. Every kernel can have it as its root.
//!
//! The file is sparse, and it is not to be written: who runs something that writes has QEMU throw away what was written (`-snapshot`), or copies it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest as _, Sha256};

use super::{ImageName, debian};
use crate::cache;
use crate::failure::{Context, Failure, Outcome};
use crate::progress::Progress;

/// Room for what is in it, and as much for what programs write.
const BYTES: u64 = 4 << 30;
/// Nothing is left for the kernel to do in the background.
const OPTIONS: [&str; 6] = ["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
/// Where sources are.
const SOURCES: &str = "/usr/src/debian";

/// The disk, made if it is not in the cache.
///
/// # Errors
/// When the name is none of Debian's, somebody else than root asks for one that must be made, or a program that makes it fails.
pub(crate) fn make(
    name: &ImageName,
    packages: &[String],
    sources: &[String],
    progress: &Progress,
) -> Outcome<PathBuf> {
    let suite = debian::suite(name)
        .ok_or_else(|| Failure::ours(format!("image {name}: disks are made of Debian's packages only")))?;
    let hooks = hooks(sources);
    let content = Sha256::digest(format!("{suite}\n{packages:?}\n{hooks:?}\n{OPTIONS:?}\n{BYTES}"));
    let mark: String = content.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let kept = cache::directory()?.join(format!("{}-{mark}.ext4", name.as_str().replace([':', '/'], "-")));
    if kept.exists() {
        return Ok(kept);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::ours(format!(
            "image {name}: only root can make a disk, for the owners of its files"
        )));
    }
    let doing = || kept.display().to_string();
    let folder = tempfile::tempdir_in(cache::directory()?).context(doing)?;
    let (tree, file) = (folder.path().join("tree"), folder.path().join("ext4"));
    progress.say(&format!("making a disk of {name} from packages"));
    debian::run(debian::mmdebstrap(suite, packages, "directory", &hooks, &tree), name, progress)?;
    progress.say("making its file system");
    fill(&tree, &file)?;
    fs::rename(&file, &kept).context(doing)?;
    Ok(kept)
}

/// What is done to the tree when its packages are installed: sources come from where the packages did.
fn hooks(sources: &[String]) -> Vec<String> {
    if sources.is_empty() {
        return Vec::new();
    }
    let (sources, list) = (sources.join(" "), "etc/apt/sources.list");
    let source = "apt-get --quiet=2 --option=APT::Sandbox::User=root source --download-only";
    vec![format!(
        "set -e; sed 's/^deb /deb-src /' \"$1/{list}\" > \"$1/{list}.d/sources.list\"; chroot \"$1\" apt-get --quiet=2 update; \
         mkdir -p \"$1{SOURCES}\"; chroot \"$1\" sh -c 'cd {SOURCES} && {source} {sources}'; rm \"$1/{list}.d/sources.list\""
    )]
}

/// Makes a file system with what is in a directory.
fn fill(tree: &Path, file: &Path) -> Outcome<()> {
    let doing = || file.display().to_string();
    File::create(file).and_then(|file| file.set_len(BYTES)).context(doing)?;
    let mut command = with_system_programs("mke2fs");
    command.args(OPTIONS).arg("-d").arg(tree).arg(file);
    succeed(command)
}

/// A program of the administrator's, which an ordinary search path may not find.
fn with_system_programs(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin");
    command
}

fn succeed(mut command: Command) -> Outcome<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().context(|| name.clone())?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::ours(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

/// Copies a disk and puts files of the host into its root directory. Their modes go with them.
///
/// # Errors
/// Without room, or without `debugfs`.
pub(crate) fn copy_with(disk: &Path, files: &[(&Path, &str)], copy: &Path) -> Outcome<()> {
    let mut copying = Command::new("cp");
    copying.args(["--sparse=always", "--reflink=auto", "--"]).arg(disk).arg(copy);
    succeed(copying)?;
    for (file, name) in files {
        let mut command = with_system_programs("debugfs");
        command.args(["-w", "-R"]).arg(format!("write {} {name}", file.display())).arg(copy);
        succeed(command)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_come_from_where_the_packages_did() {
        assert!(hooks(&[]).is_empty());
        let hook = &hooks(&["hello".into(), "lua5.4".into()])[0];
        assert!(hook.contains("source --download-only hello lua5.4"), "{hook}");
    }

    #[test]
    fn only_debian_is_made_from_packages() {
        let name: ImageName = "mine".parse().expect("a name");
        assert!(make(&name, &[], &[], &Progress::silent()).is_err());
    }

    #[test]
    fn a_copy_has_what_was_put_into_it() {
        let folder = tempfile::tempdir().expect("a directory");
        let tree = folder.path().join("tree");
        fs::create_dir(&tree).expect("made");
        fs::write(tree.join("there"), "before").expect("written");
        let (disk, copy) = (folder.path().join("disk"), folder.path().join("copy"));
        fill(&tree, &disk).expect("a file system");
        let more = folder.path().join("more");
        fs::write(&more, "put into it").expect("written");
        copy_with(&disk, &[(&more, "new")], &copy).expect("copied");
        for (name, text) in [("there", "before"), ("new", "put into it")] {
            let output =
                with_system_programs("debugfs").args(["-R", &format!("cat {name}")]).arg(&copy).output();
            assert_eq!(String::from_utf8_lossy(&output.expect("debugfs").stdout), text);
        }
    }
}
