//! What there is in the system: `version`, `filesystems`, `devices`, `misc`, `swaps`, `partitions`, `net/dev`, and the calls that
//! programs missed.

use alloc::sync::Arc;
use core::fmt::Write;

use sync::Once;
use vfs::generated::{Directory, Node, StaticDirectory, text_file};
use vfs::text::Text;
use vfs::{FileKind, Result};

use super::process::Subject;

/// The major number of devices that have only a minor of their own.
const MISCELLANEOUS_MAJOR: u32 = 10;

/// `version`
pub(super) fn version(out: &mut Text) -> Result<()> {
    let (release, version) = (crate::identity::RELEASE, crate::identity::version());
    let _ = writeln!(out, "Linux version {release} (starling) (rustc) {version}");
    Ok(())
}

/// `cmdline`
pub(super) fn command_line(out: &mut Text) -> Result<()> {
    let _ = writeln!(out, "{}", machine::boot::info().command_line);
    Ok(())
}

/// `execdomains`: whose programs run.
pub(super) fn execution_domains(out: &mut Text) -> Result<()> {
    let _ = out.write_str("0-0\tLinux           \t[kernel]\n");
    Ok(())
}

/// `filesystems`
pub(super) fn file_systems(out: &mut Text) -> Result<()> {
    vfs::superblock::for_each_file_system(|file_system| {
        let marker = if file_system.needs_device() { "" } else { "nodev" };
        let _ = writeln!(out, "{marker}\t{}", file_system.name());
    });
    Ok(())
}

/// `devices`
pub(super) fn devices(out: &mut Text) -> Result<()> {
    let _ = out.write_str("Character devices:\n");
    write_devices(FileKind::CharacterDevice, out);
    let _ = out.write_str("\nBlock devices:\n");
    write_devices(FileKind::BlockDevice, out);
    Ok(())
}

/// The drivers of a kind by ascending major number.
fn write_devices(wanted: FileKind, out: &mut Text) {
    let mut next = 0;
    loop {
        let mut lowest: Option<u32> = None;
        vfs::device::for_each(|kind, first, _| {
            if kind == wanted && first.major >= next {
                lowest = Some(lowest.map_or(first.major, |lowest| lowest.min(first.major)));
            }
        });
        let Some(wanted_major) = lowest else { return };
        let mut last = "";
        vfs::device::for_each(|kind, first, name| {
            let major = first.major;
            let name = if major == MISCELLANEOUS_MAJOR { "misc" } else { name };
            if kind == wanted && major == wanted_major && name != last {
                let _ = writeln!(out, "{major:>3} {name}");
                last = name;
            }
        });
        next = wanted_major + 1;
    }
}

/// `misc`: the devices that have a minor number of that major each.
pub(super) fn miscellaneous(out: &mut Text) -> Result<()> {
    vfs::device::for_each(|kind, first, name| {
        if kind == FileKind::CharacterDevice && first.major == MISCELLANEOUS_MAJOR {
            let _ = writeln!(out, "{:>3} {name}", first.minor);
        }
    });
    Ok(())
}

/// `swaps`: none.
pub(super) fn swaps(out: &mut Text) -> Result<()> {
    let _ = out.write_str("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
    Ok(())
}

/// A file that shows nothing.
pub(super) fn nothing(_out: &mut Text) -> Result<()> {
    Ok(())
}

/// The directory `net` of every process: there is one network, which all share.
pub(super) fn network(_subject: &Subject) -> Result<Arc<dyn Directory>> {
    static NETWORK: Once<Arc<StaticDirectory>> = Once::new();
    if let Some(network) = NETWORK.get() {
        return Ok(network.clone());
    }
    let new = StaticDirectory::allocate()?;
    new.add("dev", Node::file(0o444, text_file(interfaces)?))?;
    new.add("unix", Node::file(0o444, text_file(super::sockets::local)?))?;
    Ok(NETWORK.call_once(|| new).clone())
}

/// `net/dev`: no interfaces.
fn interfaces(out: &mut Text) -> Result<()> {
    let _ = out.write_str(
        "Inter-|   Receive                                                |  Transmit\n \
         face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n",
    );
    Ok(())
}

/// `starling/missing_syscalls`: number, how often, name (`-` if there is none), and why there is no such call.
pub(super) fn missing_calls(out: &mut Text) -> Result<()> {
    for (number, count) in crate::table::missed() {
        let (name, reason) = crate::table::absent::why(number);
        let _ = writeln!(out, "{number} {count} {name} {reason}");
    }
    Ok(())
}
