//! The execution domain of a thread (personality(2)) and where programs are put.
//!
//! Of the bits these have an effect: fixed addresses, mappings from below upwards, memory that can be read can be executed, a page of zeros at address 0, the
//! kernel's name as of Linux 2.6, and the name of the machine with 32 bits. The others are remembered.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::errno::SysResult;
use crate::task::Task;

bitflags::bitflags! {
    /// `PER_*` and their flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub(crate) struct Persona: u32 {
        /// `UNAME26`: programs that can't count beyond are told of Linux 2.6.
        const OLD_RELEASE = 0x002_0000;
        /// `ADDR_NO_RANDOMIZE`
        const FIXED_ADDRESSES = 0x004_0000;
        /// `MMAP_PAGE_ZERO`
        const PAGE_ZERO = 0x010_0000;
        /// `ADDR_COMPAT_LAYOUT`
        const UPWARDS = 0x020_0000;
        /// `READ_IMPLIES_EXEC`
        const READ_IMPLIES_EXECUTE = 0x040_0000;
        /// The others.
        const _ = !0;
    }
}

impl Persona {
    /// The domain itself.
    const DOMAIN: u32 = 0xff;
    const LINUX_32: u32 = 8;

    /// What a program that gains privileges does not keep: it would be easier to attack.
    pub(crate) const UNSAFE: Persona = Persona::FIXED_ADDRESSES
        .union(Persona::PAGE_ZERO)
        .union(Persona::UPWARDS)
        .union(Persona::READ_IMPLIES_EXECUTE);

    /// Whether `uname` tells of a machine with 32 bits.
    pub(crate) fn is_32_bit(self) -> bool {
        self.bits() & Persona::DOMAIN == Persona::LINUX_32
    }
}

/// Changes the caller's domain, unless it only asks; returns the old one.
pub fn personality(task: &mut Task, persona: u32) -> SysResult {
    const QUERY: u32 = u32::MAX;
    let old = task.thread.persona();
    if persona != QUERY {
        task.thread.set_persona(Persona::from_bits_retain(persona));
    }
    Ok(old.bits() as usize)
}

/// `/proc/sys/kernel/randomize_va_space`: 0 nothing, 1 all but the heap, 2 all.
static RANDOMIZED: AtomicU32 = AtomicU32::new(2);
/// `/proc/sys/vm/legacy_va_layout`
static UPWARDS: AtomicBool = AtomicBool::new(false);

/// What is put at addresses that nobody can foresee.
pub(crate) fn randomized() -> u32 {
    RANDOMIZED.load(Ordering::Relaxed)
}

/// Sets that, for new programs.
pub(crate) fn set_randomized(level: u32) {
    RANDOMIZED.store(level, Ordering::Relaxed);
}

/// Whether mappings of new programs are put from below upwards.
pub(crate) fn goes_upwards() -> bool {
    UPWARDS.load(Ordering::Relaxed)
}

/// Sets that.
pub(crate) fn set_goes_upwards(upwards: bool) {
    UPWARDS.store(upwards, Ordering::Relaxed);
}

/// How a new program is put into memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement {
    /// Always at the same addresses.
    pub(super) is_fixed: bool,
    /// The heap begins right behind the program.
    pub(super) has_fixed_heap: bool,
    /// Mappings from below upwards.
    pub(super) goes_upwards: bool,
    /// A page of zeros at address 0.
    pub(super) has_page_zero: bool,
}

impl Placement {
    pub(super) fn of(persona: Persona) -> Placement {
        let level = randomized();
        let is_fixed = persona.contains(Persona::FIXED_ADDRESSES) || level == 0;
        Placement {
            is_fixed,
            has_fixed_heap: is_fixed || level < 2,
            goes_upwards: persona.contains(Persona::UPWARDS) || goes_upwards(),
            has_page_zero: persona.contains(Persona::PAGE_ZERO),
        }
    }
}
