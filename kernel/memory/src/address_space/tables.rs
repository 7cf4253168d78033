//! The page tables of an address space, and which processors know them.
//!
//! # Which processors
//! Each processor remembers the tables it has loaded ([`LOADED`], one reference). For the tables that is a bit in
//! `active`. When a kernel thread or the idle loop runs, the tables stay loaded and the bit in `lazy` is set: nobody uses
//! user addresses there, so the processor need not be interrupted when a translation changes.
//!
//! # Forgetting translations
//! [`Tables::forget`] is called after entries have changed. It raises `generation`, then calls every processor that is
//! active and not lazy. A lazy processor that comes back takes its bit out of `lazy` first and reads `generation` after
//! that; with the opposite order on the calling side one of the two notices the other. [`SEEN`] is the generation up to
//! which this processor's translations are known to be good.
//!
//! When tables themselves are freed, lazy processors are called too: a processor may walk them of its own accord.

use super::space::AddressSpace;
use crate::OutOfMemory;
use crate::frame::{Frame, Purpose, Zeroed};
use alloc::sync::{Arc, Weak};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use machine::address::{PAGE_SIZE, PhysAddr, VirtAddr};
use machine::cpu::{self, AtomicCpuSet, CpuSet};
use machine::page_table::{PageTable, TableFrames};
use machine::{interrupt, mmu, preempt};
use sync::{Once, PerCpu, per_cpu, remote};

/// Beyond this many pages all translations of the space are forgotten instead of one by one.
const PAGES_ONE_BY_ONE: u64 = 33;

/// The tables each processor has loaded; null for the kernel's own. Written by that processor only, with preemption off.
static LOADED: PerCpu<AtomicPtr<Tables>> = per_cpu!(AtomicPtr::new(ptr::null_mut()));

/// See the theory of this file. Written by that processor only.
static SEEN: PerCpu<AtomicU64> = per_cpu!(AtomicU64::new(0));

/// The page tables of one address space. They outlive it where a processor still has them loaded.
pub(super) struct Tables {
    tree: PageTable,
    /// Processors that have the tables loaded.
    active: AtomicCpuSet,
    /// Those among them that do not run the program now.
    lazy: AtomicCpuSet,
    /// Raised by each change that a lazy processor may have missed.
    generation: AtomicU64,
    /// Frames that the tables take, the root included.
    frames: AtomicU64,
    /// The space they belong to.
    owner: Once<Weak<AddressSpace>>,
}

impl TableFrames for Tables {
    fn allocate_zeroed(&self) -> Option<PhysAddr> {
        let frame = Frame::allocate(Purpose::PageTable, Zeroed::Yes).ok()?;
        self.frames.fetch_add(1, Ordering::Relaxed);
        Some(frame.into_physical())
    }

    fn free(&self, frame: PhysAddr) {
        self.frames.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the address came from `allocate_zeroed`, and the tree gives it back once.
        drop(unsafe { Frame::from_physical(frame) });
    }
}

/// Frames for a root before there are tables to count it.
struct RootFrame;

impl TableFrames for RootFrame {
    fn allocate_zeroed(&self) -> Option<PhysAddr> {
        Frame::allocate(Purpose::PageTable, Zeroed::Yes).ok().map(Frame::into_physical)
    }

    fn free(&self, frame: PhysAddr) {
        // SAFETY: the address came from `allocate_zeroed`.
        drop(unsafe { Frame::from_physical(frame) });
    }
}

/// What processors are asked to forget.
struct Request {
    tables: *const Tables,
    start: u64,
    end: u64,
    generation: u64,
}

impl Tables {
    pub(super) fn new() -> Result<Tables, OutOfMemory> {
        Ok(Tables {
            tree: PageTable::new(&RootFrame).ok_or(OutOfMemory)?,
            active: AtomicCpuSet::new(CpuSet::EMPTY),
            lazy: AtomicCpuSet::new(CpuSet::EMPTY),
            generation: AtomicU64::new(1),
            frames: AtomicU64::new(1),
            owner: Once::new(),
        })
    }

    /// Names the space that the tables belong to. Once, before they are loaded.
    pub(super) fn set_owner(&self, owner: &Arc<AddressSpace>) {
        self.owner.call_once(|| Arc::downgrade(owner));
    }

    #[inline(always)]
    pub(super) fn tree(&self) -> &PageTable {
        &self.tree
    }

    pub(super) fn bytes(&self) -> u64 {
        self.frames.load(Ordering::Relaxed) * PAGE_SIZE as u64
    }

    /// A table that another tree links to as well has come to the tree.
    pub(super) fn table_joined(&self) {
        self.frames.fetch_add(1, Ordering::Relaxed);
    }

    /// A table has left the tree; its frame is freed by somebody else.
    pub(super) fn table_left(&self) {
        self.frames.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether only this processor, at most, can hold translations. Preemption is off.
    #[inline(always)]
    pub(super) fn is_local(&self) -> bool {
        self.active.load(Ordering::SeqCst).difference(CpuSet::only(cpu::current())).is_empty()
    }

    /// The processors that run the program now. One that is not among them and runs it later has ordered all accesses to memory in between.
    pub(super) fn running_on(&self) -> CpuSet {
        // SeqCst: comes after what the caller did before, and pairs with the changes of both sets in `activate` and `enter_lazy`.
        self.active.load(Ordering::SeqCst).difference(self.lazy.load(Ordering::SeqCst))
    }

    /// Makes the tables those of this processor, for the program. Preemption is off.
    pub(super) fn activate(self: &Arc<Tables>) {
        let this = cpu::current();
        let loaded = LOADED.of(this);
        let former = loaded.load(Ordering::Relaxed).cast_const();
        if former == Arc::as_ptr(self) {
            if self.lazy.contains(this, Ordering::Relaxed) {
                self.leave_lazy();
            }
            return;
        }
        self.active.insert(this, Ordering::SeqCst);
        SEEN.of(this).store(self.generation.load(Ordering::SeqCst), Ordering::Relaxed);
        mmu::activate(self.tree.root());
        loaded.store(Arc::into_raw(self.clone()).cast_mut(), Ordering::Relaxed);
        // SAFETY: `loaded` held a reference to it, which has just left.
        unsafe { release(former) };
    }

    #[inline(never)]
    fn leave_lazy(&self) {
        let this = cpu::current();
        self.lazy.remove(this, Ordering::SeqCst);
        let generation = self.generation.load(Ordering::SeqCst);
        if SEEN.of(this).load(Ordering::Relaxed) != generation {
            mmu::flush_user();
            SEEN.of(this).store(generation, Ordering::Relaxed);
        }
    }

    /// Makes all processors that may use them forget the translations of a range. Entries were changed before.
    #[inline]
    pub(super) fn forget(&self, start: u64, end: u64, freed_tables: bool) {
        let _preemption = preempt::disable();
        let this = cpu::current();
        let active = self.active.load(Ordering::SeqCst);
        if active.contains(this) {
            forget_here(start, end);
        }
        let others = active.difference(CpuSet::only(this));
        if !others.is_empty() {
            self.forget_elsewhere(others, start, end, freed_tables);
        }
    }

    #[inline(never)]
    fn forget_elsewhere(&self, others: CpuSet, start: u64, end: u64, freed_tables: bool) {
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        let lazy = self.lazy.load(Ordering::SeqCst);
        let targets = if freed_tables { others } else { others.difference(lazy) };
        let request = Request { tables: self, start, end, generation };
        if self.active.contains(cpu::current(), Ordering::Relaxed) {
            note_seen(generation);
        }
        if !targets.is_empty() {
            remote::flush_tlb(targets, serve_request, (&raw const request).expose_provenance());
        }
    }

    /// Unloads the tables everywhere. The program they belonged to has ended.
    pub(super) fn unload(&self) {
        let _preemption = preempt::disable();
        let active = self.active.load(Ordering::SeqCst);
        if active.is_empty() {
            return;
        }
        remote::call(active, serve_unload, ptr::from_ref(self).expose_provenance());
        debug_assert!(
            self.active.load(Ordering::SeqCst).is_empty(),
            "nobody loads the tables of an ended program"
        );
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        debug_assert!(self.active.load(Ordering::Relaxed).is_empty());
        // SAFETY: the address space has removed everything below the root; nobody has the tables loaded.
        unsafe { PageTable::from_root(self.tree.root()).destroy(&RootFrame) };
    }
}

/// Drops a processor's reference to tables that it no longer has loaded.
///
/// # Safety
/// `former` is null or a reference that was in [`LOADED`] of this processor and is there no more.
unsafe fn release(former: *const Tables) {
    if former.is_null() {
        return;
    }
    // SAFETY: the reference came from `Arc::into_raw`.
    let former = unsafe { Arc::from_raw(former) };
    let this = cpu::current();
    former.lazy.remove(this, Ordering::SeqCst);
    former.active.remove(this, Ordering::SeqCst);
}

/// This processor runs no program now: a kernel thread, or nothing. Preemption is off.
pub(super) fn enter_lazy() {
    let this = cpu::current();
    let loaded = LOADED.of(this).load(Ordering::Relaxed);
    if !loaded.is_null() {
        // SAFETY: the processor's reference keeps the tables alive, and only this processor drops it.
        unsafe { &*loaded }.lazy.insert(this, Ordering::SeqCst);
    }
}

/// The address space whose program runs on this processor.
pub(super) fn current() -> Option<Arc<AddressSpace>> {
    let _interrupts = interrupt::disable();
    let loaded = LOADED.of(cpu::current()).load(Ordering::Relaxed);
    if loaded.is_null() {
        return None;
    }
    // SAFETY: the processor's reference keeps the tables alive. It is dropped by this processor only, in an interrupt too (`serve_unload`),
    // and those are off.
    unsafe { &*loaded }.owner.get()?.upgrade()
}

fn forget_here(start: u64, end: u64) {
    if (end - start) >> 12 > PAGES_ONE_BY_ONE {
        mmu::flush_user();
        return;
    }
    let mut address = start;
    while address < end {
        mmu::flush_page(VirtAddr::new(address));
        address += PAGE_SIZE as u64;
    }
}

/// This processor has forgotten what `generation` wanted; that counts if it had missed nothing before.
fn note_seen(generation: u64) {
    let seen = SEEN.of(cpu::current());
    if seen.load(Ordering::Relaxed) + 1 == generation {
        seen.store(generation, Ordering::Relaxed);
    }
}

fn serve_request(argument: usize) {
    // SAFETY: the caller waits until this function has returned, and keeps the request meanwhile.
    let request = unsafe { &*ptr::with_exposed_provenance::<Request>(argument) };
    if LOADED.of(cpu::current()).load(Ordering::Relaxed).cast_const() == request.tables {
        forget_here(request.start, request.end);
        note_seen(request.generation);
    }
}

fn serve_unload(argument: usize) {
    let loaded = LOADED.of(cpu::current());
    let former = loaded.load(Ordering::Relaxed);
    if former.expose_provenance() != argument {
        return;
    }
    loaded.store(ptr::null_mut(), Ordering::Relaxed);
    mmu::activate(mmu::kernel_root());
    // SAFETY: the reference has just left the processor's slot. It is not the last one: the caller has another.
    unsafe { release(former) };
}
