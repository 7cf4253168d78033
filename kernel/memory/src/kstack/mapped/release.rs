//! Taking pages from stacks: after exits, and from threads that sleep (specs/kernel-stacks.md §M9).
//!
//! A thread that computes in user mode for long keeps what its last system calls needed: its stack is in use. `kstackd` goes to its
//! CPU ([`untrimmed_on`]); the thread is preempted there, so its stack can be trimmed like a sleeper's. The sheet would count system
//! calls on each return to user mode instead, which every call would pay for.
//!
//! Translations of stack pages are global, and any CPU may have cached them by speculation. So a frame taken from a
//! stack is freed only after all CPUs have flushed its page, and a slot is given out, or its thread runs again, only
//! then too. That is worth an interrupt to all CPUs for many pages at once: they are collected in a [`Batch`].
//!
//! Locking: [`BATCH`] is held while pages are collected and flushed, and while descriptors and page tables are given back, with interrupts on: CPUs that wait for it serve
//! remote calls. Under it the lists' and the pool's locks are taken. Trimming holds stacks BUSY meanwhile, for the time
//! of one round of interrupts; the dispatcher runs other threads.

use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use machine::address::VirtAddr;
use machine::cpu::CpuId;
use machine::{cpu, mmu};
use sync::{SpinLock, remote};

use super::super::geometry::Window;
use super::super::per_cpu::NO_SLOT;
use super::super::vacancy::CHUNK_SLOTS;
use super::super::{trim, wake_service};
use super::descriptor::{self, ANY_PIN, Descriptor};
use super::{chunks, depth, slots};
use crate::frame::Purpose;
use crate::frame::allocate;
use crate::frame::number::FrameNumber;
use crate::frame::per_cpu::bump;
use crate::local::{self, local};

/// Pages in a round of flushing.
pub(crate) const BATCH_PAGES: usize = 64;

/// Pages beyond which a CPU drops all translations rather than one by one.
const SINGLE_FLUSHES_MAX: usize = 32;

/// Pages taken from stacks that have not been flushed yet.
struct Batch {
    pages: [(u64, FrameNumber); BATCH_PAGES],
    length: usize,
    /// Stacks held BUSY until the flush.
    busy: [u32; BATCH_PAGES],
    busy_length: usize,
}

static BATCH: SpinLock<Batch> = SpinLock::new(Batch {
    pages: [(0, FrameNumber::new(0)); BATCH_PAGES],
    length: 0,
    busy: [NO_SLOT; BATCH_PAGES],
    busy_length: 0,
});

impl Batch {
    /// Takes a page from a stack; there is room for it.
    fn take_page(&mut self, address: u64) {
        if let Some(frame) = slots::unmap_page(address) {
            self.pages[self.length] = (address, frame);
            self.length += 1;
        }
    }

    const fn room(&self) -> u32 {
        (BATCH_PAGES - self.length) as u32
    }

    /// Takes the mapped pages of a stack from `keep` on, counted from the top; there is room for them.
    fn take_pages(&mut self, window: &Window, keep: u32) {
        for page in keep..window.mapped {
            self.take_page(window.page_address(page));
        }
        self.note_taken(window.slot, keep, window.mapped - keep);
    }

    /// Takes all pages of a stack that no thread has.
    fn take_all_pages(&mut self, window: &Window) {
        let bottom = window.layout.bottom_pages();
        for page in (0..window.mapped).chain(window.pages - bottom..window.pages) {
            if self.room() == 0 {
                self.flush();
            }
            self.take_page(window.page_address(page));
        }
        self.note_taken(window.slot, 0, window.mapped + bottom);
    }

    fn note_taken(&self, slot: u32, keep: u32, taken: u32) {
        descriptor::at(slot).mapped.store(keep, Relaxed);
        let taken = i64::from(taken);
        local(|memory| {
            let mapped = &memory.stacks.counters.mapped;
            mapped.store(mapped.load(Relaxed) - taken, Relaxed);
        });
    }

    /// Makes all CPUs forget the pages, then frees the frames and lets go of the stacks.
    fn flush(&mut self) {
        if self.length > 0 {
            remote::flush_tlb(cpu::online(), flush_on_this_cpu, (&raw const *self).expose_provenance());
            for (_, frame) in &self.pages[..self.length] {
                allocate::free(*frame, Purpose::KernelStack);
            }
            self.length = 0;
        }
        for slot in &self.busy[..self.busy_length] {
            if !descriptor::at(*slot).end_trim() {
                finish_release(*slot);
            }
        }
        self.busy_length = 0;
    }
}

fn flush_on_this_cpu(batch: usize) {
    let batch: *const Batch = core::ptr::with_exposed_provenance(batch);
    // SAFETY: the caller of the remote call holds the batch, unchanged, until all CPUs have answered.
    let pages = unsafe { &(&(*batch).pages)[..(*batch).length] };
    if pages.len() > SINGLE_FLUSHES_MAX {
        mmu::flush_all();
    } else {
        for (address, _) in pages {
            mmu::flush_page(VirtAddr::new(*address));
        }
    }
}

/// The stack's thread is gone: keeps the stack for the next one if it is as new ones are, else sets it aside.
pub(crate) fn release(slot: u32) {
    if descriptor::at(slot).set_free() {
        finish_release(slot);
    }
}

/// The rest of [`release`], when nobody trims the stack any more.
fn finish_release(slot: u32) {
    let known = descriptor::at(slot);
    let window = known.window(slot);
    let reusable = known.mapped.load(Relaxed) == super::initial_pages(window.pages, false)
        && window.pages == super::super::parameters().pages;
    let bytes = known.has_flag(descriptor::MEASURED).then(|| depth::of_ended(&window));
    let kept = local(|memory| {
        let stacks = &memory.stacks;
        if let Some(bytes) = bytes {
            bump(&stacks.counters.depths[super::super::per_cpu::depth_index(bytes)], 1);
        }
        stacks.counters.stacks.store(stacks.counters.stacks.load(Relaxed) - 1, Relaxed);
        let keep = reusable && !stacks.cache.is_full();
        if keep {
            stacks.cache.push(slot);
        }
        keep
    });
    if !kept {
        slots::retire(slot);
        if slots::retired_pages() as usize >= BATCH_PAGES {
            wake_service();
        }
    }
}

/// Frees the pages of all retired stacks; returns how many. The caller may wait.
pub(crate) fn free_retired() -> usize {
    let Some(mut batch) = BATCH.try_lock() else { return 0 };
    let list = slots::take_all_retired();
    let mut freed = 0;
    let mut slot = list;
    while slot != NO_SLOT {
        let known = descriptor::at(slot);
        let window = known.window(slot);
        freed += (window.mapped + window.layout.bottom_pages()) as usize;
        batch.take_all_pages(&window);
        slot = known.next.load(Relaxed);
    }
    batch.flush();
    make_bare(list);
    freed
}

/// Makes the slots of a list of stacks without pages vacant, and gives back what many vacant slots need no more. With [`BATCH`]
/// held.
fn make_bare(list: u32) {
    let mut round = [0; chunks::ROUND];
    let mut claimed = 0;
    let mut slot = list;
    while slot != NO_SLOT {
        let known = descriptor::at(slot);
        let next = known.next.load(Relaxed);
        if let Some(chunk) = slots::put_bare(slot, known.window(slot).order) {
            round[claimed] = chunk;
            claimed += 1;
            if claimed == round.len() {
                give_back(&round);
                claimed = 0;
            }
        }
        slot = next;
    }
    if claimed > 0 {
        give_back(&round[..claimed]);
    }
}

fn give_back(claimed: &[u32]) {
    chunks::give_back(claimed);
    for &chunk in claimed {
        slots::add_vacant(chunk);
    }
}

/// Takes from sleeping threads' stacks what lies below their stack pointers; returns the number of pages. The caller
/// may wait.
pub(crate) fn trim_sleepers() -> usize {
    trim_range(0..chunks::made() * CHUNK_SLOTS)
}

/// Like [`trim_sleepers`], for one stack.
pub(crate) fn trim_one(slot: u32) -> usize {
    trim_range(slot..slot + 1)
}

fn trim_range(slots: Range<u32>) -> usize {
    let Some(mut batch) = BATCH.try_lock() else { return 0 };
    let equipped = slots.filter(|slot| chunks::is_equipped(slot / CHUNK_SLOTS));
    let trimmed = equipped.map(|slot| trim_into(&mut batch, slot)).sum::<u32>();
    batch.flush();
    drop(batch);
    local(|memory| bump(&memory.stacks.counters.trimmed, u64::from(trimmed)));
    trimmed as usize
}

fn trim_into(batch: &mut Batch, slot: u32) -> u32 {
    let known = descriptor::at(slot);
    if !can_be_trimmed(known) || !known.is_off() || !known.start_trim() {
        return 0;
    }
    let window = known.window(slot);
    // A very deep stack gives up the rest the next time.
    let keep = trim::pages_to_keep(&window, known.saved_pointer.load(Relaxed))
        .max(window.mapped.saturating_sub(BATCH_PAGES as u32));
    if batch.room() < window.mapped - keep || batch.busy_length == BATCH_PAGES {
        batch.flush();
    }
    // From here to the flush nobody runs on the stack, and its pages are not used.
    let length = batch.busy_length;
    batch.busy[length] = slot;
    batch.busy_length += 1;
    if keep == window.mapped || known.has_flag(ANY_PIN) {
        return 0;
    }
    batch.take_pages(&window, keep);
    known.trims.store(known.trims.load(Relaxed) + 1, Relaxed);
    window.mapped - keep
}

fn can_be_trimmed(known: &Descriptor) -> bool {
    // Lent pages go back at the next switch anyway.
    known.mapped.load(Relaxed).saturating_sub(known.lent.load(Relaxed)) > 1 && !known.has_flag(ANY_PIN)
}

/// The stack that the CPU runs on just now, if it could be trimmed were its thread elsewhere.
pub(crate) fn untrimmed_on(cpu: CpuId) -> Option<u32> {
    let slot = local::of(cpu)?.stacks.running.load(Relaxed);
    // The thread may end meanwhile.
    (slot != NO_SLOT && chunks::look(slot, can_be_trimmed) == Some(true)).then_some(slot)
}

/// Gives the stacks that CPUs keep for new threads back too, before freeing the pages of all retired ones: the last
/// resort, and the start of a test that counts frames.
pub(crate) fn free_cached() -> usize {
    fn retire_cache(_: usize) {
        while let Some(slot) = local(|memory| memory.stacks.cache.pop()) {
            slots::retire(slot);
        }
    }
    remote::call(cpu::online(), retire_cache, 0);
    free_retired()
}
