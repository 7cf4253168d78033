//! `mounts`, `mountinfo` and `mountstats`.
//!
//! An open `mounts` or `mountinfo` can be polled: it has an error and something exceptional when mounts have changed since it was
//! opened or last polled (proc(5)).

use alloc::sync::Arc;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};

use memory::buffer::Sink;
use vfs::generated::{File, GeneratedFile};
use vfs::mount::{MountDescription, MountNamespace};
use vfs::text::Text;
use vfs::{
    Error, FileFeatures, FileOperations, MountFlags, OpenFile, PollEvents, PollTable, Result, SeekFrom,
};

use super::process::Subject;

/// Writes a name with blanks and backslashes as octal numbers, as fstab(5) wants it.
fn write_escaped(name: &[u8], out: &mut Text) {
    write_with_numbers(name, b" \t\n\\#", out);
}

/// Writes a name with some of its bytes as octal numbers.
pub(super) fn write_with_numbers(name: &[u8], numbers: &[u8], out: &mut Text) {
    for byte in name {
        if numbers.contains(byte) {
            let _ = write!(out, "\\{byte:03o}");
        } else {
            out.push_bytes(&[*byte]);
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

fn namespace_of(subject: &Subject) -> Result<Arc<MountNamespace>> {
    Ok(subject.thread()?.file_system().ok_or(Error::NotFound)?.places().namespace.clone())
}

/// An open list of mounts.
struct OpenMounts {
    text: Arc<GeneratedFile>,
    namespace: Arc<MountNamespace>,
    /// The changes that a poll has told of. Relaxed: of two polls at a time one tells.
    told: AtomicU64,
}

/// The open file behind a list of mounts.
pub(super) fn open(subject: &Subject, file: Arc<dyn File>) -> Result<Arc<dyn FileOperations>> {
    let namespace = namespace_of(subject)?;
    let told = AtomicU64::new(namespace.events());
    let open = OpenMounts { text: GeneratedFile::new(file)?, namespace, told };
    let open: Arc<dyn FileOperations> = vfs::allocation::arc(open)?;
    Ok(open)
}

impl FileOperations for OpenMounts {
    fn features(&self) -> FileFeatures {
        self.text.features()
    }

    fn read(&self, file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        self.text.read(file, position, sink)
    }

    fn seek(&self, file: &OpenFile, current: u64, target: SeekFrom) -> Result<u64> {
        self.text.seek(file, current, target)
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(self.namespace.watchers());
        }
        let events = self.namespace.events();
        if self.told.swap(events, Ordering::Relaxed) == events {
            PollEvents::INPUT
        } else {
            PollEvents::INPUT | PollEvents::ERROR | PollEvents::PRIORITY
        }
    }
}

fn each(subject: &Subject, visit: impl FnMut(&MountDescription) -> Result<()>) -> Result<()> {
    let places = subject.thread()?.file_system().ok_or(Error::NotFound)?.places();
    places.namespace.describe(&places.root, visit)
}

/// The type, with the name of the program that makes the files.
fn write_type(mount: &MountDescription, out: &mut Text) {
    let _ = out.write_str(mount.file_system);
    if let Some(subtype) = &mount.subtype {
        let _ = out.write_str(".");
        write_escaped(subtype, out);
    }
}

/// `mounts`
pub(super) fn mounts(subject: &Subject, out: &mut Text) -> Result<()> {
    each(subject, |mount| {
        write_escaped(&mount.source, out);
        let _ = out.write_str(" ");
        write_escaped(&mount.point, out);
        let _ = out.write_str(" ");
        write_type(mount, out);
        let _ = out.write_str(" ");
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
        for (name, group) in
            [("shared", mount.shared), ("master", mount.master), ("propagate_from", mount.propagate_from)]
        {
            if let Some(group) = group {
                let _ = write!(out, " {name}:{group}");
            }
        }
        if mount.unbindable {
            let _ = out.write_str(" unbindable");
        }
        let _ = out.write_str(" - ");
        write_type(mount, out);
        let _ = out.write_str(" ");
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
        let _ = out.write_str(" with fstype ");
        write_type(mount, out);
        let _ = out.write_str("\n");
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
