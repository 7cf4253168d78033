//! Which interrupt each service of a port gets (specs/pcie-port-bus.md, feature 10).
//!
//! The port bus driver alone decides. First choice are messages from a table with one for each service; a port tells by message numbers
//! in its capabilities which entry it uses for what, and which may be the same for several. If there are not enough vectors, entries
//! share. Without a table one message is for all, and without messages the pin.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::kind::{ServiceKind, ServiceSet};
use super::service::InterruptMode;
use crate::interrupt::Interrupt;

/// What a port has to offer.
pub trait Offer {
    /// Entries of its table; 0 without one.
    fn table_size(&self) -> usize;

    /// The entry, or message, that it uses for a service.
    fn message_number(&self, service: ServiceKind) -> usize;

    /// A vector.
    fn vector(&self) -> Option<Arc<Interrupt>>;

    /// Has entry n of the table raise the n-th interrupt.
    fn enable_table(&self, interrupts: &[Arc<Interrupt>]) -> bool;

    /// Has all services raise this by one message.
    fn enable_message(&self, interrupt: &Arc<Interrupt>) -> bool;

    /// The interrupt of the pin.
    fn line(&self) -> Option<Arc<Interrupt>>;
}

/// What was decided.
pub struct Vectors {
    /// How the port interrupts; None: not at all.
    pub mode: Option<InterruptMode>,
    /// By digit of the service.
    pub interrupts: [Option<Arc<Interrupt>>; 4],
    /// By entry of the table, if that is used.
    entries: Vec<Arc<Interrupt>>,
}

impl Vectors {
    /// Sets the port up again as it was decided, after a reset has made it forget its table. False if it won't. A message is among the registers that
    /// are written back after a reset.
    pub fn restore(&self, offer: &dyn Offer) -> bool {
        self.mode != Some(InterruptMode::Table) || offer.enable_table(&self.entries)
    }
}

/// Decides, and sets the port up so.
pub fn assign(services: ServiceSet, offer: &dyn Offer) -> Vectors {
    let mut vectors = Vectors { mode: None, interrupts: [const { None }; 4], entries: Vec::new() };
    let mut give = |mode, of: &dyn Fn(ServiceKind) -> Option<Arc<Interrupt>>| {
        vectors.mode = Some(mode);
        for service in services.iter() {
            vectors.interrupts[usize::from(service.digit())] = of(service);
        }
    };
    if let Some(entries) = table(services, offer) {
        give(InterruptMode::Table, &|service| entries.get(offer.message_number(service)).cloned());
        vectors.entries = entries;
        return vectors;
    }
    if let Some(vector) = offer.vector()
        && offer.enable_message(&vector)
    {
        give(InterruptMode::Message, &|_| Some(vector.clone()));
        return vectors;
    }
    if let Some(line) = offer.line() {
        give(InterruptMode::Line, &|_| Some(line.clone()));
    }
    vectors
}

/// An interrupt for each entry that a service uses, the last one for all that got none. None if the table has too few entries.
fn table(services: ServiceSet, offer: &dyn Offer) -> Option<Vec<Arc<Interrupt>>> {
    let highest = services.iter().map(|service| offer.message_number(service)).max()?;
    if highest >= offer.table_size() {
        return None;
    }
    let mut entries: Vec<Arc<Interrupt>> = Vec::new();
    for entry in 0..=highest {
        let is_used = services.iter().any(|service| offer.message_number(service) == entry);
        let own = if is_used || entries.is_empty() { offer.vector() } else { None };
        entries.push(own.or_else(|| entries.last().cloned())?);
    }
    offer.enable_table(&entries).then_some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Source;
    use core::cell::Cell;

    #[derive(Clone)]
    struct Mock {
        /// Entries of the table that are set up.
        enabled: Cell<usize>,
        table: usize,
        granted: Cell<usize>,
        has_message: bool,
        has_line: bool,
        numbers: [usize; 4],
    }

    impl Offer for Mock {
        fn table_size(&self) -> usize {
            self.table
        }

        fn message_number(&self, service: ServiceKind) -> usize {
            self.numbers[usize::from(service.digit())]
        }

        fn vector(&self) -> Option<Arc<Interrupt>> {
            self.granted.set(self.granted.get().checked_sub(1)?);
            Interrupt::allocate(Source::Message)
        }

        fn enable_table(&self, interrupts: &[Arc<Interrupt>]) -> bool {
            self.enabled.set(interrupts.len());
            !interrupts.is_empty() && interrupts.len() <= self.table
        }

        fn enable_message(&self, _interrupt: &Arc<Interrupt>) -> bool {
            self.has_message
        }

        fn line(&self) -> Option<Arc<Interrupt>> {
            if self.has_line { Interrupt::allocate(Source::Message) } else { None }
        }
    }

    fn all() -> ServiceSet {
        let mut all = ServiceSet::default();
        ServiceKind::ALL.into_iter().for_each(|service| all.insert(service));
        all
    }

    /// The mode, and which services share: the lowest digit with the same interrupt.
    fn outcome(mock: &Mock) -> (Option<InterruptMode>, [Option<usize>; 4]) {
        let vectors = assign(all(), mock);
        let number = |index: usize| vectors.interrupts[index].as_ref().map(|interrupt| interrupt.number());
        let first =
            |index: usize| number(index).and_then(|own| (0..4).find(|other| number(*other) == Some(own)));
        (vectors.mode, [first(0), first(1), first(2), first(3)])
    }

    #[test]
    fn table_with_a_vector_for_each_service_is_taken() {
        let mock = Mock {
            enabled: Cell::new(0),
            table: 4,
            granted: Cell::new(9),
            has_message: true,
            has_line: true,
            numbers: [0, 1, 2, 3],
        };
        let own = [Some(0), Some(1), Some(2), Some(3)];
        assert_eq!(outcome(&mock), (Some(InterruptMode::Table), own));
        // The port itself uses one entry for two services.
        let mock = Mock { granted: Cell::new(9), numbers: [0, 1, 0, 1], ..mock };
        assert_eq!(outcome(&mock), (Some(InterruptMode::Table), [Some(0), Some(1), Some(0), Some(1)]));
    }

    #[test]
    fn partly_granted_table_is_shared() {
        let mock = Mock {
            enabled: Cell::new(0),
            table: 4,
            granted: Cell::new(2),
            has_message: true,
            has_line: true,
            numbers: [0, 1, 2, 3],
        };
        let shared = [Some(0), Some(1), Some(1), Some(1)];
        assert_eq!(outcome(&mock), (Some(InterruptMode::Table), shared));
        // As pcie-root-port has it: one entry, which is for everything.
        let mock = Mock { table: 1, granted: Cell::new(9), numbers: [0; 4], ..mock };
        assert_eq!(outcome(&mock), (Some(InterruptMode::Table), [Some(0); 4]));
    }

    #[test]
    fn table_that_a_reset_has_emptied_is_set_up_again() {
        let mock = Mock {
            enabled: Cell::new(0),
            table: 4,
            granted: Cell::new(9),
            has_message: true,
            has_line: true,
            numbers: [0, 1, 0, 2],
        };
        for (table, mode, entries) in [(4, InterruptMode::Table, 3), (0, InterruptMode::Message, 0)] {
            let mock = Mock { table, granted: Cell::new(9), ..Mock::clone(&mock) };
            let vectors = assign(all(), &mock);
            assert_eq!(vectors.mode, Some(mode));
            mock.enabled.set(0);
            assert!(vectors.restore(&mock));
            assert_eq!(mock.enabled.get(), entries);
        }
    }

    #[test]
    fn refused_table_falls_back_to_a_message_and_to_the_pin() {
        let mock = Mock {
            enabled: Cell::new(0),
            table: 2,
            granted: Cell::new(9),
            has_message: true,
            has_line: true,
            numbers: [0, 1, 2, 3],
        };
        assert_eq!(outcome(&mock), (Some(InterruptMode::Message), [Some(0); 4]));
        let mock = Mock { has_message: false, ..mock };
        assert_eq!(outcome(&mock), (Some(InterruptMode::Line), [Some(0); 4]));
        let mock = Mock { granted: Cell::new(0), has_message: true, ..mock };
        assert_eq!(outcome(&mock), (Some(InterruptMode::Line), [Some(0); 4]));
        let mock = Mock { has_line: false, ..mock };
        assert_eq!(outcome(&mock), (None, [None; 4]));
    }
}
