//! Two sides that take turns, and markers around what they do.
//!
//! The side whose turn it is not waits in user mode: it makes no call, and takes nothing from the other one but the cache line of
//! the turn.

use std::arch::asm;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::thread::{CpuSet, futex, sched_setaffinity};

use super::{Operation, Step};

/// Rounds before the markers: caches are filled, pages are there. What the first half of these rounds has put off (grace periods,
/// callbacks, a change to one representative for each processor) is done while both sides [`spin`].
const WARM: u32 = 16;
/// Several ticks. The machine's clock counts instructions, so this is as much on a busy host.
const PAUSE: Duration = Duration::from_millis(10);
/// Rounds between markers.
const ROUNDS: u32 = 16;
/// Set in `ready` by a side that could not be prepared.
const FAILED: u32 = 1 << 16;

/// The turn after a side has panicked: there are no more.
const BROKEN: u32 = u32::MAX;

/// What both sides see, in memory that processes share.
#[derive(Debug)]
struct Shared {
    /// Sides that are ready, and whether one failed.
    ready: AtomicU32,
    /// Turns that were taken; side 0 has the even ones.
    turn: AtomicU32,
}

impl Shared {
    /// Sleeps until both sides are ready. Nobody yields here in a loop: an emulator that runs its processors one after the other may
    /// give the other one no turn then.
    fn wait_for_both(&self) {
        let no_flags = futex::Flags::empty();
        // Whoever is the second finds nobody to be woken, or the first one.
        futex::wake(&self.ready, no_flags, 1).expect("the word is there");
        loop {
            let ready = self.ready.load(Ordering::Acquire);
            if ready % FAILED == 2 {
                return;
            }
            // It may have changed meanwhile, or a signal may have come: both are a reason to look again.
            let _ = futex::wait(&self.ready, no_flags, ready, None);
        }
    }
}

/// Ends the turns when a side panics, so that the other one does not wait for it for ever.
struct Broken(&'static Shared);

impl Drop for Broken {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.turn.store(BROKEN, Ordering::Release);
        }
    }
}

/// Turns for the two sides of one pair.
#[derive(Debug)]
pub(super) struct Turns(&'static Shared);

impl Turns {
    /// Turns of which none was taken. The page they live in stays for good.
    pub(super) fn new() -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an unused range, which nothing else refers to.
        let page = unsafe { mmap_anonymous(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED) }?;
        // SAFETY: the page is never unmapped, and its zeroes are valid values of the atomics; sharing is what they are for.
        Ok(Self(unsafe { &*page.cast::<Shared>() }))
    }

    /// Takes all turns of a side on a processor. What it does is made on that processor too.
    pub(super) fn take(
        &self,
        side: usize,
        processor: usize,
        prepare: impl FnOnce() -> io::Result<Operation>,
    ) {
        let mut set = CpuSet::new();
        set.set(processor);
        let prepared = sched_setaffinity(None, &set).map_err(io::Error::from).and_then(|()| prepare());
        self.0.ready.fetch_add(1 + if prepared.is_err() { FAILED } else { 0 }, Ordering::AcqRel);
        self.0.wait_for_both();
        let mut operation = match prepared {
            Ok(operation) if self.0.ready.load(Ordering::Acquire) < FAILED => operation,
            Ok(_) => return,
            Err(error) => panic!("{error}"),
        };
        let _guard = Broken(self.0);
        for round in 0..WARM + ROUNDS {
            let own = round * 2 + side as u32;
            loop {
                match self.0.turn.load(Ordering::Acquire) {
                    turn if turn == own => break,
                    BROKEN => return,
                    _ => std::hint::spin_loop(),
                }
            }
            operation(Step::Before);
            if round < WARM {
                operation(Step::Call);
            } else {
                begin();
                operation(Step::Call);
                end();
            }
            operation(Step::After);
            if round == WARM / 2 {
                spin(PAUSE);
            }
            self.0.turn.store(own + 1, Ordering::Release);
        }
    }

    /// How many rounds were between markers.
    ///
    /// # Errors
    /// When not all turns were taken.
    pub(super) fn finished(&self) -> io::Result<u32> {
        match self.0.turn.load(Ordering::Acquire) {
            turn if turn == 2 * (WARM + ROUNDS) => Ok(ROUNDS),
            0 => Err(io::Error::other("it could not be prepared")),
            BROKEN => Err(io::Error::other("a side panicked")),
            turn => Err(io::Error::other(format!("it stopped at turn {turn}"))),
        }
    }
}

/// Spins. A side that slept would leave its processor idle, and an emulator that runs processors one after the other may then never
/// come back to it.
fn spin(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {}
}

/// From here on the plugin records what this processor does in the kernel.
#[inline(always)]
fn begin() {
    // SAFETY: a long no-operation, `nop dword ptr [rax + 0x53471001]`: it touches neither memory nor registers.
    unsafe { asm!(".byte 0x0f, 0x1f, 0x80, 0x01, 0x10, 0x47, 0x53", options(nostack, preserves_flags)) };
}

/// To here.
#[inline(always)]
fn end() {
    // SAFETY: as above, with another displacement.
    unsafe { asm!(".byte 0x0f, 0x1f, 0x80, 0x00, 0x20, 0x47, 0x53", options(nostack, preserves_flags)) };
}
