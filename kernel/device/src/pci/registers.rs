//! Registers of configuration space, named as the PCI specifications name them.

/// Vendor id, all ones where no function answers.
pub const VENDOR: u16 = 0x00;
/// Device id.
pub const DEVICE: u16 = 0x02;
/// What the function may do.
pub const COMMAND: u16 = 0x04;
/// What happened to it, and whether it has capabilities.
pub const STATUS: u16 = 0x06;
/// Revision, with the class above it.
pub const CLASS_REVISION: u16 = 0x08;
/// Layout of the rest, and whether the device has several functions.
pub const HEADER_TYPE: u16 = 0x0e;
/// First base address register.
pub const BASE_ADDRESS: u16 = 0x10;
/// Primary bus number of a bridge.
pub const PRIMARY_BUS: u16 = 0x18;
/// Number of the bus behind a bridge.
pub const SECONDARY_BUS: u16 = 0x19;
/// Highest number of a bus behind a bridge.
pub const SUBORDINATE_BUS: u16 = 0x1a;
/// Lower bounds of a bridge's window of ports; the upper bound follows.
pub const IO_BASE: u16 = 0x1c;
/// Bounds of a bridge's window of memory.
pub const MEMORY_BASE: u16 = 0x20;
/// Bounds of a bridge's window of prefetchable memory.
pub const PREFETCH_BASE: u16 = 0x24;
/// Upper halves of those bounds.
pub const PREFETCH_BASE_UPPER: u16 = 0x28;
/// Upper half of the upper bound.
pub const PREFETCH_LIMIT_UPPER: u16 = 0x2c;
/// Upper halves of the bounds of the window of ports.
pub const IO_BASE_UPPER: u16 = 0x30;
/// Subsystem vendor of a function that is no bridge.
pub const SUBSYSTEM_VENDOR: u16 = 0x2c;
/// Its subsystem id.
pub const SUBSYSTEM: u16 = 0x2e;
/// Address of the expansion ROM of a function that is no bridge.
pub const ROM: u16 = 0x30;
/// Where the list of capabilities starts.
pub const CAPABILITIES: u16 = 0x34;
/// Address of a bridge's expansion ROM.
pub const BRIDGE_ROM: u16 = 0x38;
/// Interrupt line as firmware has routed it.
pub const INTERRUPT_LINE: u16 = 0x3c;
/// Interrupt pin, 1 is INTA; 0 is none.
pub const INTERRUPT_PIN: u16 = 0x3d;
/// What a bridge does.
pub const BRIDGE_CONTROL: u16 = 0x3e;

/// Command: answer to port accesses.
pub const COMMAND_IO: u16 = 1 << 0;
/// Command: answer to memory accesses.
pub const COMMAND_MEMORY: u16 = 1 << 1;
/// Command: may access memory itself.
pub const COMMAND_MASTER: u16 = 1 << 2;
/// Command: may report errors.
pub const COMMAND_SERR: u16 = 1 << 8;
/// Command: must not use its interrupt pin.
pub const COMMAND_NO_LINE: u16 = 1 << 10;
/// Status: there is a list of capabilities.
pub const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Bridge control: pass errors of the other side on.
pub const BRIDGE_SERR: u16 = 1 << 1;
/// Bridge control: reset what is behind.
pub const BRIDGE_RESET: u16 = 1 << 6;

/// Capability: power management.
pub const CAPABILITY_POWER: u8 = 0x01;
/// Capability: interrupts by message.
pub const CAPABILITY_MSI: u8 = 0x05;
/// Capability: who made what a bridge is a part of.
pub const CAPABILITY_SUBSYSTEM: u8 = 0x0d;
/// Capability: PCI Express.
pub const CAPABILITY_EXPRESS: u8 = 0x10;
/// Capability: interrupts by messages from a table.
pub const CAPABILITY_MSIX: u8 = 0x11;
/// Extended capability: advanced error reporting.
pub const EXTENDED_AER: u16 = 0x0001;
/// Extended capability: virtual channels.
pub const EXTENDED_VIRTUAL_CHANNEL: u16 = 0x0002;
