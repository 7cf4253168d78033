//! Entry stubs: the first instructions of every trap, interrupt and system call.
//!
//! Every vector enters on an IST stack (`gates.rs` has the assignment), so the CPU never
//! pushes a frame on a demand-paged kernel stack, where an asynchronous frame that page-faults is
//! lost for ever (specs/kernel-stacks.md M2). All stubs reach a common point with the same words on
//! the IST stack: vector, error code, and the CPU's rip, cs, rflags, rsp, ss.
//!
//! - *From user mode*: the registers go into the `UserContext` of the running thread, the stack
//!   becomes the thread's (which holds what `starling_enter_user` pushed), and that call returns the
//!   event. External interrupts run their handler on the per-CPU interrupt stack before that.
//! - *External interrupt in kernel mode*: the frame moves to the interrupt stack (or beneath the
//!   interrupted frame when already there), which frees the IST stack for the next one.
//! - *Page fault in kernel mode*: handled on the #PF stack when it is a stack growth; moved to the
//!   thread's stack when it may sleep (M5). The IST pointer is lowered by one slot meanwhile.
//! - *Other exception in kernel mode*: frame on the IST stack, handler there.
//! - *The debugger's interrupt*: like those that follow, whatever it hits, because the debugger wants the registers.
//! - *NMI, #MC, #DB, #DF in kernel mode*: may hit anywhere, also where GS is the user's: the stub
//!   looks at the sign of the GS base. The #PF stack pointer is lowered by one slot while they run, and CR2 is left
//!   as it was: they may have come between a page fault and its reading of CR2.

use core::mem::offset_of;

use super::frame::{FRAME_BYTES, TrapFrame};
use crate::backend::per_cpu;
use crate::user::{UserContext, UserRegisters};

/// Bytes of one slot of the #PF stack (specs/kernel-stacks.md M4).
pub(crate) const PAGE_FAULT_SLOT_BYTES: usize = 2048;

const REGISTERS: usize = offset_of!(UserContext, registers);

core::arch::global_asm!(
    r#"
.pushsection .text.starling_entry, "ax"

# clac where the CPU has SMAP; start-up overwrites it with a nop where it has not (smap.rs).
.macro CLEAR_AC
99: clac
    .pushsection starling_smap_sites, "a"
    .quad 99b
    .popsection
.endm

# Gives the stack segment register what it holds outside of traps: entering through a gate has emptied it. That makes no
# difference to a processor in 64-bit mode. But QEMU's translator keeps code that was met with the one apart from the same
# code met with the other: the kernel would be translated twice, and the copies would drive each other from its caches.
.macro RESTORE_STACK_SEGMENT register
    mov \register, {kernel_data}
    mov ss, \register
.endm

.macro PUSH_REGISTERS
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
.endm

.macro POP_REGISTERS
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
.endm

# Stores all user registers in the running UserContext. On entry the stack is as all stubs leave it
# (vector, error code, CPU frame), GS is the kernel's. Clobbers rax, which ends as the context.
.macro STORE_USER_REGISTERS
    push rax
    mov rax, gs:[{user_context}]
    mov [rax + {rbx}], rbx
    mov [rax + {rcx}], rcx
    mov [rax + {rdx}], rdx
    mov [rax + {rsi}], rsi
    mov [rax + {rdi}], rdi
    mov [rax + {rbp}], rbp
    mov [rax + {r8}], r8
    mov [rax + {r9}], r9
    mov [rax + {r10}], r10
    mov [rax + {r11}], r11
    mov [rax + {r12}], r12
    mov [rax + {r13}], r13
    mov [rax + {r14}], r14
    mov [rax + {r15}], r15
    pop qword ptr [rax + {rax}]
    mov rbx, [rsp + 16]
    mov [rax + {rip}], rbx
    mov rbx, [rsp + 32]
    mov [rax + {rflags}], rbx
    mov rbx, [rsp + 40]
    mov [rax + {rsp}], rbx
.endm

# Leaves the IST stack for the thread's stack and returns from starling_enter_user.
.macro RETURN_FROM_ENTER_USER
    mov rsp, gs:[{kernel_stack_pointer}]
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret
.endm

# u64 starling_enter_user(UserContext *context): interrupts off, kernel GS.
.global starling_enter_user
starling_enter_user:
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    mov gs:[{kernel_stack_pointer}], rsp
    mov gs:[{user_context}], rdi
    mov rcx, [rdi + {rcx}]
    mov r11, [rdi + {r11}]
    mov rbx, [rdi + {rip}]
    mov rax, [rdi + {rflags}]
    # sysret loads rip from rcx and rflags from r11: possible only if those are what the program is
    # to see there, if no trap or resume flag is set, and if rip is in the canonical lower half (on
    # Intel sysret to another address faults in kernel mode with the user's stack).
    cmp rcx, rbx
    jne 2f
    cmp r11, rax
    jne 2f
    test eax, 0x10100
    jnz 2f
    mov rdx, rcx
    shr rdx, 47
    jnz 2f
    mov rax, [rdi + {rax}]
    mov rbx, [rdi + {rbx}]
    mov rdx, [rdi + {rdx}]
    mov rsi, [rdi + {rsi}]
    mov rbp, [rdi + {rbp}]
    mov r8, [rdi + {r8}]
    mov r9, [rdi + {r9}]
    mov r10, [rdi + {r10}]
    mov r12, [rdi + {r12}]
    mov r13, [rdi + {r13}]
    mov r14, [rdi + {r14}]
    mov r15, [rdi + {r15}]
    mov rsp, [rdi + {rsp}]
    mov rdi, [rdi + {rdi}]
    swapgs
    sysretq
2:
    # iretq faults in kernel mode on a non-canonical rip; send such a program to an address that
    # faults in user mode instead.
    mov rdx, rbx
    shr rdx, 47
    jz 3f
    movabs rbx, 0x00007ffffffff000
3:
    push {user_data}
    push qword ptr [rdi + {rsp}]
    push rax
    push {user_code}
    push rbx
    mov rax, [rdi + {rax}]
    mov rbx, [rdi + {rbx}]
    mov rdx, [rdi + {rdx}]
    mov rsi, [rdi + {rsi}]
    mov rbp, [rdi + {rbp}]
    mov r8, [rdi + {r8}]
    mov r9, [rdi + {r9}]
    mov r10, [rdi + {r10}]
    mov r12, [rdi + {r12}]
    mov r13, [rdi + {r13}]
    mov r14, [rdi + {r14}]
    mov r15, [rdi + {r15}]
    mov rdi, [rdi + {rdi}]
    swapgs
    iretq

# The syscall instruction: rcx = user rip, r11 = user rflags, interrupts masked by SFMASK.
.global starling_system_call_entry
starling_system_call_entry:
    swapgs
    mov gs:[{scratch}], rsp
    mov rsp, gs:[{user_context}]
    mov [rsp + {rax}], rax
    mov [rsp + {rbx}], rbx
    mov [rsp + {rcx}], rcx
    mov [rsp + {rdx}], rdx
    mov [rsp + {rsi}], rsi
    mov [rsp + {rdi}], rdi
    mov [rsp + {rbp}], rbp
    mov [rsp + {r8}], r8
    mov [rsp + {r9}], r9
    mov [rsp + {r10}], r10
    mov [rsp + {r11}], r11
    mov [rsp + {r12}], r12
    mov [rsp + {r13}], r13
    mov [rsp + {r14}], r14
    mov [rsp + {r15}], r15
    mov [rsp + {rip}], rcx
    mov [rsp + {rflags}], r11
    mov rax, gs:[{scratch}]
    mov [rsp + {rsp}], rax
    xor eax, eax
    RETURN_FROM_ENTER_USER

# 32-bit syscall (CSTAR): not supported; looks like an invalid system call to nobody, because no
# 32-bit code segment is reachable. Kept as a trap should that ever change.
.global starling_compatibility_entry
starling_compatibility_entry:
    ud2

# --- external interrupts: vector, 0, CPU frame on IST 6 ---
starling_interrupt_common:
    cld
    CLEAR_AC
    test byte ptr [rsp + 24], 3
    jz 4f
    swapgs
    STORE_USER_REGISTERS
    RESTORE_STACK_SEGMENT edi
    mov edi, [rsp]
    mov rsp, gs:[{interrupt_stack_top}]
    xor ebp, ebp
    call {interrupt_from_user}
    mov eax, 2
    RETURN_FROM_ENTER_USER
4:
    push rax
    push rcx
    RESTORE_STACK_SEGMENT eax
    # rax = where the frame goes: the top of the interrupt stack, or beneath the interrupted frame
    # when the interrupt stack is in use.
    mov rax, gs:[{interrupt_stack_top}]
    mov rcx, [rsp + 56]
    cmp dword ptr gs:[{interrupt_nesting}], 0
    cmovne rax, rcx
    and rax, -16
    mov rcx, rsp
    mov rsp, rax
    push qword ptr [rcx + 64]
    push qword ptr [rcx + 56]
    push qword ptr [rcx + 48]
    push qword ptr [rcx + 40]
    push qword ptr [rcx + 32]
    push qword ptr [rcx + 24]
    push qword ptr [rcx + 16]
    push qword ptr [rcx + 8]
    push qword ptr [rcx]
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov rdi, rsp
    call {interrupt_from_kernel}
    # rax: null, or the address on the interrupted thread's stack where the frame now also lies,
    # because another thread is to run.
    test rax, rax
    jz 5f
    mov rsp, rax
    call {preempt}
5:
    POP_REGISTERS
    add rsp, 16
    iretq

# --- page fault with no stack of its own (gates.rs, `fault_on_own_stack`): error code, CPU frame on the interrupted
# stack; from user mode on the #PF stack, which is where the task state segment sends it. Moves to the #PF stack.
.global starling_page_fault_in_place
starling_page_fault_in_place:
    test byte ptr [rsp + 16], 3
    jnz 12f
    mov gs:[{scratch} + 8], rcx
    mov rcx, rsp
    mov rsp, gs:[{page_fault_stack}]
    push qword ptr [rcx + 40]
    push qword ptr [rcx + 32]
    push qword ptr [rcx + 24]
    push qword ptr [rcx + 16]
    push qword ptr [rcx + 8]
    push qword ptr [rcx]
    mov rcx, gs:[{scratch} + 8]
12:
    push 14
    jmp starling_page_fault_common

# --- page fault: vector, error code, CPU frame on IST 5 ---
starling_page_fault_common:
    cld
    CLEAR_AC
    test byte ptr [rsp + 24], 3
    jnz 6f
    PUSH_REGISTERS
    RESTORE_STACK_SEGMENT esi
    mov rsi, cr2
    sub qword ptr gs:[{page_fault_stack}], {slot}
    mov rdi, rsp
    call {page_fault_from_kernel}
    test rax, rax
    jnz 7f
    add qword ptr gs:[{page_fault_stack}], {slot}
    POP_REGISTERS
    add rsp, 16
    iretq
7:
    # The frame was copied to the thread's stack at rax: leave the #PF stack and go on there.
    mov rsp, rax
    add qword ptr gs:[{page_fault_stack}], {slot}
    mov rdi, rsp
    call {user_fault_from_kernel}
    POP_REGISTERS
    add rsp, 16
    iretq
6:
    swapgs
    STORE_USER_REGISTERS
    mov rbx, cr2
    mov [rax + {fault_address}], rbx
    jmp 8f

# --- other exceptions: vector, error code, CPU frame on IST 7 ---
starling_exception_common:
    cld
    CLEAR_AC
    test byte ptr [rsp + 24], 3
    jnz 9f
    PUSH_REGISTERS
    RESTORE_STACK_SEGMENT edi
    mov rdi, rsp
    call {exception_from_kernel}
    POP_REGISTERS
    add rsp, 16
    iretq
9:
    swapgs
    STORE_USER_REGISTERS
    mov qword ptr [rax + {fault_address}], 0
8:
    RESTORE_STACK_SEGMENT ebx
    pop qword ptr [rax + {vector}]
    pop qword ptr [rax + {error_code}]
    mov eax, 1
    RETURN_FROM_ENTER_USER

# --- NMI, #DB, #DF, #MC: may come while GS is still the user's ---
starling_paranoid_common:
    cld
    CLEAR_AC
    PUSH_REGISTERS
    mov ecx, 0xc0000101
    rdmsr
    xor ebx, ebx
    mov r12, cr2
    test edx, edx
    js 10f
    swapgs
    inc ebx
10:
    sub qword ptr gs:[{page_fault_stack}], {slot}
    mov rdi, rsp
    call {paranoid_exception}
    add qword ptr gs:[{page_fault_stack}], {slot}
    mov cr2, r12
    test ebx, ebx
    jz 11f
    swapgs
11:
    POP_REGISTERS
    add rsp, 16
    iretq

# Where the switch to a thread that was parked continues: the stack pointer is at its frame, r12 holds the function that
# completes the switch (kernel/memory/src/kstack/mapped/parking.rs).
.global starling_resume_parked
starling_resume_parked:
    call r12
    POP_REGISTERS
    add rsp, 16
    iretq

# #DB raised in user mode (single step, hardware breakpoint) is an ordinary exception.
starling_debug_common:
    test byte ptr [rsp + 24], 3
    jnz starling_exception_common
    jmp starling_paranoid_common

# One 16-byte stub for each vector; the table is an array of code indexed by vector.
.balign 16
.global starling_vector_stubs
starling_vector_stubs:
.set vector, 0
.rept 256
    .balign 16
    # `push imm32` is spelled as bytes because the assembler takes a symbol for a memory operand.
    # Vectors with an error code: 8, 10-14, 17, 21, 29, 30.
    .if (vector == 8) || (vector >= 10 && vector <= 14) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30)
    .byte 0x68
    .long vector
    .else
    .byte 0x6a, 0x00, 0x68
    .long vector
    .endif
    .if vector == 14
    jmp starling_page_fault_common
    .elseif (vector == 2) || (vector == 8) || (vector == 18) || (vector == {debugger_vector})
    jmp starling_paranoid_common
    .elseif vector == 1
    jmp starling_debug_common
    .elseif vector < 32
    jmp starling_exception_common
    .else
    jmp starling_interrupt_common
    .endif
    .set vector, vector + 1
.endr
.popsection
"#,
    user_context = const per_cpu::USER_CONTEXT,
    kernel_stack_pointer = const per_cpu::KERNEL_STACK_POINTER,
    scratch = const per_cpu::SCRATCH,
    interrupt_stack_top = const per_cpu::INTERRUPT_STACK_TOP,
    interrupt_nesting = const per_cpu::INTERRUPT_NESTING,
    page_fault_stack = const per_cpu::PAGE_FAULT_STACK,
    slot = const PAGE_FAULT_SLOT_BYTES,
    user_code = const crate::user::USER_CODE_SELECTOR,
    user_data = const crate::user::USER_DATA_SELECTOR,
    kernel_data = const crate::backend::gdt::KERNEL_DATA,
    debugger_vector = const crate::backend::apic::VECTOR_DEBUGGER,
    rax = const REGISTERS + offset_of!(UserRegisters, rax),
    rbx = const REGISTERS + offset_of!(UserRegisters, rbx),
    rcx = const REGISTERS + offset_of!(UserRegisters, rcx),
    rdx = const REGISTERS + offset_of!(UserRegisters, rdx),
    rsi = const REGISTERS + offset_of!(UserRegisters, rsi),
    rdi = const REGISTERS + offset_of!(UserRegisters, rdi),
    rbp = const REGISTERS + offset_of!(UserRegisters, rbp),
    rsp = const REGISTERS + offset_of!(UserRegisters, rsp),
    r8 = const REGISTERS + offset_of!(UserRegisters, r8),
    r9 = const REGISTERS + offset_of!(UserRegisters, r9),
    r10 = const REGISTERS + offset_of!(UserRegisters, r10),
    r11 = const REGISTERS + offset_of!(UserRegisters, r11),
    r12 = const REGISTERS + offset_of!(UserRegisters, r12),
    r13 = const REGISTERS + offset_of!(UserRegisters, r13),
    r14 = const REGISTERS + offset_of!(UserRegisters, r14),
    r15 = const REGISTERS + offset_of!(UserRegisters, r15),
    rip = const REGISTERS + offset_of!(UserRegisters, rip),
    rflags = const REGISTERS + offset_of!(UserRegisters, rflags),
    vector = const UserContext::VECTOR_OFFSET,
    error_code = const UserContext::ERROR_CODE_OFFSET,
    fault_address = const UserContext::FAULT_ADDRESS_OFFSET,
    interrupt_from_user = sym super::interrupts::interrupt_from_user,
    interrupt_from_kernel = sym super::interrupts::interrupt_from_kernel,
    preempt = sym super::interrupts::preempt,
    page_fault_from_kernel = sym super::page_fault::page_fault_from_kernel,
    user_fault_from_kernel = sym super::page_fault::user_fault_from_kernel,
    exception_from_kernel = sym super::exceptions::exception_from_kernel,
    paranoid_exception = sym super::exceptions::paranoid_exception,
);

const _: () = assert!(offset_of!(TrapFrame, vector) == 15 * 8 && FRAME_BYTES == 22 * 8);

// SAFETY: the assembly of this file defines them; those that are called have these signatures.
unsafe extern "C" {
    fn starling_enter_user(context: *mut UserContext) -> u64;
    fn starling_vector_stubs();
    fn starling_page_fault_in_place();
    pub(crate) fn starling_system_call_entry();
    pub(crate) fn starling_compatibility_entry();
}

/// Address of the stub of a vector.
pub(crate) fn stub_address(vector: u8) -> u64 {
    const STUB_BYTES: u64 = 16;
    starling_vector_stubs as *const () as u64 + u64::from(vector) * STUB_BYTES
}

/// Address of the stub for page faults that have no stack of their own.
pub(crate) fn page_fault_in_place_address() -> u64 {
    starling_page_fault_in_place as *const () as u64
}

/// Enters user mode; returns the event. Interrupts are off before and after.
#[inline(always)]
pub(crate) fn enter_user(context: &mut UserContext) -> u64 {
    debug_assert!(!crate::interrupt::are_enabled());
    // SAFETY: the stub loads only the registers of `context`, whose selectors and system flags are
    // fixed, so user code runs at privilege level 3 in the active address space, and stores them
    // back into the same context, which this exclusive borrow keeps alive until it returns.
    unsafe { starling_enter_user(context) }
}
