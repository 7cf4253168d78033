//! Programs that the kernel starts itself, and the one that it starts when a device comes or goes: `/proc/sys/kernel/hotplug`.
//!
//! Such a program is a child of process 1, runs as root in the root directory that the first program began with, and has no open
//! files. The kernel does not wait for it. The program for device events gets the subsystem as its argument and what there is to say about the
//! event in its environment, as `mdev` and the first versions of `hotplug` expect: `ACTION`, `DEVPATH`, `SUBSYSTEM`, `SEQNUM` and
//! what the device says of itself.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use device::model::uevent::Event;
use sched::Mutex;
use sync::Once;
use vfs::{FileSystemContext, OpenFile, Path};

use crate::abi::ResourceLimit;
use crate::errno::Errno;
use crate::process::limits::Resource;
use crate::process::table::ReservedPid;
use crate::start::{Command, become_command, make};

/// Bytes of the program's path at most.
const PATH_BYTES_MAX: usize = 255;
/// What every such program finds in its environment.
const ENVIRONMENT: [&[u8]; 3] = [b"HOME=/", b"TERM=linux", b"PATH=/sbin:/bin:/usr/sbin:/usr/bin"];

/// Root and current directory that programs begin with.
static ROOT: Once<Arc<FileSystemContext>> = Once::new();
/// The program for device events; empty: none.
static HOTPLUG: Mutex<Vec<u8>> = Mutex::named("program for device events", Vec::new());
/// Whether there is one: most machines need not take the lock at every event.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Remembers where the first program begins, before it can go elsewhere. Once.
///
/// # Errors
/// ENOMEM.
pub(crate) fn note_root(of_command: &FileSystemContext) -> Result<(), Errno> {
    let root = of_command.duplicate()?;
    // Its current directory need not stay in use.
    root.set_cwd(&root.places().root)?;
    ROOT.call_once(|| root);
    crate::device_events::register();
    Ok(())
}

/// After `pivot_root`: programs begin in the new root, and the old one can be unmounted.
///
/// # Errors
/// ENOMEM.
pub(crate) fn move_root(old_root: &Path, new_root: &Path) -> vfs::Result<()> {
    ROOT.get().map_or(Ok(()), |context| context.move_root(old_root, new_root))
}

/// Starts a program and does not wait for it.
///
/// # Errors
/// ENOMEM, EAGAIN; ENOENT before there is a root directory. That the program can't be executed is not known yet.
pub(crate) fn start_program(arguments: Vec<Vec<u8>>, environment: Vec<Vec<u8>>) -> Result<(), Errno> {
    start(arguments, environment, Vec::new())
}

fn start(arguments: Vec<Vec<u8>>, environment: Vec<Vec<u8>>, files: Vec<Arc<OpenFile>>) -> Result<(), Errno> {
    let file_system = ROOT.get().ok_or(Errno::ENOENT)?.duplicate()?;
    let reads_dump = !files.is_empty();
    let command = Command { arguments, environment, user: (0, 0), file_system, files, terminal: None };
    let prepared = make(command, ReservedPid::allocate()?, move |task, arguments, environment| {
        if reads_dump {
            // One that crashes itself is not dumped into one more of its kind: core(5).
            let one = |_| Ok::<_, Errno>(ResourceLimit { current: 1, maximum: 1 });
            let _ = task.process().change_limit(Resource::Core as usize, one);
        }
        become_command(task, &arguments, &environment, |_| ());
    })?;
    prepared.start();
    Ok(())
}

/// Starts a program that reads a file as its standard input, and does not wait for it.
///
/// # Errors
/// As [`start_program`].
pub(crate) fn start_reader(arguments: Vec<Vec<u8>>, input: Arc<OpenFile>) -> Result<(), Errno> {
    let mut files = memory::fallible::try_vec(1).map_err(|_| Errno::ENOMEM)?;
    files.push(input);
    start(arguments, Vec::new(), files)
}

/// Where such programs begin.
///
/// # Errors
/// ENOENT before there is a root directory.
pub(crate) fn root() -> Result<&'static FileSystemContext, Errno> {
    ROOT.get().map(|context| &**context).ok_or(Errno::ENOENT)
}

/// The program for device events.
pub(crate) fn hotplug() -> Vec<u8> {
    HOTPLUG.lock().clone()
}

/// Sets it; what follows a line's end is not part of the path.
///
/// # Errors
/// EINVAL for paths that are too long, ENOMEM.
pub(crate) fn set_hotplug(path: &[u8]) -> vfs::Result<()> {
    let path = path.split(|byte| matches!(byte, b'\n' | 0)).next().unwrap_or_default();
    if path.len() > PATH_BYTES_MAX {
        return Err(vfs::Error::Invalid);
    }
    let mut copy = Vec::new();
    vfs::allocation::extend(&mut copy, path)?;
    let mut hotplug = HOTPLUG.lock();
    *hotplug = copy;
    WANTED.store(!hotplug.is_empty(), Ordering::Relaxed);
    Ok(())
}

/// Whether there is a program for device events.
pub(crate) fn has_hotplug() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// A device event of that number: starts the program, if there is one.
pub(crate) fn start_hotplug(event: &Event, sequence: u64) {
    if !has_hotplug() {
        return;
    }
    let program = hotplug();
    if program.is_empty() {
        return;
    }
    let arguments = alloc::vec![program, event.subsystem.as_bytes().to_vec()];
    if let Err(errno) = start_program(arguments, environment_of(event, sequence)) {
        log::warn!("no program for the event {sequence}: {errno:?}");
    }
}

fn environment_of(event: &Event, sequence: u64) -> Vec<Vec<u8>> {
    let own = [
        format!("ACTION={}", event.action.name()),
        format!("DEVPATH={}", event.path),
        format!("SUBSYSTEM={}", event.subsystem),
        format!("SEQNUM={sequence}"),
    ];
    let usual = ENVIRONMENT.iter().map(|entry| entry.to_vec());
    let rest = event.variables().map(|line| line.as_bytes().to_vec());
    usual.chain(own.map(Vec::from)).chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_says_what_happened_and_what_the_device_says() {
        let event = Event {
            action: device::model::uevent::Action::Add,
            path: "/devices/virtual/block/loop0".into(),
            subsystem: "block",
            properties: "MAJOR=7\nMINOR=0\n".into(),
        };
        let environment = environment_of(&event, 7);
        for wanted in [
            "ACTION=add",
            "DEVPATH=/devices/virtual/block/loop0",
            "SUBSYSTEM=block",
            "SEQNUM=7",
            "MINOR=0",
            "HOME=/",
        ] {
            assert!(environment.iter().any(|entry| entry == wanted.as_bytes()), "{wanted}");
        }
    }

    #[test]
    fn path_ends_with_its_line_and_has_a_limit() {
        set_hotplug(b"/sbin/mdev\n").unwrap();
        assert_eq!(hotplug(), b"/sbin/mdev");
        assert_eq!(set_hotplug(&[b'x'; 256]), Err(vfs::Error::Invalid));
        set_hotplug(b"\n").unwrap();
        assert!(hotplug().is_empty());
    }
}
