//! Extended attributes.

use vfs::inode::SetAttribute;
use vfs::{Error, Result};

use super::node::Node;
use crate::connection::{Call, Room};
use crate::wire::{Body, Decoder, opcode};

/// The longest list of names.
const LIST_BYTES_MAX: usize = 64 << 10;

/// A server that does not know attributes has none.
fn unsupported(error: Error) -> Error {
    if error == Error::NotImplemented { Error::NotSupported } else { error }
}

impl Node {
    /// Reads what an answer of unknown length says: only its length, or its bytes.
    fn ask_extended(&self, opcode: u32, name: Option<&[u8]>, bytes: usize) -> Result<alloc::vec::Vec<u8>> {
        let size = u32::try_from(bytes).map_err(|_| Error::TooBig)?;
        let body = Body::new().u32s(&[size, 0]);
        let body = if let Some(name) = name { body.name(name) } else { body };
        let room = if bytes == 0 { Room::exactly(8) } else { Room::up_to(bytes) };
        self.connection().call_if_known(Call::new(opcode, self.number, body, room)).map_err(unsupported)
    }

    pub(super) fn read_extended(&self, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
        let answer = self.ask_extended(opcode::GET_EXTENDED, Some(name), buffer.len())?;
        if buffer.is_empty() {
            return Ok(Decoder::new(&answer).u32()?.min(vfs::tree::VALUE_MAX as u32) as usize);
        }
        buffer[..answer.len()].copy_from_slice(&answer);
        Ok(answer.len())
    }

    pub(super) fn list_extended(&self, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let answer = self.ask_extended(opcode::LIST_EXTENDED, None, LIST_BYTES_MAX)?;
        // Each name ends with a zero byte, and none is empty.
        let Some(names) = answer.strip_suffix(&[0]) else {
            return if answer.is_empty() { Ok(()) } else { Err(Error::Io) };
        };
        names.split(|&byte| byte == 0).try_for_each(
            |name| {
                if name.is_empty() { Err(Error::Io) } else { each(name) }
            },
        )
    }

    pub(super) fn write_extended(&self, name: &[u8], value: &[u8], how: SetAttribute) -> Result<()> {
        let flags = match how {
            SetAttribute::Any => 0,
            SetAttribute::Create => 1,
            SetAttribute::Replace => 2,
        };
        let size = u32::try_from(value.len()).map_err(|_| Error::TooBig)?;
        let body = Body::new().u32s(&[size, flags]).name(name).bytes(value);
        let call = Call::new(opcode::SET_EXTENDED, self.number, body, Room::NONE);
        self.connection().call_if_known(call).map_err(unsupported)?;
        self.doubt();
        Ok(())
    }

    pub(super) fn remove_extended(&self, name: &[u8]) -> Result<()> {
        let call = Call::new(opcode::REMOVE_EXTENDED, self.number, Body::new().name(name), Room::NONE);
        self.connection().call_if_known(call).map_err(unsupported)?;
        self.doubt();
        Ok(())
    }
}
