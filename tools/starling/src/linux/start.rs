//! What Linux starts with: BusyBox, the modules for a disk with an ext4, and a script that mounts what Starling mounts by itself and becomes the command.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use crate::bench::guest_image;
use crate::failure::{Context, Outcome};
use crate::image::{self, Attributes, Content, Kind, Node, Tree};
use crate::progress::Progress;

/// The command's words come behind it.
const SCRIPT: &str = "#!/bin/sh
mount -t devtmpfs -o nosuid devtmpfs /dev
for module in /modules/*; do insmod $module; done
mkdir -p /disk
mount -t ext4 /dev/vda /disk
mount -t proc -o nosuid,nodev,noexec proc /disk/proc
mount -t sysfs -o nosuid,nodev,noexec sysfs /disk/sys
mount --move /dev /disk/dev
mkdir -p /disk/dev/pts /disk/dev/shm
mount -t devpts -o nosuid,noexec,mode=620,ptmxmode=666 devpts /disk/dev/pts
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs /disk/dev/shm
ln -s /proc/self/fd /disk/dev/fd
for number in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/${number%:*} /disk/dev/${number#*:}; done
hostname starling
stty -F /disk/dev/ttyS0 raw -echo
exec < /disk/dev/null > /disk/dev/ttyS0 2>&1
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOSTNAME=starling HOME=/root switch_root /disk /bin/sh -c 'exec \"$@\"' sh";

/// The initial file system for a command.
///
/// # Errors
/// When there is no BusyBox to make it of.
pub(super) fn tree(
    command: &[OsString],
    modules: Vec<(String, Vec<u8>)>,
    progress: &Progress,
) -> Outcome<Tree> {
    let mut tree = image::open(None, progress)?.tree;
    guest_image::add_modules(&mut tree, modules)?;
    let kind = Kind::File(tree.add_content(Content::Bytes(script(command))));
    let node = Node { attributes: Attributes::root(0o755), kind };
    tree.insert(b"init", node).context(|| "the image for Linux".into())?;
    Ok(tree)
}

fn script(command: &[OsString]) -> Vec<u8> {
    let mut script = SCRIPT.as_bytes().to_vec();
    for word in command {
        script.extend_from_slice(b" '");
        for byte in word.as_bytes() {
            match byte {
                b'\'' => script.extend_from_slice(b"'\\''"),
                other => script.push(*other),
            }
        }
        script.push(b'\'');
    }
    script.push(b'\n');
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_command_as_they_are() {
        let words = ["echo".into(), "it's".into(), "$HOME \"*\"".into()];
        let script = String::from_utf8(script(&words)).expect("text");
        assert!(
            script.ends_with(
                " switch_root /disk /bin/sh -c 'exec \"$@\"' sh 'echo' 'it'\\''s' '$HOME \"*\"'\n"
            ),
            "{script}"
        );
    }
}
