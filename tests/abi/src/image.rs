//! The root directory both sides run: busybox, the programs, the runner and the table of cases.
//!
//! All small C programs are linked into one binary that looks at the name it was called by, as busybox does: a static
//! glibc program is 800 KB, and eighty of them would make an initramfs that takes longer to load than to run.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cases::{Case, Kind};
use crate::compile;

/// What the tools of private name spaces are called by.
const SPACE_TOOLS: [&str; 3] = ["bind", "newns", "nsdup"];

/// Where things are.
#[derive(Debug)]
pub(crate) struct Place {
    root: PathBuf,
    target: PathBuf,
}

impl Place {
    /// Finds the project from the current directory, or from where this program was built.
    pub(crate) fn find() -> Result<Self, String> {
        let here = std::env::current_dir().map_err(|error| format!("the current directory: {error}"))?;
        let built = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let root = here
            .ancestors()
            .chain(built.ancestors())
            .find(|folder| folder.join("tests/abi/programs").is_dir())
            .ok_or("not inside the project: no tests/abi/programs here or above")?
            .to_path_buf();
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        Ok(Self { target: target.join("abi"), root })
    }

    /// The top of the project.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the programs that are compared with the host.
    pub(crate) fn programs(&self) -> PathBuf {
        self.root.join("tests/abi/programs")
    }

    /// The folder of the programs that exist for the guest only.
    pub(crate) fn user(&self) -> PathBuf {
        self.root.join("user")
    }

    /// The script of busybox invocations.
    pub(crate) fn busybox_script(&self) -> PathBuf {
        self.root.join("tests/abi/busybox/script.sh")
    }

    /// Where built things go.
    pub(crate) fn built(&self) -> &Path {
        &self.target
    }

    /// The finished image.
    pub(crate) fn image(&self) -> PathBuf {
        self.target.join("image")
    }

    /// The image for cases that measure memory: the runner and the C programs, nothing else.
    pub(crate) fn small_image(&self) -> PathBuf {
        self.target.join("image-small")
    }
}

/// Builds both images; returns the cases that cannot be built on this machine, with the reason.
pub(crate) fn build(place: &Place, cases: &[Case]) -> Result<Vec<(String, String)>, String> {
    let (programs, skipped) = compile::build(place, cases)?;
    let new = place.built().join("image.new");
    lay_out(&new, cases, &programs)?;
    install_busybox(&new)?;
    for (name, path) in &programs.large {
        copy(path, &new.join(name))?;
    }
    copy(&place.busybox_script(), &new.join("abi/busybox.sh"))?;
    replace(&new, &place.image())?;
    lay_out(&new, cases, &programs)?;
    replace(&new, &place.small_image())?;
    Ok(skipped)
}

/// What both images have.
fn lay_out(new: &Path, cases: &[Case], programs: &compile::Programs) -> Result<(), String> {
    remove(new)?;
    for folder in
        ["bin", "abi/bin", "dev", "etc", "home", "mnt", "proc", "root", "run", "sys", "tmp", "var/tmp"]
    {
        let path = new.join(folder);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    for (folder, mode) in [("tmp", 0o1777), ("var/tmp", 0o1777), ("root", 0o700)] {
        set_mode(&new.join(folder), mode)?;
    }
    copy(&programs.multi_call, &new.join("abi/bin/abi"))?;
    for name in &programs.multi_call_names {
        link("abi", &new.join("abi/bin").join(name))?;
    }
    for (name, path) in &programs.separate {
        copy(path, &new.join(name))?;
    }
    for tool in SPACE_TOOLS {
        link("spaces", &new.join("abi").join(tool))?;
    }
    write(&new.join("abi/cases"), &table(cases))?;
    write(
        &new.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    )?;
    write(&new.join("etc/group"), "root:x:0:\ntty:x:5:\nusers:x:100:\nnogroup:x:65534:\n")?;
    write(&new.join("etc/hostname"), "starling\n")
}

/// Puts a finished folder in the place of an old one.
fn replace(new: &Path, old: &Path) -> Result<(), String> {
    remove(old)?;
    fs::rename(new, old).map_err(|error| format!("{}: {error}", new.display()))
}

/// Copies the finished image for use by hand.
pub(crate) fn copy_to(place: &Place, directory: &Path) -> Result<(), String> {
    let status = Command::new("cp").arg("-a").arg(place.image()).arg(directory).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("cannot copy the image to {}", directory.display())),
    }
}

/// The table the runner reads: `NAME LIMIT WORD...` a line, the limit of a guest case marked with `+`.
fn table(cases: &[Case]) -> String {
    let line = |case: &Case| {
        let mark = if case.kind == Kind::Guest { "+" } else { "" };
        format!("{} {mark}{} {}\n", case.name, case.patience_seconds(), case.command.join(" "))
    };
    cases.iter().map(line).collect()
}

/// Gives the cases another argument, a number of seconds, and as much more time, in images that are built.
pub(crate) fn prolong(place: &Place, mut cases: Vec<Case>, seconds: u32) -> Result<Vec<Case>, String> {
    for case in &mut cases {
        case.command.push(seconds.to_string());
        case.limit_seconds += seconds;
    }
    for image in [place.image(), place.small_image()] {
        write(&image.join("abi/cases"), &table(&cases))?;
    }
    Ok(cases)
}

/// Puts busybox and a link for each of its applets into `bin`.
fn install_busybox(image: &Path) -> Result<(), String> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .map(Path::new)
        .find(|path| path.exists())
        .ok_or("no /bin/busybox: install busybox-static")?;
    copy(busybox, &image.join("bin/busybox"))?;
    let list =
        Command::new(busybox).arg("--list").output().map_err(|error| format!("busybox --list: {error}"))?;
    for applet in String::from_utf8_lossy(&list.stdout).lines().filter(|applet| *applet != "busybox") {
        link("busybox", &image.join("bin").join(applet))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))?;
    set_mode(to, 0o755)
}

fn link(target: &str, at: &Path) -> Result<(), String> {
    symlink(target, at).map_err(|error| format!("{}: {error}", at.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn set_mode(path: &Path, mode: u32) -> Result<(), String> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}
