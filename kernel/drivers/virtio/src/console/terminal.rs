//! A port as a terminal: `/dev/hvc0`.
//!
//! Output is taken from the terminal's queue whenever there is some and the port has room, by whoever wrote it, or by the device's thread when room appears. One
//! does so at a time; a request that comes meanwhile makes the running one go round again. Input is handed over by the device's thread.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, Ordering};

use devfs::appearing::Entry as Node;
use memory::{OutOfMemory, fallible};
use sched::Mutex;
use sync::SpinLock;
use tty::{Device, Name, Terminal, TerminalFile, WindowSize};
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::device::DeviceDriver;
use vfs::file::FileOperations;
use vfs::flags::OpenFlags;
use vfs::inode::Inode;
use vfs::{Error, Result};

use super::device::Events;
use super::port::Port;

const MAJOR: u32 = 229;
const MODE: u32 = 0o600;
/// Bytes moved at a time: they lie on the kernel stack.
const CHUNK_BYTES: usize = 256;

const IDLE: u8 = 0;
const DRAINING: u8 = 1;
const AGAIN: u8 = 2;

static TERMINALS: SpinLock<Vec<(u32, Arc<Terminal>)>> = SpinLock::named("virtio terminals", Vec::new());

/// The port as the terminal sees it.
struct PortDevice {
    port: Arc<Port>,
    events: Arc<Events>,
    /// IDLE, DRAINING, or DRAINING with another round wanted.
    drain: AtomicU8,
}

/// See the theory of this file.
pub(super) struct Hvc {
    port: Arc<Port>,
    terminal: Arc<Terminal>,
    device: Arc<PortDevice>,
    number: u32,
    /// Input that the terminal did not take.
    left: Mutex<Vec<u8>>,
}

impl Hvc {
    /// Makes the terminal of a port, under the first free number.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn make(
        port: &Arc<Port>,
        events: &Arc<Events>,
    ) -> core::result::Result<Arc<Self>, OutOfMemory> {
        let device = PortDevice { port: port.clone(), events: events.clone(), drain: AtomicU8::new(IDLE) };
        let device = fallible::try_arc(device)?;
        // Held by the thread of one device; two devices at a time are told apart by the list.
        let mut list = Vec::new();
        let wanted = TERMINALS.lock().len() + 8;
        fallible::try_reserve(&mut list, wanted)?;
        let taken: Vec<u32> = TERMINALS.lock().iter().map(|(number, _)| *number).collect();
        let number = (0..u32::MAX).find(|number| !taken.contains(number)).ok_or(OutOfMemory)?;
        let terminal = Terminal::new(device.clone(), Name { major: MAJOR, minor: number })?;
        let hvc = Self {
            port: port.clone(),
            terminal: terminal.clone(),
            device,
            number,
            left: Mutex::named("virtio terminal input", fallible::try_vec(CHUNK_BYTES)?),
        };
        {
            let mut terminals = TERMINALS.lock();
            if terminals.len() >= list.capacity() {
                return Err(OutOfMemory);
            }
            list.append(&mut terminals);
            list.push((number, terminal));
            core::mem::swap(&mut *terminals, &mut list);
        }
        drop(list);
        devfs::appearing::add(Node {
            directory: None,
            name: format!("hvc{number}"),
            kind: FileKind::CharacterDevice,
            mode: MODE,
            number: DeviceNumber::new(MAJOR, number),
            target: String::new(),
        });
        fallible::try_arc(hvc)
    }

    /// Whether it is this port's.
    pub(super) fn is_of(&self, port: &Arc<Port>) -> bool {
        Arc::ptr_eq(&self.port, port)
    }

    /// The host's terminal has this size now.
    pub(super) fn resize(&self, rows: u16, columns: u16) {
        let window = self.terminal.window();
        if (window.rows, window.columns) != (rows, columns) {
            self.terminal.set_window(WindowSize { rows, columns, ..window });
        }
    }

    /// Hands over input, and output that there is room for now.
    pub(super) fn serve(&self) {
        self.device.output_ready(&self.terminal);
        let mut left = self.left.lock();
        loop {
            if left.is_empty() {
                let mut bytes = [0; CHUNK_BYTES];
                let count = self.port.read(&mut bytes);
                left.extend_from_slice(&bytes[..count]);
            }
            let taken = if left.is_empty() { 0 } else { self.terminal.input(&left) };
            left.drain(..taken);
            if taken == 0 {
                return;
            }
        }
    }

    /// The port is there no more.
    pub(super) fn end(&self) {
        let taken = {
            let mut terminals = TERMINALS.lock();
            terminals
                .iter()
                .position(|(number, _)| *number == self.number)
                .map(|at| terminals.swap_remove(at))
        };
        drop(taken);
        devfs::appearing::remove(None, &format!("hvc{}", self.number));
        self.terminal.hang_up();
    }
}

impl Device for PortDevice {
    fn output_ready(&self, terminal: &Terminal) {
        // AcqRel: whoever finds DRAINING leaves the work to the drainer, which looks again after AGAIN.
        if self.drain.swap(AGAIN, Ordering::AcqRel) != IDLE {
            return;
        }
        loop {
            self.drain.store(DRAINING, Ordering::Release);
            self.drain_once(terminal);
            let done = self.drain.compare_exchange(DRAINING, IDLE, Ordering::AcqRel, Ordering::Acquire);
            if done.is_ok() {
                return;
            }
        }
    }

    fn input_room(&self, _terminal: &Terminal) {
        self.events.attend();
    }
}

impl PortDevice {
    /// Nobody else writes to the port, so what there is room for now stays so.
    fn drain_once(&self, terminal: &Terminal) {
        let mut chunk = [0; CHUNK_BYTES];
        while self.port.room(1) > 0 {
            let count = terminal.take_output(&mut chunk);
            if count == 0 || !self.port.try_write_all(&[&chunk[..count]]) {
                return;
            }
        }
    }
}

struct HvcDriver;

/// Registers the driver of terminals. At start-up.
pub(super) fn register() {
    static DRIVER: HvcDriver = HvcDriver;
    vfs::device::register(FileKind::CharacterDevice, MAJOR, 0..=u32::MAX, &DRIVER);
}

impl DeviceDriver for HvcDriver {
    fn name(&self) -> &'static str {
        "hvc"
    }

    fn open(
        &self,
        number: DeviceNumber,
        _inode: &Arc<Inode>,
        flags: OpenFlags,
    ) -> Result<Arc<dyn FileOperations>> {
        let found = {
            let terminals = TERMINALS.lock();
            terminals.iter().find(|(known, _)| *known == number.minor).map(|(_, terminal)| terminal.clone())
        };
        let terminal = found.ok_or(Error::NoDevice)?;
        Ok(TerminalFile::open(terminal, None, flags)?)
    }
}
