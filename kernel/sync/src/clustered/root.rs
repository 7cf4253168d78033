//! Roots: who knows an object's representatives.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::{Any, TypeId};

use machine::cpu::{self, CpuId};

use super::adapt::enabled;
use crate::SpinLock;

/// How a root's state can be given to another: the type of the value that carries it.
pub type Format = TypeId;

/// State on its way from one root to the next.
pub type State = Box<dyn Any + Send>;

/// The root of an object with interface `I`.
pub trait Root<I: ?Sized>: Send + Sync {
    /// The representative that serves a CPU; made on its first use if need be. Runs with preemption off.
    fn handle_miss(&self, cpu: CpuId) -> Arc<I>;

    /// Calls `visit` with every representative made so far.
    fn visit(&self, visit: &mut dyn FnMut(&I));

    /// Whether there may be more than one representative.
    fn is_distributed(&self) -> bool;

    /// The formats in which it can give its state away, the best first. With none it has no state, or can't be swapped out
    /// for a root that wants some.
    fn offers(&self) -> Vec<Format> {
        Vec::new()
    }

    /// Whether it takes a state of this format (`None`: begins without).
    fn accepts(&self, format: Option<Format>) -> bool {
        format.is_none()
    }

    /// Gives the state away in a format that it offered. No call is in flight.
    fn export(&self, _format: Format) -> Option<State> {
        None
    }

    /// Takes a state of a format that it accepts. No call has been made yet.
    fn import(&self, _state: State) {}
}

/// How representatives of an interface are made and their state is merged.
pub trait Make<I: ?Sized>: Send + Sync + 'static {
    /// A representative without a state for the CPUs of a cluster; `alone` if only one CPU will ever call it.
    fn make(&self, alone: bool) -> Option<Arc<I>>;
    /// Takes the state out of a representative and adds it to what others gave.
    fn take(&self, from: &I, state: &mut Option<State>);
    /// Puts a state into a representative.
    fn put(&self, into: &I, state: State);
    /// The type of the state; None if there is none.
    fn format(&self) -> Option<Format>;
}

/// A root with one representative for all CPUs.
pub struct Single<I: ?Sized, M> {
    representative: Arc<I>,
    make: M,
}

impl<I: ?Sized + Send + Sync, M: Make<I>> Single<I, M> {
    /// The root of a fresh representative. None when there is no memory.
    pub fn try_new(make: M) -> Option<Self> {
        Some(Self { representative: make.make(false)?, make })
    }
}

impl<I: ?Sized + Send + Sync, M: Make<I>> Root<I> for Single<I, M> {
    fn handle_miss(&self, _cpu: CpuId) -> Arc<I> {
        self.representative.clone()
    }

    fn visit(&self, visit: &mut dyn FnMut(&I)) {
        visit(&self.representative);
    }

    fn is_distributed(&self) -> bool {
        false
    }

    fn offers(&self) -> Vec<Format> {
        self.make.format().into_iter().collect()
    }

    fn accepts(&self, format: Option<Format>) -> bool {
        format.is_none() || format == self.make.format()
    }

    fn export(&self, _format: Format) -> Option<State> {
        let mut state = None;
        self.make.take(&self.representative, &mut state);
        state
    }

    fn import(&self, state: State) {
        self.make.put(&self.representative, state);
    }
}

/// A root with a representative for each `factor` neighbouring CPUs, made when the first of them misses.
pub struct Distributed<I: ?Sized, M> {
    /// By cluster. The first exists from the beginning: it serves where there is no memory for another.
    representatives: SpinLock<Vec<Option<Arc<I>>>>,
    factor: usize,
    make: M,
}

impl<I: ?Sized + Send + Sync, M: Make<I>> Distributed<I, M> {
    /// A root with one representative. None when there is no memory.
    pub fn try_new(factor: usize, make: M) -> Option<Self> {
        let factor = factor.max(1);
        let mut representatives = Vec::new();
        representatives.try_reserve_exact(cpu::count().div_ceil(factor)).ok()?;
        representatives.resize_with(cpu::count().div_ceil(factor), || None);
        // It may have to serve others, too: not alone.
        representatives[0] = Some(make.make(false)?);
        Some(Self { representatives: SpinLock::new(representatives), factor, make })
    }
}

impl<I: ?Sized + Send + Sync, M: Make<I>> Root<I> for Distributed<I, M> {
    fn handle_miss(&self, cpu: CpuId) -> Arc<I> {
        let cluster = if enabled() { cpu.index() / self.factor } else { 0 };
        let mut representatives = self.representatives.lock();
        let made = match representatives.get(cluster) {
            Some(Some(known)) => Some(known.clone()),
            Some(None) => self.make.make(self.factor == 1),
            None => None,
        };
        match made {
            Some(made) => {
                representatives[cluster] = Some(made.clone());
                made
            }
            None => representatives[0].clone().expect("the first representative is there from the beginning"),
        }
    }

    fn visit(&self, visit: &mut dyn FnMut(&I)) {
        self.representatives.lock().iter().flatten().for_each(|representative| visit(representative));
    }

    fn is_distributed(&self) -> bool {
        true
    }

    fn offers(&self) -> Vec<Format> {
        self.make.format().into_iter().collect()
    }

    fn accepts(&self, format: Option<Format>) -> bool {
        format.is_none() || format == self.make.format()
    }

    fn export(&self, _format: Format) -> Option<State> {
        let mut state = None;
        for representative in self.representatives.lock().iter().flatten() {
            self.make.take(representative, &mut state);
        }
        state
    }

    fn import(&self, state: State) {
        if let Some(Some(first)) = self.representatives.lock().first() {
            self.make.put(first, state);
        }
    }
}
