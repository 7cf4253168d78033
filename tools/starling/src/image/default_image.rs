//! The image that is used when the user names none: Debian's static BusyBox and what a small system has around it.
//!
//! It is made once and kept in the user's cache as a cpio archive, under a name that changes when BusyBox or this
//! file does. It is written under another name first and renamed, so that a half-written one is never used.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::content::Content;
use super::cpio_writer::CpioWriter;
use super::source;
use super::tree::{Attributes, Kind, Node, Tree};
use crate::cache;
use crate::failure::{Context, Failure, Outcome};
use crate::progress::Progress;

/// Changes when what this file makes of BusyBox changes.
const LAYOUT: u32 = 1;

/// Where a static BusyBox may be, Debian's first.
const BUSYBOX: [&str; 2] = ["/bin/busybox", "/usr/bin/busybox"];

const DIRECTORIES: [(&str, u32); 18] = [
    ("bin", 0o755),
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("lib", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("sbin", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("usr/bin", 0o755),
    ("usr/sbin", 0o755),
    ("var/log", 0o755),
    ("var/run", 0o755),
    ("var/tmp", 0o1777),
];

const FILES: [(&str, u32, &str); 9] = [
    ("etc/fstab", 0o644, "proc /proc proc defaults 0 0\n"),
    (
        "etc/group",
        0o644,
        "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\ntty:x:5:\ndisk:x:6:\nusers:x:100:\nnogroup:x:65534:\n",
    ),
    ("etc/hostname", 0o644, "starling\n"),
    ("etc/hosts", 0o644, "127.0.0.1\tlocalhost starling\n::1\tlocalhost\n"),
    ("etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files\n"),
    ("etc/os-release", 0o644, "NAME=Starling\nID=starling\nPRETTY_NAME=\"Starling with BusyBox\"\n"),
    (
        "etc/passwd",
        0o644,
        "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\n\
         bin:x:2:2:bin:/bin:/bin/false\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    ),
    (
        "etc/profile",
        0o644,
        "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nexport PS1='\\u@\\h:\\w\\$ '\n",
    ),
    ("etc/shells", 0o644, "/bin/sh\n/bin/ash\n"),
];

/// The tree of the default image.
///
/// # Errors
/// When there is no static BusyBox or the cache cannot be written.
pub(super) fn tree(progress: &Progress) -> Outcome<Tree> {
    let busybox = find_busybox()?;
    let metadata = fs::metadata(&busybox).context(|| busybox.display().to_string())?;
    let name = format!("default-{LAYOUT}-{:x}-{:x}.cpio", metadata.len(), metadata.mtime());
    let path = cache::directory()?.join(name);
    if !path.exists() {
        progress.say("making the default image");
        make(&busybox, &path)?;
    }
    File::open(&path).context(|| path.display().to_string()).and_then(|file| source::tree(file, progress))
}

fn find_busybox() -> Outcome<PathBuf> {
    let found = BUSYBOX.iter().map(Path::new).find(|path| path.exists());
    found.map(Path::to_path_buf).ok_or_else(|| {
        Failure::ours("no BusyBox for the default image: install Debian's busybox-static, or name an image")
    })
}

fn make(busybox: &Path, path: &Path) -> Outcome<()> {
    let doing = || "making the default image".to_string();
    let listing = Command::new(busybox).arg("--list-full").output().context(doing)?;
    let program = fs::read(busybox).context(doing)?;
    if !listing.status.success() || is_dynamic(&program) {
        return Err(Failure::ours(format!(
            "{} is no static BusyBox: install Debian's busybox-static",
            busybox.display()
        )));
    }
    let tree = compose(program, &String::from_utf8_lossy(&listing.stdout)).context(doing)?;
    cache::replace(path, |file| {
        let mut writer = CpioWriter::new(std::io::BufWriter::new(file));
        writer.tree(&tree, |_| {})?;
        writer.finish()?.flush()
    })
}

/// Whether an ELF program asks for a dynamic linker. Its path is in the file as plain text, and in no static program
/// as the start of a NUL-terminated string at the place an interpreter has.
fn is_dynamic(program: &[u8]) -> bool {
    program
        .get(..4096)
        .unwrap_or(program)
        .windows(12)
        .any(|window| window == b"/ld-linux-x8" || window == b"/ld-musl-x86")
}

fn compose(program: Vec<u8>, applets: &str) -> Result<Tree, super::tree::NameError> {
    let mut tree = Tree::default();
    for (path, mode) in DIRECTORIES {
        tree.insert(path.as_bytes(), Node { attributes: Attributes::root(mode), kind: Kind::Directory })?;
    }
    for (path, mode, text) in FILES {
        let kind = Kind::File(tree.add_content(Content::Bytes(text.into())));
        tree.insert(path.as_bytes(), Node { attributes: Attributes::root(mode), kind })?;
    }
    let kind = Kind::File(tree.add_content(Content::Bytes(program)));
    tree.insert(b"bin/busybox", Node { attributes: Attributes::root(0o755), kind })?;
    for applet in
        applets.lines().map(str::trim).filter(|applet| *applet != "bin/busybox" && !applet.is_empty())
    {
        let kind = Kind::Symlink(b"/bin/busybox".to_vec());
        tree.insert(applet.as_bytes(), Node { attributes: Attributes::root(0o777), kind })?;
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_has_a_shell_and_its_surroundings() {
        let tree = compose(b"\x7fELF".to_vec(), "bin/busybox\nbin/sh\nusr/bin/awk\n").expect("good names");
        for path in ["bin/busybox", "bin/sh", "usr/bin/awk", "etc/passwd", "proc", "sys", "dev", "root"] {
            assert!(tree.lookup(path.as_bytes()).is_some(), "{path}");
        }
        assert_eq!(tree.lookup(b"bin/sh"), tree.lookup(b"bin/busybox"));
        assert_eq!(tree.lookup(b"tmp").map(|node| node.attributes.mode), Some(0o1777));
    }

    #[test]
    fn dynamic_programs_are_told_from_static_ones() {
        assert!(is_dynamic(b"\x7fELF....../lib64/ld-linux-x86-64.so.2\0"));
        assert!(!is_dynamic(b"\x7fELF......"));
    }
}
