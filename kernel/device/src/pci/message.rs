//! Interrupts by message: the capabilities MSI and MSI-X.
//!
//! A function is in one mode at a time: its pin, MSI or MSI-X. Who drives the function chooses (for ports the port bus driver alone), and sets
//! the pin back when it lets go.

use alloc::sync::Arc;

use super::capability;
use super::function::Function;
use super::region::Space;
use super::registers::{CAPABILITY_MSI, CAPABILITY_MSIX, COMMAND, COMMAND_NO_LINE};
use crate::interrupt::Interrupt;
use crate::interrupt_limit::{ENTRY_MASK, ENTRY_MASKED};
use crate::mmio::Window;

const CONTROL: u16 = 2;
const MSI_ENABLE: u16 = 1 << 0;
const MSI_MESSAGES: u16 = 7 << 4;
const MSI_WIDE: u16 = 1 << 7;
const MSI_MASKABLE: u16 = 1 << 8;
const MSIX_ENABLE: u16 = 1 << 15;
const MSIX_MASK_ALL: u16 = 1 << 14;
const MSIX_SIZE: u16 = 0x7ff;
/// Bytes of an entry of the table.
const ENTRY_BYTES: usize = 16;

/// How a function interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageSource {
    /// Messages from a table, each with an address of its own.
    Table,
    /// One message.
    Single,
}

/// How many entries the function's table has; 0 without one.
pub fn table_size(function: &Function) -> usize {
    capability::find(&function.config, CAPABILITY_MSIX)
        .map_or(0, |offset| usize::from(function.config.read_u16(offset + CONTROL) & MSIX_SIZE) + 1)
}

impl Function {
    /// A part of one of the function's memory regions, mapped. None if it has no such region, or the part is not inside.
    pub fn window(&self, region: usize, offset: u64, bytes: u64) -> Option<Window> {
        let region = self.region(region).filter(|region| region.space != Space::Io)?;
        let end = offset.checked_add(bytes)?;
        (bytes > 0 && end <= region.bytes).then(|| Window::map(region.start + offset, bytes))?
    }

    /// Where the function's table of messages is, mapped. None if it has none, or says nonsense about it.
    fn message_table(&self, capability: u16) -> Option<Window> {
        let place = self.config.read_u32(capability + 4);
        let region = self.region((place & 7) as usize)?;
        let bytes = (usize::from(self.config.read_u16(capability + CONTROL) & MSIX_SIZE) + 1) * ENTRY_BYTES;
        let start = u64::from(place & !7);
        let inside = start.checked_add(bytes as u64).is_some_and(|end| end <= region.bytes);
        if !inside {
            return None;
        }
        Window::map(region.start + start, bytes as u64)
    }

    /// Has entry n of the function's table raise the n-th interrupt; the others stay masked. False, and nothing changed, if
    /// that can't be.
    pub fn enable_table(&self, interrupts: &[Arc<Interrupt>]) -> bool {
        let Some(offset) = capability::find(&self.config, CAPABILITY_MSIX) else { return false };
        if interrupts.is_empty() || interrupts.len() > table_size(self) {
            return false;
        }
        let Some(table) = self.message_table(offset) else { return false };
        let enable = MSIX_ENABLE | MSIX_MASK_ALL;
        self.config.modify_u16(offset + CONTROL, enable, enable);
        if !program(&table, interrupts) {
            self.config.modify_u16(offset + CONTROL, enable, 0);
            return false;
        }
        self.config.modify_u16(COMMAND, COMMAND_NO_LINE, COMMAND_NO_LINE);
        self.config.modify_u16(offset + CONTROL, MSIX_MASK_ALL, 0);
        self.set_interrupt(interrupts[0].number());
        self.set_messages(Some(interrupts.iter().map(|interrupt| interrupt.number()).collect()));
        true
    }

    /// Has the function raise the interrupt by its one message. False, and nothing changed, if it can't.
    pub fn enable_message(&self, interrupt: &Interrupt) -> bool {
        let Some(offset) = capability::find(&self.config, CAPABILITY_MSI) else { return false };
        let Some(message) = interrupt.message() else { return false };
        let control = self.config.read_u16(offset + CONTROL);
        let wide = control & MSI_WIDE != 0;
        if message.address > u32::MAX.into() && !wide {
            return false;
        }
        self.config.write_u32(offset + 4, message.address as u32);
        if wide {
            self.config.write_u32(offset + 8, (message.address >> 32) as u32);
        }
        let data = offset + if wide { 12 } else { 8 };
        self.config.write_u16(data, message.data as u16);
        if control & MSI_MASKABLE != 0 {
            self.config.write_u32(data + 4, 0);
        }
        self.config.modify_u16(COMMAND, COMMAND_NO_LINE, COMMAND_NO_LINE);
        self.config.modify_u16(offset + CONTROL, MSI_ENABLE | MSI_MESSAGES, MSI_ENABLE);
        self.set_interrupt(interrupt.number());
        self.set_messages(Some([interrupt.number()].into()));
        true
    }

    /// Has the function use its pin again, or nothing.
    pub fn disable_messages(&self) {
        if let Some(offset) = capability::find(&self.config, CAPABILITY_MSIX) {
            self.config.modify_u16(offset + CONTROL, MSIX_ENABLE, 0);
        }
        if let Some(offset) = capability::find(&self.config, CAPABILITY_MSI) {
            self.config.modify_u16(offset + CONTROL, MSI_ENABLE, 0);
        }
        self.config.modify_u16(COMMAND, COMMAND_NO_LINE, 0);
        self.set_messages(None);
    }

    /// Which of the two kinds of messages is on.
    pub fn message_source(&self) -> Option<MessageSource> {
        let is_on = |id, bit| {
            capability::find(&self.config, id)
                .is_some_and(|offset| self.config.read_u16(offset + CONTROL) & bit != 0)
        };
        if is_on(CAPABILITY_MSIX, MSIX_ENABLE) {
            return Some(MessageSource::Table);
        }
        is_on(CAPABILITY_MSI, MSI_ENABLE).then_some(MessageSource::Single)
    }
}

/// Writes a table's entries: these interrupts, and the rest masked.
fn program(table: &Window, interrupts: &[Arc<Interrupt>]) -> bool {
    for (index, entry) in (0..table.bytes()).step_by(ENTRY_BYTES).enumerate() {
        let Some(interrupt) = interrupts.get(index) else {
            table.write_u32(entry + ENTRY_MASK, ENTRY_MASKED);
            continue;
        };
        if !interrupt.set_entry(*table, entry) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Source;

    #[test]
    fn table_entries_hold_messages_and_the_rest_is_masked() {
        let interrupts = [(); 2].map(|()| Interrupt::allocate(Source::Message).unwrap());
        let table = Window::fake(4 * ENTRY_BYTES);
        assert!(program(&table, &interrupts));
        for (index, interrupt) in interrupts.iter().enumerate() {
            let message = interrupt.message().unwrap();
            assert_eq!(table.read_u32(index * ENTRY_BYTES), message.address as u32);
            assert_eq!(table.read_u32(index * ENTRY_BYTES + 8), message.data);
            assert_eq!(table.read_u32(index * ENTRY_BYTES + 12), 0);
        }
        assert_eq!(table.read_u32(2 * ENTRY_BYTES + 12), ENTRY_MASKED);
        assert_eq!(table.read_u32(3 * ENTRY_BYTES + 12), ENTRY_MASKED);
    }
}
