//! What `setsockopt` changes on a socket.
//!
//! Each option is an atomic word of its own; nothing depends on two of them being seen together.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

use bitflags::bitflags;

use crate::bpf::Slot;

/// Bytes that a socket may have under way unless it asks for more (`/proc/sys/net/core/wmem_default`).
pub(super) const BUFFER_DEFAULT: usize = 212_992;
/// Most bytes that an unprivileged process may ask for; the buffer becomes twice that.
pub const BUFFER_MAX: usize = 212_992;
/// Least sizes of the buffers.
const SEND_BUFFER_MIN: u32 = 4608;
const RECEIVE_BUFFER_MIN: u32 = 2304;
/// Stands for no offset of peeks.
const NO_OFFSET: i32 = -1;
/// Stands for no limit of time.
const FOR_EVER: u64 = u64::MAX;

/// What an administrator may change for all sockets.
pub mod settings {
    use core::sync::atomic::{AtomicU32, Ordering};

    /// Messages that others may leave with a datagram socket.
    pub(crate) const DATAGRAMS_DEFAULT: u32 = 10;
    /// Connections that may wait for a listening socket.
    const SOMAXCONN_DEFAULT: u32 = 4096;

    static DATAGRAMS: AtomicU32 = AtomicU32::new(DATAGRAMS_DEFAULT);
    static SOMAXCONN: AtomicU32 = AtomicU32::new(SOMAXCONN_DEFAULT);

    /// Messages that others may leave with a datagram socket made from now on (`/proc/sys/net/unix/max_dgram_qlen`).
    pub fn datagrams() -> u32 {
        DATAGRAMS.load(Ordering::Relaxed)
    }

    /// Changes that.
    pub fn set_datagrams(messages: u32) {
        DATAGRAMS.store(messages, Ordering::Relaxed);
    }

    /// Most connections that `listen` lets wait (`/proc/sys/net/core/somaxconn`).
    pub fn somaxconn() -> u32 {
        SOMAXCONN.load(Ordering::Relaxed)
    }

    /// Changes that.
    pub fn set_somaxconn(connections: u32) {
        SOMAXCONN.store(connections, Ordering::Relaxed);
    }
}

/// A direction of transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Towards the program.
    Receive,
    /// Away from it.
    Send,
}

bitflags! {
    /// Options that are kept and shown, and have no effect on local sockets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// `SO_DEBUG`
        const DEBUG = 1;
        /// `SO_REUSEADDR`
        const REUSE_ADDRESS = 2;
        /// `SO_DONTROUTE`
        const DO_NOT_ROUTE = 4;
        /// `SO_BROADCAST`
        const BROADCAST = 8;
        /// `SO_KEEPALIVE`
        const KEEP_ALIVE = 16;
        /// `SO_OOBINLINE`
        const OUT_OF_BAND_INLINE = 32;
        /// `SO_REUSEPORT`
        const REUSE_PORT = 64;
    }
}

bitflags! {
    /// Whether and how messages tell when they were sent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Stamping: u8 {
        /// They do.
        const ON = 1;
        /// In nanoseconds (`SO_TIMESTAMPNS`), not microseconds (`SO_TIMESTAMP`).
        const NANOSECONDS = 2;
        /// By the numbers of the options that there are since seconds may need 64 bits everywhere. Here nothing else differs.
        const NEW_NUMBERS = 4;
    }
}

/// The options of a socket.
#[derive(Debug)]
pub struct Options {
    flags: AtomicU32,
    pass_identity: AtomicBool,
    stamping: AtomicU8,
    /// Negative: none. Written with the inbox locked.
    peek_offset: AtomicI32,
    /// How often something was taken away while there was an offset. Written with the inbox locked.
    peek_turn: AtomicU32,
    send_buffer: AtomicU32,
    receive_buffer: AtomicU32,
    receive_timeout_ns: AtomicU64,
    send_timeout_ns: AtomicU64,
    low_water: AtomicU32,
    priority: AtomicU32,
    /// What messages are kept; streams have no use for it.
    pub filter: Slot,
    linger: AtomicU64,
}

impl Options {
    pub(crate) const fn new() -> Self {
        Self {
            flags: AtomicU32::new(0),
            pass_identity: AtomicBool::new(false),
            stamping: AtomicU8::new(0),
            peek_offset: AtomicI32::new(NO_OFFSET),
            peek_turn: AtomicU32::new(0),
            send_buffer: AtomicU32::new(BUFFER_DEFAULT as u32),
            receive_buffer: AtomicU32::new(BUFFER_DEFAULT as u32),
            receive_timeout_ns: AtomicU64::new(FOR_EVER),
            send_timeout_ns: AtomicU64::new(FOR_EVER),
            low_water: AtomicU32::new(1),
            priority: AtomicU32::new(0),
            filter: Slot::new(),
            linger: AtomicU64::new(0),
        }
    }

    /// Whether a flag is set.
    pub fn flag(&self, flag: Flags) -> bool {
        self.flags.load(Ordering::Relaxed) & flag.bits() != 0
    }

    /// Sets or clears a flag.
    pub fn set_flag(&self, flag: Flags, on: bool) {
        if on {
            self.flags.fetch_or(flag.bits(), Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag.bits(), Ordering::Relaxed);
        }
    }

    /// Whether messages received tell who sent them (`SO_PASSCRED`).
    pub fn passes_identity(&self) -> bool {
        self.pass_identity.load(Ordering::Relaxed)
    }

    /// Changes that.
    pub fn set_passes_identity(&self, on: bool) {
        self.pass_identity.store(on, Ordering::Relaxed);
    }

    /// Whether and how messages received tell when they were sent.
    pub fn stamping(&self) -> Stamping {
        Stamping::from_bits_truncate(self.stamping.load(Ordering::Relaxed))
    }

    /// Changes that.
    pub fn set_stamping(&self, stamping: Stamping) {
        self.stamping.store(stamping.bits(), Ordering::Relaxed);
    }

    /// The time of a message that comes now: nanoseconds since 1970, or 0 if nobody wants to know.
    #[inline]
    pub(super) fn stamp_ns(&self) -> u64 {
        if self.stamping().is_empty() {
            0
        } else {
            vfs::attributes::time_of_day_base_ns() + machine::time::now_ns()
        }
    }

    /// Where the next peek begins (`SO_PEEK_OFF`); negative: always at the first byte, and peeks change nothing.
    pub fn peek_offset(&self) -> i32 {
        self.peek_offset.load(Ordering::Relaxed)
    }

    /// Changes that; with the inbox locked.
    pub(super) fn set_peek_offset(&self, offset: i32) {
        self.peek_offset.store(offset, Ordering::Relaxed);
    }

    /// A peek has seen bytes; with the inbox locked.
    pub(super) fn peek_forward(&self, bytes: usize) {
        let offset = self.peek_offset();
        if offset >= 0 {
            self.set_peek_offset((offset as usize).saturating_add(bytes).min(i32::MAX as usize) as i32);
        }
    }

    /// Bytes were taken away that peeks had passed, or will not see; with the inbox locked.
    #[inline]
    pub(super) fn peek_back(&self, bytes: usize) {
        let offset = self.peek_offset();
        if offset >= 0 {
            self.set_peek_offset((offset as usize).saturating_sub(bytes) as i32);
            self.peek_turn.store(self.peek_turn().wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// A number that is another one each time something was taken away while there was an offset.
    pub(super) fn peek_turn(&self) -> u32 {
        self.peek_turn.load(Ordering::Relaxed)
    }

    /// The size of a buffer (`SO_SNDBUF`, `SO_RCVBUF`).
    pub fn buffer(&self, direction: Direction) -> usize {
        let bytes = match direction {
            Direction::Send => &self.send_buffer,
            Direction::Receive => &self.receive_buffer,
        };
        bytes.load(Ordering::Relaxed) as usize
    }

    /// Asks for a buffer: it becomes twice as big, since bookkeeping counts.
    pub fn set_buffer(&self, direction: Direction, bytes: usize) {
        let doubled = bytes.min(i32::MAX as usize / 2) as u32 * 2;
        match direction {
            Direction::Send => self.send_buffer.store(doubled.max(SEND_BUFFER_MIN), Ordering::Relaxed),
            Direction::Receive => {
                self.receive_buffer.store(doubled.max(RECEIVE_BUFFER_MIN), Ordering::Relaxed);
            }
        }
    }

    fn timeout_word(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Send => &self.send_timeout_ns,
            Direction::Receive => &self.receive_timeout_ns,
        }
    }

    /// How long a call waits at most (`SO_RCVTIMEO`, `SO_SNDTIMEO`).
    pub fn timeout_ns(&self, direction: Direction) -> Option<u64> {
        Some(self.timeout_word(direction).load(Ordering::Relaxed)).filter(|&timeout| timeout != FOR_EVER)
    }

    /// Changes that.
    pub fn set_timeout_ns(&self, direction: Direction, timeout_ns: Option<u64>) {
        self.timeout_word(direction).store(timeout_ns.unwrap_or(FOR_EVER), Ordering::Relaxed);
    }

    /// When a call that begins now stops waiting.
    pub(crate) fn deadline_ns(&self, direction: Direction) -> Option<u64> {
        self.timeout_ns(direction).map(|timeout| machine::time::now_ns().saturating_add(timeout))
    }

    /// Bytes that a read waits for (`SO_RCVLOWAT`).
    pub fn low_water(&self) -> u32 {
        self.low_water.load(Ordering::Relaxed)
    }

    /// Changes that.
    pub fn set_low_water(&self, bytes: u32) {
        self.low_water.store(bytes.max(1), Ordering::Relaxed);
    }

    /// `SO_PRIORITY`: kept only.
    pub fn priority(&self) -> u32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Changes that.
    pub fn set_priority(&self, priority: u32) {
        self.priority.store(priority, Ordering::Relaxed);
    }

    /// The two words of `SO_LINGER`: kept only.
    pub fn linger(&self) -> (i32, i32) {
        let both = self.linger.load(Ordering::Relaxed);
        (both as i32, (both >> 32) as i32)
    }

    /// Changes them.
    pub fn set_linger(&self, on: bool, seconds: i32) {
        self.linger.store(u64::from(on) | (u64::from(seconds as u32) << 32), Ordering::Relaxed);
    }
}
