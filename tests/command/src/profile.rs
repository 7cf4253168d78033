//! Where the kernel spends its time: `/proc/profile` by `profile=` on the command line, read by Debian's `readprofile`, and by function.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::case::starling;
use crate::disks::{said, text};

/// What is promised.
pub(crate) const NAME: &str = "where the kernel spends its time is counted, and readprofile says so";

const SHIFT: u32 = 4;
/// What fills the memory of who reads `/dev/zero`: nearly all that the script does.
const BUSY: &str = "starling_user_zero";
const MET_MIN: u32 = 50;
/// As often it is met before the counters are read: one of them is for 16 bytes, and of those where a function begins and the one
/// before it ends `readprofile` tells only one function.
const MET_ENOUGH: u32 = 2 * MET_MIN;
/// Bytes of a line that `readprofile` takes.
const NAME_MAX: usize = 100;

/// Zeros are read until that was met often enough; then nothing is done, until waiting was.
const SCRIPT: &str = r#"
met() { n=$(sed -n "s/^ *\([0-9]*\) $1\$/\1/p" /proc/starling/profile); echo ${n:-0}; }
all() { n=0; while read count name; do n=$((n + count)); done < /proc/starling/profile; echo $n; }
echo > /proc/profile
until [ $(met BUSY) -ge ENOUGH ]; do dd if=/dev/zero of=/dev/null bs=1M count=100 2> /dev/null; done
cat /proc/profile > /out/profile
[ $(stat -c %s /proc/profile) = $(stat -c %s /out/profile) ] || echo other size
echo > /proc/profile
until [ $(all) -ge MIN ]; do usleep 20000; done
[ $(met BUSY) -lt MIN ] || echo 'they were not forgotten'
echo end
"#;

/// Counts on one processor and on several. Without the word on the command line there are no such files.
pub(crate) fn check() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let volume = format!("{}:/out", folder.path().display());
    let script = SCRIPT
        .replace("BUSY", BUSY)
        .replace("ENOUGH", &MET_ENOUGH.to_string())
        .replace("MIN", &MET_MIN.to_string());
    let option = format!("profile={SHIFT}");
    for cpus in ["1", "4"] {
        let mut command = starling();
        command.args(["--cpus", cpus, "--timeout", "300", "--kernel-arg", &option, "--volume", &volume]);
        let output = command.args(["--", "sh", "-c", &script]).output().map_err(text)?;
        if !output.status.success() || output.stdout != b"end\n" || !output.stderr.is_empty() {
            return Err(format!("{cpus} processors: {}", said(&output)));
        }
        read(&folder.path().join("profile")).map_err(|why| format!("{cpus} processors: {why}"))?;
    }
    let mut plain = starling();
    plain.args([
        "--timeout",
        "100",
        "--",
        "sh",
        "-c",
        "ls /proc/profile /proc/starling/profile 2>&1 | grep -c 'No such'",
    ]);
    let output = plain.output().map_err(text)?;
    if output.stdout == b"2\n" { Ok(()) } else { Err(said(&output)) }
}

/// What `readprofile` makes of the counters, with the kernel's own symbols.
fn read(profile: &Path) -> Result<(), String> {
    let bytes = fs::read(profile).map_err(text)?;
    let words: Vec<u32> =
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    if words.first() != Some(&(1 << SHIFT)) {
        return Err(format!("it begins with {:?}", words.first()));
    }
    let sum: u32 = words[1..].iter().sum();
    let map = profile.with_extension("map");
    fs::write(&map, symbols()?).map_err(text)?;
    let path = env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut readprofile = Command::new("readprofile");
    readprofile.env("PATH", path).arg("-m").arg(&map).arg("-p").arg(profile);
    let output = readprofile.output().map_err(|error| format!("readprofile: {error}"))?;
    let listing = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = |name: &str| {
        let line = listing.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u32>().ok())
    };
    let (busy, total) = (count(BUSY), count("total"));
    // What lies behind the last function it does not count.
    if output.status.success() && busy >= Some(MET_MIN) && total >= busy && total <= Some(sum) {
        Ok(())
    } else {
        Err(format!("{sum} were counted; {}", said(&output)))
    }
}

/// The symbols of the kernel that was booted, as `System.map` has them.
fn symbols() -> Result<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let kernel = root.join(target).join("x86_64-unknown-none/release/starling-kernel");
    let mut nm = Command::new("nm");
    let output = nm
        .arg("-n")
        .arg(&kernel)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("nm: {error}"))?;
    let mut map = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let short: String = line.chars().take(NAME_MAX).collect();
        writeln!(map, "{short}").map_err(text)?;
    }
    String::from_utf8(map).map_err(text)
}
