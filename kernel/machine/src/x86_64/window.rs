//! The branches at the places of time windows: five bytes that do nothing, recorded with their target in the section
//! `starling_windows`. Start-up makes jumps of them when tests are asked for, before the image becomes read-only.

use core::arch::asm;

/// Bytes of the instruction that does nothing and of the jump.
const BRANCH_BYTES: u64 = 5;
/// Opcode of a jump by a 32-bit distance.
const JUMP: u8 = 0xe9;

/// A place: the branch, and where it leads.
#[repr(C)]
struct Site {
    branch: u64,
    target: u64,
}

// SAFETY: the linker script defines these symbols with these types.
unsafe extern "C" {
    static __start_starling_windows: Site;
    static __stop_starling_windows: Site;
}

#[inline(always)]
pub(crate) fn is_armed() -> bool {
    // SAFETY: the instruction does nothing, or jumps to the label.
    unsafe {
        asm!(
            "77: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
            ".pushsection starling_windows, \"a\"",
            ".quad 77b, {armed}",
            ".popsection",
            armed = label { return true },
            options(nostack, preserves_flags),
        );
    }
    false
}

/// Makes jumps of all branches.
///
/// # Safety
/// On the boot processor while it is alone, before the kernel image is write-protected.
pub(crate) unsafe fn arm() {
    let start = &raw const __start_starling_windows;
    let end = &raw const __stop_starling_windows;
    // SAFETY: the linker places all recorded sites contiguously between the two symbols.
    let sites = unsafe { core::slice::from_raw_parts(start, end.offset_from_unsigned(start)) };
    for site in sites {
        let distance = site.target.wrapping_sub(site.branch + BRANCH_BYTES) as u32;
        let [a, b, c, d] = distance.to_le_bytes();
        // SAFETY: the site is a five-byte instruction of the image, still writable, which nothing executes meanwhile.
        unsafe { (site.branch as *mut [u8; BRANCH_BYTES as usize]).write_volatile([JUMP, a, b, c, d]) };
    }
}
