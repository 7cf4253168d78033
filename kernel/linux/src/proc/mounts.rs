//! `mounts`, `mountinfo` and `mountstats`.

use core::fmt::Write;

use vfs::mount::{MountDescription, Propagation};
use vfs::text::Text;
use vfs::{Error, MountFlags, Result};

use super::process::Subject;

/// Writes a name with blanks and backslashes as octal numbers, as fstab(5) wants it.
fn write_escaped(name: &[u8], out: &mut Text) {
    for &byte in name {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' | b'#' => {
                let _ = write!(out, "\\{byte:03o}");
            }
            _ => out.push_bytes(&[byte]),
        }
    }
}

fn write_flags(flags: MountFlags, read_only: bool, out: &mut dyn Write) {
    let _ = out.write_str(if read_only || flags.contains(MountFlags::READ_ONLY) { "ro" } else { "rw" });
    for (flag, name) in [
        (MountFlags::NO_SET_ID, ",nosuid"),
        (MountFlags::NO_DEVICES, ",nodev"),
        (MountFlags::NO_EXECUTE, ",noexec"),
        (MountFlags::NO_ACCESS_TIME, ",noatime"),
        (MountFlags::NO_DIRECTORY_ACCESS_TIME, ",nodiratime"),
        (MountFlags::RELATIVE_ACCESS_TIME, ",relatime"),
        (MountFlags::NO_LINKS, ",nosymfollow"),
    ] {
        if flags.contains(flag) {
            let _ = out.write_str(name);
        }
    }
}

fn each(subject: &Subject, visit: impl FnMut(&MountDescription) -> Result<()>) -> Result<()> {
    let places = subject.thread()?.file_system().ok_or(Error::NotFound)?.places();
    places.namespace.describe(&places.root, visit)
}

/// `mounts`
pub(super) fn mounts(subject: &Subject, out: &mut Text) -> Result<()> {
    each(subject, |mount| {
        write_escaped(&mount.source, out);
        let _ = out.write_str(" ");
        write_escaped(&mount.point, out);
        let _ = write!(out, " {} ", mount.file_system);
        write_flags(mount.flags, mount.read_only, out);
        let _ = mount.mount.superblock().operations().show_options(out);
        let _ = out.write_str(" 0 0\n");
        Ok(())
    })
}

/// `mountinfo`
pub(super) fn mount_information(subject: &Subject, out: &mut Text) -> Result<()> {
    each(subject, |mount| {
        let _ = write!(out, "{} {} {}:{} ", mount.id, mount.parent, mount.device.major, mount.device.minor);
        write_escaped(&mount.root, out);
        let _ = out.write_str(" ");
        write_escaped(&mount.point, out);
        let _ = out.write_str(" ");
        write_flags(mount.flags, false, out);
        let _ = match mount.propagation {
            Propagation::Private => Ok(()),
            Propagation::Shared(group) => write!(out, " shared:{group}"),
            Propagation::Slave(group) => write!(out, " master:{group}"),
            Propagation::Unbindable => out.write_str(" unbindable"),
        };
        let _ = write!(out, " - {} ", mount.file_system);
        write_escaped(&mount.source, out);
        let _ = out.write_str(if mount.read_only { " ro" } else { " rw" });
        let _ = mount.mount.superblock().operations().show_options(out);
        let _ = out.write_str("\n");
        Ok(())
    })
}

/// `mountstats`: file systems have nothing to tell beyond their type.
pub(super) fn mount_statistics(subject: &Subject, out: &mut Text) -> Result<()> {
    each(subject, |mount| {
        let _ = out.write_str("device ");
        write_escaped(&mount.source, out);
        let _ = out.write_str(" mounted on ");
        write_escaped(&mount.point, out);
        let _ = writeln!(out, " with fstype {}", mount.file_system);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_in_names_are_octal() {
        let mut out = Text::new();
        write_escaped(b"/a b\t\\c", &mut out);
        assert_eq!(out.as_bytes(), b"/a\\040b\\011\\134c");
    }

    #[test]
    fn options_are_in_the_order_of_linux() {
        let flags = MountFlags::NO_SET_ID | MountFlags::NO_DEVICES | MountFlags::RELATIVE_ACCESS_TIME;
        let mut text = alloc::string::String::new();
        write_flags(flags, false, &mut text);
        text.push(' ');
        write_flags(MountFlags::READ_ONLY, false, &mut text);
        text.push(' ');
        write_flags(MountFlags::empty(), true, &mut text);
        assert_eq!(text, "rw,nosuid,nodev,relatime ro ro");
    }
}
