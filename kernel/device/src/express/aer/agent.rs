//! A function's own error registers.

use super::error::{Details, Severity, layer, names, role};
use crate::pci::registers::{BRIDGE_CONTROL, BRIDGE_SERR, COMMAND, COMMAND_SERR, EXTENDED_AER};
use crate::pci::{Function, capability};

const UNCORRECTABLE_STATUS: u16 = 0x04;
const UNCORRECTABLE_MASK: u16 = 0x08;
const UNCORRECTABLE_SEVERITY: u16 = 0x0c;
const CORRECTABLE_STATUS: u16 = 0x10;
const CORRECTABLE_MASK: u16 = 0x14;
const CONTROL: u16 = 0x18;
const HEADER: u16 = 0x1c;
/// Errors whose packet's header is kept: all but those of the data link layer, of completions that never came, and internal ones.
const WITH_HEADER: u32 = 0x078b_d000;

const DEVICE_CONTROL: u16 = 0x08;
const DEVICE_STATUS: u16 = 0x0a;
/// Device Control and Status: the three severities and unsupported requests.
const REPORTED: u16 = 0xf;

/// Has a function report its errors, and a bridge pass on those of what is behind it.
pub fn enable_reporting(function: &Function) {
    let Some(express) = function.express else { return };
    if capability::find_extended(&function.config, EXTENDED_AER).is_none() {
        return;
    }
    function.config.modify_u16(COMMAND, COMMAND_SERR, COMMAND_SERR);
    if function.is_bridge() {
        function.config.modify_u16(BRIDGE_CONTROL, BRIDGE_SERR, BRIDGE_SERR);
    }
    function.config.modify_u16(express.offset + DEVICE_CONTROL, REPORTED, REPORTED);
}

/// What a function has noted of this severity; None if nothing.
pub(super) fn details(function: &Function, severity: Severity) -> Option<Details> {
    let offset = capability::find_extended(&function.config, EXTENDED_AER)?;
    let read = |register: u16| function.config.read_u32(offset + register);
    if severity == Severity::Correctable {
        let (status, mask) = (read(CORRECTABLE_STATUS), read(CORRECTABLE_MASK));
        let details = Details { severity, status, mask, first: None, header: None };
        return (status != u32::MAX && status & !mask != 0).then_some(details);
    }
    let (all, mask, fatal) =
        (read(UNCORRECTABLE_STATUS), read(UNCORRECTABLE_MASK), read(UNCORRECTABLE_SEVERITY));
    if all == u32::MAX {
        return None;
    }
    let status = all & if severity == Severity::Fatal { fatal } else { !fatal };
    if status & !mask == 0 {
        return None;
    }
    let first = read(CONTROL) & 0x1f;
    let has_header = status & WITH_HEADER != 0;
    let header = has_header.then(|| [0, 4, 8, 12].map(|word| read(HEADER + word)));
    let first = Some(first).filter(|bit| status & 1 << bit != 0);
    Some(Details { severity, status, mask, first, header })
}

/// Has the function forget what was reported.
pub(super) fn clear(function: &Function, details: &Details) {
    if let Some(offset) = capability::find_extended(&function.config, EXTENDED_AER) {
        let register = match details.severity {
            Severity::Correctable => CORRECTABLE_STATUS,
            Severity::NonFatal | Severity::Fatal => UNCORRECTABLE_STATUS,
        };
        function.config.write_u32(offset + register, details.status);
    }
    if let Some(express) = function.express {
        let status = function.config.read_u16(express.offset + DEVICE_STATUS) & REPORTED;
        function.config.write_u16(express.offset + DEVICE_STATUS, status);
    }
}

/// Whether a function has noted an error of this severity.
pub(super) fn has_noted(function: &Function, severity: Severity) -> bool {
    details(function, severity).is_some()
}

/// Writes the report into the log, in Linux's words.
pub(super) fn report(function: &Function, details: &Details) {
    let address = function.address();
    let Details { severity, status, mask, .. } = *details;
    let (layer, role) = (layer(severity, status), role(severity, status));
    // What was corrected is a warning throughout, all else an error.
    let level = if severity == Severity::Correctable { log::Level::Warn } else { log::Level::Error };
    log::log!(level, "{address}: PCIe Bus Error: severity={severity}, type={layer}, ({role})");
    let (vendor, device) = (function.identity.vendor, function.identity.device);
    log::log!(
        level,
        "{address}:   device [{vendor:04x}:{device:04x}] error status/mask={status:08x}/{mask:08x}"
    );
    for bit in details.bits() {
        let name = names(severity).get(bit as usize).filter(|name| !name.is_empty());
        let first = if details.first == Some(bit) { " (First)" } else { "" };
        log::log!(level, "{address}:    [{bit:2}] {:<22}{first}", name.unwrap_or(&"Unknown Error Bit"));
    }
    if let Some([first, second, third, fourth]) = details.header {
        log::log!(level, "{address}:   TLP Header: {first:08x} {second:08x} {third:08x} {fourth:08x}");
    }
}
