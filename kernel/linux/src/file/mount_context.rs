//! File systems that are made step by step: fsopen(2), fsconfig(2), fsmount(2), fspick(2).
//!
//! # States
//! *Parameters*: options are collected. *Made*: there is an instance, to be mounted once. *Mounted*: nothing more to be done. *Picked*: options for a file
//! system that is mounted somewhere are collected, for a remount; after it it is *Picked* again, without options.
//!
//! What is wrong with an option is said in words, too: each read(2) of the descriptor gives one message.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::buffer::Sink;
use sched::Mutex;
use vfs::flags::{LookupFlags, MountFlags};
use vfs::superblock::{FileSystemType, Superblock};
use vfs::{FileFeatures, FileOperations, OpenFile, OpenFlags};

use super::context::AT_FDCWD;
use super::mount::{check_privilege, instance_of};
use super::mount_tree::{attribute_flags, place_at};
use super::path::UserPath;
use crate::errno::{Errno, SysResult};
use crate::task::Task;

const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;
const FSPICK_CLOEXEC: u32 = 1;
const FSPICK_SYMLINK_NOFOLLOW: u32 = 2;
const FSPICK_NO_AUTOMOUNT: u32 = 4;
const FSPICK_EMPTY_PATH: u32 = 8;

/// Bytes of all options together: as much as mount(2) takes.
const OPTIONS_BYTES: usize = 4095;
/// Bytes of an option's name, and of its value.
const NAME_BYTES: usize = 256;
/// Messages that wait to be read; older ones are lost.
const MESSAGES: usize = 8;

enum Phase {
    Parameters,
    Made(Arc<Superblock>),
    Mounted,
    Picked(vfs::Path),
}

struct State {
    phase: Phase,
    source: Option<Vec<u8>>,
    options: Vec<u8>,
    read_only: Option<bool>,
    messages: Vec<String>,
}

/// The file behind a descriptor.
struct MountContext {
    file_system: Option<&'static dyn FileSystemType>,
    state: Mutex<State>,
}

impl FileOperations for MountContext {
    fn features(&self) -> FileFeatures {
        FileFeatures::empty()
    }

    fn read(&self, _file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> vfs::Result<usize> {
        let message = {
            let mut state = self.state.lock();
            if state.messages.is_empty() {
                return Err(vfs::Error::NoData);
            }
            state.messages.remove(0)
        };
        if sink.remaining() < message.len() {
            return Err(vfs::Error::MessageTooLong);
        }
        sink.write(message.as_bytes()).map_err(|_| vfs::Error::BadAddress)
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn core::fmt::Write) -> core::fmt::Result {
        out.write_str("anon_inode:[fscontext]")
    }
}

impl MountContext {
    fn install(
        task: &Task,
        file_system: Option<&'static dyn FileSystemType>,
        phase: Phase,
        close_on_exec: bool,
    ) -> SysResult {
        let state = State { phase, source: None, options: Vec::new(), read_only: None, messages: Vec::new() };
        let context = Self { file_system, state: Mutex::named("context of a mount", state) };
        let context = memory::fallible::try_arc(context).map_err(|_| Errno::ENOMEM)?;
        let file = OpenFile::anonymous(vfs::anonymous::shared_inode()?, context, OpenFlags::READ_WRITE)?;
        task.install_file(file, close_on_exec)
    }
}

impl State {
    /// Says in words what is wrong, and returns the errno for it.
    fn complain(&mut self, errno: Errno, words: core::fmt::Arguments<'_>) -> Errno {
        let mut text = vfs::text::Text::new();
        let _ = core::fmt::Write::write_fmt(&mut text, format_args!("e {words}"));
        if let Ok(bytes) = text.finish()
            && let Ok(message) = String::from_utf8(bytes)
            && memory::fallible::try_reserve(&mut self.messages, 1).is_ok()
        {
            if self.messages.len() == MESSAGES {
                self.messages.remove(0);
            }
            self.messages.push(message);
        }
        errno
    }

    fn add_option(&mut self, name: &[u8], value: Option<&[u8]>) -> Result<(), Errno> {
        match (name, value) {
            (b"ro", None) => self.read_only = Some(true),
            (b"rw", None) => self.read_only = Some(false),
            (b"source", Some(value)) => {
                if self.source.is_some() {
                    return Err(self.complain(Errno::EINVAL, format_args!("several sources")));
                }
                let mut source = Vec::new();
                vfs::allocation::extend(&mut source, value)?;
                self.source = Some(source);
            }
            _ => {
                let bytes = name.len() + value.map_or(0, |value| value.len() + 1) + 1;
                if self.options.len() + bytes > OPTIONS_BYTES {
                    return Err(self.complain(Errno::EINVAL, format_args!("too many options")));
                }
                // The file system gets them as one text.
                if name.contains(&b',') || value.is_some_and(|value| value.contains(&b',')) {
                    return Err(self.complain(
                        Errno::EINVAL,
                        format_args!("a comma in the option {}", name.escape_ascii()),
                    ));
                }
                vfs::allocation::reserve(&mut self.options, bytes)?;
                if !self.options.is_empty() {
                    self.options.push(b',');
                }
                self.options.extend_from_slice(name);
                if let Some(value) = value {
                    self.options.push(b'=');
                    self.options.extend_from_slice(value);
                }
            }
        }
        Ok(())
    }

    /// Makes the instance.
    fn create(&mut self, task: &Task, file_system: &'static dyn FileSystemType) -> Result<(), Errno> {
        if !matches!(self.phase, Phase::Parameters) {
            return Err(Errno::EBUSY);
        }
        let read_only = self.read_only == Some(true);
        let source = self.source.as_deref();
        match instance_of(task, file_system, source, &self.options, read_only) {
            Ok(superblock) => {
                self.phase = Phase::Made(superblock);
                Ok(())
            }
            Err(errno) => Err(self.complain(
                errno,
                format_args!("{}: can't be made with these options: {errno:?}", file_system.name()),
            )),
        }
    }

    /// Remounts what was picked.
    fn reconfigure(&mut self, task: &Task) -> Result<(), Errno> {
        let Phase::Picked(place) = &self.phase else { return Err(Errno::EBUSY) };
        let place = place.clone();
        let owner = place.mount.superblock().owner();
        task.credentials.require_in(owner, vfs::Capabilities::SYS_ADMIN)?;
        let mut flags = place.mount.flags();
        if let Some(read_only) = self.read_only {
            flags.set(MountFlags::READ_ONLY, read_only);
        }
        let options = core::mem::take(&mut self.options);
        let outcome = task.file_system.places().namespace.remount(&place, flags, Some(&options));
        outcome.map_err(|error| {
            let errno = Errno::from(error);
            self.complain(errno, format_args!("these options can't be set: {errno:?}"))
        })
    }
}

/// A descriptor for a file system that is to be made.
#[inline(never)]
pub fn fsopen(task: &mut Task, name: u64, flags: u32) -> SysResult {
    check_privilege(task)?;
    if flags & !FSOPEN_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let name = UserPath::read(name)?;
    let file_system = vfs::superblock::find_file_system(name.as_bytes())?;
    MountContext::install(task, Some(file_system), Phase::Parameters, flags & FSOPEN_CLOEXEC != 0)
}

/// A descriptor for changing the file system that is mounted somewhere.
#[inline(never)]
pub fn fspick(task: &mut Task, directory: i32, path: u64, flags: u32) -> SysResult {
    check_privilege(task)?;
    let known = FSPICK_CLOEXEC | FSPICK_SYMLINK_NOFOLLOW | FSPICK_NO_AUTOMOUNT | FSPICK_EMPTY_PATH;
    if flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    let mut lookup = LookupFlags::empty();
    lookup.set(LookupFlags::FOLLOW, flags & FSPICK_SYMLINK_NOFOLLOW == 0);
    lookup.set(LookupFlags::EMPTY_PATH, flags & FSPICK_EMPTY_PATH != 0);
    let place = place_at(task, directory, path, lookup)?;
    if !place.is_mount_root() {
        return Err(Errno::EINVAL);
    }
    MountContext::install(task, None, Phase::Picked(place), flags & FSPICK_CLOEXEC != 0)
}

/// What fsconfig(2) is to do.
enum Command {
    Option { name: Vec<u8>, value: Option<Vec<u8>> },
    Create,
    Reconfigure,
}

impl Command {
    /// The command as it was given, checked as far as it can be without the descriptor.
    fn read(number: u32, key: u64, value: u64, extra: i32) -> Result<Self, Errno> {
        let (has_key, has_value) = (key != 0, value != 0);
        let fits = match number {
            0 => has_key && !has_value && extra == 0,
            1 => has_key && has_value && extra == 0,
            2 => has_key && has_value && extra > 0 && extra <= 1 << 20,
            3 | 4 => has_key && has_value && (extra == AT_FDCWD || extra >= 0),
            5 => has_key && !has_value && extra >= 0,
            6 | 7 => !has_key && !has_value && extra == 0,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        if !fits {
            return Err(Errno::EINVAL);
        }
        let text = |address: u64| {
            let text = UserPath::read(address)?;
            if text.as_bytes().len() >= NAME_BYTES {
                return Err(Errno::EINVAL);
            }
            let mut copy = Vec::new();
            vfs::allocation::extend(&mut copy, text.as_bytes())?;
            Ok(copy)
        };
        Ok(match number {
            0 => Self::Option { name: text(key)?, value: None },
            1 => Self::Option { name: text(key)?, value: Some(text(value)?) },
            6 => Self::Create,
            7 => Self::Reconfigure,
            // No file system here has options that are binary, places or descriptors.
            _ => return Err(Errno::EINVAL),
        })
    }
}

/// Sets an option, or does what was prepared.
#[inline(never)]
pub fn fsconfig(
    task: &mut Task,
    descriptor: i32,
    command: u32,
    key: u64,
    value: u64,
    extra: i32,
) -> SysResult {
    if descriptor < 0 {
        return Err(Errno::EINVAL);
    }
    let command = Command::read(command, key, value, extra)?;
    let file = task.usable_file(descriptor)?;
    let context = file.object::<MountContext>().ok_or(Errno::EINVAL)?;
    let mut state = context.state.lock();
    match command {
        Command::Option { name, value } => match state.phase {
            Phase::Parameters | Phase::Picked(_) => {
                state.add_option(&name, value.as_deref())?;
            }
            Phase::Made(_) | Phase::Mounted => return Err(Errno::EBUSY),
        },
        Command::Create => {
            check_privilege(task)?;
            state.create(task, context.file_system.ok_or(Errno::EBUSY)?)?;
        }
        Command::Reconfigure => {
            check_privilege(task)?;
            state.reconfigure(task)?;
        }
    }
    Ok(0)
}

/// A mount of the file system that was made, attached nowhere.
#[inline(never)]
pub fn fsmount(task: &mut Task, descriptor: i32, flags: u32, attributes: u32) -> SysResult {
    check_privilege(task)?;
    if flags & !FSMOUNT_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let mut mount_flags = attribute_flags(u64::from(attributes))?;
    let file = task.usable_file(descriptor)?;
    let context = file.object::<MountContext>().ok_or(Errno::EINVAL)?;
    let mut state = context.state.lock();
    let Phase::Made(superblock) = &state.phase else {
        return Err(if matches!(state.phase, Phase::Mounted) { Errno::EBUSY } else { Errno::EINVAL });
    };
    if state.read_only == Some(true) {
        mount_flags |= MountFlags::READ_ONLY;
    }
    let source = state.source.as_deref().unwrap_or(b"none");
    let tree = task.file_system.places().namespace.detached_mount(superblock, source, mount_flags)?;
    state.phase = Phase::Mounted;
    drop(state);
    task.install_file(tree, flags & FSMOUNT_CLOEXEC != 0)
}
