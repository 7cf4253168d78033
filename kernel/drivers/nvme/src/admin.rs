//! Commands to the controller itself: one at a time, each waited for by looking.
//!
//! What is here is switched off before its memory is freed. A command that is not answered in time leaves the controller in an unknown state: who asked has it stopped.

use alloc::vec::Vec;

use device::dma::Buffer;
use device::model::DriverError;
use memory::fallible;

use crate::command::{Command, Ending, admin};
use crate::identity;
use crate::queue::{Pair, Placement};
use crate::registers::Registers;

/// Entries of the queues.
const ENTRIES: u16 = 8;
/// How long a command may take.
const COMMAND_NS: u64 = 10_000_000_000;
const PAUSE_NS: u64 = 50_000;
/// The feature that says how many queues there are.
const NUMBER_OF_QUEUES: u32 = 7;
/// Of a queue: in one piece of memory.
const CONTIGUOUS: u32 = 1;
/// Of a queue of completions: it interrupts.
const INTERRUPTS: u32 = 2;

/// See the theory of this file.
pub(crate) struct Admin {
    registers: Registers,
    pair: Pair<(), Buffer>,
    data: Buffer,
    /// Whether the controller may know of the memory of this.
    running: bool,
}

fn buffer(bytes: usize) -> Result<Buffer, DriverError> {
    Buffer::allocate(bytes).map_err(|_| DriverError::Exhausted)
}

impl Admin {
    /// Memory for it; the controller is stopped.
    ///
    /// # Errors
    /// [`DriverError`].
    pub(crate) fn new(registers: &Registers) -> Result<Self, DriverError> {
        let submissions = buffer(Pair::<(), Buffer>::submission_bytes(ENTRIES))?;
        let completions = buffer(Pair::<(), Buffer>::completion_bytes(ENTRIES))?;
        let entries = ENTRIES.min(u16::try_from(registers.entries_max()).unwrap_or(u16::MAX));
        let pair = Pair::new(0, entries, submissions, completions).map_err(|_| DriverError::Exhausted)?;
        Ok(Self { registers: registers.clone(), pair, data: buffer(identity::BYTES)?, running: false })
    }

    /// Stops the controller if it runs, and switches it on with empty queues.
    ///
    /// # Errors
    /// [`DriverError::Broken`].
    pub(crate) fn restart(&mut self) -> Result<(), DriverError> {
        self.registers.stop();
        while self.pair.take_away().is_some() {}
        self.pair.restart();
        self.running = true;
        self.registers.start(&self.pair.placement())
    }

    /// Stops the controller: it reaches no memory after this. It writes what it holds back before, if that is wanted.
    pub(crate) fn stop(&mut self, orderly: bool) {
        if core::mem::take(&mut self.running) {
            if orderly {
                self.registers.shut_down();
            }
            self.registers.stop();
        }
    }

    /// Has the controller do something.
    ///
    /// # Errors
    /// [`DriverError::Broken`] if it does not answer, or answers nonsense; [`DriverError::NotFound`] if it is gone.
    pub(crate) fn run(&mut self, command: Command) -> Result<Ending, DriverError> {
        let tail = self.pair.add((), |_, ()| command).map_err(|()| DriverError::Broken)?;
        self.registers.ring_submissions(0, tail);
        let until_ns = machine::time::now_ns() + COMMAND_NS;
        loop {
            match self.pair.take() {
                Ok(Some(((), ending))) => {
                    self.registers.ring_completions(0, self.pair.head());
                    return Ok(ending);
                }
                Ok(None) => {}
                Err(trouble) => {
                    log::error!("nvme: the controller breaks the rules: {trouble:?}");
                    return Err(DriverError::Broken);
                }
            }
            if self.registers.is_gone() {
                return Err(DriverError::NotFound);
            }
            let now_ns = machine::time::now_ns();
            if now_ns > until_ns {
                log::error!("nvme: the controller does not answer command {:#x}", command.opcode);
                return Err(DriverError::Broken);
            }
            sched::timer::sleep_until_uninterruptible(now_ns + PAUSE_NS);
        }
    }

    fn must(&mut self, command: Command) -> Result<u32, DriverError> {
        let ending = self.run(command)?;
        if ending.status == 0 { Ok(ending.result) } else { Err(DriverError::NotSupported) }
    }

    /// One of the structures in which the controller describes itself.
    ///
    /// # Errors
    /// [`DriverError`].
    pub(crate) fn identify(&mut self, which: u32, namespace: u32) -> Result<Vec<u8>, DriverError> {
        let data = [self.data.physical().as_u64(), 0];
        let words = [which, 0, 0, 0];
        self.must(Command { opcode: admin::IDENTIFY, namespace, data, words })?;
        let mut bytes = fallible::try_vec_of(0, identity::BYTES).map_err(|_| DriverError::Exhausted)?;
        self.data.read(0, &mut bytes);
        Ok(bytes)
    }

    /// Asks for so many pairs of queues; how many there are, at least one.
    ///
    /// # Errors
    /// [`DriverError`].
    pub(crate) fn set_queue_count(&mut self, wanted: u16) -> Result<u16, DriverError> {
        let last = u32::from(wanted.max(1) - 1);
        let words = [NUMBER_OF_QUEUES, last | last << 16, 0, 0];
        let given = self.must(Command { opcode: admin::SET_FEATURES, words, ..Command::default() })?;
        Ok((given as u16).min((given >> 16) as u16).min(wanted.max(1) - 1) + 1)
    }

    /// Has the controller know of a pair of queues, which interrupts by this entry of the function's table.
    ///
    /// # Errors
    /// [`DriverError`].
    pub(crate) fn create(&mut self, pair: Placement, vector: u16) -> Result<(), DriverError> {
        let Placement { id, entries, submissions, completions } = pair;
        let id = u32::from(id);
        // Counts of entries are told less one.
        let size_and_id = u32::from(entries - 1) << 16 | id;
        self.must(Command {
            opcode: admin::CREATE_COMPLETION_QUEUE,
            namespace: 0,
            data: [completions.as_u64(), 0],
            words: [size_and_id, u32::from(vector) << 16 | INTERRUPTS | CONTIGUOUS, 0, 0],
        })?;
        self.must(Command {
            opcode: admin::CREATE_SUBMISSION_QUEUE,
            namespace: 0,
            data: [submissions.as_u64(), 0],
            words: [size_and_id, id << 16 | CONTIGUOUS, 0, 0],
        })?;
        Ok(())
    }

    /// Asks the controller to end a command soon.
    ///
    /// # Errors
    /// [`DriverError::Broken`] if it does not answer even this.
    pub(crate) fn abort(&mut self, queue: u16, number: u16) -> Result<(), DriverError> {
        let words = [u32::from(number) << 16 | u32::from(queue), 0, 0, 0];
        self.run(Command { opcode: admin::ABORT, words, ..Command::default() }).map(|_| ())
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stop(false);
    }
}
