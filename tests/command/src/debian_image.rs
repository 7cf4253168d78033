//! An image of Debian that the command makes from packages when it is asked for by name. It needs `mmdebstrap`, and a way to Debian's packages.

use std::path::Path;
use std::process::{Command, Output};

use crate::disks::{said, text};

/// What is promised.
pub(crate) const NAME: &str = "an image of Debian is made from its packages, once, and runs its programs";

const SCRIPT: &str = "set -e; . /etc/os-release; echo $VERSION_CODENAME; perl -e 'print 6 * 7, \"\\n\"'; dpkg --verify; \
    dpkg --configure -a; apt-get --version | head -n 1 | cut -d' ' -f1; readlink /proc/self/exe";
const SAYS: &str = "bookworm\n42\napt\n";

fn starling(cache: &Path, words: &[&str]) -> Result<Output, String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../starling");
    Command::new(path).env("XDG_CACHE_HOME", cache).args(words).output().map_err(text)
}

/// Runs it twice, the second time as it is kept, without words as the image says, and then one with a package more.
pub(crate) fn check() -> Result<(), String> {
    let cache = tempfile::tempdir().map_err(text)?;
    let run = |words: &[&str]| starling(cache.path(), words);
    for _ in 0..2 {
        let output = run(&["run", "--timeout", "600", "debian", "--", "bash", "-c", SCRIPT])?;
        if !output.status.success() || !String::from_utf8_lossy(&output.stdout).starts_with(SAYS) {
            return Err(said(&output));
        }
    }
    let kept = run(&["image", "ls"])?;
    if String::from_utf8_lossy(&kept.stdout).matches("debian:latest").count() != 1 {
        return Err(said(&kept));
    }
    let more = run(&["image", "build", "debian", "--include=file,bc"])?;
    if !more.status.success() {
        return Err(said(&more));
    }
    let output =
        run(&["run", "--timeout", "600", "debian", "--", "bash", "-c", "echo 2^64 | bc; file /etc/motd"])?;
    if output.stdout != b"18446744073709551616\n/etc/motd: ASCII text\n" {
        return Err(said(&output));
    }
    let refused = run(&["image", "build", "debian", "--include=no-such-package"])?;
    if refused.status.code() == Some(125)
        && String::from_utf8_lossy(&refused.stderr).contains("no-such-package")
    {
        Ok(())
    } else {
        Err(said(&refused))
    }
}
