//! Root file systems that the cases use: the same few files as a directory and in archives, and archives with bad names.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tar::{Builder, EntryType, Header};

/// Where the images are. They go away with this.
#[derive(Debug)]
pub(crate) struct Images {
    folder: tempfile::TempDir,
}

impl Images {
    /// Makes all images in a temporary directory.
    pub(crate) fn make() -> io::Result<Self> {
        let images = Self { folder: tempfile::tempdir()? };
        make_directory(&images.path("directory"))?;
        let mut archive = Builder::new(File::create(images.path("image.tar"))?);
        archive.follow_symlinks(false);
        archive.append_dir_all(".", images.path("directory"))?;
        // The library stores two files where the directory has two names of one.
        let mut link = Header::new_gnu();
        link.set_entry_type(EntryType::Link);
        link.set_size(0);
        link.set_mode(0o644);
        archive.append_link(&mut link, "etc/again", "etc/motd")?;
        archive.finish()?;
        make_escaping_name(&images.path("parent.tar"))?;
        make_escaping_link(&images.path("link.tar"))?;
        fs::write(images.path("text"), "no image\n")?;
        fs::write(images.path("magic"), [&[0; 1080][..], b"\x53\xef", &[0; 1000]].concat())?;
        fs::write(images.path("look.kdb"), "cpus\nregisters\nbacktrace\nthreads\nboxes\n\u{7}\ncontinue\n")?;
        fs::write(images.path("switch.kdb"), "cpu 3\nbacktrace\ncpu 9\ncpu 0\ncontinue\n")?;
        fs::write(images.path("key.kdb"), "enter\nhelp\ncontinue\ncpus\n")?;
        Ok(images)
    }

    /// Where the image of that name is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// BusyBox as a shell, and a few files around it.
fn make_directory(root: &Path) -> io::Result<()> {
    for folder in ["bin", "etc", "proc", "dev", "tmp"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::copy("/bin/busybox", root.join("bin/busybox"))?;
    for applet in ["sh", "cat", "ls", "readlink", "stat"] {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    fs::write(root.join("etc/motd"), "welcome\n")?;
    fs::write(root.join("etc/noexec"), "not a program\n")?;
    symlink("/etc/motd", root.join("absolute"))?;
    symlink("../../../../etc/motd", root.join("upwards"))?;
    fs::hard_link(root.join("etc/motd"), root.join("etc/again"))
}

/// BusyBox with all it can do.
pub(crate) fn make_folder_with_busybox(root: &Path) -> io::Result<()> {
    for folder in ["bin", "proc", "dev", "tmp", "sys"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::copy("/bin/busybox", root.join("bin/busybox"))?;
    for applet in output("/bin/busybox", &["--list"])?.lines().filter(|name| *name != "busybox") {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    Ok(())
}

/// The same, and Debian's `lspci` with its libraries.
pub(crate) fn make_folder_with_lspci(root: &Path) -> io::Result<()> {
    make_folder_with_busybox(root)?;
    add_program(root, "lspci")
}

/// Copies a program of the host, found as root's shell finds it, and its libraries into an image.
pub(crate) fn add_program(root: &Path, name: &str) -> io::Result<()> {
    let program = output("sh", &["-c", "PATH=$PATH:/usr/sbin:/sbin; command -v \"$0\"", name])?;
    let program = program.trim();
    let place = root.join("bin").join(name);
    fs::remove_file(&place).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    fs::copy(program, place)?;
    let libraries = output("ldd", &[program])?;
    for path in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        let copy = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().unwrap_or(root))?;
        fs::copy(path, copy)?;
    }
    Ok(())
}

/// What a program prints.
fn output(program: &str, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("{program} {arguments:?}: {}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(io::Error::other)
}

fn member(
    archive: &mut Builder<File>,
    name: &str,
    kind: EntryType,
    target: &str,
    data: &[u8],
) -> io::Result<()> {
    let mut header = Header::new_gnu();
    // The library itself refuses names like these.
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_link_name_literal(target)?;
    header.set_mode(0o644);
    header.set_size(data.len() as u64);
    header.set_cksum();
    archive.append(&header, data)
}

/// A member whose name leads out of the root.
fn make_escaping_name(path: &Path) -> io::Result<()> {
    let mut archive = Builder::new(File::create(path)?);
    member(&mut archive, "../escaped", EntryType::Regular, "", b"out\n")?;
    archive.finish()
}

/// A link that leads out of the root, and a member behind it.
fn make_escaping_link(path: &Path) -> io::Result<()> {
    let mut archive = Builder::new(File::create(path)?);
    let target = path.parent().unwrap_or(path).display().to_string();
    member(&mut archive, "out", EntryType::Symlink, &target, b"")?;
    member(&mut archive, "out/escaped", EntryType::Regular, "", b"out\n")?;
    let busybox = fs::read("/bin/busybox")?;
    let mut header = Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(busybox.len() as u64);
    archive.append_data(&mut header, "bin/cat", busybox.as_slice())?;
    archive.finish()
}
