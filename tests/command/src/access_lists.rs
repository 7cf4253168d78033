//! Debian's `setfacl`, `getfacl`, `cp` and `ls`, unmodified, with access lists on an ext4 in the guest. They must say what they say on Linux; the host's
//! `e2fsck` and `debugfs` look at the image afterwards.

use std::fs::{self, File};
use std::process::Command;

use crate::case::starling;
use crate::disks::{e2fsck, said, successful, text};
use crate::images;

/// What is promised.
pub(crate) const NAME: &str = "Debian's setfacl and getfacl give files on an ext4 access lists that count";

/// Machines, with their numbers of processors.
const MACHINES: [(&str, &str); 2] = [("microvm", "1"), ("q35", "4")];
const DISK_BYTES: u64 = 16 << 20;
const PROGRAMS: [&str; 9] = ["dash", "setfacl", "getfacl", "mount", "umount", "cp", "ls", "cut", "setpriv"];

/// `$1` is the disk.
const SCRIPT: &str = r#"
set -e
try() { setpriv --reuid $1 --regid $2 --clear-groups -- dash -c "$3" 2>/dev/null && echo yes || echo no; }
mkdir /m
mount -t ext4 $1 /m
cd /m
umask 027
echo text > f
setfacl -m u:1000:rw,u:1001:-,g:50:r f
getfacl -n f
try 1000 1 'echo more >> f'
try 1001 1 'cat f > /dev/null'
try 1 50 'cat f > /dev/null'
try 1 50 'echo more >> f'
chmod g-w f
try 1000 1 'echo more >> f'
getfacl -nc f
cp -p f copy
getfacl -nc copy
ls -l f copy | cut -c 1-11
mkdir d
setfacl -d -m u:1000:rwx,g::r-x,o::- d
echo text > d/file
mkdir d/below
getfacl -n d d/file d/below
setfacl -x u:1001 f
setfacl -b copy
setfacl -k d/below
getfacl -nc f copy d/below
cd /
umount /m
mount -t ext4 -o noacl $1 /m
getfacl -nc /m/f 2>/dev/null
setfacl -m u:1:r /m/f 2>/dev/null && echo set || echo refused
mount -o remount,acl /m
getfacl -nc /m/f 2>/dev/null
umount /m
echo end
"#;

const WRITTEN: &str = "# file: f
# owner: 0
# group: 0
user::rw-
user:1000:rw-
user:1001:---
group::r--
group:50:r--
mask::rw-
other::---

yes
no
yes
no
no
user::rw-
user:1000:rw-\t#effective:r--
user:1001:---
group::r--
group:50:r--
mask::r--
other::---

user::rw-
user:1000:rw-\t#effective:r--
user:1001:---
group::r--
group:50:r--
mask::r--
other::---

-rw-r-----+
-rw-r-----+
# file: d
# owner: 0
# group: 0
user::rwx
group::r-x
other::---
default:user::rwx
default:user:1000:rwx
default:group::r-x
default:mask::rwx
default:other::---

# file: d/file
# owner: 0
# group: 0
user::rw-
user:1000:rwx\t#effective:rw-
group::r-x\t#effective:r--
mask::rw-
other::---

# file: d/below
# owner: 0
# group: 0
user::rwx
user:1000:rwx
group::r-x
mask::rwx
other::---
default:user::rwx
default:user:1000:rwx
default:group::r-x
default:mask::rwx
default:other::---

user::rw-
user:1000:rw-
group::r--
group:50:r--
mask::rw-
other::---

user::rw-
group::r--
other::---

user::rwx
user:1000:rwx
group::r-x
mask::rwx
other::---

user::rw-
group::rw-
other::---

refused
user::rw-
user:1000:rw-
group::r--
group:50:r--
mask::rw-
other::---

end
";

/// Runs the script on machines.
pub(crate) fn check() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let root = folder.path().join("root");
    images::make_folder_with_busybox(&root).map_err(text)?;
    for program in PROGRAMS {
        images::add_program(&root, program).map_err(text)?;
    }
    fs::write(root.join("script"), SCRIPT).map_err(text)?;
    for (machine, cpus) in MACHINES {
        let disk = folder.path().join(machine);
        File::create(&disk).and_then(|file| file.set_len(DISK_BYTES)).map_err(text)?;
        successful("mke2fs", &["-q", "-F", "-t", "ext4"], &disk)?;
        let output = starling()
            .args(["--machine", machine, "--cpus", cpus, "--memory", "256M", "--timeout", "280"])
            .args(["--disk", &disk.display().to_string()])
            .arg(&root)
            .args(["--", "dash", "/script", "/dev/vda"])
            .output()
            .map_err(text)?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || printed != WRITTEN {
            return Err(format!("{machine}: {}", said(&output)));
        }
        e2fsck("-fn", &disk, 0)?;
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let output = Command::new("debugfs")
            .env("PATH", path)
            .args(["-R", "ea_list /d/below"])
            .arg(&disk)
            .output()
            .map_err(text)?;
        if !String::from_utf8_lossy(&output.stdout).contains("system.posix_acl_access (") {
            return Err(format!("debugfs: {}", said(&output)));
        }
    }
    Ok(())
}
