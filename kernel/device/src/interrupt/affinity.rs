//! Which processors an interrupt may come to (`Documentation/core-api/irq/irq-affinity.rst`).
//!
//! An interrupt comes to one processor of those allowed. It has the same vector on each, so moving it is one register: what was on its way to the former
//! processor is handled there. Interrupts that a driver placed, one for each processor's queue, stay where they are, as Linux's managed ones do.

use core::sync::atomic::{AtomicU32, Ordering};

use machine::cpu::{self, AtomicCpuSet, CpuId, CpuSet};

use super::{SLOT, Slot, number_of};

/// Where new interrupts go.
static DEFAULT: AtomicCpuSet = AtomicCpuSet::new(CpuSet::ALL);
/// Counts choices.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Where an interrupt may come to, and where it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Affinity {
    /// The processors allowed.
    pub allowed: CpuSet,
    /// The one that it comes to.
    pub effective: CpuId,
}

/// Why an interrupt was not moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotMoved {
    /// There is no interrupt with the number.
    Gone,
    /// Its driver placed it, several entries of a table raise it, or its function has one message and no table.
    Fixed,
    /// None of the processors is there.
    NoProcessor,
}

/// The processors that new interrupts may come to.
pub fn default_affinity() -> CpuSet {
    DEFAULT.load(Ordering::Relaxed).intersection(CpuSet::first(cpu::count()))
}

/// Sets the processors that new interrupts may come to.
///
/// # Errors
/// [`NotMoved::NoProcessor`].
pub fn set_default_affinity(allowed: CpuSet) -> Result<(), NotMoved> {
    if allowed.intersection(cpu::online()).is_empty() {
        return Err(NotMoved::NoProcessor);
    }
    DEFAULT.store(allowed, Ordering::Relaxed);
    Ok(())
}

/// One of the processors that are there, in turn.
pub(super) fn choose(allowed: CpuSet) -> Option<CpuId> {
    let there = allowed.intersection(cpu::online());
    let turn = NEXT.fetch_add(1, Ordering::Relaxed) as usize % there.count().max(1);
    there.iter().nth(turn)
}

fn slot_of(number: u32) -> Result<&'static Slot, NotMoved> {
    let is_it =
        |(index, slot): &(usize, &Slot)| slot.taken.load(Ordering::Acquire) && number_of(*index) == number;
    SLOT.iter().enumerate().find(is_it).map(|(_, slot)| slot).ok_or(NotMoved::Gone)
}

/// Where an interrupt may come to.
///
/// # Errors
/// [`NotMoved::Gone`].
pub fn affinity(number: u32) -> Result<Affinity, NotMoved> {
    let slot = slot_of(number)?;
    let actions = slot.actions().lock();
    let allowed = actions.allowed.intersection(CpuSet::first(cpu::count()));
    Ok(Affinity { allowed, effective: slot.cpu() })
}

/// Sets the processors that an interrupt may come to. It stays on its own if that is among them.
///
/// # Errors
/// See [`NotMoved`]; nothing has changed then.
pub fn set_affinity(number: u32, allowed: CpuSet) -> Result<(), NotMoved> {
    let slot = slot_of(number)?;
    let mut actions = slot.actions().lock();
    if actions.is_placed {
        return Err(NotMoved::Fixed);
    }
    let current = Some(slot.cpu()).filter(|cpu| allowed.contains(*cpu));
    let target = current.or_else(|| choose(allowed)).ok_or(NotMoved::NoProcessor)?;
    if current.is_none() {
        let vector = slot.vector.get().ok_or(NotMoved::Gone)?;
        if !actions.limit.redirect(*vector, target, slot.is_given_up()) {
            return Err(NotMoved::Fixed);
        }
        slot.cpu.store(target.index() as u32, Ordering::Relaxed);
    }
    actions.allowed = allowed;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Interrupt, Source};
    use super::*;
    use crate::mmio::Window;

    #[test]
    fn a_table_s_interrupt_moves_and_a_placed_one_stays() {
        let there = cpu::online().lowest().unwrap();
        let elsewhere = CpuId::new(there.index() + 1).unwrap();
        let table = Window::fake(32);
        let interrupt = Interrupt::allocate(Source::Message).unwrap();
        assert!(interrupt.set_entry(table, 16));
        let number = interrupt.number();
        // As if it had been on a processor that is not there in this test.
        SLOT[interrupt.index].cpu.store(elsewhere.index() as u32, Ordering::Relaxed);
        table.write_u32(16, 0);
        assert_eq!(set_affinity(number, CpuSet::only(elsewhere)), Ok(()));
        assert_eq!((table.read_u32(16), affinity(number).unwrap().effective), (0, elsewhere));
        assert_eq!(set_affinity(number, CpuSet::EMPTY), Err(NotMoved::NoProcessor));
        assert_eq!(set_affinity(number, CpuSet::only(there)), Ok(()));
        let message = interrupt.message().unwrap();
        assert_eq!((table.read_u32(16), table.read_u32(24)), (message.address as u32, message.data));
        assert_eq!(table.read_u32(28), 0, "it is not masked");
        assert_eq!(affinity(number), Ok(Affinity { allowed: CpuSet::only(there), effective: there }));

        let placed = Interrupt::allocate_on(Source::Message, there).unwrap();
        assert!(placed.set_entry(table, 0));
        assert_eq!(set_affinity(placed.number(), CpuSet::only(there)), Err(NotMoved::Fixed));
        let gone = placed.number();
        drop(placed);
        assert_eq!(set_affinity(gone, CpuSet::only(there)), Err(NotMoved::Gone));
    }

    #[test]
    fn an_interrupt_of_several_entries_stays() {
        let there = cpu::online().lowest().unwrap();
        let elsewhere = CpuId::new(there.index() + 1).unwrap();
        let table = Window::fake(32);
        let interrupt = Interrupt::allocate(Source::Message).unwrap();
        assert!(interrupt.set_entry(table, 0) && interrupt.set_entry(table, 16));
        SLOT[interrupt.index].cpu.store(elsewhere.index() as u32, Ordering::Relaxed);
        assert_eq!(set_affinity(interrupt.number(), CpuSet::only(there)), Err(NotMoved::Fixed));
        assert_eq!(affinity(interrupt.number()).unwrap().effective, elsewhere);
    }
}
