//! The multiple APIC description table: processors and interrupt controllers.

use super::bytes::{u8_at, u16_at, u32_at, u64_at};
use super::platform::{IoApic, Override, Platform, line_flags};

/// Where the entries start.
const HEADER_BYTES: usize = 44;
/// Flag of a processor entry: usable now.
const ENABLED: u32 = 1;
/// An id that means "all processors" in old entries.
const XAPIC_BROADCAST: u8 = 0xff;

/// Reads a whole table (header included).
pub(super) fn read(table: &[u8], platform: &mut Platform) -> Option<()> {
    platform.local_apic = u32_at(table, 36).map(u64::from);
    let mut rest = table.get(HEADER_BYTES..)?;
    while let Some(length) = u8_at(rest, 1).map(usize::from) {
        if length < 2 || length > rest.len() {
            break;
        }
        let (entry, after) = rest.split_at(length);
        // An entry too short for its type is skipped.
        let _ = read_entry(entry, platform);
        rest = after;
    }
    Some(())
}

fn read_entry(entry: &[u8], platform: &mut Platform) -> Option<()> {
    match entry[0] {
        0 => {
            let apic_id = u8_at(entry, 3)?;
            if u32_at(entry, 4)? & ENABLED != 0 && apic_id != XAPIC_BROADCAST {
                platform.add_processor(u32::from(apic_id));
            }
        }
        1 => {
            let address = u64::from(u32_at(entry, 4)?);
            platform.add_io_apic(IoApic { address, first_line: u32_at(entry, 8)? });
        }
        2 => {
            let (polarity, trigger) = line_flags(u16_at(entry, 8)?);
            let irq = u8_at(entry, 3)?;
            platform.add_override(Override { irq, line: u32_at(entry, 4)?, polarity, trigger });
        }
        5 => platform.local_apic = Some(u64_at(entry, 4)?),
        9 if u32_at(entry, 8)? & ENABLED != 0 => platform.add_processor(u32_at(entry, 4)?),
        _ => {}
    }
    Some(())
}
