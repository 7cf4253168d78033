//! `/proc/profile`: where the kernel spends its time, as `readprofile(8)` reads it, and `/proc/starling/profile`, by function.
//!
//! There are both if the command line says `profile=SHIFT`: a counter for each 2^SHIFT bytes of code. `/proc/profile` is an array of 32-bit numbers, the bytes of code for each counter and then the
//! counters; writing to it sets them to zero.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicU32, Ordering};

use machine::cpu::CpuSet;
use machine::profile::{self, Counters};
use memory::buffer::{Sink, Source};
use memory::fallible;
use vfs::file::{FileFeatures, FileOperations, OpenFile, SeekFrom};
use vfs::flags::OpenFlags;
use vfs::generated::{File, Node};
use vfs::inode::Inode;
use vfs::text::Text;
use vfs::{Error, Result, allocation};

/// A counter for a page of code, at most.
const SHIFT_MAX: u32 = 12;
const WORD: usize = size_of::<u32>();

/// Begins to count, if the command line says so. At start-up.
pub fn start() {
    let Some(shift) = machine::boot::info().option("profile").and_then(|text| text.parse::<u32>().ok())
    else {
        return;
    };
    let shift = shift.min(SHIFT_MAX);
    let bytes = profile::code().len();
    let mut counts = Vec::new();
    if fallible::try_reserve(&mut counts, (bytes >> shift) + 1).is_err() {
        log::error!("profile: no memory for counters");
        return;
    }
    counts.resize_with((bytes >> shift) + 1, || AtomicU32::new(0));
    profile::start(Counters { counts: Vec::leak(counts), shift });
    // Processors that wait set their timers when there was something to do.
    for cpu in machine::cpu::online().iter() {
        let builder = sched::Builder { affinity: CpuSet::only(cpu), ..sched::Builder::new("profile") };
        let _ = sched::spawn(builder, alloc::boxed::Box::new(|| {}));
    }
}

/// Adds the files, if it has begun.
pub(super) fn add() -> Result<()> {
    if profile::counters().is_none() {
        return Ok(());
    }
    procfs::add("profile", Node::file(0o644, allocation::arc(Binary)?))?;
    procfs::add_text("starling/profile", show)
}

/// The number at a place of the file.
fn word(counters: &Counters, index: usize) -> Option<u32> {
    match index.checked_sub(1) {
        None => Some(1 << counters.shift),
        Some(counter) => Some(counters.counts.get(counter)?.load(Ordering::Relaxed)),
    }
}

struct Binary;

impl File for Binary {
    fn show(&self, _out: &mut Text) -> Result<()> {
        Ok(())
    }

    fn open(&self, _inode: &Arc<Inode>, _flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        Ok(Some(allocation::arc(Binary)?))
    }

    fn size(&self) -> u64 {
        profile::counters().map_or(0, |counters| ((1 + counters.counts.len()) * WORD) as u64)
    }
}

impl FileOperations for Binary {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE | FileFeatures::POLLABLE
    }

    fn read(&self, _file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let Some(counters) = profile::counters() else { return Ok(0) };
        let mut done = 0;
        while !sink.is_full() {
            let at = usize::try_from(*position).map_err(|_| Error::Overflow)?;
            let Some(word) = word(counters, at / WORD) else { break };
            let count = sink.write(&word.to_ne_bytes()[at % WORD..])?;
            *position += count as u64;
            done += count;
        }
        Ok(done)
    }

    fn write(&self, _file: &OpenFile, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let count = source.remaining();
        source.skip(count);
        for count in profile::counters().map_or(&[][..], |counters| counters.counts) {
            count.store(0, Ordering::Relaxed);
        }
        *position += count as u64;
        Ok(count)
    }

    fn seek(&self, _file: &OpenFile, current: u64, target: SeekFrom) -> Result<u64> {
        let (base, offset) = match target {
            SeekFrom::Start(offset) => (0, offset),
            SeekFrom::Current(offset) => (current, offset),
            SeekFrom::End(offset) => (self.size(), offset),
            SeekFrom::Data(_) | SeekFrom::Hole(_) => return Err(Error::Invalid),
        };
        base.checked_add_signed(offset).ok_or(Error::Invalid)
    }
}

/// A function: where it begins, and how often it was met.
struct Met {
    start: usize,
    count: u64,
}

/// Counts by function, the greatest first. A counter's are those of the function that its code begins in.
fn by_function(counters: &Counters) -> Result<Vec<Met>> {
    let mut met: Vec<Met> = Vec::new();
    for (index, count) in counters.counts.iter().enumerate() {
        let count = u64::from(count.load(Ordering::Relaxed));
        if count == 0 {
            continue;
        }
        let address = profile::code().start + (index << counters.shift);
        let start = machine::symbols::resolve(address).map_or(address, |symbol| address - symbol.offset);
        match met.last_mut().filter(|last| last.start == start) {
            Some(last) => last.count += count,
            None => fallible::try_push(&mut met, Met { start, count })?,
        }
    }
    sorting::sort_by_key(&mut met, |one| (core::cmp::Reverse(one.count), one.start));
    Ok(met)
}

fn show(out: &mut Text) -> Result<()> {
    let Some(counters) = profile::counters() else { return Ok(()) };
    for Met { start, count } in by_function(counters)? {
        // A text remembers when memory ran out.
        let _ = match machine::symbols::resolve(start) {
            Some(symbol) => writeln!(out, "{count:8} {}", &*symbol.name),
            None => writeln!(out, "{count:8} {start:#x}"),
        };
    }
    Ok(())
}
