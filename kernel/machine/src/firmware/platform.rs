//! What the firmware's tables say about processors, interrupt controllers, clocks and power.

use crate::cpu::MAX_CPUS;

/// Most I/O APICs kept; machines with up to 64 processors have one per socket.
const IO_APICS_MAX: usize = 8;
/// Most interrupt overrides kept: one for each ISA line.
const OVERRIDES_MAX: usize = 16;

/// An interrupt controller for device lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct IoApic {
    /// Physical address of its registers.
    pub(crate) address: u64,
    /// Number of its first line, counted over all controllers.
    pub(crate) first_line: u32,
}

/// Which level of a line means "interrupt".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Polarity {
    ActiveHigh,
    ActiveLow,
}

/// What on a line means "interrupt": a change or a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trigger {
    Edge,
    Level,
}

/// An ISA interrupt that is not connected to the line of its own number, or not as ISA does it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Override {
    pub(crate) irq: u8,
    pub(crate) line: u32,
    pub(crate) polarity: Polarity,
    pub(crate) trigger: Trigger,
}

/// A register that the firmware describes by kind of space and address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Register {
    Port(u16),
    Memory(u64),
}

/// Everything start-up wants to know from the tables.
#[derive(Debug)]
pub(crate) struct Platform {
    processors: [u32; MAX_CPUS],
    processor_count: usize,
    /// Processors that the tables list beyond [`MAX_CPUS`].
    pub(crate) processors_ignored: usize,
    io_apics: [IoApic; IO_APICS_MAX],
    io_apic_count: usize,
    overrides: [Option<Override>; OVERRIDES_MAX],
    /// Physical address of ACPI's root pointer, if its tables could be read.
    pub(crate) root_pointer: Option<u64>,
    /// Physical address of the local APICs' registers.
    pub(crate) local_apic: Option<u64>,
    /// Physical address of the high-precision event timer.
    pub(crate) hpet: Option<u64>,
    /// The ACPI power-management timer.
    pub(crate) pm_timer: Option<Register>,
    /// Where to write `sleep_type` to turn the machine off: PM1a control.
    pub(crate) pm1_control: Option<u16>,
    /// Sleep type of "soft off", from the `_S5_` object.
    pub(crate) soft_off: Option<u8>,
    /// Hardware-reduced ACPI: the sleep control register.
    pub(crate) sleep_control: Option<Register>,
    /// The reset register and what to write.
    pub(crate) reset: Option<(Register, u8)>,
}

impl Platform {
    pub(super) const fn new() -> Platform {
        Platform {
            processors: [0; MAX_CPUS],
            processor_count: 0,
            processors_ignored: 0,
            io_apics: [IoApic { address: 0, first_line: 0 }; IO_APICS_MAX],
            io_apic_count: 0,
            overrides: [None; OVERRIDES_MAX],
            root_pointer: None,
            local_apic: None,
            hpet: None,
            pm_timer: None,
            pm1_control: None,
            soft_off: None,
            sleep_control: None,
            reset: None,
        }
    }

    /// Local APIC ids of the usable processors, in the tables' order.
    pub(crate) fn processors(&self) -> &[u32] {
        &self.processors[..self.processor_count]
    }

    /// The I/O APICs.
    pub(crate) fn io_apics(&self) -> &[IoApic] {
        &self.io_apics[..self.io_apic_count]
    }

    /// How an ISA interrupt is connected.
    pub(crate) fn isa_line(&self, irq: u8) -> Override {
        let found = self.overrides.iter().flatten().find(|entry| entry.irq == irq).copied();
        found.unwrap_or(Override {
            irq,
            line: u32::from(irq),
            polarity: Polarity::ActiveHigh,
            trigger: Trigger::Edge,
        })
    }

    pub(super) fn add_processor(&mut self, apic_id: u32) {
        if self.processors().contains(&apic_id) {
            return;
        }
        match self.processors.get_mut(self.processor_count) {
            Some(slot) => {
                *slot = apic_id;
                self.processor_count += 1;
            }
            None => self.processors_ignored += 1,
        }
    }

    pub(super) fn add_io_apic(&mut self, io_apic: IoApic) {
        if let Some(slot) = self.io_apics.get_mut(self.io_apic_count) {
            *slot = io_apic;
            self.io_apic_count += 1;
        }
    }

    pub(super) fn add_override(&mut self, entry: Override) {
        if let Some(slot) = self.overrides.get_mut(usize::from(entry.irq)) {
            *slot = Some(entry);
        }
    }
}

/// Polarity and trigger as the low four bits of MADT and MP table flags say (0: as the bus does it).
pub(super) fn line_flags(flags: u16) -> (Polarity, Trigger) {
    let polarity = if flags & 3 == 3 { Polarity::ActiveLow } else { Polarity::ActiveHigh };
    let trigger = if flags >> 2 & 3 == 3 { Trigger::Level } else { Trigger::Edge };
    (polarity, trigger)
}
