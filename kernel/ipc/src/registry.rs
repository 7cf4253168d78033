//! Which numbers there are: the table of control blocks and what is free of it (specs/fiasco-mp.md, items 8, 30 and 31).
//!
//! Blocks lie in a [`LazyTable`]: from a thread's number to its block is arithmetic, and a number that never was touches no
//! page. The numbers are divided into one range for each CPU, all of the same size; a thread gets a number of the CPU that it registers on, or of
//! another one when those are used up (partitioned threads do not). The ranges' boundaries are multiples of a page of blocks, so a page is
//! written by one CPU as long as threads stay where they began.
//!
//! Each range has a lock for its list of free numbers: registering and ending are no hot paths.

use core::sync::atomic::{AtomicU32, Ordering};

use machine::cpu::{self, CpuId, MAX_CPUS};
use machine::interrupt::InterruptGuard;
use memory::{LazyTable, OutOfMemory};
use sched::ThreadRef;
use sync::{SpinLock, rcu};

use crate::block::{ControlBlock, RemoteBlock, life};
use crate::id::ThreadId;
use crate::operation::Caller;

static BLOCKS: LazyTable<ControlBlock> = LazyTable::new();

/// Numbers of blocks. Number 0 stays unused: it ends lists.
const NUMBERS: u32 = LazyTable::<ControlBlock>::ENTRIES as u32;
/// Boundaries of ranges are multiples of this.
const GRANULE: u32 = LazyTable::<ControlBlock>::PER_PAGE as u32;

/// What is free of one CPU's range.
struct Range {
    /// First of the list of numbers that were used and are free; 0 for none.
    free: u32,
    /// How many numbers were ever used, from the beginning of the range on.
    used: u32,
}

static RANGES: [SpinLock<Range>; MAX_CPUS] = [const { SpinLock::new(Range { free: 0, used: 0 }) }; MAX_CPUS];
/// Copies of [`Range::used`], for looking through all blocks without the locks.
static USED: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];

/// First number of a CPU's range and how many it has.
pub fn range_of(cpu: CpuId) -> (u32, u32) {
    let share = NUMBERS / cpu_count() / GRANULE * GRANULE;
    let first = share * cpu.index() as u32;
    // Number 0 is nobody's.
    if first == 0 { (1, share - 1) } else { (first, share) }
}

/// A hosted machine's CPUs come and go, and all may be counted; the numbers must not depend on that.
fn cpu_count() -> u32 {
    if cfg!(target_os = "none") { cpu::count() as u32 } else { MAX_CPUS as u32 }
}

/// The block of that number, if its page exists.
#[inline(always)]
pub(crate) fn block(index: u32) -> Option<RemoteBlock> {
    if index == 0 {
        return None;
    }
    BLOCKS.get(index as usize).map(|block| RemoteBlock::new(block, index))
}

/// The block of a thread that exists.
#[inline(always)]
pub(crate) fn find(id: ThreadId) -> Option<RemoteBlock> {
    block(id.index()).filter(|block| block.is(id))
}

/// Whether the thread exists.
#[inline(always)]
pub(crate) fn exists(id: ThreadId) -> bool {
    find(id).is_some()
}

/// All blocks that ever had a thread.
pub(crate) fn all() -> impl Iterator<Item = RemoteBlock> {
    (0..MAX_CPUS).map(CpuId::from_index).flat_map(|cpu| {
        let used = USED[cpu.index()].load(Ordering::Acquire);
        let first = if used == 0 { 0 } else { range_of(cpu).0 };
        (first..first + used).filter_map(block)
    })
}

/// Bytes that control blocks take.
pub(crate) fn memory_bytes() -> usize {
    BLOCKS.pages() * machine::address::PAGE_SIZE
}

/// A free number of a range, with its block.
fn take_from(cpu: CpuId) -> Result<Option<RemoteBlock>, OutOfMemory> {
    let (first, count) = range_of(cpu);
    let fresh = {
        let mut range = RANGES[cpu.index()].lock();
        if range.free != 0 {
            let taken = block(range.free).expect("a free number has a block");
            range.free = life::free_link(taken).load(Ordering::Relaxed);
            return Ok(Some(taken));
        }
        if range.used == count {
            return Ok(None);
        }
        range.used += 1;
        first + range.used - 1
    };
    match BLOCKS.make(fresh as usize, ControlBlock::new) {
        Ok(_) => {
            let taken = block(fresh).expect("it was made");
            USED[cpu.index()].fetch_max(fresh - first + 1, Ordering::Release);
            Ok(Some(taken))
        }
        Err(OutOfMemory) => {
            let mut range = RANGES[cpu.index()].lock();
            // If others took numbers meanwhile, this one is lost until the next start: it has no block to be listed with.
            if first + range.used - 1 == fresh {
                range.used -= 1;
            }
            Err(OutOfMemory)
        }
    }
}

/// Takes a free block, of this CPU's range if there is one, else of another one's unless only this one's will do.
pub(crate) fn take(only_here: bool) -> Result<RemoteBlock, OutOfMemory> {
    let here = {
        let _still = machine::preempt::disable();
        cpu::current()
    };
    if let Some(taken) = take_from(here)? {
        return Ok(taken);
    }
    if !only_here {
        for cpu in cpu::online().iter() {
            if let Some(taken) = take_from(cpu)? {
                return Ok(taken);
            }
        }
    }
    Err(OutOfMemory)
}

/// Gives a taken block its thread.
pub(crate) fn bring_to_life(
    block: RemoteBlock,
    thread: rcu::RcuBox<ThreadRef>,
    caller: &Caller,
    flags: u32,
    off: &InterruptGuard,
) -> ThreadId {
    life::bring_to_life(block, thread, caller.users(), flags, off)
}

/// Returns a block whose thread is gone.
pub(crate) fn give_back(block: RemoteBlock) {
    let cpu = (0..MAX_CPUS)
        .map(CpuId::from_index)
        .find(|cpu| {
            let (first, count) = range_of(*cpu);
            (first..first + count).contains(&block.index())
        })
        .expect("every number is in a range");
    let mut range = RANGES[cpu.index()].lock();
    life::free_link(block).store(range.free, Ordering::Relaxed);
    range.free = block.index();
}
