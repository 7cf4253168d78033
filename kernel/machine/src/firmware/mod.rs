//! Tables that the firmware left in memory, parsed from bytes: ACPI, and MP tables where there is no ACPI.
//!
//! Only what start-up needs is read; the full device tree of ACPI belongs to crate `device`. Tables come from
//! outside, so every access is bounded and a damaged table reads as if it were not there. The parsers see memory
//! through [`Memory`], so that they can be tested on the host.

mod acpi;
mod bytes;
mod madt;
mod mp_table;
mod platform;
#[cfg(test)]
mod tests;

#[cfg(test)]
use platform::IoApic;
#[cfg(target_os = "none")]
pub(crate) use platform::{Override, Register};
pub(crate) use platform::{Platform, Polarity, Trigger};

/// Physical memory as the parsers see it.
pub(crate) trait Memory {
    /// The bytes at a physical address, None when they can't be shown.
    fn bytes(&self, physical: u64, length: usize) -> Option<&[u8]>;
}

/// The ACPI table with this signature, as the firmware made it.
pub(crate) fn find_table<M: Memory>(memory: &M, rsdp: u64, signature: [u8; 4]) -> Option<&[u8]> {
    acpi::find(memory, rsdp, signature)
}

/// Reads all tables, from the ACPI root pointer if the boot loader told it, else from where firmware puts it.
pub(crate) fn discover(memory: &impl Memory, rsdp: Option<u64>) -> Platform {
    let mut platform = Platform::new();
    let found = rsdp.or_else(|| acpi::find_root_pointer(memory));
    let has_acpi = found.is_some_and(|rsdp| acpi::read(memory, rsdp, &mut platform).is_some());
    platform.root_pointer = found.filter(|_| has_acpi);
    if !has_acpi || platform.processors().is_empty() {
        mp_table::read(memory, &mut platform);
    }
    platform
}
