//! Sums over CPUs, and the page-table trace of a window.

use core::fmt;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use super::super::StackView;
use super::super::geometry::{PAGE_BYTES, Window};
use super::super::per_cpu::StackCounters;
use super::super::statistics::Totals;
use super::{descriptor, slots};
use crate::local;

/// What all CPUs counted.
pub(crate) fn totals() -> Totals {
    let sum = |pick: fn(&StackCounters) -> &AtomicU64| -> u64 {
        local::all().map(|memory| pick(&memory.stacks.counters).load(Relaxed)).sum()
    };
    let balance = |pick: fn(&StackCounters) -> &AtomicI64| -> u64 {
        local::all().map(|memory| pick(&memory.stacks.counters).load(Relaxed)).sum::<i64>().max(0) as u64
    };
    let mut totals = Totals {
        stacks: balance(|c| &c.stacks),
        mapped_pages: balance(|c| &c.mapped),
        reserve_frames: local::all().map(|memory| memory.stacks.reserve.len() as u64).sum(),
        retired_pages: u64::from(slots::retired_pages()),
        faults: sum(|c| &c.faults),
        pages_grown: sum(|c| &c.pages_grown),
        refused: sum(|c| &c.refused),
        busy: sum(|c| &c.busy),
        without_frame: sum(|c| &c.without_frame),
        parked: sum(|c| &c.parked),
        fetched: sum(|c| &c.fetched),
        stashed: sum(|c| &c.stashed),
        trimmed: sum(|c| &c.trimmed),
        cache_hits: sum(|c| &c.cache_hits),
        cache_misses: sum(|c| &c.cache_misses),
        overflows: sum(|c| &c.overflows),
        slots: u64::from(slots::slots_made()),
        ..Totals::default()
    };
    for memory in local::all() {
        for (total, depth) in totals.depths.iter_mut().zip(&memory.stacks.counters.depths) {
            *total += depth.load(Relaxed);
        }
    }
    for slot in 0..slots::slots_made() {
        let known = descriptor::at(slot);
        if known.is_in_use() {
            let most = u64::from(known.high_water.load(Relaxed)) * PAGE_BYTES;
            totals.live_depths[super::super::per_cpu::depth_index(most)] += 1;
        }
    }
    totals
}

/// The page-table trace of a window, in the form of the thesis' figure 7: one line a page, from the lowest on.
pub(crate) fn write_window(out: &mut dyn fmt::Write, window: &Window) -> fmt::Result {
    writeln!(out, "Page table trace start from virtual address {:#x}", window.bottom())?;
    for page in (0..window.pages).rev() {
        let address = window.page_address(page);
        writeln!(out, "virtual address {address:#x} page table entry {:#x}", slots::entry_value(address))?;
    }
    Ok(())
}

/// One line for each stack in use.
pub(crate) fn write_windows(out: &mut dyn fmt::Write) -> fmt::Result {
    writeln!(out, "slot thread pages mapped most faults trims asleep_bytes")?;
    for slot in 0..slots::slots_made() {
        let known = descriptor::at(slot);
        if known.is_in_use() {
            let window = known.window(slot);
            let owner = known.owner.load(Relaxed);
            let (most, faults) = (known.high_water.load(Relaxed), known.faults.load(Relaxed));
            let trims = known.trims.load(Relaxed);
            // How deep the thread was when it was last switched away from.
            let asleep = window.top().saturating_sub(known.saved_pointer.load(Relaxed).max(window.bottom()));
            writeln!(
                out,
                "{slot} {owner} {} {} {most} {faults} {trims} {asleep}",
                window.pages, window.mapped
            )?;
        }
    }
    Ok(())
}

/// What the last growth fault in a window did, in the words of the thesis' trace.
pub(crate) fn write_last_growth(out: &mut dyn fmt::Write, window: &Window) -> fmt::Result {
    let found = local::all().find_map(|memory| memory.stacks.last_growth(window.bottom()..window.top()));
    let Some((address, entry)) = found else { return Ok(()) };
    let page = address & !(PAGE_BYTES - 1);
    writeln!(out, "Kernel page fault at address {address:#x}")?;
    writeln!(out, "Found stack area {:#x}", window.bottom())?;
    writeln!(out, "Expand stack: map pte: start address {page:#x}, size {PAGE_BYTES}")?;
    writeln!(out, "set page table entry: address {page:#x} pte {entry:#x}")
}

/// See [`super::super::for_each_stack`].
pub(crate) fn for_each_stack(visit: &mut dyn FnMut(&StackView)) {
    for slot in 0..slots::slots_made() {
        let known = descriptor::at(slot);
        if !known.is_in_use() {
            continue;
        }
        let window = known.window(slot);
        visit(&StackView {
            slot,
            owner: known.owner.load(Relaxed),
            control: known.control.load(Relaxed),
            running_on: known.running_on(),
            saved_pointer: known.saved_pointer.load(Relaxed),
            pages: (window.mapped, window.pages),
            range: (window.bottom(), window.top()),
        });
    }
}
