//! mq_open, mq_unlink, mq_timedsend, mq_timedreceive, mq_notify, mq_getsetattr.

use alloc::sync::Arc;

use vfs::{DescriptorFlags, OpenFile, OpenFlags};

use super::file::QueueFile;
use super::limits::Size;
use super::names::Found;
use super::notice::{self, How, Notice, Sender};
use super::queue::{Message, Patience, Queue};
use crate::abi::{QueueAttributes, SignalEvent, Timespec};
use crate::errno::{Errno, SysResult};
use crate::file::path::UserPath;
use crate::signal::set::Signal;
use crate::socket::create::netlink_of;
use crate::task::Task;
use crate::user_pointer::{UserPointer, read_bytes, write_bytes};

/// Priorities are below this (MQ_PRIO_MAX).
const PRIORITIES: u32 = 32_768;
const MODE_BITS: u32 = 0o777;
const ACCESS_MODE: u32 = OpenFlags::ACCESS_MODE;

/// A name, which the library has taken the slash from.
fn checked(path: &UserPath) -> Result<&[u8], Errno> {
    let name = path.as_bytes();
    if name.is_empty() {
        return Err(Errno::ENOENT);
    }
    if name.contains(&b'/') || name == b"." || name == b".." {
        return Err(Errno::EACCES);
    }
    if name.len() > vfs::name::NAME_MAX { Err(Errno::ENAMETOOLONG) } else { Ok(name) }
}

/// Opens a queue, or makes one.
#[inline(never)]
pub fn mq_open(task: &mut Task, name: u64, flags: u32, mode: u32, attributes: u64) -> SysResult {
    let wished =
        UserPointer::<QueueAttributes>::new(attributes).given().map(UserPointer::read).transpose()?;
    let path = UserPath::read(name)?;
    let reserved = task.files.reserve(task.descriptor_limit())?;
    let name = checked(&path)?;
    let known = OpenFlags::from_bits_truncate(flags & ACCESS_MODE)
        | OpenFlags::from_bits_truncate(flags) & OpenFlags::NON_BLOCK;
    let given = OpenFlags::from_bits_truncate(flags);
    let tree = &task.ipc_space().queues_by_name;
    let inode = match tree.names()?.find(name)? {
        Found::Queue(_) if given.contains(OpenFlags::CREATE | OpenFlags::EXCLUSIVE) => {
            return Err(Errno::EEXIST);
        }
        Found::Queue(_) if flags & ACCESS_MODE == ACCESS_MODE => return Err(Errno::EINVAL),
        Found::Queue(inode) => {
            let file = task.open_place(tree.place_of(inode, name)?, known)?;
            return Ok(reserved.install(file, DescriptorFlags::CLOSE_ON_EXEC) as usize);
        }
        Found::None(_) if !given.contains(OpenFlags::CREATE) => return Err(Errno::ENOENT),
        Found::None(vacancy) => {
            let (limits, credentials) = (&task.ipc_space().queue_limits, &task.credentials);
            vacancy.check(limits, credentials)?;
            let wished = wished.map(|wished| (wished.messages_max, wished.bytes_max));
            let size = Size::of_new(limits, credentials, wished)?;
            let queue = Queue::new(size, size.claim(task.process(), credentials)?)?;
            let (mode, owner) = (mode & MODE_BITS & !task.file_system.umask(), &credentials.file);
            vacancy.fill(&tree.root()?, name, mode, (owner.user, owner.group), queue)?
        }
    };
    // Whoever makes it may do with it what the flags say, whatever the mode.
    let file = vfs::open_place(tree.place_of(inode, name)?, known)?;
    Ok(reserved.install(file, DescriptorFlags::CLOSE_ON_EXEC) as usize)
}

/// Removes a queue's name.
pub fn mq_unlink(task: &mut Task, name: u64) -> SysResult {
    let path = UserPath::read(name)?;
    task.ipc_space().queues_by_name.remove(task, checked(&path)?)?;
    Ok(0)
}

impl Task {
    /// Opens what is at a place, as far as the caller may.
    fn open_place(&self, place: vfs::Path, flags: OpenFlags) -> Result<Arc<OpenFile>, Errno> {
        let places = self.file_system.places();
        Ok(self.path_context(&places).open_existing(place, flags)?)
    }
}

/// The queue of a descriptor.
fn queue_of(file: &OpenFile) -> Result<&Arc<Queue>, Errno> {
    file.object::<QueueFile>().map(|file| &file.0).ok_or(Errno::EBADF)
}

/// When a call gives up, of a time of day.
fn deadline(time: u64) -> Result<Option<u64>, Errno> {
    let Some(time) = UserPointer::<Timespec>::new(time).given() else { return Ok(None) };
    let ns = time.read()?.to_ns().ok_or(Errno::EINVAL)?;
    Ok(Some(crate::time::clock::realtime_to_monotonic(ns)))
}

fn patience(file: &OpenFile, deadline_ns: Option<u64>) -> Patience {
    if file.non_block() { Patience::None } else { Patience::Until(deadline_ns) }
}

/// Sends a message.
#[inline(never)]
pub fn mq_timedsend(
    task: &mut Task,
    descriptor: i32,
    text: u64,
    bytes: usize,
    priority: u32,
    time: u64,
) -> SysResult {
    let deadline_ns = deadline(time)?;
    if priority >= PRIORITIES {
        return Err(Errno::EINVAL);
    }
    let file = task.usable_file(descriptor)?;
    let queue = queue_of(&file)?;
    if !file.flags().writable() {
        return Err(Errno::EBADF);
    }
    if bytes as u64 > queue.size.bytes {
        return Err(Errno::EMSGSIZE);
    }
    let mut message =
        Message { priority, text: memory::fallible::try_vec_of(0, bytes).map_err(|_| Errno::ENOMEM)? };
    read_bytes(text, &mut message.text)?;
    let sender = Sender { pid: task.process().pid(), user: task.credentials.user.real };
    queue.send(message, sender, patience(&file, deadline_ns))?;
    Ok(0)
}

/// Receives a message.
#[inline(never)]
pub fn mq_timedreceive(
    task: &mut Task,
    descriptor: i32,
    text: u64,
    room: usize,
    priority: u64,
    time: u64,
) -> SysResult {
    let deadline_ns = deadline(time)?;
    let file = task.usable_file(descriptor)?;
    let queue = queue_of(&file)?;
    if !file.flags().readable() {
        return Err(Errno::EBADF);
    }
    if (room as u64) < queue.size.bytes {
        return Err(Errno::EMSGSIZE);
    }
    let message = queue.receive(patience(&file, deadline_ns))?;
    if let Some(priority) = UserPointer::<u32>::new(priority).given() {
        priority.write(&message.priority)?;
    }
    write_bytes(text, &message.text)?;
    Ok(message.text.len())
}

/// Has the caller told of a message in an empty queue, or no longer.
#[inline(never)]
pub fn mq_notify(task: &mut Task, descriptor: i32, event: u64) -> SysResult {
    let event = UserPointer::<SignalEvent>::new(event).given().map(UserPointer::read).transpose()?;
    let how = event.map(|event| how_to_tell(task, &event)).transpose()?;
    let file = task.usable_file(descriptor)?;
    let queue = queue_of(&file)?;
    let process = task.process();
    match how {
        None => queue.forget_notice(process),
        Some(how) => {
            queue.set_notice(Notice::new(process, how))?;
        }
    }
    Ok(0)
}

/// What an event asks for. With `SIGEV_THREAD` its value points to the message and its signal is the socket.
fn how_to_tell(task: &Task, event: &SignalEvent) -> Result<How, Errno> {
    match event.notify {
        notice::NONE => Ok(How::Silently),
        notice::SIGNAL if event.signal == 0 => Ok(How::Signal(None, 0)),
        notice::SIGNAL => {
            let number = u64::try_from(event.signal).map_err(|_| Errno::EINVAL)?;
            Ok(How::Signal(Some(Signal::new(number).ok_or(Errno::EINVAL)?), event.value))
        }
        notice::THREAD => {
            let mut cookie = [0; notice::COOKIE_BYTES];
            read_bytes(event.value, &mut cookie)?;
            let socket = task.usable_file(event.signal)?;
            Ok(How::Socket(netlink_of(&socket)?.reserve(&cookie)?))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Says how a queue is, and changes whether calls with this descriptor wait.
#[inline(never)]
pub fn mq_getsetattr(task: &mut Task, descriptor: i32, new: u64, old: u64) -> SysResult {
    const NON_BLOCK: i64 = OpenFlags::NON_BLOCK.bits() as i64;
    let new = UserPointer::<QueueAttributes>::new(new).given().map(UserPointer::read).transpose()?;
    if new.as_ref().is_some_and(|new| new.flags & !NON_BLOCK != 0) {
        return Err(Errno::EINVAL);
    }
    let file = task.usable_file(descriptor)?;
    let queue = queue_of(&file)?;
    let attributes = QueueAttributes {
        flags: if file.non_block() { NON_BLOCK } else { 0 },
        messages_max: queue.size.messages as i64,
        bytes_max: queue.size.bytes as i64,
        messages: queue.status().messages as i64,
        ..Default::default()
    };
    if let Some(new) = new {
        file.set_non_block(new.flags != 0);
    }
    if let Some(old) = UserPointer::<QueueAttributes>::new(old).given() {
        old.write(&attributes)?;
    }
    Ok(0)
}
