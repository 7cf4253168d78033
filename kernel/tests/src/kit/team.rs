//! Threads of a test, on the CPUs that it names.

use alloc::sync::Arc;
use alloc::vec::Vec;

use ::machine::cpu::{CpuId, CpuSet};
use ::machine::time;
use ::sched::{Builder, Completion, Policy, ThreadRef};

use super::thread::spawn;
use crate::{Failure, HANG_NS, Outcome, check};

/// The threads of a test; each runs on its CPU only.
#[derive(Default)]
pub(crate) struct Team {
    members: Vec<(ThreadRef, Arc<Completion>)>,
}

impl Team {
    /// Nobody yet.
    pub(crate) fn new() -> Team {
        Team::default()
    }

    /// Starts a thread on a CPU.
    pub(crate) fn start(
        &mut self,
        on: CpuId,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<ThreadRef, Failure> {
        self.start_as(Policy::Normal, on, body)
    }

    /// Starts a thread on a CPU that competes for it as told.
    pub(crate) fn start_as(
        &mut self,
        policy: Policy,
        on: CpuId,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<ThreadRef, Failure> {
        let builder = Builder { affinity: CpuSet::only(on), policy, ..Builder::new("test") };
        let (thread, done) = spawn(builder, body)?;
        self.members.push((thread.clone(), done));
        Ok(thread)
    }

    /// Starts a thread on each of these CPUs; the body is told which.
    pub(crate) fn start_on_each(
        &mut self,
        cpus: CpuSet,
        body: impl Fn(CpuId) + Send + Sync + 'static,
    ) -> Outcome {
        let body = Arc::new(body);
        for cpu in cpus.iter() {
            let body = body.clone();
            self.start(cpu, move || body(cpu))?;
        }
        Ok(())
    }

    /// Waits until all have ended.
    pub(crate) fn join(self) -> Outcome {
        for (index, (_thread, done)) in self.members.iter().enumerate() {
            check!(done.wait_deadline(time::now_ns() + HANG_NS), "test thread {index} did not end");
        }
        Ok(())
    }
}
