//! The code that programs execute to read clocks without entering the kernel.
//!
//! It is position independent and reads the clock's parameters ([`Parameters`]) from the page that lies [`DATA_DISTANCE`] bytes before
//! its first byte: the personality builds an ELF image around it and maps both. A reader takes the sequence number, waits while it is
//! odd (an update is going on), computes, and starts again if the number has changed. With mode 0 the counter is of no use
//! and every function falls back to its system call.

/// Bytes from the start of the page with the parameters to the first byte of the code.
pub const DATA_DISTANCE: usize = 0x1800;

/// What the code reads, at the start of its data page.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Odd while an update goes on.
    pub sequence: u32,
    /// 1: the counter can be used.
    pub mode: u32,
    /// Counter value at which the clock read `base_ns`.
    pub base_cycles: u64,
    /// Nanoseconds since boot then.
    pub base_ns: u64,
    /// Nanoseconds per cycle, scaled by `1 << shift`.
    pub multiplier: u64,
    /// Scale of the multiplier.
    pub shift: u32,
    /// Nothing.
    pub padding: u32,
    /// What CLOCK_REALTIME adds.
    pub realtime_offset_ns: u64,
}

/// The functions: name and place in [`code`].
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Name that programs look up.
    pub name: &'static str,
    /// Bytes from the start of the code.
    pub offset: usize,
}

#[cfg(target_os = "none")]
mod image {
    use super::Function;

    core::arch::global_asm!(
        ".pushsection .rodata.starling_vdso, \"a\"",
        ".global starling_vdso_start",
        ".global starling_vdso_clock_gettime",
        ".global starling_vdso_gettimeofday",
        ".global starling_vdso_time",
        ".global starling_vdso_getcpu",
        ".global starling_vdso_clock_getres",
        ".global starling_vdso_end",
        ".balign 64",
        "starling_vdso_start:",
        "starling_vdso_clock_gettime:",
        "cmp edi, 7",
        "ja 9f",
        // Not the coarse clocks, 5 and 6: the kernel knows their steps.
        "mov ecx, 0x93",
        "bt ecx, edi",
        "jnc 9f",
        "lea r8, [rip + starling_vdso_start - {distance}]",
        "2:",
        "mov r9d, [r8]",
        "test r9d, 1",
        "jnz 3f",
        "cmp dword ptr [r8 + 4], 0",
        "je 9f",
        "lfence",
        "rdtsc",
        "shl rdx, 32",
        "or rax, rdx",
        "sub rax, [r8 + 8]",
        "mul qword ptr [r8 + 24]",
        "mov ecx, [r8 + 32]",
        "shrd rax, rdx, cl",
        "add rax, [r8 + 16]",
        "test edi, edi",
        "jz 4f",
        "cmp edi, 5",
        "jne 5f",
        "4:",
        "add rax, [r8 + 40]",
        "5:",
        "cmp r9d, [r8]",
        "jne 2b",
        "xor edx, edx",
        "mov ecx, 1000000000",
        "div rcx",
        "mov [rsi], rax",
        "mov [rsi + 8], rdx",
        "xor eax, eax",
        "ret",
        "3:",
        "pause",
        "jmp 2b",
        "9:",
        "mov eax, 228",
        "syscall",
        "ret",
        ".balign 16",
        "starling_vdso_gettimeofday:",
        "test rdi, rdi",
        "jz 9f",
        "test rsi, rsi",
        "jnz 9f",
        "lea r8, [rip + starling_vdso_start - {distance}]",
        "2:",
        "mov r9d, [r8]",
        "test r9d, 1",
        "jnz 3f",
        "cmp dword ptr [r8 + 4], 0",
        "je 9f",
        "lfence",
        "rdtsc",
        "shl rdx, 32",
        "or rax, rdx",
        "sub rax, [r8 + 8]",
        "mul qword ptr [r8 + 24]",
        "mov ecx, [r8 + 32]",
        "shrd rax, rdx, cl",
        "add rax, [r8 + 16]",
        "add rax, [r8 + 40]",
        "cmp r9d, [r8]",
        "jne 2b",
        "xor edx, edx",
        "mov ecx, 1000000000",
        "div rcx",
        "mov [rdi], rax",
        "mov rax, rdx",
        "xor edx, edx",
        "mov ecx, 1000",
        "div rcx",
        "mov [rdi + 8], rax",
        "xor eax, eax",
        "ret",
        "3:",
        "pause",
        "jmp 2b",
        "9:",
        "mov eax, 96",
        "syscall",
        "ret",
        ".balign 16",
        "starling_vdso_time:",
        "mov eax, 201",
        "syscall",
        "ret",
        ".balign 16",
        "starling_vdso_getcpu:",
        "mov eax, 309",
        "syscall",
        "ret",
        ".balign 16",
        "starling_vdso_clock_getres:",
        "mov eax, 229",
        "syscall",
        "ret",
        "starling_vdso_end:",
        ".popsection",
        distance = const super::DATA_DISTANCE,
    );

    // SAFETY: the assembly above defines these symbols; what lies between the first and the last are bytes of code.
    unsafe extern "C" {
        static starling_vdso_start: u8;
        static starling_vdso_clock_gettime: u8;
        static starling_vdso_gettimeofday: u8;
        static starling_vdso_time: u8;
        static starling_vdso_getcpu: u8;
        static starling_vdso_clock_getres: u8;
        static starling_vdso_end: u8;
    }

    fn start() -> usize {
        (&raw const starling_vdso_start).addr()
    }

    pub(super) fn code() -> &'static [u8] {
        let length = (&raw const starling_vdso_end).addr() - start();
        // SAFETY: the assembler put `length` bytes of read-only data between the two labels.
        unsafe { core::slice::from_raw_parts(&raw const starling_vdso_start, length) }
    }

    pub(super) fn functions() -> [Function; 5] {
        let at = |name, symbol: *const u8| Function { name, offset: symbol.addr() - start() };
        [
            at("__vdso_clock_gettime", &raw const starling_vdso_clock_gettime),
            at("__vdso_gettimeofday", &raw const starling_vdso_gettimeofday),
            at("__vdso_time", &raw const starling_vdso_time),
            at("__vdso_getcpu", &raw const starling_vdso_getcpu),
            at("__vdso_clock_getres", &raw const starling_vdso_clock_getres),
        ]
    }
}

#[cfg(not(target_os = "none"))]
mod image {
    use super::Function;

    pub(super) fn code() -> &'static [u8] {
        &[0xc3]
    }

    pub(super) fn functions() -> [Function; 5] {
        ["__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_time", "__vdso_getcpu", "__vdso_clock_getres"]
            .map(|name| Function { name, offset: 0 })
    }
}

/// The code.
pub fn code() -> &'static [u8] {
    image::code()
}

/// The functions in it.
pub fn functions() -> [Function; 5] {
    image::functions()
}
