//! `/dev/fuse`: where a server reads requests and writes replies.
//!
//! A device that was opened leads nowhere until it is mounted, or is made to lead where another one does (`FUSE_DEV_IOC_CLONE`). A reply is taken from the device only
//! that its request was read through. The last device of a connection that is closed ends that.
//!
//! # What is believed
//! A message says its own length, and must have that. Data is read to the length that the request has room for, never to one that the message says.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use machine::address::UserAddr;
use memory::buffer::{Sink, Source};
use sync::Once;
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::device::DeviceDriver;
use vfs::file::{FileOperations, OpenFile};
use vfs::flags::OpenFlags;
use vfs::inode::Inode;
use vfs::pipe::Pipe;
use vfs::poll::{PollEvents, PollTable};
use vfs::{Error, Result, UserSpace, allocation};

use crate::connection::{Connection, Message, Request};
use crate::wire::{
    Body, Decoder, READ_BUFFER_MIN, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, WRITE_BYTES, opcode,
};

/// Major and minor number.
pub const NUMBER: DeviceNumber = DeviceNumber::new(10, 229);
/// `FUSE_DEV_IOC_CLONE`
const CLONE: u32 = 0x8004_e500;
/// Errors that a server may say are numbers below this.
const ERRNO_END: i32 = 512;

struct Driver;

static DRIVER: Driver = Driver;

/// Registers the device. Its node is made by who makes the others.
pub(crate) fn register() {
    vfs::device::register(FileKind::CharacterDevice, NUMBER.major, NUMBER.minor..=NUMBER.minor, &DRIVER);
}

impl DeviceDriver for Driver {
    fn name(&self) -> &'static str {
        "fuse"
    }

    fn open(&self, _: DeviceNumber, _: &Arc<Inode>, _: OpenFlags) -> Result<Arc<dyn FileOperations>> {
        static LATEST: AtomicU64 = AtomicU64::new(0);
        let space = core::cell::RefCell::new(UserSpace::FIRST.clone());
        vfs::credentials::caller_is(|caller| {
            *space.borrow_mut() = caller.space.clone();
            true
        });
        let device: Arc<dyn FileOperations> = allocation::arc(Device {
            number: LATEST.fetch_add(1, Relaxed) + 1,
            space: space.into_inner(),
            connection: Once::new(),
        })?;
        Ok(device)
    }
}

/// See the theory of this file.
pub(crate) struct Device {
    number: u64,
    /// The name space of users of who opened it.
    space: UserSpace,
    connection: Once<Arc<Connection>>,
}

impl Device {
    /// Has a device lead to a connection.
    ///
    /// # Errors
    /// `EINVAL` if it leads somewhere.
    pub(crate) fn attach(&self, connection: &Arc<Connection>) -> Result<()> {
        let mut is_new = false;
        self.connection.call_once(|| {
            is_new = true;
            connection.add_device();
            connection.clone()
        });
        if is_new { Ok(()) } else { Err(Error::Invalid) }
    }

    /// Whether it leads somewhere.
    pub(crate) fn is_attached(&self) -> bool {
        self.connection.get().is_some()
    }

    /// The name space of users of who opened it.
    pub(crate) fn space(&self) -> &UserSpace {
        &self.space
    }

    fn connection(&self) -> Result<&Arc<Connection>> {
        self.connection.get().ok_or(Error::NotPermitted)
    }

    /// The next message for a server that has so much room for it.
    fn next_message(&self, connection: &Connection, file: &OpenFile, room: usize) -> Result<Message> {
        let write = REQUEST_HEADER_BYTES + WRITE_BYTES + connection.transfer_bytes().0;
        if room < READ_BUFFER_MIN.max(write) {
            return Err(Error::Invalid);
        }
        connection.next_message(room, file.non_block(), self.number)
    }

    /// Puts the next message into a pipe.
    fn put_message(&self, file: &OpenFile, pipe: &Pipe, room: usize) -> Result<usize> {
        let connection = self.connection()?;
        let message = self.next_message(connection, file, room)?;
        let put = allocation::filled(0, message.bytes()).and_then(|mut bytes| {
            self.read_message(connection, &message, &mut Sink::kernel(&mut bytes))?;
            pipe.put_whole(&bytes)?;
            Ok(bytes.len())
        });
        if put.is_err()
            && let Message::Request(request) = &message
        {
            connection.take_back(request, self.number);
        }
        put
    }

    fn read_message(&self, connection: &Connection, message: &Message, sink: &mut Sink<'_>) -> Result<usize> {
        match message {
            Message::Request(request) => {
                let put = put_request(request, sink);
                if put.is_err() {
                    connection.take_back(request, self.number);
                }
                put
            }
            Message::Interrupt(unique) => {
                let body = Body::new().u64s(&[*unique]);
                put(sink, &header(8, opcode::INTERRUPT, unique | 1, 0), body)
            }
            Message::Forget(files) => match files[..] {
                [(node, times)] => put(sink, &header(8, opcode::FORGET, 0, node), Body::new().u64s(&[times])),
                _ => {
                    let count = u32::try_from(files.len()).unwrap_or(u32::MAX);
                    let body = files.iter().fold(Body::new().u32s(&[count, 0]), |body, (node, times)| {
                        body.u64s(&[*node, *times])
                    });
                    put(sink, &header(8 + 16 * files.len(), opcode::BATCH_FORGET, 0, 0), body)
                }
            },
        }
    }

    /// A reply, or a notification.
    fn take_message(&self, connection: &Arc<Connection>, source: &mut Source<'_>) -> Result<usize> {
        let total = source.remaining();
        let mut bytes = [0; REPLY_HEADER_BYTES];
        if total < bytes.len() {
            return Err(Error::Invalid);
        }
        if source.read(&mut bytes)? < bytes.len() {
            return Err(Error::BadAddress);
        }
        let mut values = Decoder::new(&bytes);
        let (length, error, unique) = (values.u32()?, values.u32()?.cast_signed(), values.u64()?);
        if length as usize != total {
            return Err(Error::Invalid);
        }
        if unique == 0 {
            connection.notify(error, source)?;
            return Ok(total);
        }
        if error > 0 || error <= -ERRNO_END {
            return Err(Error::Invalid);
        }
        let payload = total - bytes.len();
        if unique & 1 != 0 {
            self.interruption_answered(connection, unique & !1, error, payload)?;
            return Ok(total);
        }
        let request = connection.take_sent(unique, self.number)?;
        let outcome = answer(&request, error.unsigned_abs(), payload, source);
        let told = match &outcome {
            Ok(_) => Ok(total),
            Err(error) => Err(*error),
        };
        connection.finish(&request, outcome.unwrap_or(Err(Error::Io)));
        told
    }

    fn interruption_answered(
        &self,
        connection: &Arc<Connection>,
        unique: u64,
        error: i32,
        payload: usize,
    ) -> Result<()> {
        if !connection.has_sent(unique, self.number) {
            return Err(Error::NotFound);
        }
        if payload != 0 {
            return Err(Error::Invalid);
        }
        match Error::from_errno(error.unsigned_abs()) {
            Some(Error::WouldBlock) => connection.interrupt_again(unique, self.number),
            Some(Error::NotImplemented) => {
                connection.note_unknown(opcode::INTERRUPT);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// What a reply says. The outer error is the server's, for a reply that makes no sense.
fn answer(request: &Request, errno: u32, payload: usize, source: &mut Source<'_>) -> Result<Result<Vec<u8>>> {
    if errno != 0 {
        let told = Error::from_errno(errno).unwrap_or(Error::Io);
        return if payload == 0 { Ok(Err(told)) } else { Err(Error::Invalid) };
    }
    if !request.room.fits(payload) {
        return Err(Error::Invalid);
    }
    let mut bytes = allocation::filled(0, payload)?;
    if source.read(&mut bytes)? < payload {
        return Err(Error::BadAddress);
    }
    Ok(Ok(bytes))
}

/// The header of a request of nobody.
fn header(body_bytes: usize, opcode: u32, unique: u64, node: u64) -> [u8; REQUEST_HEADER_BYTES] {
    header_for(body_bytes, opcode, unique, node, [0; 3])
}

fn header_for(
    body_bytes: usize,
    opcode: u32,
    unique: u64,
    node: u64,
    caller: [u32; 3],
) -> [u8; REQUEST_HEADER_BYTES] {
    let mut bytes = [0; REQUEST_HEADER_BYTES];
    let length = u32::try_from(REQUEST_HEADER_BYTES + body_bytes).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4..8].copy_from_slice(&opcode.to_le_bytes());
    bytes[8..16].copy_from_slice(&unique.to_le_bytes());
    bytes[16..24].copy_from_slice(&node.to_le_bytes());
    for (place, number) in bytes[24..36].chunks_exact_mut(4).zip(caller) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

fn put_whole(sink: &mut Sink<'_>, bytes: &[u8]) -> Result<usize> {
    if sink.write(bytes)? < bytes.len() { Err(Error::BadAddress) } else { Ok(bytes.len()) }
}

fn put(sink: &mut Sink<'_>, header: &[u8], body: Body) -> Result<usize> {
    let body = body.finish()?;
    Ok(put_whole(sink, header)? + put_whole(sink, &body)?)
}

fn put_request(request: &Request, sink: &mut Sink<'_>) -> Result<usize> {
    let caller = [request.caller.user, request.caller.group, request.caller.process];
    let header = header_for(request.body_bytes, request.opcode, request.unique(), request.node, caller);
    Ok(put_whole(sink, &header)? + put_whole(sink, &request.take_body())?)
}

impl FileOperations for Device {
    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let connection = self.connection()?;
        let message = self.next_message(connection, file, sink.remaining())?;
        self.read_message(connection, &message, sink)
    }

    fn write(&self, _file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        self.take_message(self.connection()?, source)
    }

    fn splice_to(&self, file: &OpenFile, _: &mut u64, pipe: &Pipe, length: usize) -> Option<Result<usize>> {
        Some(self.put_message(file, pipe, length))
    }

    fn splice_from(&self, _file: &OpenFile, pipe: &Pipe, length: usize) -> Option<Result<usize>> {
        Some(self.connection().and_then(|connection| {
            let message = pipe.take_whole(length)?;
            self.take_message(connection, &mut Source::kernel(&message))
        }))
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        self.connection.get().map_or(PollEvents::ERROR, |connection| connection.poll(table))
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        if command != CLONE {
            return Err(Error::NotTerminal);
        }
        let mut number = [0; 4];
        if Source::user(argument, number.len()).read(&mut number)? < number.len() {
            return Err(Error::BadAddress);
        }
        let other = vfs::caller::file(i32::from_le_bytes(number)).map_err(|_| Error::Invalid)?;
        let other = other.object::<Self>().ok_or(Error::Invalid)?;
        self.attach(other.connection.get().ok_or(Error::Invalid)?)?;
        Ok(0)
    }

    fn release(&self, _file: &OpenFile) {
        if let Some(connection) = self.connection.get() {
            connection.device_closed(self.number);
        }
    }
}
