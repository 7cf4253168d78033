//! Resetting a function, or the bus behind a port, and giving functions back what they had in their registers.
//!
//! | method | what it is | which functions |
//! |---|---|---|
//! | `flr` | Initiate Function Level Reset, in Device Control | those that say so in their Device Capabilities |
//! | `bus` | Secondary Bus Reset of the bridge above | those that are alone on their bus and no bridges |

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::function::Function;
use super::hierarchy::Hierarchy;
use super::registers::{
    BRIDGE_CONTROL, BRIDGE_RESET, CAPABILITY_EXPRESS, CAPABILITY_MSI, CAPABILITY_MSIX, COMMAND,
};
use super::{BUS, capability, hold};
use crate::express::{Outcome, recover, sleep_ms};
use crate::model::DriverError;

/// How long the reset lasts; a millisecond is what the specification wants.
const RESET_MS: u64 = 2;
/// How long nobody may be spoken to after it.
const SETTLE_MS: u64 = 100;
/// Most looks at whether a function answers again, 10 ms apart: a second, as the specification allows.
const LOOKS: u32 = 100;
/// Registers of the header that are written back, in words.
const HEADER_WORDS: u16 = 16;

/// Device Capabilities: it can be reset by itself.
const HAS_FLR: u32 = 1 << 28;
/// Device Control: the reset.
const INITIATE_FLR: u16 = 1 << 15;
/// Device Status: requests of its own have no answer yet.
const PENDING: u16 = 1 << 5;
/// Most looks at whether there are any, 10 ms apart: they may be lost after that.
const PENDING_LOOKS: u32 = 10;

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
pub(crate) fn is_saved(function: &Arc<Function>) -> bool {
    Saved::new(function).is_some()
}

/// Resets what is behind a port. `behind` are the functions there, bridges before what is behind them. False if one of them does not
/// answer before, so that nothing could be given back to it, or after.
pub(crate) fn reset_behind(port: &Function, behind: &[Arc<Function>]) -> bool {
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

/// How a function can be reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResetMethod {
    /// By itself.
    Function,
    /// With its bus.
    Bus,
}

impl ResetMethod {
    /// As user space calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Function => "flr",
            Self::Bus => "bus",
        }
    }
}

/// How a function of the hierarchy can be reset, the gentlest way first.
pub fn reset_methods(hierarchy: &Hierarchy, function: &Function) -> impl Iterator<Item = ResetMethod> {
    let has_flr = function.express.is_some_and(|express| {
        function.config.read_u32(express.offset + 4) & HAS_FLR != 0 && !function.is_bridge()
    });
    let siblings = hierarchy.functions().iter().filter(|other| other.upstream == function.upstream).count();
    let is_alone = function.upstream.is_some() && !function.is_bridge() && siblings == 1;
    let methods =
        [(ResetMethod::Function, has_flr && !function.config.is_gone()), (ResetMethod::Bus, is_alone)];
    methods.into_iter().filter_map(|(method, is_possible)| is_possible.then_some(method))
}

/// Resets a function by itself. False if nothing could be given back to it.
fn reset_by_itself(function: &Arc<Function>) -> bool {
    let (Some(express), Some(saved)) = (function.express, Saved::new(function)) else { return false };
    // Nothing new; what is under way may end.
    function.config.write_u16(COMMAND, 0);
    for _ in 0..PENDING_LOOKS {
        if function.config.read_u16(express.offset + 0xa) & PENDING == 0 {
            break;
        }
        sleep_ms(10);
    }
    function.config.modify_u16(express.offset + 8, INITIATE_FLR, INITIATE_FLR);
    sleep_ms(SETTLE_MS);
    saved.restore()
}

/// Resets a function of the machine as a program asks for it: its driver makes it work again, as after an error.
///
/// # Errors
/// [`DriverError::NotFound`] if it was taken out, [`DriverError::NotSupported`] without a method, [`DriverError::Broken`] if it works no more.
pub fn reset(function: &Arc<Function>) -> Result<(), DriverError> {
    let _held = hold();
    let hierarchy = super::hierarchy().filter(|hierarchy| hierarchy.has(function));
    reset_in(hierarchy.ok_or(DriverError::NotFound)?, function)
}

/// With functions and drivers held as they are.
pub(crate) fn reset_in(hierarchy: &Hierarchy, function: &Arc<Function>) -> Result<(), DriverError> {
    let method = reset_methods(hierarchy, function).next().ok_or(DriverError::NotSupported)?;
    let port = function.upstream.and_then(|bridge| hierarchy.find(bridge));
    let reset = || match (method, &port) {
        (ResetMethod::Function, _) => reset_by_itself(function),
        (ResetMethod::Bus, Some(port)) => reset_behind(port, core::slice::from_ref(function)),
        (ResetMethod::Bus, None) => false,
    };
    let driver: Vec<_> = BUS.attached(function).and_then(|attached| attached.binding()).into_iter().collect();
    log::info!("{}: reset by {}", function.address(), method.name());
    match recover(&driver, true, |_| {}, reset) {
        Outcome::Recovered => Ok(()),
        Outcome::Failed => Err(DriverError::Broken),
    }
}
