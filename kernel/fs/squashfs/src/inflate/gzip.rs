//! gzip: a zlib stream for each block.
//!
//! What the algorithm needs beside its output, 10 KiB, is built on a stack before it can lie in the heap, and whoever reads a file may have used most
//! of his. So decompressors are made when the file system is mounted, by a thread that has a stack for nothing else, and their users take turns with them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use machine::cpu;
use memory::{OutOfMemory, fallible};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};
use sched::{Completion, WaitQueue};
use sync::SpinLock;

use super::damaged;
use crate::Result;

/// Most of a file system; fewer on a machine with fewer processors.
const DECOMPRESSORS_MAX: usize = 4;

type Decompressors = Vec<Box<DecompressorOxide>>;

/// See the theory of this file.
pub(crate) struct Inflater {
    idle: SpinLock<Decompressors>,
    turn: WaitQueue,
}

/// What a thread is asked to make.
#[derive(Default)]
struct Order {
    made: SpinLock<Option<Decompressors>>,
    done: Completion,
}

fn make(count: usize) -> core::result::Result<Decompressors, OutOfMemory> {
    let mut made = fallible::try_vec(count)?;
    for _ in 0..count {
        made.push(fallible::try_box(DecompressorOxide::new())?);
    }
    Ok(made)
}

impl Inflater {
    pub(super) fn new() -> Result<Self> {
        let count = cpu::count().clamp(1, DECOMPRESSORS_MAX);
        let order = fallible::try_arc(Order::default())?;
        let own: Arc<Order> = order.clone();
        let body = Box::new(move || {
            *own.made.lock() = make(count).ok();
            own.done.complete();
        });
        sched::spawn(sched::Builder::new("squashfs"), body)?;
        order.done.wait();
        let made = order.made.lock().take();
        let idle = SpinLock::named("idle decompressors", made.ok_or(OutOfMemory)?);
        Ok(Self { idle, turn: WaitQueue::new() })
    }

    /// Uncompresses `bytes` into `out`; returns how many bytes came out.
    ///
    /// # Errors
    /// Damage, or more than `out` holds.
    pub(super) fn inflate(&self, bytes: &[u8], out: &mut [u8]) -> Result<usize> {
        let mut taken = None;
        self.turn.wait_until_exclusive(|| {
            taken = self.idle.lock().pop();
            taken.is_some()
        });
        // It was waited for until there was one.
        let mut state = taken.ok_or(OutOfMemory)?;
        state.init();
        let flags = inflate_flags::TINFL_FLAG_PARSE_ZLIB_HEADER
            | inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let (status, _, written) = decompress(&mut state, bytes, out, 0, flags);
        // There is room: it came from there.
        self.idle.lock().push(state);
        self.turn.wake_one();
        if status == TINFLStatus::Done { Ok(written) } else { Err(damaged()) }
    }
}
