//! Sums over CPUs, and the page-table trace of a window.

use core::fmt;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use super::super::StackView;
use super::super::geometry::{PAGE_BYTES, Window};
use super::super::per_cpu::StackCounters;
use super::super::statistics::Totals;
use super::super::vacancy::CHUNK_SLOTS;
use super::{chunks, slots};
use crate::local;

/// The slots that have descriptors, or had when they were looked for.
fn equipped_slots() -> impl Iterator<Item = u32> {
    let chunks = (0..chunks::made()).filter(|&chunk| chunks::is_equipped(chunk));
    chunks.flat_map(|chunk| chunk * CHUNK_SLOTS..(chunk + 1) * CHUNK_SLOTS)
}

/// Pages mapped into stacks, retired and cached ones included.
pub(crate) fn mapped_pages() -> u64 {
    balance(|counters| &counters.mapped)
}

fn balance(pick: fn(&StackCounters) -> &AtomicI64) -> u64 {
    local::all().map(|memory| pick(&memory.stacks.counters).load(Relaxed)).sum::<i64>().max(0) as u64
}

/// What all CPUs counted.
pub(crate) fn totals() -> Totals {
    let sum = |pick: fn(&StackCounters) -> &AtomicU64| -> u64 {
        local::all().map(|memory| pick(&memory.stacks.counters).load(Relaxed)).sum()
    };
    let mut totals = Totals {
        stacks: balance(|c| &c.stacks),
        mapped_pages: mapped_pages(),
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
        slots: equipped_slots().count() as u64,
        ..Totals::default()
    };
    for memory in local::all() {
        for (total, depth) in totals.depths.iter_mut().zip(&memory.stacks.counters.depths) {
            *total += depth.load(Relaxed);
        }
    }
    for slot in equipped_slots() {
        let most =
            chunks::look(slot, |known| known.is_in_use().then(|| known.high_water.load(Relaxed))).flatten();
        if let Some(pages) = most {
            totals.live_depths[super::super::per_cpu::depth_index(u64::from(pages) * PAGE_BYTES)] += 1;
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
    for slot in equipped_slots() {
        let seen = chunks::look(slot, |known| {
            known.is_in_use().then(|| {
                let window = known.window(slot);
                // How deep the thread was when it was last switched away from.
                let asleep =
                    window.top().saturating_sub(known.saved_pointer.load(Relaxed).max(window.bottom()));
                let numbers =
                    [&known.high_water, &known.faults, &known.trims].map(|number| number.load(Relaxed));
                (known.owner.load(Relaxed), window, numbers, asleep)
            })
        });
        if let Some((owner, window, [most, faults, trims], asleep)) = seen.flatten() {
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
    for slot in equipped_slots() {
        let view = chunks::look(slot, |known| {
            known.is_in_use().then(|| {
                let window = known.window(slot);
                StackView {
                    slot,
                    owner: known.owner.load(Relaxed),
                    control: known.control.load(Relaxed),
                    running_on: known.running_on(),
                    saved_pointer: known.saved_pointer.load(Relaxed),
                    pages: (window.mapped, window.pages),
                    range: (window.bottom(), window.top()),
                }
            })
        });
        if let Some(view) = view.flatten() {
            visit(&view);
        }
    }
}
