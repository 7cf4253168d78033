//! A tree of 300 MB in the guest: BusyBox's and Debian's `tar`, `find`, `grep` and `rm` unpack it, look at all of it and remove it, on an ext4 and in a
//! folder of the host. They must say what the same programs say on the host.
//!
//! The archive is a disk that can only be read. What the guest's programs say they write to another folder of the host, where it is compared.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use crate::case::starling;
use crate::disks::{Check, e2fsck, said, successful, text};
use crate::images;

/// What is promised.
pub(crate) const CHECKS: [(&str, Check); 2] = [
    ("a tree of 300 MB is unpacked, searched and removed on an ext4 as on the host", on_ext4),
    ("a tree of 300 MB is unpacked, searched and removed in a folder of the host as on the host", on_folders),
];

/// Machines with their numbers of processors; for folders, how they are shared.
const ON_EXT4: [(&str, &str); 2] = [("microvm", "1"), ("q35", "4")];
const ON_FOLDERS: [(&str, &str, &str); 2] = [("microvm", "4", ":cached"), ("q35", "1", "")];
const DISK_BYTES: u64 = 1 << 30;
const DEBIAN: [&str; 12] =
    ["tar", "find", "grep", "rm", "sort", "stat", "md5sum", "xargs", "readlink", "cmp", "ls", "mkdir"];
/// Files of a few kilobytes, and of megabytes.
const SMALL_FILES: u64 = 3000;
const LARGE_FILES: u64 = 6;
const LARGE_BYTES: usize = 45 << 20;
/// How deep directories are nested, each with a name of so many bytes.
const DEPTH: usize = 15;
const NAME_BYTES: usize = 200;

/// Looks at the tree in the working directory; `$B` stands before each program, `$OUT` is where it is written. Times of links are left out, and so are those of
/// directories unless `$T` has them: BusyBox's `tar` does not set them.
const LOOK: &str = "export LC_ALL=C; \
    ${B}find . -type d -print0 | ${B}sort -z | ${B}xargs -0 ${B}stat -c \"%n %F %a %u %g $T\" > $OUT.directories; \
    ${B}find . -type f -print0 | ${B}sort -z | ${B}xargs -0 ${B}stat -c '%n %F %s %h %a %u %g %Y' > $OUT.files; \
    ${B}find . -type f -print0 | ${B}sort -z | ${B}xargs -0 ${B}md5sum > $OUT.sums; \
    ${B}find . -type l -print0 | ${B}sort -z | ${B}xargs -0 ${B}stat -c '%N' > $OUT.links; \
    ${B}grep -rsn needle . 2>&1 | ${B}sort > $OUT.found; \
    ${B}grep -rslE 'file [0-9]*7, ' . | ${B}sort > $OUT.named; \
    ${B}find . -name 'f*7' -size +3k | ${B}sort > $OUT.sevens; \
    ${B}find . -type f -links +1 | ${B}sort > $OUT.twice";
const LOOKED: [&str; 8] = ["directories", "files", "sums", "links", "found", "named", "sevens", "twice"];

/// Unpacks, looks, removes; `/t` is where. What is free is asked for before and after, if somebody counts it.
const ROUNDS: &str = r#"
look() { OUT=/out/$1; cd /t/tree; LOOK; cd /; }
round() {
    ${B}mkdir /t/tree
    ${B}tar xf $archive -C /t/tree
    again
    look $1
    ${B}rm -rf /t/tree
    [ ! -e /t/tree ]
}
before=$(counted)
B=/bin/ T=%Y round debian
after=$(counted)
[ "$before" = "$after" ] || echo "$before were free, $after after Debian's rm"
B="busybox " T= round busybox
after=$(counted)
[ "$before" = "$after" ] || echo "$before were free, $after after BusyBox's rm"
mkdir /t/rest
/bin/tar xf $archive -C /t/rest
"#;

/// The tree's archive, what the host says of it, the guest's root and a folder for what the guest says.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn make() -> Result<Self, String> {
        let place = Self { folder: tempfile::tempdir().map_err(text)? };
        let (source, tree) = (place.path("source"), place.path("tree"));
        fs::create_dir_all(&source).and_then(|()| fs::create_dir_all(&tree)).map_err(text)?;
        fill(&source)?;
        let archive = place.path("archive");
        let pack = ["--sort=name", "--owner=1000", "--group=100", "-C", &word(&source), "-c", ".", "-f"];
        successful("tar", &pack, &archive)?;
        successful("tar", &["-C", &word(&tree), "-xf"], &archive)?;
        fs::remove_dir_all(source).map_err(text)?;
        let root = place.path("root");
        images::make_folder_with_busybox(&root).map_err(text)?;
        for program in DEBIAN {
            images::add_program(&root, program).map_err(text)?;
        }
        for folder in ["t", "out"] {
            fs::create_dir(root.join(folder)).map_err(text)?;
        }
        place.look(&tree, "/bin/", "debian")?;
        place.look(&tree, "busybox ", "busybox")?;
        Ok(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What the host says of a tree, in files of that name.
    fn look(&self, tree: &Path, prefix: &str, name: &str) -> Result<(), String> {
        let out = self.path("host");
        fs::create_dir_all(&out).map_err(text)?;
        let output = Command::new("sh")
            .args(["-c", LOOK])
            .env("B", prefix)
            .env("T", if name == "busybox" { "" } else { "%Y" })
            .env("OUT", out.join(name))
            .current_dir(tree)
            .output()
            .map_err(text)?;
        if output.status.success() { Ok(()) } else { Err(said(&output)) }
    }

    /// Runs the rounds in a guest and compares.
    fn run(
        &self,
        machine: (&str, &str),
        options: &[String],
        before: &str,
        after: &str,
    ) -> Result<(), String> {
        let out = self.path("out");
        let _ = fs::remove_dir_all(&out);
        fs::create_dir(&out).map_err(text)?;
        let script = format!("{before}{}{after}", ROUNDS.replace("LOOK", LOOK));
        let output = starling()
            .args(["--machine", machine.0, "--cpus", machine.1, "--memory", "512M", "--timeout", "1500"])
            .args(["--volume", &format!("{}:/out", word(&out))])
            .args(options)
            .arg(self.path("root"))
            .args(["--", "sh", "-ec", &script])
            .output()
            .map_err(text)?;
        if !output.status.success() || !output.stdout.is_empty() || !output.stderr.is_empty() {
            return Err(said(&output));
        }
        for name in ["debian", "busybox"] {
            for what in LOOKED {
                let name = format!("{name}.{what}");
                same(&out.join(&name), &self.path("host").join(&name))?;
            }
        }
        Ok(())
    }
}

fn word(path: &Path) -> String {
    path.display().to_string()
}

/// Compares a file of the guest's with the host's.
fn same(guest: &Path, host: &Path) -> Result<(), String> {
    let name = host.display();
    let (guest, host) = (fs::read(guest).map_err(text)?, fs::read(host).map_err(text)?);
    if host.is_empty() {
        return Err(format!("{name}: there is nothing to compare with"));
    }
    if guest == host {
        return Ok(());
    }
    let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect::<Vec<_>>();
    let (guest, host) = (lines(&guest), lines(&host));
    let at = guest.iter().zip(&host).take_while(|(one, other)| one == other).count();
    Err(format!(
        "{name}, line {at} of {} and {}: the guest says {:?}, the host {:?}",
        guest.len(),
        host.len(),
        guest.get(at),
        host.get(at)
    ))
}

/// Bytes that look like nothing, the same in every run.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..bytes / 8).flat_map(|_| next().to_le_bytes()).collect()
}

/// Files of many sizes and modes, names of two kinds of links, deep paths, empty directories.
fn fill(root: &Path) -> Result<(), String> {
    for number in 0..SMALL_FILES {
        let folder = root.join(format!("many/{}/{}", number % 7, number % 61));
        fs::create_dir_all(&folder).map_err(text)?;
        let line = if number % 11 == 0 { "needle" } else { "hay" };
        let times = (number * 37 % 900) as usize;
        put(
            &folder.join(format!("f{number}")),
            format!("file {number}, {line}\n").repeat(times).as_bytes(),
            number,
        )?;
    }
    for number in 0..LARGE_FILES {
        let mut bytes = noise(number + 1, LARGE_BYTES);
        bytes.extend_from_slice(b"\na needle behind all of it\n");
        put(&root.join(format!("large{number}")), &bytes, number)?;
    }
    put(&root.join(std::ffi::OsStr::new("-rf * \t$(no) \u{fc}")), b"a needle in odd company\n", 1)?;
    put(&root.join("x".repeat(255)), b"a long name\n", 2)?;
    let mut deep = root.to_path_buf();
    (0..DEPTH).for_each(|_| deep.push("d".repeat(NAME_BYTES)));
    fs::create_dir_all(&deep).map_err(text)?;
    put(&deep.join("needle"), b"a needle in depth\n", 3)?;
    for number in 0..50_u64 {
        let file = format!("many/{}/{}/f{number}", number % 7, number % 61);
        fs::hard_link(root.join(&file), root.join(format!("hard{number}"))).map_err(text)?;
        symlink(&file, root.join(format!("soft{number}"))).map_err(text)?;
        symlink(format!("{number}").repeat(100), root.join(format!("dangling{number}"))).map_err(text)?;
        fs::create_dir_all(root.join(format!("empty/{number}"))).map_err(text)?;
    }
    fs::set_permissions(root.join("empty/7"), fs::Permissions::from_mode(0o1777)).map_err(text)
}

fn put(path: &Path, bytes: &[u8], number: u64) -> Result<(), String> {
    fs::write(path, bytes).map_err(text)?;
    let modes = [0o644, 0o600, 0o755, 0o4711, 0o440];
    fs::set_permissions(path, fs::Permissions::from_mode(modes[number as usize % modes.len()]))
        .map_err(text)?;
    let when = UNIX_EPOCH + Duration::from_secs(1_000_000_000 + number * 86_400);
    File::open(path).and_then(|file| file.set_modified(when)).map_err(text)
}

fn on_ext4() -> Result<(), String> {
    let place = Place::make()?;
    // Mounted again before it is looked at: what the disk has is what counts.
    let before = "archive=/dev/vdb; mount -t ext4 /dev/vda /t; \
        again() { sync; umount /t; mount -t ext4 /dev/vda /t; }; counted() { sync; stat -f -c '%f %d' /t; }";
    for machine in ON_EXT4 {
        let disk = place.path("disk");
        let _ = fs::remove_file(&disk);
        File::create(&disk).and_then(|file| file.set_len(DISK_BYTES)).map_err(text)?;
        successful("mke2fs", &["-q", "-F", "-t", "ext4"], &disk)?;
        let options =
            ["--disk".into(), word(&disk), "--disk".into(), format!("{}:ro", word(&place.path("archive")))];
        place.run(machine, &options, before, "umount /t").map_err(|why| format!("{machine:?}: {why}"))?;
        e2fsck("-fn", &disk, 0)?;
    }
    Ok(())
}

fn on_folders() -> Result<(), String> {
    let place = Place::make()?;
    let before = "archive=/dev/vda; again() { :; }; counted() { ls -A /t; }";
    for (machine, cpus, how) in ON_FOLDERS {
        let shared = place.path("shared");
        fs::create_dir(&shared).map_err(text)?;
        let options = [
            "--volume".into(),
            format!("{}:/t{how}", word(&shared)),
            "--disk".into(),
            format!("{}:ro", word(&place.path("archive"))),
        ];
        place
            .run((machine, cpus), &options, before, "")
            .map_err(|why| format!("{machine} with {cpus} processors{how}: {why}"))?;
        // What is left, the host sees as it is.
        place.look(&shared.join("rest"), "/bin/", "rest")?;
        for what in LOOKED {
            let file = |name: &str| place.path("host").join(format!("{name}.{what}"));
            same(&file("rest"), &file("debian"))?;
        }
        fs::remove_dir_all(shared).map_err(text)?;
    }
    Ok(())
}
