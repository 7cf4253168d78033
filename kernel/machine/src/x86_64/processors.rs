//! Starting the application processors.
//!
//! While the boot processor is alone it gives every processor an area and stacks ([`prepare`]). [`start`] copies the
//! trampoline below 1 MiB and sends INIT and start-up to all of them at once; they come up in parallel, and each finds
//! its number by its APIC id. Who has not reported after [`RETRY_AFTER_NS`] gets a second start-up; who has not
//! after [`GIVE_UP_AFTER_NS`] is left out with an error in the log.
//!
//! State of a processor: *prepared* → (INIT, start-up) → *trampoline* → [`enter`] → *online* → the upper layers'
//! entry function.

use super::per_cpu::{self, PerCpu};
use super::start::{BootCell, load_processor_state};
use super::{apic, boot, cpu, fpu, mmu, paging, stacks, time};
use crate::address::{PAGE_SIZE, PhysAddr};
use crate::cpu::{CpuId, CpuSet, MAX_CPUS};
use crate::firmware::Platform;
use core::arch::global_asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Where the trampoline is copied: below 1 MiB, in memory that is never given away.
const TRAMPOLINE: u64 = 0x8000;
/// When a second start-up is sent to those who did not report.
const RETRY_AFTER_NS: u64 = 50_000_000;
/// When a processor is given up. Long, because an emulator on a busy host may not run it for a while.
const GIVE_UP_AFTER_NS: u64 = 5_000_000_000;

/// What the trampoline looks up by APIC id. Layout known to the assembly below.
#[repr(C)]
#[derive(Clone, Copy)]
struct StartEntry {
    apic_id: u32,
    index: u32,
    stack_top: u64,
}

static START_ENTRIES: BootCell<[StartEntry; MAX_CPUS]> =
    BootCell::new([StartEntry { apic_id: 0, index: 0, stack_top: 0 }; MAX_CPUS]);
/// Entries in use.
static START_COUNT: AtomicU32 = AtomicU32::new(0);
/// The kernel's page tables, for the trampoline.
static START_ROOT: AtomicU64 = AtomicU64::new(0);

// SAFETY: the linker script and the assembly define these symbols with these types.
unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_end: u8;
}

global_asm!(
    r#"
    .set BASE, 0xffffffff80000000
    .set HERE, {trampoline}

    .section .rodata.trampoline, "a"
    .balign 16
    .globl trampoline_start, trampoline_end
    .code16
trampoline_start:
    cli
    cld
    xor ax, ax
    mov ds, ax
    // `lgdt [descriptors]` with a 32-bit operand.
    .byte 0x66, 0x0f, 0x01, 0x16
    .word HERE + (trampoline_descriptors_pointer - trampoline_start)
    mov eax, cr0
    or al, 1
    mov cr0, eax
    // `ljmp 0x18, protected` with a 32-bit offset.
    .byte 0x66, 0xea
    .long HERE + (trampoline_protected - trampoline_start)
    .word 0x18

    .code32
trampoline_protected:
    mov ax, 0x10
    mov ds, ax
    mov es, ax
    mov ss, ax
    mov eax, cr4
    or eax, 0x20
    mov cr4, eax
    mov eax, offset boot_page_map - BASE
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x900
    wrmsr
    mov eax, cr0
    or eax, 0x80010001
    and eax, 0x9fffffff
    mov cr0, eax
    .byte 0xea
    .long HERE + (trampoline_long - trampoline_start)
    .word 0x08

    .code64
trampoline_long:
    movabs rax, offset application_processor_entry
    jmp rax

    .balign 8
trampoline_descriptors:
    .quad 0
    .quad 0x00af9b000000ffff
    .quad 0x00cf93000000ffff
    .quad 0x00cf9b000000ffff
trampoline_descriptors_pointer:
    .word 31
    .long HERE + (trampoline_descriptors - trampoline_start)
trampoline_end:

    .section .text.entry, "ax"
    .code64
application_processor_entry:
    mov rax, [rip + {root}]
    mov cr3, rax
    xor eax, eax
    cpuid
    cmp eax, 0xb
    jb 1f
    mov eax, 0xb
    xor ecx, ecx
    cpuid
    test ebx, ebx
    jz 1f
    mov edi, edx
    jmp 2f
1:
    mov eax, 1
    cpuid
    shr ebx, 24
    mov edi, ebx
2:
    lea rsi, [rip + {entries}]
    mov ecx, [rip + {count}]
3:
    test ecx, ecx
    jz 5f
    cmp [rsi], edi
    je 4f
    add rsi, 16
    dec ecx
    jmp 3b
4:
    mov rsp, [rsi + 8]
    mov edi, [rsi + 4]
    xor ebp, ebp
    push rbp
    push rbp
    call {enter}
    ud2
5:
    cli
    hlt
    jmp 5b
    "#,
    trampoline = const TRAMPOLINE,
    root = sym START_ROOT,
    entries = sym START_ENTRIES,
    count = sym START_COUNT,
    enter = sym enter,
);

/// Gives every processor of the tables its number, area and stacks. Processors for which there is no memory are
/// left out.
///
/// # Safety
/// Once, on the boot processor, while it is alone, with its own APIC set up.
pub(crate) unsafe fn prepare(platform: &Platform) {
    let boot_id = PerCpu::current().apic_id;
    // SAFETY: see the function's contract.
    let entries = unsafe { START_ENTRIES.get_mut() };
    let others = platform.processors().iter().filter(|id| **id != boot_id);
    let mut count = 1;
    for (apic_id, entry) in others.zip(entries.iter_mut()).take(MAX_CPUS - 1) {
        let cpu = CpuId::from_index(count);
        // SAFETY: each processor once, while we are alone.
        let Some(stack_top) = (unsafe { prepare_one(cpu, *apic_id) }) else {
            log::error!("no memory for processor {cpu} and those after it");
            break;
        };
        *entry = StartEntry { apic_id: *apic_id, index: cpu.index() as u32, stack_top };
        count += 1;
    }
    if platform.processors_ignored > 0 {
        log::warn!("{} processors beyond the {MAX_CPUS} supported stay off", platform.processors_ignored);
    }
    START_COUNT.store(count as u32 - 1, Ordering::Relaxed);
    cpu::set_count(count);
}

/// # Safety
/// As for [`prepare`], once for each processor.
unsafe fn prepare_one(cpu: CpuId, apic_id: u32) -> Option<u64> {
    let area = boot::early_allocate(size_of::<PerCpu>(), align_of::<PerCpu>())?;
    let area = mmu::phys_to_virt(area).cast::<PerCpu>();
    // SAFETY: the memory was just allocated; the processor has not started.
    unsafe {
        let own = stacks::allocate(cpu)?;
        per_cpu::prepare(area, cpu, apic_id);
        stacks::install(area, &own);
        Some(own.boot)
    }
}

/// Starts all prepared processors and waits for them.
pub(crate) fn start() {
    let count = START_COUNT.load(Ordering::Relaxed) as usize;
    if count == 0 {
        return;
    }
    copy_trampoline();
    START_ROOT.store(mmu::kernel_root().as_u64(), Ordering::Relaxed);
    let entries = &START_ENTRIES.get()[..count];
    let start_up = apic::COMMAND_START_UP | (TRAMPOLINE / PAGE_SIZE as u64) as u32;
    for entry in entries {
        // SAFETY: the target waits for nothing else; INIT puts it into the state that start-up needs.
        unsafe { apic::send_command(entry.apic_id, apic::COMMAND_INIT) };
    }
    for entry in entries {
        // SAFETY: the trampoline is in place.
        unsafe { apic::send_command(entry.apic_id, start_up) };
    }
    let started = time::now_ns();
    let all = CpuSet::first(count + 1);
    let mut retried = false;
    loop {
        let missing = all.difference(cpu::online());
        let waited = time::now_ns() - started;
        if missing.is_empty() {
            return;
        }
        if waited > GIVE_UP_AFTER_NS {
            log::error!("processors {missing:?} did not start");
            return;
        }
        if waited > RETRY_AFTER_NS && !retried {
            retried = true;
            for entry in
                entries.iter().filter(|entry| missing.contains(CpuId::from_index(entry.index as usize)))
            {
                // SAFETY: a processor that is running already ignores it.
                unsafe { apic::send_command(entry.apic_id, start_up) };
            }
        }
        core::hint::spin_loop();
    }
}

fn copy_trampoline() {
    let start = &raw const trampoline_start;
    let bytes = (&raw const trampoline_end).addr() - start.addr();
    assert!(bytes <= PAGE_SIZE, "the trampoline fits into its page");
    let target = mmu::phys_to_virt(PhysAddr::new(TRAMPOLINE));
    // SAFETY: the page is kept free for this (`boot::LOW_MEMORY_KEPT`) and the direct map shows it.
    unsafe { core::ptr::copy_nonoverlapping(start, target, bytes) };
}

/// An application processor, on its boot stack with interrupts disabled, in the kernel's page tables.
extern "C" fn enter(index: u32) -> ! {
    let cpu = CpuId::from_index(index as usize);
    let area = per_cpu::area_pointer(cpu);
    // SAFETY: the boot processor prepared the area for this processor, which has just started.
    unsafe { load_processor_state(area) };
    mmu::set_active_root(mmu::kernel_root());
    paging::enable_protection();
    fpu::initialise_cpu();
    apic::initialise_cpu();
    time::initialise_cpu();
    cpu::set_online_and_enter(cpu)
}
