//! A namespace of a controller: a disk.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use block::{BioFlags, Driver, Limits, Operation, Request, TimeoutVerdict};

use crate::command::{Command, io};
use crate::controller::Controller;
use crate::identity::NamespaceIdentity;
use crate::queue::QueueMemory;
use crate::transfer::{LIST_BYTES, Transfer};

/// Bytes of a range that is to be forgotten.
const RANGE_BYTES: usize = 16;
const _: () = assert!(RANGE_BYTES <= LIST_BYTES);

/// See the theory of this file.
pub(crate) struct Namespace {
    pub(crate) controller: Arc<Controller>,
    pub(crate) id: u32,
    pub(crate) identity: NamespaceIdentity,
}

impl Namespace {
    /// The command for a request; `lists` at `offset` is the memory of its slot.
    pub(crate) fn command(&self, transfer: &Transfer, lists: &impl QueueMemory, offset: usize) -> Command {
        let request = transfer.request();
        let shift = self.identity.shift;
        let (first, blocks) = (request.sector() >> shift, (request.sectors() >> shift) as u32);
        // Counts of blocks are told less one.
        let words = |flags| [first as u32, (first >> 32) as u32, flags | blocks.wrapping_sub(1), 0];
        let command = Command { namespace: self.id, ..Command::default() };
        match request.operation() {
            Operation::Read => {
                let data = transfer.name_pages(lists, offset);
                Command { opcode: io::READ, data, words: words(0), ..command }
            }
            Operation::Write => {
                let is_durable = request.flags().contains(BioFlags::FORCE_UNIT_ACCESS);
                let flags = if is_durable { io::FORCE_UNIT_ACCESS } else { 0 };
                let data = transfer.name_pages(lists, offset);
                Command { opcode: io::WRITE, data, words: words(flags), ..command }
            }
            Operation::Flush => Command { opcode: io::FLUSH, ..command },
            Operation::WriteZeroes => {
                let flags = if self.identity.may_forget { io::DEALLOCATE } else { 0 };
                Command { opcode: io::WRITE_ZEROES, words: words(flags), ..command }
            }
            Operation::Discard => {
                lists.write_u32(offset, 0);
                lists.write_u32(offset + 4, blocks);
                lists.write_u64(offset + 8, first);
                let data = [lists.address().as_u64() + offset as u64, 0];
                let words = [0, io::RANGES_ARE_UNUSED, 0, 0];
                Command { opcode: io::DATASET_MANAGEMENT, data, words, ..command }
            }
        }
    }
}

impl Driver for Namespace {
    fn limits(&self) -> Limits {
        self.identity.limits
    }

    fn submit(&self, cpu: usize, request: Request) -> Result<(), Request> {
        self.controller.submit(self, cpu, request)
    }

    fn controller_details(&self) -> Vec<(&'static str, String)> {
        self.controller.details()
    }

    fn timed_out(&self, _since_ns: u64) -> TimeoutVerdict {
        self.controller.timed_out()
    }
}
