//! Power: off through ACPI, reset through ACPI's register, the keyboard controller or a triple fault.

use super::port;
use super::start::BootCell;
use crate::address::PhysAddr;
use crate::firmware::{Platform, Register};

/// "Sleep now", in the PM1 control register.
const PM1_SLEEP: u16 = 1 << 13;
/// "Sleep now", in the sleep control register of hardware-reduced ACPI.
const CONTROL_SLEEP: u8 = 1 << 5;

/// How long the machine may take to turn itself off.
const OFF_WAIT_NS: u64 = 100_000_000;

struct Switches {
    pm1_control: Option<u16>,
    sleep_control: Option<Place>,
    sleep_type: u8,
    reset: Option<(Place, u8)>,
}

/// A register that can be written.
#[derive(Clone, Copy)]
enum Place {
    Port(u16),
    Memory(usize),
}

impl Place {
    fn new(register: Register) -> Option<Place> {
        match register {
            Register::Port(port) => Some(Place::Port(port)),
            Register::Memory(address) => super::mmu::map_device(PhysAddr::new(address), 1)
                .map(|mapped| Place::Memory(mapped.expose_provenance())),
        }
    }

    /// # Safety
    /// The firmware describes this register for this value.
    unsafe fn write(self, value: u8) {
        // SAFETY: see the function's contract.
        unsafe {
            match self {
                Place::Port(port) => port::write_u8(port, value),
                Place::Memory(address) => {
                    core::ptr::with_exposed_provenance_mut::<u8>(address).write_volatile(value);
                }
            }
        }
    }
}

static SWITCHES: BootCell<Switches> =
    BootCell::new(Switches { pm1_control: None, sleep_control: None, sleep_type: 0, reset: None });

/// Remembers where the switches are.
///
/// # Safety
/// Once, on the boot processor, while it is alone.
pub(crate) unsafe fn initialise(platform: &Platform) {
    // SAFETY: see the function's contract.
    unsafe {
        SWITCHES.set(Switches {
            pm1_control: platform.pm1_control,
            sleep_control: platform.sleep_control.and_then(Place::new),
            sleep_type: platform.soft_off.unwrap_or(0),
            reset: platform.reset.and_then(|(register, value)| Some((Place::new(register)?, value))),
        });
    }
}

pub(crate) fn power_off() -> ! {
    let switches = SWITCHES.get();
    let sleep_type = switches.sleep_type;
    // SAFETY: the firmware describes these registers for turning the machine off.
    unsafe {
        if let Some(port) = switches.pm1_control {
            port::write_u16(port, u16::from(sleep_type) << 10 | PM1_SLEEP);
        }
        if let Some(control) = switches.sleep_control {
            control.write(sleep_type << 2 | CONTROL_SLEEP);
        }
    }
    let deadline = super::time::now_ns() + OFF_WAIT_NS;
    while super::time::now_ns() < deadline {
        core::hint::spin_loop();
    }
    // A machine without a switch that we know of ends, as an emulator started with `-no-reboot` does on reset.
    reboot()
}

pub(crate) fn reboot() -> ! {
    const KEYBOARD_COMMAND: u16 = 0x64;
    const PULSE_RESET: u8 = 0xfe;
    super::interrupt::disable();
    // SAFETY: all of these reset the machine. The last loads an empty descriptor table, so that the exception after
    // it can't be delivered and the processor shuts down, which resets the machine.
    unsafe {
        if let Some((place, value)) = SWITCHES.get().reset {
            place.write(value);
        }
        port::write_u8(KEYBOARD_COMMAND, PULSE_RESET);
        let nothing = [0_u16; 5];
        core::arch::asm!("lidt [{}]", "int3", in(reg) &nothing, options(noreturn));
    }
}
