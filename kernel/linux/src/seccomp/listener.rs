//! The descriptor by which a supervisor hears of calls, and decides about them: its ioctls (seccomp_unotify(2)).

use alloc::sync::Arc;

use machine::address::{PAGE_SIZE, UserAddr};
use vfs::{Error, FileFeatures, FileOperations, OpenFile, OpenFlags, PollEvents, PollTable, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::notifier::{Addition, Answer, Notifier};
use super::program::DATA_WORDS;
use crate::errno::Errno;
use crate::process::pid_space;
use crate::process::thread::Thread;
use crate::user_pointer::{UserPointer, read_bytes};

const RECEIVE: u32 = 0xc050_2100;
const SEND: u32 = 0xc018_2101;
const IS_VALID: u32 = 0x4008_2102;
/// With the direction that it had in the first headers.
const IS_VALID_OLD: u32 = 0x8008_2102;
/// Of any size.
const ADD: u32 = 0x4000_2103;
const SIZE_SHIFT: u32 = 16;
const SIZE_MASK: u32 = 0x3fff << SIZE_SHIFT;

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`
const MAKE: u32 = 1;
/// `SECCOMP_ADDFD_FLAG_SETFD`, `SECCOMP_ADDFD_FLAG_SEND`
const WITH_NUMBER: u32 = 1;
const AS_ANSWER: u32 = 2;

/// `struct seccomp_notif`
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    data: [u32; DATA_WORDS],
}

/// `struct seccomp_notif_resp`
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// `struct seccomp_notif_addfd`
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct AddedDescriptor {
    id: u64,
    flags: u32,
    source: u32,
    number: u32,
    number_flags: u32,
}

const _: () = assert!(size_of::<Notification>() == (RECEIVE & SIZE_MASK) as usize >> SIZE_SHIFT);
const _: () = assert!(size_of::<Response>() == (SEND & SIZE_MASK) as usize >> SIZE_SHIFT);

/// What `SECCOMP_GET_NOTIF_SIZES` tells.
pub(super) const SIZES: [u16; 3] =
    [size_of::<Notification>() as u16, size_of::<Response>() as u16, (DATA_WORDS * size_of::<u32>()) as u16];

struct Listener(Arc<Notifier>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A file that listens.
pub(super) fn open(notifier: Arc<Notifier>) -> core::result::Result<Arc<OpenFile>, Errno> {
    let listener = Listener(notifier);
    let listener = memory::fallible::try_arc(listener).map_err(|_| Errno::ENOMEM)?;
    Ok(OpenFile::anonymous(vfs::anonymous::shared_inode()?, listener, OpenFlags::READ_WRITE)?)
}

impl FileOperations for Listener {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.0.watchers);
        }
        self.0.events()
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn core::fmt::Write) -> core::fmt::Result {
        out.write_str("anon_inode:seccomp notify")
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        let caller = crate::terminal::calling_thread().ok_or(Error::NoProcess)?;
        let argument = argument.as_u64();
        match command {
            RECEIVE => self.receive(&caller, argument),
            SEND => self.send(argument),
            IS_VALID | IS_VALID_OLD => {
                let id = read::<u64>(argument)?;
                let is_valid = self.0.request(id).is_some_and(|request| request.is_sent());
                if is_valid { Ok(0) } else { Err(Error::NotFound) }
            }
            _ if command & !SIZE_MASK == ADD => {
                self.add(&caller, argument, ((command & SIZE_MASK) >> SIZE_SHIFT) as usize)
            }
            _ => Err(Error::Invalid),
        }
    }
}

fn read<T: FromBytes + IntoBytes + Immutable + KnownLayout>(argument: u64) -> Result<T> {
    UserPointer::<T>::new(argument).read().map_err(|_| Error::BadAddress)
}

/// The error of the file layer that stands for one of this layer.
fn error_of(errno: Errno) -> Error {
    match errno {
        Errno::ENOENT => Error::NotFound,
        Errno::EINPROGRESS => Error::InProgress,
        Errno::EBUSY => Error::Busy,
        Errno::ESRCH => Error::NoProcess,
        Errno::EBADF => Error::BadDescriptor,
        Errno::EMFILE => Error::TooManyDescriptors,
        Errno::ERESTARTSYS => Error::Interrupted,
        _ => Error::OutOfMemory,
    }
}

impl Listener {
    fn receive(&self, caller: &Thread, argument: u64) -> Result<usize> {
        let given: Notification = read(argument)?;
        if given.as_bytes().iter().any(|&byte| byte != 0) {
            return Err(Error::Invalid);
        }
        let request = self.0.receive()?;
        let notification = Notification {
            id: request.id,
            pid: pid_space::seen(caller.process().space(), request.tid),
            flags: 0,
            data: request.data,
        };
        if UserPointer::<Notification>::new(argument).write(&notification).is_err() {
            self.0.take_back(&request);
            return Err(Error::BadAddress);
        }
        Ok(0)
    }

    fn send(&self, argument: u64) -> Result<usize> {
        let response: Response = read(argument)?;
        let makes = response.flags & MAKE != 0;
        if response.flags & !MAKE != 0 || (makes && (response.error != 0 || response.value != 0)) {
            return Err(Error::Invalid);
        }
        let answer = match (makes, response.error) {
            (true, _) => Answer::Make,
            (false, 0) => Answer::Result(response.value as u64),
            (false, error) => Answer::Result(i64::from(error) as u64),
        };
        let request = self.0.request(response.id).ok_or(Error::NotFound)?;
        request.answer(answer).map(|()| 0).map_err(error_of)
    }

    fn add(&self, caller: &Thread, argument: u64, size: usize) -> Result<usize> {
        let known = size_of::<AddedDescriptor>();
        if size < known || size >= PAGE_SIZE {
            return Err(Error::Invalid);
        }
        let added: AddedDescriptor = read(argument)?;
        for offset in known..size {
            let mut byte = [0];
            read_bytes(argument + offset as u64, &mut byte).map_err(|_| Error::BadAddress)?;
            if byte != [0] {
                return Err(Error::TooBig);
            }
        }
        let closes_on_exec = OpenFlags::CLOSE_ON_EXEC.bits();
        if added.number_flags & !closes_on_exec != 0
            || added.flags & !(WITH_NUMBER | AS_ANSWER) != 0
            || (added.number != 0 && added.flags & WITH_NUMBER == 0)
        {
            return Err(Error::Invalid);
        }
        let file = caller.files().ok_or(Error::NoProcess)?.get(added.source)?;
        let request = self.0.request(added.id).ok_or(Error::NotFound)?;
        let number = (added.flags & WITH_NUMBER != 0).then_some(added.number);
        let addition = Addition::new(file, number, added.number_flags != 0, added.flags & AS_ANSWER != 0)
            .map_err(error_of)?;
        request.add(&addition).map(|number| number as usize).map_err(error_of)
    }
}
