//! What this crate keeps for each CPU, in one structure of less than a page.
//!
//! The boot processor's is part of the image, so that allocation works from the first moment; the others' are made by
//! [`crate::initialize_cpu`] before the processor starts and live for ever.
//!
//! Locking: [`local`] disables interrupts, so nothing else runs on this CPU while the closure does (NMI handlers do not
//! allocate). Fields are atomics used with plain loads and stores; other CPUs only read them, for statistics. The
//! closure may not call [`local`] again.

use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

use machine::cpu::{self, CpuId, MAX_CPUS};

use crate::OutOfMemory;
use crate::charge::stock::CpuStock;
use crate::frame::per_cpu::CpuFrames;
use crate::frame::{Frame, Purpose, Zeroed};
use crate::heap::CpuHeap;
use crate::kstack::CpuStacks;

/// See the theory of this file.
#[repr(C, align(64))]
pub(crate) struct CpuMemory {
    pub(crate) frames: CpuFrames,
    pub(crate) heap: CpuHeap,
    pub(crate) stacks: CpuStacks,
    pub(crate) stock: CpuStock,
}

const _: () = assert!(size_of::<CpuMemory>() <= 4096, "a CPU's part of the memory layer fits a frame");

impl CpuMemory {
    pub(crate) const fn new() -> Self {
        Self {
            frames: CpuFrames::new(),
            heap: CpuHeap::new(),
            stacks: CpuStacks::new(),
            stock: CpuStock::new(),
        }
    }
}

static BOOT: CpuMemory = CpuMemory::new();

/// By CPU number; null for processors that have not been prepared. Written once each.
static CPUS: [AtomicPtr<CpuMemory>; MAX_CPUS] = {
    let mut table = [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_CPUS];
    table[0] = AtomicPtr::new((&raw const BOOT).cast_mut());
    table
};

/// The structure of a CPU, if it has been prepared: for reading its counters.
pub(crate) fn of(cpu: CpuId) -> Option<&'static CpuMemory> {
    let pointer = CPUS[cpu.index()].load(Acquire);
    // SAFETY: non-null pointers are those of `BOOT` and of what `publish` was given, both alive for ever.
    unsafe { pointer.as_ref() }
}

/// The structures of all CPUs prepared so far.
pub(crate) fn all() -> impl Iterator<Item = &'static CpuMemory> {
    (0..MAX_CPUS).filter_map(|index| of(CpuId::from_index(index)))
}

/// Gives a processor its structure, before it starts.
pub(crate) fn publish(cpu: CpuId, memory: &'static CpuMemory) {
    // Release: pairs with the Acquire in `of`.
    CPUS[cpu.index()].store((&raw const *memory).cast_mut(), Release);
}

/// Memory for one more processor; it is never freed.
pub(crate) fn make() -> Result<&'static CpuMemory, OutOfMemory> {
    let frame = Frame::allocate(Purpose::PerCpu, Zeroed::Yes)?;
    let pointer = machine::mmu::phys_to_virt(frame.into_physical()).cast::<CpuMemory>();
    // SAFETY: the frame is ours for ever, and the structure fits it, as is checked above.
    Ok(unsafe {
        pointer.write(CpuMemory::new());
        &*pointer
    })
}

/// Calls the closure with this CPU's structure, with interrupts off.
#[inline]
pub(crate) fn local<R>(action: impl FnOnce(&'static CpuMemory) -> R) -> R {
    let _interrupts_off = machine::interrupt::disable();
    let cpu = cpu::current();
    #[cfg(target_os = "none")]
    let memory = of(cpu).expect("a processor's memory is prepared before it starts");
    #[cfg(not(target_os = "none"))]
    let memory = of(cpu).unwrap_or_else(|| prepare_hosted(cpu));
    action(memory)
}

/// Hosted processors come and go with host threads; each number gets its structure on its first use. Only the
/// processor itself comes here, so nobody else publishes for it.
#[cfg(not(target_os = "none"))]
fn prepare_hosted(cpu: CpuId) -> &'static CpuMemory {
    let memory = Box::leak(Box::new(CpuMemory::new()));
    publish(cpu, memory);
    memory
}
