//! Extended attributes: read as files are, by a number of their own; set when such a number is clunked.

use alloc::sync::Arc;

use vfs::inode::SetAttribute;
use vfs::{Error, Result, allocation};

use super::file::walk;
use super::node::Node;
use crate::client::{Client, frames_for};
use crate::fid::Fid;
use crate::wire::{Malformed, Request};

/// The longest value, and the longest list of names.
const VALUE_BYTES_MAX: u64 = 64 << 10;

/// `XATTR_CREATE` and `XATTR_REPLACE`.
const CREATE: u32 = 1;
const REPLACE: u32 = 2;

/// Access control lists have another form in calls than at the server; they are left as they are.
fn check_name(name: &[u8]) -> Result<()> {
    if name.starts_with(b"system.") { Err(Error::NotSupported) } else { Ok(()) }
}

impl Node {
    fn client(&self) -> &Arc<Client> {
        &self.instance.client
    }

    /// A number to read an attribute by, and how long that is; of the list of all for an empty name.
    fn open_extended(&self, name: &[u8]) -> Result<(Fid, usize)> {
        let client = self.client();
        self.file.by_name(|path| {
            let fid = Fid::new(client)?;
            let request = Request::WalkExtended { fid: path.number(), new_fid: fid.number(), name };
            let bytes = fid.established(client.ask(&request, |values| values.u64()))?;
            let bytes = usize::try_from(bytes.min(VALUE_BYTES_MAX + 1)).unwrap_or(usize::MAX);
            if bytes as u64 > VALUE_BYTES_MAX { Err(Error::TooBig) } else { Ok((fid, bytes)) }
        })
    }

    /// All bytes of it.
    fn read_whole(&self, fid: &Fid, bytes: usize, each: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let mut at = 0;
        while at < bytes {
            let part = self.client().read(fid.number(), at as u64, bytes - at, false)?;
            if part.is_empty() {
                return Err(Malformed.into());
            }
            each(at, &part);
            at += part.len();
        }
        Ok(())
    }

    pub(super) fn read_extended(&self, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
        check_name(name)?;
        let (fid, bytes) = self.open_extended(name)?;
        if buffer.is_empty() {
            return Ok(bytes);
        }
        let into = buffer.get_mut(..bytes).ok_or(Error::Range)?;
        self.read_whole(&fid, bytes, &mut |at, part| into[at..at + part.len()].copy_from_slice(part))?;
        Ok(bytes)
    }

    pub(super) fn list_extended(&self, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (fid, bytes) = match self.open_extended(b"") {
            Err(Error::NotSupported) => return Ok(()),
            outcome => outcome?,
        };
        let mut list = allocation::filled(0, bytes)?;
        self.read_whole(&fid, bytes, &mut |at, part| list[at..at + part.len()].copy_from_slice(part))?;
        let names = list.split(|&byte| byte == 0).filter(|name| !name.is_empty());
        names.filter(|name| check_name(name).is_ok()).try_for_each(each)
    }

    pub(super) fn write_extended(&self, name: &[u8], value: &[u8], how: SetAttribute) -> Result<()> {
        check_name(name)?;
        let flags = match how {
            SetAttribute::Any => 0,
            SetAttribute::Create => CREATE,
            SetAttribute::Replace => REPLACE,
        };
        if value.is_empty() {
            // The protocol says "no bytes" for the removal.
            return Err(Error::NotSupported);
        }
        self.set_extended(name, value, flags)
    }

    pub(super) fn remove_extended(&self, name: &[u8]) -> Result<()> {
        check_name(name)?;
        self.set_extended(name, &[], REPLACE)
    }

    fn set_extended(&self, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        let client = self.client();
        let (fid, _) = self.file.by_name(|path| walk(client, path, None))?;
        let bytes = value.len() as u64;
        client.call(&Request::CreateExtended { fid: fid.number(), name, bytes, flags })?;
        let mut at = 0;
        while at < value.len() {
            let count = (value.len() - at).min(client.data_bytes() as usize);
            let pieces = frames_for(count)?;
            for (piece, part) in pieces.iter().zip(value[at..at + count].chunks(machine::address::PAGE_SIZE))
            {
                piece.frame.write(0, part);
            }
            match client.write_frames(fid.number(), at as u64, pieces)? {
                0 => return Err(Error::Io),
                written => at += written,
            }
        }
        fid.clunk()
    }
}
