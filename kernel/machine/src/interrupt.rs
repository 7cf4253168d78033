//! External interrupts: masking, vectors and handlers.
//!
//! A vector is a number from [`FIRST_VECTOR`] up that a device, the local timer or another processor raises. A
//! handler is a plain function with one word of argument; it runs on the processor's interrupt stack with
//! interrupts disabled and may neither sleep nor allocate from where that could sleep. Handlers are registered once
//! and never withdrawn: a slot goes from free to taken, its function being published last.
//!
//! Path of an interrupt: entry stub (trap code) → [`dispatch`] → count → handler → end of interrupt at the local
//! controller → when this was the outermost interrupt, the exit hook (softirqs) → return to the stub, which
//! decides about preemption.

use crate::backend;
use crate::hook::Hook;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The lowest vector that is not a CPU exception.
pub const FIRST_VECTOR: u8 = 32;
/// First vector given to devices by [`allocate_vector`]; the ISA interrupt lines come before.
pub(crate) const FIRST_DEVICE_VECTOR: u8 = 0x30;
/// One past the last device vector; the processor's own (timer, IPIs, spurious) lie above.
pub(crate) const END_DEVICE_VECTOR: u8 = 0xd0;

static EXIT: Hook = Hook::new();
static HANDLERS: [Slot; 256] = [const { Slot::new() }; 256];

struct Slot {
    /// A `fn(usize)`, null while the vector is free. Written once, after `argument` (Release; dispatch Acquires).
    function: AtomicPtr<()>,
    argument: AtomicUsize,
    /// 0 free, 1 taken: decides which of two allocators gets the vector.
    claimed: AtomicUsize,
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            function: AtomicPtr::new(core::ptr::null_mut()),
            argument: AtomicUsize::new(0),
            claimed: AtomicUsize::new(0),
        }
    }

    fn claim(&self) -> bool {
        self.claimed.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn publish(&self, function: fn(usize), argument: usize) {
        self.argument.store(argument, Ordering::Relaxed);
        // Release: pairs with the Acquire in `run`, which then sees the argument.
        self.function.store(function as *mut (), Ordering::Release);
    }

    fn run(&self) -> bool {
        let pointer = self.function.load(Ordering::Acquire);
        if pointer.is_null() {
            return false;
        }
        // SAFETY: a non-null pointer was made from a `fn(usize)` in `publish`, the only writer.
        let function = unsafe { core::mem::transmute::<*mut (), fn(usize)>(pointer) };
        function(self.argument.load(Ordering::Relaxed));
        true
    }
}

/// An interrupt vector that belongs to its holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vector(u8);

impl Vector {
    /// The vector's number, as devices are programmed with it.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// What a device writes, and where, to raise an interrupt by message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Physical address.
    pub address: u64,
    /// Value.
    pub data: u32,
}

impl Vector {
    /// The message that raises this vector on a processor; None where messages can't reach it.
    pub fn message(self, cpu: crate::cpu::CpuId) -> Option<Message> {
        backend::interrupt::message(cpu, self.0).map(|(address, data)| Message { address, data })
    }
}

/// Why an interrupt could not be connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// No interrupt controller serves that line.
    NoSuchLine,
    /// Somebody has the line already.
    Busy,
}

/// Interrupts are disabled on the current processor while this lives; the former state comes back after.
#[must_use]
pub struct InterruptGuard {
    were_enabled: bool,
    not_send: PhantomData<*mut ()>,
}

/// Disables interrupts until the guard is dropped. Nests.
#[inline(always)]
pub fn disable() -> InterruptGuard {
    InterruptGuard { were_enabled: backend::interrupt::save_and_disable(), not_send: PhantomData }
}

impl Drop for InterruptGuard {
    #[inline(always)]
    fn drop(&mut self) {
        if self.were_enabled {
            backend::interrupt::enable();
        }
    }
}

/// Whether this processor takes interrupts now.
#[inline(always)]
pub fn are_enabled() -> bool {
    backend::interrupt::are_enabled()
}

/// Enables interrupts outright: at the end of a processor's start-up, and in a new thread's first moments.
#[inline(always)]
pub fn enable() {
    backend::interrupt::enable();
}

/// Disables interrupts outright, where no guard can carry the state (a thread's switch, the idle loop).
#[inline(always)]
pub fn disable_unguarded() {
    backend::interrupt::disable();
}

/// Enables interrupts and waits for one, with no window in which it could be missed. Call with interrupts
/// disabled; they are enabled on return.
#[inline(always)]
pub fn enable_and_halt() {
    backend::interrupt::enable_and_halt();
}

/// Whether this code runs in an interrupt handler (or in the exit hook).
#[inline(always)]
pub fn in_interrupt() -> bool {
    backend::interrupt::nesting() != 0
}

/// Where the kernel code stands that the running interrupt handler has interrupted; None if that was user mode, or another
/// handler, or on the hosted machine.
pub fn interrupted_code() -> Option<crate::backtrace::Backtrace> {
    let (instruction, frame_pointer) = backend::interrupt::interrupted_code()?;
    Some(crate::backtrace::Backtrace::from_registers(instruction, frame_pointer))
}

/// How many interrupts this processor is in the middle of.
#[inline(always)]
pub fn nesting() -> u32 {
    backend::interrupt::nesting()
}

/// Sets what runs at the end of each interrupt, with interrupts disabled, [`in_interrupt`] still true; [`nesting`] tells the outermost one.
pub fn set_exit_hook(hook: fn()) {
    EXIT.set(hook);
}

/// Takes a free vector for a device that raises interrupts by message, and connects the handler to it.
pub fn allocate_vector(handler: fn(usize), argument: usize) -> Option<Vector> {
    for number in FIRST_DEVICE_VECTOR..END_DEVICE_VECTOR {
        let slot = &HANDLERS[usize::from(number)];
        if slot.claim() {
            slot.publish(handler, argument);
            return Some(Vector(number));
        }
    }
    None
}

/// Connects a handler to an ISA interrupt line (0 to 15) and unmasks it. The line is routed to the boot processor.
pub fn connect_isa_irq(irq: u8, handler: fn(usize), argument: usize) -> Result<Vector, ConnectError> {
    let line = backend::interrupt::find_isa_line(irq).ok_or(ConnectError::NoSuchLine)?;
    let vector = allocate_vector(handler, argument).ok_or(ConnectError::Busy)?;
    backend::interrupt::route_line(line, vector.number());
    Ok(vector)
}

/// Routes a line of the I/O APICs, numbered as ACPI does, to a vector of a processor and unmasks it: level-triggered and
/// active-low, as PCI's lines are. False if no controller has the line.
pub fn route_line(line: u32, vector: Vector, cpu: crate::cpu::CpuId) -> bool {
    backend::interrupt::route_device_line(line, vector.0, cpu)
}

/// Keeps a line of the I/O APICs from interrupting.
pub fn mask_line(line: u32) {
    backend::interrupt::mask_device_line(line);
}

/// Lets a line that is routed, and was masked, interrupt again; at once, if it is up.
pub fn unmask_line(line: u32) {
    backend::interrupt::unmask_device_line(line);
}

/// Connects a handler to one of the processor's own vectors.
#[cfg_attr(
    not(target_os = "none"),
    allow(dead_code, reason = "hosted processors have no vectors of their own")
)]
pub(crate) fn connect_local(number: u8, handler: fn(usize), argument: usize) {
    let slot = &HANDLERS[usize::from(number)];
    assert!(slot.claim(), "local vector connected twice");
    slot.publish(handler, argument);
}

/// How often a processor has taken a vector.
pub fn vector_count(cpu: crate::cpu::CpuId, vector: u8) -> u64 {
    backend::interrupt::vector_count(cpu, vector)
}

/// Cycles ([`crate::time::cycles`]) that interrupts have taken of this processor until now, with the softirqs at their ends and the
/// one in service. The caller cannot migrate.
pub fn cycles_taken() -> u64 {
    backend::interrupt::cycles_taken()
}

/// The same of any processor, without the interrupt in service.
pub fn cycles_taken_of(cpu: crate::cpu::CpuId) -> u64 {
    backend::interrupt::cycles_taken_of(cpu)
}

/// What a vector is for, for `/proc/interrupts`; None while nobody uses it.
pub fn vector_name(vector: u8) -> Option<&'static str> {
    backend::interrupt::vector_name(vector)
}

/// Runs the exit hook, for back ends that deliver interrupts without vectors.
#[cfg(not(target_os = "none"))]
pub(crate) fn run_exit_hook() {
    EXIT.call();
}

/// One external interrupt. Called by the entry stub on the processor's interrupt stack with interrupts disabled.
pub fn dispatch(vector: u8) {
    backend::interrupt::enter(vector);
    let handled = HANDLERS[usize::from(vector)].run();
    backend::interrupt::end(vector, handled);
    EXIT.call();
    backend::interrupt::leave();
}
