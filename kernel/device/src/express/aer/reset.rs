//! Resetting the bus behind a port, and giving the functions there back what they had in their registers.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::express::worker::sleep_ms;
use crate::pci::registers::{
    BRIDGE_CONTROL, BRIDGE_RESET, CAPABILITY_EXPRESS, CAPABILITY_MSI, CAPABILITY_MSIX, COMMAND,
};
use crate::pci::{Function, capability};

/// How long the reset lasts; a millisecond is what the specification wants.
const RESET_MS: u64 = 2;
/// How long nobody may be spoken to after it.
const SETTLE_MS: u64 = 100;
/// Most looks at whether a function answers again, 10 ms apart: a second, as the specification allows.
const LOOKS: u32 = 100;
/// Registers of the header that are written back, in words.
const HEADER_WORDS: u16 = 16;

/// What a function had in its registers.
struct Saved {
    function: Arc<Function>,
    registers: Vec<(u16, u32)>,
}

impl Saved {
    /// None if the function does not answer: ones would be written back, addresses and permissions among them.
    fn new(function: &Arc<Function>) -> Option<Self> {
        let mut registers = Vec::new();
        let config = &function.config;
        if !config.is_present() {
            return None;
        }
        // Addresses before the word that makes the function answer to them.
        let header = (1..HEADER_WORDS).rev().map(|word| 4 * word);
        let of = |id, words: u16| {
            capability::find(config, id)
                .into_iter()
                .flat_map(move |at| (0..words).map(move |word| at + 4 * word))
        };
        let messages = of(CAPABILITY_MSI, 4).chain(of(CAPABILITY_MSIX, 1));
        // Of PCI Express, device, link, slot and root control; in the upper halves are bits that ones clear, so none are kept.
        for register in header.chain(messages).filter(|register| *register != COMMAND) {
            registers.push((register, config.read_u32(register)));
        }
        for control in [0x08, 0x10, 0x18, 0x1c] {
            registers.extend(
                of(CAPABILITY_EXPRESS, 1).map(|at| (at + control, u32::from(config.read_u16(at + control)))),
            );
        }
        registers.push((COMMAND, config.read_u16(COMMAND).into()));
        Some(Self { function: function.clone(), registers })
    }

    /// Writes all back, once the function answers. False if it does not.
    fn restore(&self) -> bool {
        let config = &self.function.config;
        for _ in 0..LOOKS {
            if config.is_present() {
                break;
            }
            sleep_ms(10);
        }
        if !config.is_present() {
            return false;
        }
        for &(register, value) in &self.registers {
            config.write_u32(register, value);
        }
        true
    }
}

/// Whether a function could be given back what it has.
#[cfg(test)]
pub(super) fn is_saved(function: &Arc<Function>) -> bool {
    Saved::new(function).is_some()
}

/// Resets what is behind a port. `behind` are the functions there, bridges before what is behind them. False if one of them does not
/// answer before, so that nothing could be given back to it, or after.
pub(super) fn reset_behind(port: &Function, behind: &[Arc<Function>]) -> bool {
    let saved: Vec<_> = behind.iter().map(Saved::new).collect();
    port.config.modify_u16(BRIDGE_CONTROL, BRIDGE_RESET, BRIDGE_RESET);
    sleep_ms(RESET_MS);
    port.config.modify_u16(BRIDGE_CONTROL, BRIDGE_RESET, 0);
    sleep_ms(SETTLE_MS);
    log::warn!("{}: the bus behind it was reset", port.address());
    // All are given theirs, also after one that does not answer.
    let silent = saved.iter().filter(|saved| !saved.as_ref().is_some_and(Saved::restore)).count();
    silent == 0
}
