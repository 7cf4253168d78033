//! The per-processor area: one [`PerCpu`] each, found through the GS base.
//!
//! In kernel mode the GS base always points to the processor's own area; the entry stubs exchange it (`swapgs`)
//! with the user's. Assembly reaches fields as `gs:[OFFSET]` with the constants below. The fixed fields lie in the
//! first two cache lines. A field is written by its own processor only unless its comment says otherwise, so single
//! instructions on `gs:` need no lock prefix: they are atomic with regard to interrupts of that processor.

use super::gdt::{DescriptorTable, TaskState};
use crate::cpu::{CpuId, MAX_CPUS};
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// What one processor keeps for itself.
#[repr(C, align(128))]
pub(crate) struct PerCpu {
    /// Address of this structure, so that a pointer to it can be loaded through GS.
    pub self_pointer: u64,
    /// Logical number.
    pub cpu_id: u32,
    /// Preemption count (bits 0 to 30) and, in bit 31, *no switch is wanted*: see [`crate::preempt`].
    pub preempt_word: AtomicU32,
    /// Word of the scheduler: its current thread.
    pub current_thread: AtomicU64,
    /// The thread's stack pointer while it is in user mode: where a system call or trap continues.
    pub kernel_stack_pointer: AtomicU64,
    /// The `UserContext` that user mode was entered from.
    pub user_context: AtomicU64,
    /// Room for the entry stubs to put a register while they have no stack.
    pub scratch: [AtomicU64; 4],
    /// Depth of interrupts in service on this processor.
    pub interrupt_nesting: AtomicU32,
    /// Nonzero: the thread in user mode has something to see to (a signal) before it goes on. Written by the
    /// owner at a switch and, for the current thread, by others followed by an IPI.
    pub attention: AtomicU32,
    /// Top of the interrupt stack.
    pub interrupt_stack_top: u64,
    /// Local APIC id.
    pub apic_id: u32,
    /// Sleeping locks that the current thread holds, and above them who pays for its memory: see [`crate::preempt::luggage`].
    pub locks_held: AtomicU32,
    /// Physical address of the top-level page table in use.
    pub page_table_root: AtomicU64,
    /// The #PF stack's top when no fault is in progress.
    pub page_fault_stack_top: AtomicU64,
    /// The cycle counter when the outermost interrupt in service began.
    pub interrupt_began: AtomicU64,
    /// Cycles that outermost interrupts have taken, with the softirqs at their ends; read by others for statistics.
    pub interrupt_cycles: AtomicU64,
    /// Interrupts taken by vector; read by others for statistics.
    pub vector_counts: [AtomicU64; 256],
    /// Cells of statistics: see [`crate::cpu::add_to_static`]. Read by others.
    pub static_cells: [AtomicI64; crate::cpu::STATIC_CELLS],
    /// Global descriptor table.
    pub descriptors: UnsafeCell<DescriptorTable>,
    /// Task state segment: holds the interrupt stack table.
    pub task_state: UnsafeCell<TaskState>,
}

/// Offset of [`PerCpu::self_pointer`].
pub(crate) const SELF_POINTER: usize = offset_of!(PerCpu, self_pointer);
/// Offset of [`PerCpu::cpu_id`].
pub(crate) const CPU_ID: usize = offset_of!(PerCpu, cpu_id);
/// Offset of [`PerCpu::preempt_word`].
pub(crate) const PREEMPT_WORD: usize = offset_of!(PerCpu, preempt_word);
/// Offset of [`PerCpu::current_thread`].
pub(crate) const CURRENT_THREAD: usize = offset_of!(PerCpu, current_thread);
/// Offset of [`PerCpu::kernel_stack_pointer`].
pub(crate) const KERNEL_STACK_POINTER: usize = offset_of!(PerCpu, kernel_stack_pointer);
/// Offset of [`PerCpu::user_context`].
pub(crate) const USER_CONTEXT: usize = offset_of!(PerCpu, user_context);
/// Offset of [`PerCpu::scratch`] (four words).
pub(crate) const SCRATCH: usize = offset_of!(PerCpu, scratch);
/// Offset of [`PerCpu::interrupt_nesting`].
pub(crate) const INTERRUPT_NESTING: usize = offset_of!(PerCpu, interrupt_nesting);
/// Offset of [`PerCpu::interrupt_stack_top`].
pub(crate) const INTERRUPT_STACK_TOP: usize = offset_of!(PerCpu, interrupt_stack_top);
/// Offset of [`PerCpu::locks_held`].
pub(crate) const LOCKS_HELD: usize = offset_of!(PerCpu, locks_held);
/// Offset of [`PerCpu::page_table_root`].
pub(crate) const PAGE_TABLE_ROOT: usize = offset_of!(PerCpu, page_table_root);

/// Offset of [`PerCpu::static_cells`].
pub(crate) const STATIC_CELLS: usize = offset_of!(PerCpu, static_cells);

/// Offset of the #PF stack's pointer in [`PerCpu::task_state`].
pub(crate) const PAGE_FAULT_STACK: usize =
    offset_of!(PerCpu, task_state) + super::gdt::PAGE_FAULT_STACK_OFFSET;

/// Bit 31 of the preemption word: set while no switch is wanted.
pub(crate) const NO_SWITCH_WANTED: u32 = 1 << 31;

const _: () = assert!(PAGE_TABLE_ROOT < 128, "the fixed fields fit into two cache lines");

// SAFETY: fields written after start-up are atomic; the cells are only changed by their own processor, through
// `PerCpu::current`'s callers in this back end, before or while it uses them with interrupts disabled.
unsafe impl Sync for PerCpu {}

/// The areas by processor number; filled in before a processor starts.
static AREAS: [AtomicPtr<PerCpu>; MAX_CPUS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_CPUS];

/// Area of the boot processor: part of the image, so that it exists from the first instruction on.
static BOOT_AREA: BootArea = BootArea(UnsafeCell::new(PerCpu::new()));

struct BootArea(UnsafeCell<PerCpu>);

// SAFETY: as for `PerCpu`; changed as a whole only by `prepare`, while the boot processor is alone.
unsafe impl Sync for BootArea {}

impl PerCpu {
    const fn new() -> PerCpu {
        PerCpu {
            self_pointer: 0,
            cpu_id: 0,
            preempt_word: AtomicU32::new(NO_SWITCH_WANTED),
            current_thread: AtomicU64::new(0),
            kernel_stack_pointer: AtomicU64::new(0),
            user_context: AtomicU64::new(0),
            scratch: [const { AtomicU64::new(0) }; 4],
            interrupt_nesting: AtomicU32::new(0),
            attention: AtomicU32::new(0),
            interrupt_stack_top: 0,
            apic_id: 0,
            locks_held: AtomicU32::new(0),
            page_table_root: AtomicU64::new(0),
            page_fault_stack_top: AtomicU64::new(0),
            interrupt_began: AtomicU64::new(0),
            interrupt_cycles: AtomicU64::new(0),
            vector_counts: [const { AtomicU64::new(0) }; 256],
            static_cells: [const { AtomicI64::new(0) }; crate::cpu::STATIC_CELLS],
            descriptors: UnsafeCell::new(DescriptorTable::new()),
            task_state: UnsafeCell::new(TaskState::new()),
        }
    }

    /// This processor's area.
    #[inline(always)]
    pub(crate) fn current() -> &'static PerCpu {
        let pointer: *const PerCpu;
        // SAFETY: reads the word at the GS base, which is the area's own address from `install` on.
        unsafe {
            core::arch::asm!("mov {}, gs:[{offset}]", out(reg) pointer, offset = const SELF_POINTER,
                options(nostack, preserves_flags, readonly));
            &*pointer
        }
    }

    /// The area of a processor, None before it was prepared.
    pub(crate) fn of(cpu: CpuId) -> Option<&'static PerCpu> {
        let pointer = AREAS[cpu.index()].load(Ordering::Acquire);
        // SAFETY: a non-null pointer was published by `prepare` after the area was initialised; areas live for ever.
        unsafe { pointer.as_ref() }
    }

    /// Page faults (and NMIs) in progress on this processor's #PF stack.
    pub(crate) fn page_fault_depth(&self) -> u64 {
        // SAFETY: the stubs change the pointer on this processor only, and always before and after
        // code that could call this.
        let task_state = unsafe { &*self.task_state.get() };
        let stacks = task_state.interrupt_stacks;
        (self.page_fault_stack_top.load(Ordering::Relaxed) - stacks[4])
            / super::trap::PAGE_FAULT_SLOT_BYTES as u64
    }
}

/// Makes an area ready for a processor that has not started yet.
///
/// # Safety
/// `area` points to zeroed, suitably aligned memory for one `PerCpu` that is used for nothing else, for ever.
pub(crate) unsafe fn prepare(area: *mut PerCpu, cpu: CpuId, apic_id: u32) {
    // SAFETY: the caller gives us the memory; nobody else knows it before the store to AREAS.
    unsafe {
        (&raw mut (*area).self_pointer).write(area as u64);
        (&raw mut (*area).cpu_id).write(cpu.index() as u32);
        (&raw mut (*area).preempt_word).write(AtomicU32::new(NO_SWITCH_WANTED));
        (&raw mut (*area).apic_id).write(apic_id);
        (&raw mut (*area).descriptors).write(UnsafeCell::new(DescriptorTable::new()));
        (&raw mut (*area).task_state).write(UnsafeCell::new(TaskState::new()));
    }
    // Release: pairs with the Acquire in `of`.
    AREAS[cpu.index()].store(area, Ordering::Release);
}

/// The boot processor's area, to be prepared and installed first of all.
pub(crate) fn boot_area() -> *mut PerCpu {
    BOOT_AREA.0.get()
}

/// Makes the area this processor's: sets the GS base.
///
/// # Safety
/// The area has been prepared and belongs to the processor that runs this.
pub(crate) unsafe fn install(area: *const PerCpu) {
    // SAFETY: the GS base may hold any address; the caller says that it is this processor's area.
    unsafe { super::register::write_msr(super::register::MSR_GS_BASE, area as u64) };
}

/// The prepared area of a processor.
pub(crate) fn area_pointer(cpu: CpuId) -> *mut PerCpu {
    AREAS[cpu.index()].load(Ordering::Acquire)
}

/// Sets the boot processor's hardware id, which is known only when its APIC is.
///
/// # Safety
/// On the boot processor while it is alone.
pub(crate) unsafe fn set_boot_apic_id(apic_id: u32) {
    // SAFETY: see the function's contract; nobody holds a reference across this call.
    unsafe { (&raw mut (*boot_area()).apic_id).write(apic_id) };
}
