//! Segments: the descriptor table and task state segment of each processor.
//!
//! The selectors are Linux's, because programs see theirs in signal frames and debuggers know them; their order is
//! what `syscall`/`sysret` demand: kernel code, kernel data; and user 32-bit code (never used), user data, user
//! 64-bit code.

use core::mem::size_of;

/// Kernel code.
pub(crate) const KERNEL_CODE: u16 = 0x10;
/// Kernel data and stack.
pub(crate) const KERNEL_DATA: u16 = 0x18;
/// What `sysret` computes the user selectors from.
pub(crate) const USER_BASE: u16 = 0x20 | 3;
/// User data and stack.
pub(crate) const USER_DATA: u16 = 0x28 | 3;
/// User code.
pub(crate) const USER_CODE: u16 = 0x30 | 3;
/// Task state segment.
pub(crate) const TASK_STATE: u16 = 0x40;

/// The task state segment: stack pointers for entries from user mode and the interrupt stack table.
#[repr(C, packed(4))]
pub(crate) struct TaskState {
    reserved0: u32,
    /// Stack pointer for entries to ring 0 without an interrupt stack; rings 1 and 2 are not used.
    pub privilege_stacks: [u64; 3],
    reserved1: u64,
    /// Stacks 1 to 7 that an interrupt descriptor can name.
    pub interrupt_stacks: [u64; 7],
    reserved2: u64,
    reserved3: u16,
    /// Offset of the I/O permission bitmap: beyond the limit, so user mode may use no port.
    pub io_bitmap_offset: u16,
}

const _: () = assert!(size_of::<TaskState>() == 104);
const _: () = assert!(USER_DATA == USER_BASE + 8 && USER_CODE == USER_BASE + 16);

/// Byte offset in [`TaskState`] of the #PF stack's pointer (stack 5), which the entry stubs shift.
pub(crate) const PAGE_FAULT_STACK_OFFSET: usize = core::mem::offset_of!(TaskState, interrupt_stacks) + 4 * 8;

impl TaskState {
    pub(crate) const fn new() -> TaskState {
        TaskState {
            reserved0: 0,
            privilege_stacks: [0; 3],
            reserved1: 0,
            interrupt_stacks: [0; 7],
            reserved2: 0,
            reserved3: 0,
            io_bitmap_offset: size_of::<TaskState>() as u16,
        }
    }
}

/// The global descriptor table.
#[repr(C, align(16))]
pub(crate) struct DescriptorTable {
    entries: [u64; 10],
}

/// Accessed, present code and data segments with base 0 and limit 4 GiB (ignored in 64-bit mode).
const KERNEL_CODE_ENTRY: u64 = 0x00af_9b00_0000_ffff;
const KERNEL_DATA_ENTRY: u64 = 0x00cf_9300_0000_ffff;
const USER_CODE_32_ENTRY: u64 = 0x00cf_fb00_0000_ffff;
const USER_DATA_ENTRY: u64 = 0x00cf_f300_0000_ffff;
const USER_CODE_ENTRY: u64 = 0x00af_fb00_0000_ffff;

impl DescriptorTable {
    pub(crate) const fn new() -> DescriptorTable {
        DescriptorTable {
            entries: [
                0,
                0,
                KERNEL_CODE_ENTRY,
                KERNEL_DATA_ENTRY,
                USER_CODE_32_ENTRY,
                USER_DATA_ENTRY,
                USER_CODE_ENTRY,
                0,
                0,
                0,
            ],
        }
    }

    fn set_task_state(&mut self, task_state: u64) {
        let limit = size_of::<TaskState>() as u64 - 1;
        // Type 9, present: an available 64-bit task state segment; the base is scattered over both words.
        self.entries[8] =
            limit | (task_state & 0xff_ffff) << 16 | 0x89 << 40 | (task_state >> 24 & 0xff) << 56;
        self.entries[9] = task_state >> 32;
    }
}

#[repr(C, packed)]
struct TablePointer {
    limit: u16,
    base: u64,
}

/// Loads this processor's descriptor table, segments and task register. The GS base is lost: set it after.
///
/// # Safety
/// Runs once per processor, with interrupts disabled; both cells belong to this processor and live for ever.
pub(crate) unsafe fn load(descriptors: *mut DescriptorTable, task_state: *const TaskState) {
    // SAFETY: the caller gives us both; the table holds valid flat segments, so reloading the segment registers
    // changes nothing that the running code depends on but the GS base.
    unsafe {
        (*descriptors).set_task_state(task_state as u64);
        let pointer =
            TablePointer { limit: size_of::<DescriptorTable>() as u16 - 1, base: descriptors as u64 };
        core::arch::asm!(
            "lgdt [{pointer}]",
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "mov ds, {data:e}",
            "mov es, {data:e}",
            "mov ss, {data:e}",
            "xor {scratch:e}, {scratch:e}",
            "mov fs, {scratch:e}",
            "mov gs, {scratch:e}",
            "ltr {task:x}",
            pointer = in(reg) &raw const pointer,
            code = const KERNEL_CODE,
            data = in(reg) u32::from(KERNEL_DATA),
            task = in(reg) TASK_STATE,
            scratch = out(reg) _,
        );
    }
}
