//! Whole operations on hosted machines: every test is a machine of its own.

mod basic;
mod ends;
mod order;

use std::sync::Arc;
use std::sync::Mutex;

use machine::cpu::{CpuId, CpuSet};
use machine::hosted::Machine;
use sched::{Builder, RunState, ThreadRef};

use crate::{Caller, Endpoint, Failure, Operation, Options, Received, ThreadId};

pub(super) const KERNEL: &Caller = &Caller::KERNEL;

pub(super) fn boot(cpus: usize) -> Machine {
    fn enter(_cpu: CpuId) {
        sched::enter_application_processor()
    }
    sync::remote::initialize();
    crate::initialize();
    sched::current();
    Machine::boot(cpus, enter)
}

pub(super) fn cpu(machine: &Machine, place: usize) -> CpuSet {
    CpuSet::only(machine.cpu(place))
}

/// A thread with an endpoint, doing what it is told.
pub(super) struct Actor {
    pub(super) thread: ThreadRef,
    pub(super) id: ThreadId,
    result: Arc<Mutex<Option<Result<Received, Failure>>>>,
}

impl Actor {
    /// Starts a thread on some CPUs; returns when it has its number.
    pub(super) fn start(
        affinity: CpuSet,
        body: impl FnOnce(&mut Endpoint) -> Result<Received, Failure> + Send + 'static,
    ) -> Actor {
        Self::start_with(affinity, Options::default(), body)
    }

    pub(super) fn start_with(
        affinity: CpuSet,
        options: Options,
        body: impl FnOnce(&mut Endpoint) -> Result<Received, Failure> + Send + 'static,
    ) -> Actor {
        let (number, result) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
        let (tell, report) = (number.clone(), result.clone());
        let builder = Builder { affinity, ..Builder::new("actor") };
        let thread = sched::spawn(
            builder,
            Box::new(move || {
                let mut endpoint = Endpoint::register(KERNEL, options).expect("numbers are free");
                *tell.lock().unwrap() = Some(endpoint.id());
                let outcome = body(&mut endpoint);
                *report.lock().unwrap() = Some(outcome);
            }),
        )
        .expect("memory for a test's thread");
        eventually(|| number.lock().unwrap().is_some());
        let id = number.lock().unwrap().expect("it was told");
        Actor { thread, id, result }
    }

    /// A thread that does one operation.
    pub(super) fn doing(affinity: CpuSet, operation: Operation) -> Actor {
        Self::start(affinity, move |endpoint| endpoint.operate(&operation, KERNEL))
    }

    pub(super) fn sleeps(&self) -> bool {
        self.thread.state() == RunState::Sleeping
    }

    pub(super) fn await_sleep(&self) {
        eventually(|| self.sleeps());
    }

    pub(super) fn result(&self) -> Result<Received, Failure> {
        eventually(|| self.result.lock().unwrap().is_some());
        self.result.lock().unwrap().expect("it has one")
    }
}

/// Lets other threads run until the condition holds.
pub(super) fn eventually(mut condition: impl FnMut() -> bool) {
    for round in 0..300_000 {
        if condition() {
            return;
        }
        sched::yield_now();
        machine::cpu::relax();
        if round > 1_000 {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }
    panic!("the condition never came to hold");
}
