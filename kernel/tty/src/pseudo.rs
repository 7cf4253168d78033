//! Pseudo-terminals: a terminal whose device is another program.
//!
//! Opening the multiplexer (`/dev/ptmx`) makes a [`Pair`]: a master, which the opener holds, and a
//! slave [`Terminal`] with a number `N`, reached as `/dev/pts/N` once it is unlocked. What the slave's
//! programs write the master reads, after output processing; what the master writes goes through the
//! slave's line discipline.
//!
//! States of a pair: *locked* → (TIOCSPTLCK) *open* → (last master closed) *hung up*. The number is
//! free again when both sides are gone. While no slave is open after there was one, reads of the
//! master fail with EIO, as on Linux.

use alloc::sync::{Arc, Weak};

use machine::set_once::SetOnce;
use memory::OutOfMemory;
use memory::buffer::{Sink, Source};
use sched::WaitQueue;
use sync::SpinLock;
use vfs::Error;
use vfs::poll::{PollEvents, PollList, PollTable};

use crate::terminal::{Device, Name, Notice, Terminal};
use crate::termios::Termios;

/// Major device number of pseudo-terminal slaves.
pub const SLAVE_MAJOR: u32 = 136;
/// Pseudo-terminals at a time (`/proc/sys/kernel/pty/max`).
pub const MAX_PAIRS: usize = 4096;

const CHUNK_BYTES: usize = 256;
const WORDS: usize = MAX_PAIRS / 64;

/// Numbers in use.
static NUMBERS: SpinLock<[u64; WORDS]> = SpinLock::new([0; WORDS]);
static DIRECTORY: SetOnce<&'static dyn Directory> = SetOnce::new();

/// Where slaves become visible: the devpts file system registers itself here.
pub trait Directory: Sync {
    /// A pair was made by a process with these user and group ids.
    fn added(&self, pair: &Arc<Pair>, user: u32, group: u32);
    /// A pair is gone.
    fn removed(&self, number: u32);
}

/// Registers the directory of slaves. Once, at start-up.
pub fn register_directory(directory: &'static dyn Directory) {
    DIRECTORY.set(directory);
}

/// A number in use, free again when dropped.
struct Number(u32);

impl Number {
    fn take() -> Option<Self> {
        let mut words = NUMBERS.lock();
        let (at, word) = words.iter_mut().enumerate().find(|(_, word)| **word != u64::MAX)?;
        let bit = word.trailing_ones();
        *word |= 1 << bit;
        Some(Self(at as u32 * 64 + bit))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        NUMBERS.lock()[self.0 as usize / 64] &= !(1 << (self.0 % 64));
    }
}

#[derive(Default)]
struct PairState {
    locked: bool,
    packet_mode: bool,
    packet_status: u8,
    slave_opens: u32,
    slave_was_open: bool,
}

/// The master side's state and the device of the slave.
pub struct Pair {
    number: Number,
    state: SpinLock<PairState>,
    readers: WaitQueue,
    writers: WaitQueue,
    watchers: PollList,
    slave: SpinLock<Weak<Terminal>>,
}

/// What the open master file holds: the slave terminal stays alive as long as it.
pub struct Master {
    pair: Arc<Pair>,
    slave: Arc<Terminal>,
}

mod packet {
    pub(super) const DATA: u8 = 0;
    pub(super) const FLUSH_READ: u8 = 1;
    pub(super) const FLUSH_WRITE: u8 = 2;
    pub(super) const STOP: u8 = 4;
    pub(super) const START: u8 = 8;
}

impl Device for Pair {
    fn output_ready(&self, _terminal: &Terminal) {
        self.wake_readers();
    }

    fn input_room(&self, _terminal: &Terminal) {
        self.wake_writers();
    }

    /// The master could read it already.
    fn signals_flush_output(&self) -> bool {
        false
    }

    fn notice(&self, _terminal: &Terminal, notice: Notice) {
        let mut state = self.state.lock();
        if !state.packet_mode {
            return;
        }
        match notice {
            Notice::FlushedInput => state.packet_status |= packet::FLUSH_READ,
            Notice::FlushedOutput => state.packet_status |= packet::FLUSH_WRITE,
            Notice::Stopped => state.packet_status = state.packet_status & !packet::START | packet::STOP,
            Notice::Started => state.packet_status = state.packet_status & !packet::STOP | packet::START,
        }
        drop(state);
        self.wake_readers();
    }
}

impl Pair {
    fn wake_readers(&self) {
        self.readers.wake_all();
        self.watchers.notify(PollEvents::INPUT);
    }

    fn wake_writers(&self) {
        self.writers.wake_all();
        self.watchers.notify(PollEvents::OUTPUT);
    }

    /// The number `N` of `/dev/pts/N`.
    pub fn number(&self) -> u32 {
        self.number.0
    }

    /// The slave terminal; None once the master is closed and nobody has the slave open.
    pub fn slave(&self) -> Option<Arc<Terminal>> {
        self.slave.lock().upgrade()
    }

    /// Whether the slave can't be opened yet.
    pub fn is_locked(&self) -> bool {
        self.state.lock().locked
    }

    /// Locks or unlocks the slave (TIOCSPTLCK).
    pub fn set_locked(&self, locked: bool) {
        self.state.lock().locked = locked;
    }

    /// The slave was opened.
    pub fn slave_opened(&self) {
        let mut state = self.state.lock();
        state.slave_opens += 1;
        state.slave_was_open = true;
    }

    /// The slave was closed; at the last close the master sees a hang-up.
    pub fn slave_closed(&self) {
        let last = {
            let mut state = self.state.lock();
            state.slave_opens -= 1;
            state.slave_opens == 0
        };
        if last {
            self.wake_readers();
            self.wake_writers();
            self.watchers.notify(PollEvents::ALWAYS);
        }
    }

    fn slave_is_gone(&self) -> bool {
        let state = self.state.lock();
        state.slave_was_open && state.slave_opens == 0
    }
}

/// Makes a pair with a locked slave, owned by the given user and group.
///
/// # Errors
/// [`Error::NoSpace`] when all numbers are taken, [`Error::OutOfMemory`].
pub fn open_master(user: u32, group: u32) -> Result<Master, Error> {
    let number = Number::take().ok_or(Error::NoSpace)?;
    let (pair, slave) = make_pair(number).map_err(|OutOfMemory| Error::OutOfMemory)?;
    if let Some(directory) = DIRECTORY.get() {
        directory.added(&pair, user, group);
    }
    Ok(Master { pair, slave })
}

fn make_pair(number: Number) -> Result<(Arc<Pair>, Arc<Terminal>), OutOfMemory> {
    let minor = number.0;
    let pair = memory::fallible::try_arc(Pair {
        number,
        state: SpinLock::new(PairState { locked: true, ..PairState::default() }),
        readers: WaitQueue::new(),
        writers: WaitQueue::new(),
        watchers: PollList::new(),
        slave: SpinLock::new(Weak::new()),
    })?;
    let device: Arc<dyn Device> = pair.clone();
    let slave = Terminal::new(device, Name { major: SLAVE_MAJOR, minor })?;
    slave.set_termios(Termios::initial_pseudo());
    *pair.slave.lock() = Arc::downgrade(&slave);
    Ok((pair, slave))
}

impl Master {
    /// The pair.
    pub fn pair(&self) -> &Arc<Pair> {
        &self.pair
    }

    /// The slave terminal.
    pub fn slave(&self) -> &Arc<Terminal> {
        &self.slave
    }

    /// Switches packet mode (TIOCPKT).
    pub fn set_packet_mode(&self, on: bool) {
        let mut state = self.pair.state.lock();
        state.packet_mode = on;
        state.packet_status = packet::DATA;
    }

    /// Whether packet mode is on (TIOCGPKT).
    pub fn packet_mode(&self) -> bool {
        self.pair.state.lock().packet_mode
    }

    /// Reads what the slave's programs wrote.
    ///
    /// # Errors
    /// [`Error::Io`] when no program has the slave open any more, [`Error::WouldBlock`],
    /// [`Error::Interrupted`], [`Error::BadAddress`].
    pub fn read(&self, sink: &mut Sink<'_>, non_blocking: bool) -> Result<usize, Error> {
        if sink.is_full() {
            return Ok(0);
        }
        loop {
            let packet_mode = {
                let mut state = self.pair.state.lock();
                let status = core::mem::take(&mut state.packet_status);
                if status != 0 {
                    drop(state);
                    return sink.write(&[status]).map_err(|_| Error::BadAddress);
                }
                state.packet_mode
            };
            let mut total = 0;
            let mut chunk = [0; CHUNK_BYTES];
            loop {
                let header = usize::from(packet_mode && total == 0);
                let room = sink.remaining().saturating_sub(header).min(CHUNK_BYTES);
                let count = self.slave.take_output(&mut chunk[..room]);
                if count == 0 {
                    break;
                }
                if header == 1 {
                    total += sink.write(&[packet::DATA]).map_err(|_| Error::BadAddress)?;
                }
                total += sink.write(&chunk[..count]).map_err(|_| Error::BadAddress)?;
            }
            if total > 0 {
                return Ok(total);
            }
            if self.pair.slave_is_gone() {
                return Err(Error::Io);
            }
            if non_blocking {
                return Err(Error::WouldBlock);
            }
            self.pair.readers.wait_interruptible(|| self.is_readable()).map_err(|_| Error::Interrupted)?;
        }
    }

    /// Writes bytes as if they were typed at the slave.
    ///
    /// # Errors
    /// [`Error::Io`] when no program has the slave open any more, [`Error::WouldBlock`],
    /// [`Error::Interrupted`], [`Error::BadAddress`].
    pub fn write(&self, source: &mut Source<'_>, non_blocking: bool) -> Result<usize, Error> {
        let mut total = 0;
        while !source.is_empty() {
            let mut chunk = [0; CHUNK_BYTES];
            let size = match source.read(&mut chunk) {
                Ok(size) => size,
                Err(_) if total > 0 => break,
                Err(_) => return Err(Error::BadAddress),
            };
            let mut done = 0;
            while done < size {
                if self.pair.slave_is_gone() {
                    return if total + done > 0 { Ok(total + done) } else { Err(Error::Io) };
                }
                done += self.slave.input(&chunk[done..size]);
                if done == size {
                    break;
                }
                let wait = if non_blocking {
                    Err(Error::WouldBlock)
                } else {
                    self.pair
                        .writers
                        .wait_interruptible(|| self.is_writable())
                        .map_err(|_| Error::Interrupted)
                };
                if let Err(error) = wait {
                    return if total + done > 0 { Ok(total + done) } else { Err(error) };
                }
            }
            total += size;
        }
        Ok(total)
    }

    /// Whether a read would not wait.
    pub fn is_readable(&self) -> bool {
        self.pair.state.lock().packet_status != 0 || self.slave.has_output() || self.pair.slave_is_gone()
    }

    /// Whether a write would not wait.
    pub fn is_writable(&self) -> bool {
        self.slave.input_room() > 0 || self.pair.slave_is_gone()
    }

    /// What is ready.
    pub fn poll(&self, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.pair.watchers);
        }
        let gone = self.pair.slave_is_gone();
        let mut ready = PollEvents::empty();
        ready.set(PollEvents::INPUT, self.slave.has_output());
        ready.set(PollEvents::OUTPUT, self.slave.input_room() > 0);
        ready.set(PollEvents::HANG_UP, gone);
        if self.pair.state.lock().packet_status != 0 {
            ready |= PollEvents::INPUT | PollEvents::PRIORITY;
        }
        ready
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.slave.hang_up();
        if let Some(directory) = DIRECTORY.get() {
            directory.removed(self.pair.number());
        }
    }
}
