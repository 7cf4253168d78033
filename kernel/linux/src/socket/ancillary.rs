//! What goes along with a message: files, who sent it, and when (cmsg(3), unix(7)).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::mem::size_of;

use net::unix::{FILES_PER_MESSAGE_MAX, Identity, Received, Rights, Stamping};
use vfs::{Capabilities, OpenFile, UserSpace};
use zerocopy::IntoBytes;

use super::options::number_of_stamping;
use crate::abi::{ControlHeader, Timespec, Timeval, UserCredentials};
use crate::credentials::account::Account;
use crate::errno::Errno;
use crate::file::context::descriptor_flags;
use crate::process::limits::Resource;
use crate::process::table;
use crate::task::Task;
use crate::user_pointer::{UserPointer, write_bytes};

const LEVEL_SOCKET: i32 = 1;
const TYPE_RIGHTS: i32 = 1;
const TYPE_CREDENTIALS: i32 = 2;
const HEADER: usize = size_of::<ControlHeader>();
/// Most bytes of control data (`/proc/sys/net/core/optmem_max`).
const CONTROL_MAX: usize = 131_072;

/// `MSG_CTRUNC`: control data did not fit.
pub(super) const CONTROL_TRUNCATED: u32 = 8;

const fn aligned(length: usize) -> usize {
    length.next_multiple_of(size_of::<usize>())
}

/// What a message to be sent brings.
#[derive(Default)]
pub(super) struct Outgoing {
    /// Files.
    pub(super) rights: Option<Box<Rights>>,
    /// Who the sender says it is.
    pub(super) identity: Option<Identity>,
}

/// The files of a user's that are in messages; taken back on drop.
struct FlightCharge {
    account: Arc<Account>,
    files: u64,
}

impl Drop for FlightCharge {
    fn drop(&mut self) {
        self.account.release_flights(self.files);
    }
}

/// Reads the control data of a message to be sent over a socket; only local sockets pass files.
///
/// # Errors
/// EINVAL, EBADF, EFAULT, ENOBUFS, ENOMEM; EPERM and ESRCH for claims of somebody else's identity; ETOOMANYREFS.
pub(super) fn read(task: &Task, passes_files: bool, control: u64, length: usize) -> Result<Outgoing, Errno> {
    let mut outgoing = Outgoing::default();
    if length == 0 {
        return Ok(outgoing);
    }
    if length > CONTROL_MAX {
        return Err(Errno::ENOBUFS);
    }
    let mut files: Vec<Arc<OpenFile>> = Vec::new();
    let mut at = 0;
    while length - at >= HEADER {
        let header: ControlHeader = UserPointer::new(control.wrapping_add(at as u64)).read()?;
        let whole = header.length as usize;
        if whole < HEADER || whole > length - at {
            return Err(Errno::EINVAL);
        }
        let data = control.wrapping_add((at + HEADER) as u64);
        if header.level == LEVEL_SOCKET {
            match header.kind {
                TYPE_RIGHTS => read_files(task, data, (whole - HEADER) / size_of::<i32>(), &mut files)?,
                TYPE_CREDENTIALS if whole - HEADER == size_of::<UserCredentials>() => {
                    outgoing.identity = Some(checked_identity(task, UserPointer::new(data).read()?)?);
                }
                _ => return Err(Errno::EINVAL),
            }
        }
        at = (at + aligned(whole)).min(length);
    }
    if !files.is_empty() {
        if !passes_files {
            return Err(Errno::EINVAL);
        }
        let charge = claim_flights(task, files.len())?;
        outgoing.rights = Some(Rights::new(files, Some(charge))?);
    }
    Ok(outgoing)
}

fn read_files(task: &Task, data: u64, count: usize, files: &mut Vec<Arc<OpenFile>>) -> Result<(), Errno> {
    if count > FILES_PER_MESSAGE_MAX || files.len() + count > FILES_PER_MESSAGE_MAX {
        return Err(Errno::EINVAL);
    }
    memory::fallible::try_reserve(files, count).map_err(|_| Errno::ENOMEM)?;
    for index in 0..count {
        let descriptor: i32 = UserPointer::new(data).add(index).read()?;
        let file = task.file(descriptor)?;
        // Rings hold files, and could hold the socket that holds them: as on Linux they are not passed.
        if crate::io_ring::is_ring(&file) {
            return Err(Errno::EINVAL);
        }
        files.push(file);
    }
    Ok(())
}

/// A user has no more files in messages than it may have open.
fn claim_flights(task: &Task, files: usize) -> Result<Box<dyn Any + Send>, Errno> {
    let privileged = task.credentials.file.has(Capabilities::SYS_RESOURCE)
        || task.credentials.file.has(Capabilities::SYS_ADMIN);
    let limit = if privileged { u64::MAX } else { task.process().limit(Resource::OpenFiles) };
    let account = task.credentials.account.clone();
    if !account.claim_flights(files as u64, limit) {
        return Err(Errno::ETOOMANYREFS);
    }
    let charge = FlightCharge { account, files: files as u64 };
    match memory::fallible::try_box(charge) {
        Ok(charge) => Ok(charge),
        Err(_) => Err(Errno::ENOMEM),
    }
}

/// A process may say that it is itself, with any of its ids; privileged ones may say more.
fn checked_identity(task: &Task, claimed: UserCredentials) -> Result<Identity, Errno> {
    let own = &task.credentials;
    let claimed = UserCredentials {
        user: own.space().kernel_user(claimed.user).ok_or(Errno::EINVAL)?,
        group: own.space().kernel_group(claimed.group).ok_or(Errno::EINVAL)?,
        process: task.kernel_number(claimed.process).ok_or(Errno::ESRCH)?,
    };
    let processes = task.process().space().as_ref().map_or(UserSpace::FIRST, |space| space.owner());
    let process = claimed.process == task.process().pid() || own.has_in(processes, Capabilities::SYS_ADMIN);
    let user = own.user.holds(claimed.user) || own.has_here(Capabilities::SETUID);
    let group = own.group.holds(claimed.group) || own.has_here(Capabilities::SETGID);
    if !process || !user || !group {
        return Err(Errno::EPERM);
    }
    if claimed.process != task.process().pid() && !table::has_process(claimed.process) {
        return Err(Errno::ESRCH);
    }
    Ok(Identity { process: claimed.process, user: claimed.user, group: claimed.group })
}

/// Who it is, as the caller sees him. Nobody is nobody everywhere.
pub(super) fn shown_identity(task: &Task, identity: &Identity) -> UserCredentials {
    let Identity { process, user, group } = *identity;
    let process = task.seen_number(process);
    let space = task.credentials.space();
    match (user, group) {
        (u32::MAX, u32::MAX) => UserCredentials { process, user, group },
        _ => UserCredentials { process, user: space.shown_user(user), group: space.shown_group(group) },
    }
}

/// Where control data of a received message goes.
pub(super) struct Incoming {
    /// The next byte.
    address: u64,
    /// What is left.
    room: usize,
    /// Flags of the message.
    pub(super) flags: u32,
}

impl Incoming {
    pub(super) fn new(address: u64, room: usize) -> Incoming {
        Incoming { address, room: if address == 0 { 0 } else { room }, flags: 0 }
    }

    /// Bytes used of what there was.
    pub(super) fn used(&self, room: usize) -> usize {
        room.saturating_sub(self.room)
    }

    /// Writes what came with a message. Files for which there is no room are closed.
    pub(super) fn write(
        &mut self,
        task: &Task,
        received: &mut Received,
        close_on_exec: bool,
    ) -> Result<(), Errno> {
        if let Some((ns, stamping)) = received.stamp {
            self.write_stamp(ns, stamping)?;
        }
        if let Some(identity) = received.identity {
            self.write_record(TYPE_CREDENTIALS, shown_identity(task, &identity).as_bytes())?;
        }
        let files = core::mem::take(&mut received.files);
        if files.is_empty() { Ok(()) } else { self.write_files(task, files, close_on_exec) }
    }

    fn write_stamp(&mut self, ns: u64, stamping: Stamping) -> Result<(), Errno> {
        let Some(number) = number_of_stamping(stamping) else { return Ok(()) };
        if stamping.contains(Stamping::NANOSECONDS) {
            self.write_record(number, Timespec::from_ns(ns).as_bytes())
        } else {
            self.write_record(number, Timeval::from_ns(ns).as_bytes())
        }
    }

    /// Writes as much as there is room for.
    fn write_record(&mut self, kind: i32, data: &[u8]) -> Result<(), Errno> {
        let whole = HEADER + data.len();
        if self.room < HEADER {
            self.flags |= CONTROL_TRUNCATED;
            return Ok(());
        }
        if self.room < whole {
            self.flags |= CONTROL_TRUNCATED;
        }
        let length = whole.min(self.room);
        self.write_header(length, kind)?;
        write_bytes(self.address + HEADER as u64, &data[..length - HEADER])?;
        self.advance(whole);
        Ok(())
    }

    fn write_files(
        &mut self,
        task: &Task,
        files: Vec<Arc<OpenFile>>,
        close_on_exec: bool,
    ) -> Result<(), Errno> {
        let count = files.len();
        let fit = self.room.saturating_sub(HEADER) / size_of::<i32>();
        let data = UserPointer::<u32>::new(self.address.wrapping_add(HEADER as u64));
        let mut passed = 0;
        for file in files.into_iter().take(fit) {
            let Ok(reserved) = task.files.reserve(task.descriptor_limit()) else { break };
            if data.add(passed).write(&reserved.descriptor()).is_err() {
                break;
            }
            reserved.install(file, descriptor_flags(close_on_exec));
            passed += 1;
        }
        if passed > 0 {
            let whole = HEADER + passed * size_of::<i32>();
            self.write_header(whole, TYPE_RIGHTS)?;
            self.advance(whole);
        }
        if passed < count {
            self.flags |= CONTROL_TRUNCATED;
        }
        Ok(())
    }

    fn write_header(&self, length: usize, kind: i32) -> Result<(), Errno> {
        let header = ControlHeader { length: length as u64, level: LEVEL_SOCKET, kind };
        UserPointer::new(self.address).write(&header)
    }

    fn advance(&mut self, whole: usize) {
        let step = aligned(whole).min(self.room);
        self.address += step as u64;
        self.room -= step;
    }
}
