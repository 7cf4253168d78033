//! `memcpy`, `memmove`, `memset` and `memcmp`, which the compiler calls wherever it likes.
//!
//! The ones that come with the language use `rep` instructions. A processor likes those; QEMU's translator executes each of
//! their iterations as a round of its own, which makes copying and zeroing several times slower than plain moves. These
//! move 64 bytes a round (backwards 32) through general registers (the kernel has no vector registers to use), which on a
//! processor too is as fast as its store port for anything that lies in its caches. The comparison that comes with the language is made for long
//! ranges; what the kernel compares are names.

use core::arch::naked_asm;

/// Copies `count` bytes; the ranges do not overlap, or `target` lies below `source`.
///
/// # Safety
/// `source` is valid for reads and `target` for writes of `count` bytes.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memcpy(target: *mut u8, source: *const u8, count: usize) -> *mut u8 {
    naked_asm!(
        "mov rax, rdi",
        "sub rdx, 64",
        "jb 3f",
        "2:",
        "mov rcx, [rsi]",
        "mov r8, [rsi + 8]",
        "mov r9, [rsi + 16]",
        "mov r10, [rsi + 24]",
        "mov [rdi], rcx",
        "mov [rdi + 8], r8",
        "mov [rdi + 16], r9",
        "mov [rdi + 24], r10",
        "mov rcx, [rsi + 32]",
        "mov r8, [rsi + 40]",
        "mov r9, [rsi + 48]",
        "mov r10, [rsi + 56]",
        "mov [rdi + 32], rcx",
        "mov [rdi + 40], r8",
        "mov [rdi + 48], r9",
        "mov [rdi + 56], r10",
        "add rsi, 64",
        "add rdi, 64",
        "sub rdx, 64",
        "jae 2b",
        // The low six bits of the count are what is left.
        "3:",
        "test dl, 56",
        "jz 6f",
        "test dl, 32",
        "jz 4f",
        "mov rcx, [rsi]",
        "mov r8, [rsi + 8]",
        "mov r9, [rsi + 16]",
        "mov r10, [rsi + 24]",
        "mov [rdi], rcx",
        "mov [rdi + 8], r8",
        "mov [rdi + 16], r9",
        "mov [rdi + 24], r10",
        "add rsi, 32",
        "add rdi, 32",
        "4:",
        "test dl, 16",
        "jz 5f",
        "mov rcx, [rsi]",
        "mov r8, [rsi + 8]",
        "mov [rdi], rcx",
        "mov [rdi + 8], r8",
        "add rsi, 16",
        "add rdi, 16",
        "5:",
        "test dl, 8",
        "jz 6f",
        "mov rcx, [rsi]",
        "mov [rdi], rcx",
        "add rsi, 8",
        "add rdi, 8",
        // Most of what is copied consists of whole words.
        "6:",
        "test dl, 7",
        "jz 9f",
        "test dl, 4",
        "jz 7f",
        "mov ecx, [rsi]",
        "mov [rdi], ecx",
        "add rsi, 4",
        "add rdi, 4",
        "7:",
        "test dl, 2",
        "jz 8f",
        "movzx ecx, word ptr [rsi]",
        "mov [rdi], cx",
        "add rsi, 2",
        "add rdi, 2",
        "8:",
        "test dl, 1",
        "jz 9f",
        "movzx ecx, byte ptr [rsi]",
        "mov [rdi], cl",
        "9:",
        "ret",
    )
}

/// Copies `count` bytes; the ranges may overlap.
///
/// # Safety
/// `source` is valid for reads and `target` for writes of `count` bytes.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memmove(target: *mut u8, source: *const u8, count: usize) -> *mut u8 {
    naked_asm!(
        // Below the source, or beyond its end (as an unsigned distance): forwards. Each round loads before it stores.
        "mov rax, rdi",
        "sub rax, rsi",
        "cmp rax, rdx",
        "jae {memcpy}",
        "mov rax, rdi",
        "add rsi, rdx",
        "add rdi, rdx",
        "sub rdx, 32",
        "jb 3f",
        "2:",
        "mov rcx, [rsi - 8]",
        "mov r8, [rsi - 16]",
        "mov r9, [rsi - 24]",
        "mov r10, [rsi - 32]",
        "mov [rdi - 8], rcx",
        "mov [rdi - 16], r8",
        "mov [rdi - 24], r9",
        "mov [rdi - 32], r10",
        "sub rsi, 32",
        "sub rdi, 32",
        "sub rdx, 32",
        "jae 2b",
        "3:",
        "test dl, 16",
        "jz 4f",
        "mov rcx, [rsi - 8]",
        "mov r8, [rsi - 16]",
        "mov [rdi - 8], rcx",
        "mov [rdi - 16], r8",
        "sub rsi, 16",
        "sub rdi, 16",
        "4:",
        "test dl, 8",
        "jz 5f",
        "mov rcx, [rsi - 8]",
        "mov [rdi - 8], rcx",
        "sub rsi, 8",
        "sub rdi, 8",
        "5:",
        "and edx, 7",
        "jz 7f",
        "6:",
        "movzx ecx, byte ptr [rsi - 1]",
        "mov [rdi - 1], cl",
        "dec rsi",
        "dec rdi",
        "dec edx",
        "jnz 6b",
        "7:",
        "ret",
        memcpy = sym memcpy,
    )
}

/// Sets `count` bytes to the low byte of `value`.
///
/// # Safety
/// `target` is valid for writes of `count` bytes.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memset(target: *mut u8, value: i32, count: usize) -> *mut u8 {
    naked_asm!(
        "mov rax, rdi",
        "movzx esi, sil",
        "movabs rcx, 0x0101010101010101",
        "imul rcx, rsi",
        "sub rdx, 64",
        "jb 3f",
        "2:",
        "mov [rdi], rcx",
        "mov [rdi + 8], rcx",
        "mov [rdi + 16], rcx",
        "mov [rdi + 24], rcx",
        "mov [rdi + 32], rcx",
        "mov [rdi + 40], rcx",
        "mov [rdi + 48], rcx",
        "mov [rdi + 56], rcx",
        "add rdi, 64",
        "sub rdx, 64",
        "jae 2b",
        "3:",
        "test dl, 56",
        "jz 6f",
        "test dl, 32",
        "jz 4f",
        "mov [rdi], rcx",
        "mov [rdi + 8], rcx",
        "mov [rdi + 16], rcx",
        "mov [rdi + 24], rcx",
        "add rdi, 32",
        "4:",
        "test dl, 16",
        "jz 5f",
        "mov [rdi], rcx",
        "mov [rdi + 8], rcx",
        "add rdi, 16",
        "5:",
        "test dl, 8",
        "jz 6f",
        "mov [rdi], rcx",
        "add rdi, 8",
        "6:",
        "test dl, 7",
        "jz 9f",
        "test dl, 4",
        "jz 7f",
        "mov [rdi], ecx",
        "add rdi, 4",
        "7:",
        "test dl, 2",
        "jz 8f",
        "mov [rdi], cx",
        "add rdi, 2",
        "8:",
        "test dl, 1",
        "jz 9f",
        "mov [rdi], cl",
        "9:",
        "ret",
    )
}

/// Compares `count` bytes, as numbers without a sign: negative, zero or positive.
///
/// # Safety
/// `left` and `right` are valid for reads of `count` bytes.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, count: usize) -> i32 {
    naked_asm!(
        "sub rdx, 8",
        "jb 3f",
        "2:",
        "mov rax, [rdi]",
        "mov rcx, [rsi]",
        "cmp rax, rcx",
        "jne 7f",
        "add rdi, 8",
        "add rsi, 8",
        "sub rdx, 8",
        "jae 2b",
        // The low three bits of the count are what is left.
        "3:",
        "test dl, 4",
        "jz 4f",
        "mov eax, [rdi]",
        "mov ecx, [rsi]",
        "cmp eax, ecx",
        "jne 7f",
        "add rdi, 4",
        "add rsi, 4",
        "4:",
        "test dl, 2",
        "jz 5f",
        "movzx eax, word ptr [rdi]",
        "movzx ecx, word ptr [rsi]",
        "cmp eax, ecx",
        "jne 7f",
        "add rdi, 2",
        "add rsi, 2",
        "5:",
        "xor eax, eax",
        "test dl, 1",
        "jz 6f",
        "movzx eax, byte ptr [rdi]",
        "movzx ecx, byte ptr [rsi]",
        "sub eax, ecx",
        "6:",
        "ret",
        // The first byte that differs decides: it is the highest one that does when the order is turned round.
        "7:",
        "bswap rax",
        "bswap rcx",
        "cmp rax, rcx",
        "sbb eax, eax",
        "or eax, 1",
        "ret",
    )
}

/// Whether `count` bytes differ.
///
/// # Safety
/// As [`memcmp`].
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, count: usize) -> i32 {
    naked_asm!("jmp {memcmp}", memcmp = sym memcmp)
}
