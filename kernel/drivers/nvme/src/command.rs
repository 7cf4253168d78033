//! What is written into submission queues, and what a command's end says.

use block::Error;

use crate::queue::QueueMemory;

/// Commands to the controller.
pub(crate) mod admin {
    pub(crate) const CREATE_SUBMISSION_QUEUE: u8 = 1;
    pub(crate) const CREATE_COMPLETION_QUEUE: u8 = 5;
    pub(crate) const IDENTIFY: u8 = 6;
    pub(crate) const ABORT: u8 = 8;
    pub(crate) const SET_FEATURES: u8 = 9;
}

/// Commands to a namespace.
pub(crate) mod io {
    pub(crate) const FLUSH: u8 = 0;
    pub(crate) const WRITE: u8 = 1;
    pub(crate) const READ: u8 = 2;
    pub(crate) const WRITE_ZEROES: u8 = 8;
    pub(crate) const DATASET_MANAGEMENT: u8 = 9;
    /// Of a write, in word 12: durable when it ends.
    pub(crate) const FORCE_UNIT_ACCESS: u32 = 1 << 30;
    /// Of writing zeroes, in word 12: the blocks may be forgotten.
    pub(crate) const DEALLOCATE: u32 = 1 << 25;
    /// Of dataset management, in word 11: the ranges are not needed any more.
    pub(crate) const RANGES_ARE_UNUSED: u32 = 1 << 2;
}

/// A command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Command {
    /// What is to be done.
    pub opcode: u8,
    /// To which namespace; 0: none.
    pub namespace: u32,
    /// Where its data is.
    pub data: [u64; 2],
    /// Words 10 to 13.
    pub words: [u32; 4],
}

impl Command {
    /// Bytes of an entry.
    pub(crate) const BYTES: usize = 64;

    /// Writes it, with its number, into an entry of a queue.
    pub(crate) fn write(&self, memory: &impl QueueMemory, offset: usize, number: u16) {
        memory.write_u32(offset, u32::from(self.opcode) | u32::from(number) << 16);
        memory.write_u32(offset + 4, self.namespace);
        for at in (8..24).step_by(8) {
            memory.write_u64(offset + at, 0);
        }
        memory.write_u64(offset + 24, self.data[0]);
        memory.write_u64(offset + 32, self.data[1]);
        for (index, word) in self.words.iter().enumerate() {
            memory.write_u32(offset + 40 + 4 * index, *word);
        }
        memory.write_u64(offset + 56, 0);
    }
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ending {
    /// Kind of status in bits 8 to 10, status below.
    pub status: u16,
    /// What the command gives back.
    pub result: u32,
}

impl Ending {
    /// For whoever asked for it.
    ///
    /// # Errors
    /// What the status means.
    pub fn outcome(self) -> block::Result<()> {
        match self.status & 0x7ff {
            0 => Ok(()),
            0x001 => Err(Error::NotSupported),
            0x020 => Err(Error::ReadOnly),
            0x081 => Err(Error::NoSpace),
            0x282..=0x284 => Err(Error::Protection),
            _ => Err(Error::Io),
        }
    }
}
