//! A port as a terminal: `/dev/hvc0`.
//!
//! Output is taken from the terminal's queue whenever there is some and the port has room, by whoever wrote it, or by the device's thread when room appears. One
//! does so at a time; a request that comes meanwhile makes the running one go round again. Who writes does so for a bounded number of bytes, whatever others write
//! meanwhile; the device's thread goes on. Input is handed over by the device's thread, and in turn with output.

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
/// Bytes of output, and of input, after which who moves them looks at other things.
const TURN_BYTES: usize = 8192;

const IDLE: u8 = 0;
const DRAINING: u8 = 1;
const AGAIN: u8 = 2;

/// Held while a terminal is made: numbers are given once.
static MAKING: Mutex<()> = Mutex::named("making of virtio terminals", ());

static TERMINALS: SpinLock<Vec<(u32, Arc<Terminal>)>> = SpinLock::named("virtio terminals", Vec::new());

/// The port as the terminal sees it.
struct PortDevice {
    port: Arc<Port>,
    events: Arc<Events>,
    /// IDLE, DRAINING, or DRAINING with another round wanted.
    state: AtomicU8,
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
        let device = PortDevice { port: port.clone(), events: events.clone(), state: AtomicU8::new(IDLE) };
        let device = fallible::try_arc(device)?;
        let _one = MAKING.lock();
        let mut list = Vec::new();
        fallible::try_reserve(&mut list, TERMINALS.lock().len() + 1)?;
        let number = {
            let terminals = TERMINALS.lock();
            let is_free = |number: &u32| terminals.iter().all(|(taken, _)| taken != number);
            (0..u32::MAX).find(is_free).ok_or(OutOfMemory)?
        };
        let terminal = Terminal::new(device.clone(), Name { major: MAJOR, minor: number })?;
        let hvc = fallible::try_arc(Self {
            port: port.clone(),
            terminal: terminal.clone(),
            device,
            number,
            left: Mutex::named("virtio terminal input", fallible::try_vec(CHUNK_BYTES)?),
        })?;
        {
            // Not longer than before: terminals are made one after the other.
            let mut terminals = TERMINALS.lock();
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
        Ok(hvc)
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
        let is_more = self.device.drain(&self.terminal) | self.take_input();
        if is_more {
            self.device.events.attend();
        }
    }

    /// Hands over input; returns whether there may be more after so much.
    fn take_input(&self) -> bool {
        let mut left = self.left.lock();
        let mut total = 0;
        while total < TURN_BYTES {
            if left.is_empty() {
                let mut bytes = [0; CHUNK_BYTES];
                let count = self.port.read(&mut bytes);
                left.extend_from_slice(&bytes[..count]);
            }
            let taken = if left.is_empty() { 0 } else { self.terminal.input(&left) };
            left.drain(..taken);
            total += taken;
            if taken == 0 {
                return false;
            }
        }
        true
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
        if self.drain(terminal) {
            self.events.attend();
        }
    }

    fn input_room(&self, _terminal: &Terminal) {
        self.events.attend();
    }
}

impl PortDevice {
    /// Moves output that there is room for; returns whether there may be more, after so much that somebody else is to go on.
    fn drain(&self, terminal: &Terminal) -> bool {
        // AcqRel: whoever finds DRAINING leaves the work to the drainer, which looks again after AGAIN.
        if self.state.swap(AGAIN, Ordering::AcqRel) != IDLE {
            return false;
        }
        let mut moved = 0;
        loop {
            self.state.store(DRAINING, Ordering::Release);
            moved += self.drain_once(terminal, TURN_BYTES - moved);
            if moved >= TURN_BYTES {
                // Also what came meanwhile is for who goes on.
                self.state.store(IDLE, Ordering::Release);
                return true;
            }
            let done = self.state.compare_exchange(DRAINING, IDLE, Ordering::AcqRel, Ordering::Acquire);
            if done.is_ok() {
                return false;
            }
        }
    }

    /// Moves up to so many bytes. Nobody else writes to the port, so what there is room for now stays so.
    fn drain_once(&self, terminal: &Terminal, bytes: usize) -> usize {
        let mut chunk = [0; CHUNK_BYTES];
        let mut moved = 0;
        while moved < bytes && self.port.room(1) > 0 {
            let wanted = CHUNK_BYTES.min(bytes - moved);
            let count = terminal.take_output(&mut chunk[..wanted]);
            if count == 0 || !self.port.try_write_all(&[&chunk[..count]]) {
                break;
            }
            moved += count;
        }
        moved
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
