//! The host's side: the same image in a root of its own on the host's Linux.
//!
//! `unshare` gives the runner its own processes, mounts, IPC and host name, so that its process 1 is the runner as it is
//! in the VM, `kill(-1)` cannot leave the case, and mounts end with it. The root is a tmpfs, as Starling's is, and that of the name space of mounts: with another
//! one nobody may make a name space of users.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use crate::cases::Case;
use crate::image::Place;
use abi_tests::stream::{self, Outcome};

/// Prepares the root and becomes the runner. `$1` is the image, `$2` the mount point.
const PREPARE: &str = r#"
set -e
image=$1; root=$2; shift 2
mount -t tmpfs -o mode=755,size=1g tmpfs "$root"
cp -a "$image/." "$root/"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
chmod 1777 "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
while read -r name major minor; do
    mknod -m 666 "$root/dev/$name" c "$major" "$minor"
done <<END
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
END
hostname starling
mkdir "$root/outside"
cd "$root"
pivot_root . outside
cd /
/bin/busybox umount -l /outside
/bin/busybox rmdir /outside
exec /bin/busybox env -i PATH=/bin:/abi/bin HOME=/root TERM=linux /abi/runner "$@" </dev/null
"#;

/// Runs the cases on the host.
pub(crate) fn run(place: &Place, cases: &[Case]) -> Result<BTreeMap<String, Outcome>, String> {
    if cases.is_empty() {
        return Ok(BTreeMap::new());
    }
    let root = place.built().join("root");
    fs::create_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--propagation", "private"])
        .args(["setsid", "sh", "-c", PREPARE, "oracle"])
        .arg(place.image())
        .arg(&root)
        .args(cases.iter().map(|case| &case.name))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("unshare: {error}"))?;
    let report = stream::read(&output.stdout);
    if report.outcomes.is_empty() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("the host cannot run the cases (root is needed): {words}"));
    }
    Ok(report.outcomes)
}
