//! Behaviour of the whole scheduler on hosted machines.
//!
//! Every test is a machine of its own (see `machine::hosted`): its host thread is the boot CPU, [`boot`] adds more.
//! Time is virtual: it passes when everything sleeps, or by `machine::hosted::advance`.

mod basic;
mod locks;
mod placement;
mod quotas;
mod reservations;
mod time;
mod user_entry;
mod user_time;
mod waiting;

use machine::cpu::CpuId;
use machine::hosted::Machine;

use crate::thread::{Builder, ThreadRef};

/// Gives the calling test a machine of that many CPUs.
fn boot(cpus: usize) -> Machine {
    fn enter(_cpu: CpuId) {
        crate::enter_application_processor()
    }
    crate::current();
    Machine::boot(cpus, enter)
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> ThreadRef {
    crate::spawn(Builder::new(name), Box::new(body)).expect("memory for a test's thread")
}

/// Lets other threads run until the condition holds. The other CPUs are threads of the host, which may be long in coming to them
/// when it is busy: so waiting gives the host's processor away.
fn eventually(mut condition: impl FnMut() -> bool) {
    for round in 0..300_000 {
        if condition() {
            return;
        }
        crate::yield_now();
        machine::cpu::relax();
        if round > 1_000 {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }
    panic!("the condition never came to hold");
}
