//! The I/O APICs: device lines to vectors.
//!
//! Lines are numbered over all controllers as ACPI does. All are masked at start-up; a line is programmed when a
//! driver connects to it, to the boot processor. The index and data registers are a pair, so a lock keeps users
//! apart; it is taken with interrupts disabled, for the few accesses to a line's entry.

use super::start::BootCell;
use crate::address::PhysAddr;
use crate::firmware::{Override, Platform, Polarity, Trigger};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

const CONTROLLERS_MAX: usize = 8;
const VERSION: u32 = 1;
const FIRST_ENTRY: u32 = 0x10;
const MASKED: u32 = 1 << 16;
const LEVEL: u32 = 1 << 15;
const ACTIVE_LOW: u32 = 1 << 13;

struct Controller {
    /// Mapped registers, null while there is no such controller. Written once at start-up.
    registers: AtomicPtr<u32>,
    first_line: AtomicU32,
    lines: AtomicU32,
}

static CONTROLLERS: [Controller; CONTROLLERS_MAX] = [const {
    Controller {
        registers: AtomicPtr::new(core::ptr::null_mut()),
        first_line: AtomicU32::new(0),
        lines: AtomicU32::new(0),
    }
}; CONTROLLERS_MAX];

/// Taken while an index/data pair is used.
static BUSY: AtomicBool = AtomicBool::new(false);

/// How the ISA lines are connected.
static ISA_LINES: BootCell<[Option<Override>; 16]> = BootCell::new([None; 16]);

fn with_lock<R>(action: impl FnOnce() -> R) -> R {
    let guard = crate::interrupt::disable();
    while BUSY.swap(true, Ordering::Acquire) {
        core::hint::spin_loop();
    }
    let result = action();
    BUSY.store(false, Ordering::Release);
    drop(guard);
    result
}

impl Controller {
    fn base(&self) -> Option<*mut u32> {
        let registers = self.registers.load(Ordering::Relaxed);
        (!registers.is_null()).then_some(registers)
    }

    fn read(base: *mut u32, register: u32) -> u32 {
        // SAFETY: the controller's registers are mapped; the lock (or being alone) keeps the pair together.
        unsafe {
            base.write_volatile(register);
            base.add(4).read_volatile()
        }
    }

    fn write(base: *mut u32, register: u32, value: u32) {
        // SAFETY: as in `read`.
        unsafe {
            base.write_volatile(register);
            base.add(4).write_volatile(value);
        }
    }
}

/// Maps the controllers and masks all their lines; remembers how the ISA lines are connected.
///
/// # Safety
/// Once, on the boot processor, while it is alone.
pub(crate) unsafe fn initialise(platform: &Platform) {
    for (controller, found) in CONTROLLERS.iter().zip(platform.io_apics()) {
        let Some(mapped) = super::mmu::map_device(PhysAddr::new(found.address), 0x20) else { continue };
        let base = mapped.cast::<u32>();
        let lines = (Controller::read(base, VERSION) >> 16 & 0xff) + 1;
        for line in 0..lines {
            Controller::write(base, FIRST_ENTRY + 2 * line, MASKED);
        }
        controller.first_line.store(found.first_line, Ordering::Relaxed);
        controller.lines.store(lines, Ordering::Relaxed);
        controller.registers.store(base, Ordering::Relaxed);
    }
    // SAFETY: the caller is alone.
    let lines = unsafe { ISA_LINES.get_mut() };
    for (irq, line) in lines.iter_mut().enumerate() {
        *line = Some(platform.isa_line(irq as u8));
    }
}

fn find(line: u32) -> Option<(*mut u32, u32)> {
    CONTROLLERS.iter().find_map(|controller| {
        let base = controller.base()?;
        let index = line.checked_sub(controller.first_line.load(Ordering::Relaxed))?;
        (index < controller.lines.load(Ordering::Relaxed)).then_some((base, index))
    })
}

/// The line of an ISA interrupt, if a controller serves it.
pub(crate) fn isa_line(irq: u8) -> Option<Override> {
    let line = (*ISA_LINES.get().get(usize::from(irq))?)?;
    find(line.line).map(|_| line)
}

/// Whether a controller has this line.
pub(crate) fn serves(line: u32) -> bool {
    find(line).is_some()
}

/// Keeps a line from interrupting.
pub(crate) fn mask(line: u32) {
    let Some((base, index)) = find(line) else { return };
    with_lock(|| {
        let low = Controller::read(base, FIRST_ENTRY + 2 * index);
        Controller::write(base, FIRST_ENTRY + 2 * index, low | MASKED);
    });
}

/// Lets a line that is routed interrupt again.
pub(crate) fn unmask(line: u32) {
    let Some((base, index)) = find(line) else { return };
    with_lock(|| {
        let low = Controller::read(base, FIRST_ENTRY + 2 * index);
        Controller::write(base, FIRST_ENTRY + 2 * index, low & !MASKED);
    });
}

/// Routes a line to a vector of one processor and unmasks it.
pub(crate) fn route(line: Override, vector: u8, apic_id: u32) {
    let Some((base, index)) = find(line.line) else { return };
    let mut low = u32::from(vector);
    if line.polarity == Polarity::ActiveLow {
        low |= ACTIVE_LOW;
    }
    if line.trigger == Trigger::Level {
        low |= LEVEL;
    }
    with_lock(|| {
        Controller::write(base, FIRST_ENTRY + 2 * index + 1, apic_id << 24);
        Controller::write(base, FIRST_ENTRY + 2 * index, low);
    });
}
