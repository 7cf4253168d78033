//! A port as an open file: `/dev/vport0p1`, and `/dev/virtio-ports/NAME` if the host gives it a name.
//!
//! As on Linux: one may have it open at a time; while nobody has it open on the host, it is at its end for readers, and writers wait.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use devfs::appearing::Entry as Node;
use memory::buffer::{Sink, Source};
use memory::fallible;
use sched::{Registration, Waker};
use sync::SpinLock;
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::device::DeviceDriver;
use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::flags::OpenFlags;
use vfs::inode::Inode;
use vfs::poll::{PollEvents, PollList, PollTable};
use vfs::{Error, Result, allocation};

use super::control::{Message, event};
use super::device::{Console, PORTS_MAX};
use super::port::Port;

/// The number that Linux gives to the first driver that asks for any.
const MAJOR: u32 = 242;
/// The directory of ports by their names.
const BY_NAME: &str = "virtio-ports";
const MODE: u32 = 0o600;
/// Bytes moved between user memory and a port at a time.
const READ_BYTES: usize = 512;
const WRITE_BYTES: usize = 4096;

/// A port that can be opened.
struct Entry {
    minor: u32,
    port: Arc<Port>,
    console: Arc<Console>,
}

static ENTRIES: SpinLock<Vec<Entry>> = SpinLock::named("virtio ports", Vec::new());

fn minor(console: &Console, port: &Port) -> u32 {
    console.number.value() * PORTS_MAX + port.id
}

fn node_name(console: &Console, port: &Port) -> String {
    format!("vport{}p{}", console.number.value(), port.id)
}

/// A port is there now. That it has a name may be known later.
pub(super) fn appear(console: &Arc<Console>, port: &Arc<Port>) {
    let minor = minor(console, port);
    let mut list = Vec::new();
    let wanted = ENTRIES.lock().len() + 1;
    if fallible::try_reserve(&mut list, wanted + PORTS_MAX as usize).is_err() {
        log::error!("virtio console: no memory for {}", node_name(console, port));
        return;
    }
    {
        let mut entries = ENTRIES.lock();
        if entries.len() < list.capacity() {
            list.append(&mut entries);
            list.push(Entry { minor, port: port.clone(), console: console.clone() });
            core::mem::swap(&mut *entries, &mut list);
        }
    }
    drop(list);
    devfs::appearing::add(Node {
        directory: None,
        name: node_name(console, port),
        kind: FileKind::CharacterDevice,
        mode: MODE,
        number: DeviceNumber::new(MAJOR, minor),
        target: String::new(),
    });
}

/// The host has given a port a name, in place of the one that it may have had.
pub(super) fn name(console: &Console, port: &Port, name: String) {
    let former = core::mem::replace(&mut *port.name.lock(), name.clone());
    if former == name {
        return;
    }
    devfs::appearing::remove(Some(BY_NAME), &former);
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return;
    }
    devfs::appearing::add(Node {
        directory: Some(BY_NAME),
        name,
        kind: FileKind::SymbolicLink,
        mode: 0o777,
        number: DeviceNumber::default(),
        target: format!("../{}", node_name(console, port)),
    });
}

/// A port is there no more.
pub(super) fn disappear(console: &Console, port: &Port) {
    let minor = minor(console, port);
    let entry = {
        let mut entries = ENTRIES.lock();
        entries.iter().position(|entry| entry.minor == minor).map(|at| entries.swap_remove(at))
    };
    drop(entry);
    let name = core::mem::take(&mut *port.name.lock());
    devfs::appearing::remove(Some(BY_NAME), &name);
    devfs::appearing::remove(None, &node_name(console, port));
}

struct PortDriver;

/// Registers the driver of ports. At start-up.
pub(super) fn register() {
    static DRIVER: PortDriver = PortDriver;
    vfs::device::register(FileKind::CharacterDevice, MAJOR, 0..=u32::MAX, &DRIVER);
}

/// Passes wake-ups on to those who poll a port.
struct Notifier(PollList);

impl Waker for Notifier {
    fn wake(&self) {
        self.0.notify(PollEvents::INPUT | PollEvents::OUTPUT | PollEvents::HANG_UP);
    }
}

/// See the theory of this file.
struct PortFile {
    port: Arc<Port>,
    console: Arc<Console>,
    notifier: Arc<Notifier>,
    _registrations: [Registration; 2],
}

impl DeviceDriver for PortDriver {
    fn name(&self) -> &'static str {
        "virtio-portsdev"
    }

    fn open(
        &self,
        number: DeviceNumber,
        _inode: &Arc<Inode>,
        _flags: OpenFlags,
    ) -> Result<Arc<dyn FileOperations>> {
        let found = {
            let entries = ENTRIES.lock();
            let entry = entries.iter().find(|entry| entry.minor == number.minor);
            entry.map(|entry| (entry.port.clone(), entry.console.clone()))
        };
        let (port, console) = found.ok_or(Error::NoDeviceAddress)?;
        if !port.is_there() || console.is_terminal(&port) {
            return Err(Error::NoDeviceAddress);
        }
        let notifier = allocation::arc(Notifier(PollList::new()))?;
        if port.is_open.swap(true, Ordering::AcqRel) {
            return Err(Error::Busy);
        }
        let registrations =
            [port.data_queue(), port.room_queue()].map(|queue| queue.register(notifier.clone()));
        let file = PortFile { port, console, notifier, _registrations: registrations };
        file.tell(true);
        // When the allocation fails, dropping the file closes it again.
        Ok(allocation::arc(file)?)
    }
}

impl PortFile {
    fn tell(&self, is_open: bool) {
        self.console.send(Message { port: self.port.id, event: event::OPEN, value: is_open.into() });
    }

    fn may_write(&self) -> bool {
        !self.port.is_there() || (self.port.is_connected() && self.port.room(1) > 0)
    }

    fn may_read(&self) -> bool {
        !self.port.is_there() || !self.port.is_connected() || self.port.has_data()
    }

    /// Writes all of it, or what fits in now; 0 only with an error.
    fn write_piece(&self, bytes: &[u8], non_block: bool) -> core::result::Result<usize, Error> {
        loop {
            if !self.port.is_there() {
                return Err(Error::NoDevice);
            }
            if self.port.is_connected() && self.port.try_write_all(&[bytes]) {
                return Ok(bytes.len());
            }
            if non_block {
                return Err(Error::WouldBlock);
            }
            let queue = self.port.room_queue();
            queue.wait_interruptible(|| self.may_write()).map_err(|_| Error::Interrupted)?;
        }
    }
}

impl Drop for PortFile {
    fn drop(&mut self) {
        self.tell(false);
        if self.port.is_there() {
            self.port.discard();
        }
        self.port.is_open.store(false, Ordering::Release);
    }
}

impl FileOperations for PortFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE
    }

    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let mut total = 0;
        let mut bytes = [0; READ_BYTES];
        while !sink.is_full() {
            let wanted = sink.remaining().min(READ_BYTES);
            let count = self.port.read(&mut bytes[..wanted]);
            if count > 0 {
                sink.write(&bytes[..count]).map_err(|_| Error::BadAddress)?;
                total += count;
            } else if total > 0 {
                break;
            } else if !self.port.is_there() {
                return Err(Error::NoDevice);
            } else if !self.port.is_connected() {
                break;
            } else if file.non_block() {
                return Err(Error::WouldBlock);
            } else {
                let queue = self.port.data_queue();
                queue.wait_interruptible(|| self.may_read()).map_err(|_| Error::Interrupted)?;
            }
        }
        Ok(total)
    }

    fn write(&self, file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let mut bytes = fallible::try_vec_of(0, WRITE_BYTES).map_err(|_| Error::OutOfMemory)?;
        let mut total = 0;
        while !source.is_empty() {
            let outcome = source.read(&mut bytes).map_err(|_| Error::BadAddress);
            match outcome.and_then(|count| self.write_piece(&bytes[..count], file.non_block())) {
                Ok(count) => total += count,
                Err(_) if total > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.notifier.0);
        }
        if !self.port.is_there() {
            return PollEvents::HANG_UP;
        }
        let mut ready = PollEvents::empty();
        ready.set(PollEvents::INPUT, self.port.has_data());
        ready.set(PollEvents::OUTPUT, self.may_write());
        ready.set(PollEvents::HANG_UP, !self.port.is_connected());
        ready
    }
}
