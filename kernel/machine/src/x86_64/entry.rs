//! The first instructions: from the PVH entry in 32-bit protected mode to Rust in the top 2 GiB.
//!
//! The boot loader enters at `pvh_start` by its physical address: paging off, flat segments, interrupts off, `ebx`
//! pointing to the start information. The kernel is linked at `KERNEL_IMAGE_BASE` + its physical address, so
//! 32-bit code subtracts the base from every symbol. The early page tables are constants in the image: they map the
//! first GiB at 0, in the direct map and at the kernel's base, with 2 MiB pages, writable and executable. They are
//! in use until `paging::build` has made the final ones, and again for moments in each application processor.

use core::arch::global_asm;

/// Bytes of the stack that a processor starts on.
pub(crate) const BOOT_STACK_BYTES: usize = 32 * 1024;

global_asm!(
    r#"
    .set BASE, 0xffffffff80000000

    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 4, 18
    .asciz "Xen"
    .long pvh_start - BASE

    .section .text.entry, "ax"
    .code32
    .globl pvh_start
pvh_start:
    cli
    cld
    mov esp, offset boot_stack_top - BASE
    rdtsc
    mov edi, eax
    mov esi, edx

    mov eax, cr4
    or eax, 0x20
    mov cr4, eax
    mov eax, offset boot_page_map - BASE
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x100
    wrmsr
    mov eax, cr0
    or eax, 0x80010001
    mov cr0, eax
    lgdt [boot_descriptors_pointer - BASE]
    // A far jump to the next instruction's physical address, spelled as bytes: `ljmp 0x08, long_mode`.
    .byte 0xea
    .long 2f - BASE
    .word 0x08

    .code64
2:
    movabs rax, offset boot_high
    jmp rax
boot_high:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    mov rsp, offset boot_stack_top
    shl rsi, 32
    mov eax, edi
    or rsi, rax
    mov edi, ebx
    xor ebp, ebp
    push rbp
    push rbp
    call {start}
    ud2

    .section .rodata.entry, "a"
    .balign 8
    .globl boot_descriptors
boot_descriptors:
    .quad 0
    .quad 0x00af9b000000ffff
    .quad 0x00cf93000000ffff
    .quad 0x00cf9b000000ffff
boot_descriptors_pointer:
    .word 31
    .long boot_descriptors - BASE

    .section .data.boot_tables, "aw"
    .balign 4096
    .globl boot_page_map
boot_page_map:
    .quad boot_gigabytes - BASE + 3
    .zero 255 * 8
    .quad boot_gigabytes - BASE + 3
    .zero 254 * 8
    .quad boot_top_gigabytes - BASE + 3
boot_gigabytes:
    .quad boot_first_gigabyte - BASE + 3
    .zero 511 * 8
boot_top_gigabytes:
    .zero 510 * 8
    .quad boot_first_gigabyte - BASE + 3
    .quad 0
boot_first_gigabyte:
    .set page, 0
    .rept 512
    .quad page * 0x200000 + 0x83
    .set page, page + 1
    .endr

    .section .bss.boot_stack, "aw", @nobits
    .balign 4096
    .globl boot_stack_bottom
boot_stack_bottom:
    .zero {stack_bytes}
    .globl boot_stack_top
boot_stack_top:
    "#,
    start = sym super::start::start,
    stack_bytes = const BOOT_STACK_BYTES,
);
