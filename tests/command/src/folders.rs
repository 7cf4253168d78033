//! Directories of the host in the guest: what programs of the guest make of them, and what the host finds afterwards.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::case::starling;
use crate::disks::Check;

/// What is promised.
pub(crate) const CHECKS: [(&str, Check); 4] = [
    ("a folder of the host looks in the guest as on the host", looks_the_same),
    ("a folder of the host that is shared to be read is not changed", read_only),
    ("a folder is the root, to be read or to be written", root),
    ("a file server that goes away fails its users and nobody else", gone),
];

/// What takes long.
pub(crate) const LONG_CHECKS: [(&str, Check); 1] =
    [("what the guest unpacks into a folder, four at a time, the host finds", unpacked)];

/// Machines, with their numbers of processors, and how the folder is shared.
const MACHINES: [(&str, &str, &str); 3] =
    [("microvm", "1", ""), ("microvm", "4", ":cached"), ("q35", "2", ":rw")];
/// Looks at all files below the working directory. The same program says the same on the host.
const LOOK: &str = "find . | sort | md5sum; find . -type f -print0 | sort -z | xargs -0 md5sum | md5sum; \
    grep -r needle . | sort | md5sum; find . -type l -print0 | sort -z | xargs -0 -n1 readlink | md5sum; \
    find . -print0 | sort -z | xargs -0 stat -c '%F %s %h %a %Y' | md5sum; tar c . | md5sum";
/// How deep directories are nested, each with a name of so many bytes.
const DEPTH: usize = 15;
const NAME_BYTES: usize = 200;
/// Bytes of the large file.
const LARGE_BYTES: usize = 100 << 20;

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}, {:?}, {:?}", output.status, text(&output.stdout), text(&output.stderr))
}

/// What a shell script of the host's BusyBox prints.
fn on_host(directory: &Path, script: &str) -> Result<String, String> {
    let output =
        Command::new("busybox").args(["sh", "-c", script]).current_dir(directory).output().map_err(text)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(said(&output))
    }
}

/// What a script prints in a guest that has the folder at `/m`.
fn in_guest(machine: (&str, &str, &str), folder: &Path, script: &str) -> Result<String, String> {
    let (kind, cpus, how) = machine;
    let output = starling()
        .args(["--machine", kind, "--cpus", cpus, "--timeout", "1200"])
        .args(["--volume", &format!("{}:/m{how}", folder.display())])
        .args(["--", "sh", "-c", script])
        .output()
        .map_err(text)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{machine:?}: {}", said(&output)))
    }
}

fn same(what: &str, guest: &str, host: &str) -> Result<(), String> {
    if guest == host {
        return Ok(());
    }
    let at = guest.lines().zip(host.lines()).take_while(|(one, other)| one == other).count();
    let [guest, host] = [guest, host].map(|all| all.lines().nth(at).unwrap_or("no more"));
    Err(format!("{what}: in line {} the guest says {guest:?}, the host {host:?}", at + 1))
}

/// Files of many kinds, with names of all bytes.
fn fill(root: &Path) -> Result<(), String> {
    let put = |name: &[u8], bytes: &[u8]| {
        fs::write(root.join(std::ffi::OsStr::from_bytes(name)), bytes).map_err(text)
    };
    let odd: Vec<u8> = (1..=255).filter(|byte| *byte != b'/' && *byte != b'\n').collect();
    put(&odd[..127], b"odd")?;
    put(&odd[127..], b"names with a needle")?;
    put(&[b'x'; 255], b"long")?;
    put(b" -rf *", b"a name that means something to shells")?;
    let mut deep = root.to_path_buf();
    for _ in 0..DEPTH {
        deep.push("d".repeat(NAME_BYTES));
    }
    fs::create_dir_all(&deep).map_err(text)?;
    fs::write(deep.join("needle"), "a needle in depth").map_err(text)?;
    for number in 0..300 {
        let directory = root.join(format!("many/{}", number % 7));
        fs::create_dir_all(&directory).map_err(text)?;
        let bytes = format!("file {number}, {} needle\n", number % 11).repeat(number * number / 90);
        fs::write(directory.join(format!("f{number}")), bytes).map_err(text)?;
    }
    fs::hard_link(root.join("many/1/f1"), root.join("hard")).map_err(text)?;
    std::os::unix::fs::symlink("many/2/f2", root.join("soft")).map_err(text)?;
    std::os::unix::fs::symlink("/nowhere", root.join("dangling")).map_err(text)?;
    Ok(())
}

fn looks_the_same() -> Result<(), String> {
    for machine in MACHINES {
        let folder = tempfile::tempdir().map_err(text)?;
        fill(folder.path())?;
        let guest = in_guest(machine, folder.path(), &format!("cd /m; {LOOK}"))?;
        same("looking", &guest, &on_host(folder.path(), LOOK)?)?;
        in_guest(machine, folder.path(), "cd /m && rm -rf * && [ -z \"$(ls -A)\" ]")?;
        if fs::read_dir(folder.path()).map_err(text)?.next().is_some() {
            return Err("rm -rf has left something".into());
        }
    }
    Ok(())
}

/// Whatever would change it says so with `EROFS`, for root, too, and with both kinds of caching. Who mounts it anew to be written meets the server's refusal.
fn read_only() -> Result<(), String> {
    for how in [":ro", ":ro:cached"] {
        let folder = tempfile::tempdir().map_err(text)?;
        fill(folder.path())?;
        let before = on_host(folder.path(), LOOK)?;
        let script = "cd /m; grep -q ' /m 9p ro' /proc/mounts || echo not to be read only; \
            refused() { \"$@\" 2>&1 | grep -q 'Read-only file system' || echo changed by \"$@\"; }; \
            refused touch new; refused mkdir new; refused rm hard; refused mv hard new; refused ln hard new; refused ln -s hard new; \
            refused chmod 600 hard; refused chown 5 hard; refused mknod new p; refused sh -c 'echo more >> hard'; \
            refused truncate -s 1 hard; cat many/0/f294; \
            mount -o remount,rw /m; refused touch new; refused rm hard; refused sh -c 'echo more >> hard'";
        let guest = in_guest(("microvm", "2", how), folder.path(), script)?;
        same("what is read", &guest, &on_host(folder.path(), "cat many/0/f294")?)?;
        same("what is there after", &on_host(folder.path(), LOOK)?, &before)?;
    }
    Ok(())
}

fn unpacked() -> Result<(), String> {
    for machine in MACHINES {
        let (source, folder) = (tempfile::tempdir().map_err(text)?, tempfile::tempdir().map_err(text)?);
        fill(source.path())?;
        let archive = folder.path().join("all.tar");
        on_host(source.path(), &format!("tar cf {} .", archive.display()))?;
        let large = folder.path().join("large");
        fs::write(
            &large,
            (0..LARGE_BYTES / 8).flat_map(|at| (at as u64 * 7919).to_le_bytes()).collect::<Vec<_>>(),
        )
        .map_err(text)?;
        let script = "cd /m; for i in 1 2 3 4; do (mkdir $i; tar xf all.tar -C $i) & done; wait; \
            cp large copy; cmp large copy; md5sum < copy";
        let guest = in_guest(machine, folder.path(), script)?;
        same("the large file", &guest, &on_host(folder.path(), "md5sum < copy; cmp large copy")?)?;
        for number in 1..=4 {
            // BusyBox's tar sets the times of files only.
            let look = "find . | sort; find . -type f -print0 | sort -z | xargs -0 md5sum; \
                find . -print0 | sort -z | xargs -0 stat -c '%F %h %a'; \
                find . -type f -print0 | sort -z | xargs -0 stat -c %Y";
            let (one, other) =
                (on_host(source.path(), look)?, on_host(&folder.path().join(number.to_string()), look)?);
            same("what was unpacked", &other, &one)?;
        }
    }
    Ok(())
}

fn root() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    on_host(
        folder.path(),
        "mkdir -p bin etc dev proc sys tmp; cp /bin/busybox bin/; ln -s busybox bin/sh; echo box > etc/name",
    )?;
    let run = |options: &[&str], script: &str| {
        starling()
            .args(["--cpus", "2", "--timeout", "280", "--root"])
            .arg(folder.path())
            .args(options)
            .args(["--", "/bin/sh", "-c", script])
            .output()
            .map_err(text)
    };
    let written = run(
        &["--rw"],
        "busybox cat /etc/name /../etc/name; echo written > /new; busybox grep ' / ' /proc/mounts",
    )?;
    let lines = String::from_utf8_lossy(&written.stdout).into_owned();
    if !written.status.success() || !lines.starts_with("box\nbox\nstarling0 / 9p rw") {
        return Err(format!("with --rw: {}", said(&written)));
    }
    same("what was written", &fs::read_to_string(folder.path().join("new")).map_err(text)?, "written\n")?;
    let read = run(&[], "echo changed > /new || echo refused; busybox cat /new")?;
    if !read.status.success() {
        return Err(format!("without --rw: {}", said(&read)));
    }
    same("what is there after", &fs::read_to_string(folder.path().join("new")).map_err(text)?, "written\n")
}

fn gone() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    fs::write(folder.path().join("file"), vec![1; 5 << 20]).map_err(text)?;
    let script = "exec 3< /m/file; (while cat /m/file; do :; done > /dev/null 2> /tmp/said) & sleep 1; \
        for i in $(grep -l '0x10[04]9' /sys/bus/pci/drivers/virtio-pci/0*/device); do i=${i%/device}; echo ${i##*/} > /sys/bus/pci/drivers/virtio-pci/unbind; done; \
        wait; ls /m 2>&1; cat <&3 2>&1; echo fine > /tmp/other; cat /tmp/other; grep -c 'Input/output error' /tmp/said";
    let said = in_guest(("q35", "2", ""), folder.path(), script)?;
    if said.contains("fine\n1") && said.matches("Input/output error").count() >= 2 {
        Ok(())
    } else {
        Err(said)
    }
}
