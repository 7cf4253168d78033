//! The instructions that touch user memory, each with a place to continue when it faults.
//!
//! Copies run in blocks of 64 bytes, then words, then bytes. A fault inside a block continues with
//! the byte loop from the start of the block, so the count of bytes not copied is exact. `rep movs`
//! is not used: under binary translation each of its iterations costs as much as eight plain moves,
//! and on hardware the difference is small at the sizes that system calls copy.

/// Result of [`copy_string`]: a byte was not readable.
pub(crate) const FAULT: u64 = u64::MAX;
/// Result of [`copy_string`]: no terminator within the limit.
pub(crate) const UNTERMINATED: u64 = u64::MAX - 1;

// SAFETY: the assembly of this file defines them, with these signatures.
unsafe extern "C" {
    fn starling_user_copy(to: usize, from: usize, bytes: usize) -> usize;
    fn starling_user_zero(to: usize, bytes: usize) -> usize;
    fn starling_user_copy_string(to: *mut u8, from: usize, limit: usize) -> u64;
    fn starling_user_load_u32(from: usize) -> u64;
    fn starling_user_compare_exchange_u32(at: usize, old: u32, new: u32) -> u64;
    fn starling_user_save_registers(to: usize, components: u32) -> u64;
    fn starling_user_load_registers(from: usize, components: u32) -> u64;
}

/// Copies from user memory; returns the number of bytes not copied.
///
/// # Safety
/// `to` is writable for `bytes`; `from..from + bytes` lies in the user half.
#[inline(always)]
pub(crate) unsafe fn copy_in(to: *mut u8, from: usize, bytes: usize) -> usize {
    // SAFETY: forwarded; faults on the user range are fixed up.
    unsafe { starling_user_copy(to as usize, from, bytes) }
}

/// Copies to user memory; returns the number of bytes not copied.
///
/// # Safety
/// `from` is readable for `bytes`; `to..to + bytes` lies in the user half.
#[inline(always)]
pub(crate) unsafe fn copy_out(to: usize, from: *const u8, bytes: usize) -> usize {
    // SAFETY: forwarded; faults on the user range are fixed up.
    unsafe { starling_user_copy(to, from as usize, bytes) }
}

/// Zeroes user memory; returns the number of bytes not written.
///
/// # Safety
/// `to..to + bytes` lies in the user half.
#[inline(always)]
pub(crate) unsafe fn zero(to: usize, bytes: usize) -> usize {
    // SAFETY: forwarded; faults are fixed up.
    unsafe { starling_user_zero(to, bytes) }
}

/// Copies a string of at most `limit` bytes with its terminator; returns its length, [`FAULT`] or
/// [`UNTERMINATED`].
///
/// # Safety
/// `to` is writable for `limit`; `from..from + limit` lies in the user half.
#[inline(always)]
pub(crate) unsafe fn copy_string(to: *mut u8, from: usize, limit: usize) -> u64 {
    // SAFETY: forwarded; faults are fixed up.
    unsafe { starling_user_copy_string(to, from, limit) }
}

/// Loads a word; a result above 32 bits is a fault.
///
/// # Safety
/// The aligned word lies in the user half.
#[inline(always)]
pub(crate) unsafe fn load_u32(from: usize) -> u64 {
    // SAFETY: forwarded; faults are fixed up.
    unsafe { starling_user_load_u32(from) }
}

/// Compare-and-exchange of a word; returns what it was, or a fault as a result above 32 bits.
///
/// # Safety
/// The aligned word lies in the user half.
#[inline(always)]
pub(crate) unsafe fn compare_exchange_u32(at: usize, old: u32, new: u32) -> u64 {
    // SAFETY: forwarded; faults are fixed up.
    unsafe { starling_user_compare_exchange_u32(at, old, new) }
}

/// Stores the CPU's vector registers as an image with these components, or as a legacy one if there are none; returns 0, or
/// 1 after a fault.
///
/// # Safety
/// The image lies in the user half; the CPU has the components enabled.
#[inline(always)]
pub(crate) unsafe fn save_registers(to: usize, components: u32) -> u64 {
    // SAFETY: forwarded; faults are fixed up.
    unsafe { starling_user_save_registers(to, components) }
}

/// Loads the CPU's vector registers from an image; returns 0, or 1 when it can't be read or the CPU refuses it, which leaves a
/// mixture in the registers.
///
/// # Safety
/// As [`save_registers`].
#[inline(always)]
pub(crate) unsafe fn load_registers(from: usize, components: u32) -> u64 {
    // SAFETY: forwarded; faults are fixed up.
    unsafe { starling_user_load_registers(from, components) }
}

core::arch::global_asm!(
    r#"
.pushsection .text.starling_user_memory, "ax"

.macro ALLOW_USER
98: stac
    .pushsection starling_smap_sites, "a"
    .quad 98b
    .popsection
.endm
.macro FORBID_USER
97: clac
    .pushsection starling_smap_sites, "a"
    .quad 97b
    .popsection
.endm
.macro FIX_UP from, to, at
    .pushsection starling_exception_table, "a"
    .quad \from, \to, \at
    .popsection
.endm

# usize starling_user_copy(rdi to, rsi from, rdx bytes): bytes not copied
.global starling_user_copy
starling_user_copy:
    ALLOW_USER
    mov rcx, rdx
    shr rcx, 6
    jz 2f
1:
    mov rax, [rsi]
    mov r8, [rsi + 8]
    mov r9, [rsi + 16]
    mov r10, [rsi + 24]
    mov [rdi], rax
    mov [rdi + 8], r8
    mov [rdi + 16], r9
    mov [rdi + 24], r10
    mov rax, [rsi + 32]
    mov r8, [rsi + 40]
    mov r9, [rsi + 48]
    mov r10, [rsi + 56]
    mov [rdi + 32], rax
    mov [rdi + 40], r8
    mov [rdi + 48], r9
    mov [rdi + 56], r10
    add rsi, 64
    add rdi, 64
    sub rdx, 64
    dec rcx
    jnz 1b
2:
    mov ecx, edx
    shr ecx, 3
    jz 4f
3:
    mov rax, [rsi]
    mov [rdi], rax
    add rsi, 8
    add rdi, 8
    sub rdx, 8
    dec ecx
    jnz 3b
4:
    test rdx, rdx
    jz 6f
5:
    mov al, [rsi]
    mov [rdi], al
    inc rsi
    inc rdi
    dec rdx
    jnz 5b
6:
    FORBID_USER
    mov rax, rdx
    ret
FIX_UP 1b, 4b, 5b
FIX_UP 5b, 6b, 6b

# usize starling_user_zero(rdi to, rsi bytes): bytes not written
.global starling_user_zero
starling_user_zero:
    ALLOW_USER
    xor eax, eax
    mov rcx, rsi
    shr rcx, 6
    jz 2f
1:
    mov [rdi], rax
    mov [rdi + 8], rax
    mov [rdi + 16], rax
    mov [rdi + 24], rax
    mov [rdi + 32], rax
    mov [rdi + 40], rax
    mov [rdi + 48], rax
    mov [rdi + 56], rax
    add rdi, 64
    sub rsi, 64
    dec rcx
    jnz 1b
2:
    test rsi, rsi
    jz 4f
3:
    mov [rdi], al
    inc rdi
    dec rsi
    jnz 3b
4:
    FORBID_USER
    mov rax, rsi
    ret
FIX_UP 1b, 2b, 3b
FIX_UP 3b, 4b, 4b

# u64 starling_user_copy_string(rdi to, rsi from, rdx limit): length, -1 fault, -2 unterminated
.global starling_user_copy_string
starling_user_copy_string:
    ALLOW_USER
    mov r11, rdx
    movabs r9, 0x0101010101010101
    movabs r10, 0x8080808080808080
1:
    cmp rdx, 8
    jb 3f
2:
    mov rax, [rsi]
    mov [rdi], rax
    mov rcx, rax
    not rcx
    sub rax, r9
    and rcx, rax
    and rcx, r10
    jnz 5f
    add rsi, 8
    add rdi, 8
    sub rdx, 8
    jmp 1b
3:
    test rdx, rdx
    jz 6f
4:
    mov al, [rsi]
    mov [rdi], al
    test al, al
    jz 7f
    inc rsi
    inc rdi
    dec rdx
    jnz 4b
6:
    FORBID_USER
    mov rax, -2
    ret
5:
    bsf rcx, rcx
    shr ecx, 3
    FORBID_USER
    mov rax, r11
    sub rax, rdx
    add rax, rcx
    ret
7:
    FORBID_USER
    mov rax, r11
    sub rax, rdx
    ret
8:
    FORBID_USER
    mov rax, -1
    ret
FIX_UP 2b, 3b, 4b
FIX_UP 4b, 6b, 8b

# u64 starling_user_load_u32(rdi): value, -1 fault
.global starling_user_load_u32
starling_user_load_u32:
    ALLOW_USER
1:
    mov eax, [rdi]
2:
    FORBID_USER
    ret
3:
    FORBID_USER
    mov rax, -1
    ret
FIX_UP 1b, 2b, 3b

# u64 starling_user_compare_exchange_u32(rdi at, esi old, edx new): previous value, -1 fault
.global starling_user_compare_exchange_u32
starling_user_compare_exchange_u32:
    ALLOW_USER
    mov eax, esi
1:
    lock cmpxchg [rdi], edx
2:
    FORBID_USER
    mov eax, eax
    ret
3:
    FORBID_USER
    mov rax, -1
    ret
FIX_UP 1b, 2b, 3b

# u64 starling_user_save_registers(rdi to, esi components): 0, 1 fault. The CPU writes neither the rest of the header nor what
# lies in the legacy part for the use of software.
.global starling_user_save_registers
starling_user_save_registers:
    ALLOW_USER
    mov eax, esi
    xor edx, edx
    test eax, eax
    jz 2f
1:
    mov [rdi + 512], rdx
    mov [rdi + 520], rdx
    mov [rdi + 528], rdx
    mov [rdi + 536], rdx
    mov [rdi + 544], rdx
    mov [rdi + 552], rdx
    mov [rdi + 560], rdx
    mov [rdi + 568], rdx
    xsave64 [rdi]
    jmp 3f
2:
    fxsave64 [rdi]
3:
    FORBID_USER
    xor eax, eax
    ret
4:
    FORBID_USER
    mov eax, 1
    ret
FIX_UP 1b, 3b, 4b

# u64 starling_user_load_registers(rdi from, esi components): 0, 1 fault
.global starling_user_load_registers
starling_user_load_registers:
    ALLOW_USER
    mov eax, esi
    xor edx, edx
    test eax, eax
    jz 2f
1:
    xrstor64 [rdi]
    jmp 3f
2:
    fxrstor64 [rdi]
3:
    FORBID_USER
    xor eax, eax
    ret
4:
    FORBID_USER
    mov eax, 1
    ret
FIX_UP 1b, 3b, 4b
.popsection
"#
);
