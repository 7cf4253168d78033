//! Extended attributes of one file: a short list.

use alloc::vec::Vec;

use vfs::inode::SetAttribute;
use vfs::name::Name;
use vfs::{Error, Result, allocation};

/// Bytes of names and values that one file may have.
const TOTAL_MAX: usize = 128 * 1024;

/// The attributes.
#[derive(Default)]
pub(crate) struct ExtendedAttributes(Vec<(Name, Vec<u8>)>);

impl ExtendedAttributes {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        self.0.iter().position(|(known, _)| known.as_bytes() == name)
    }

    pub(crate) fn value(&self, name: &[u8]) -> Option<&[u8]> {
        self.position(name).map(|index| &*self.0[index].1)
    }

    pub(crate) fn get(&self, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
        let value = self.value(name).ok_or(Error::NoData)?;
        if buffer.is_empty() {
            return Ok(value.len());
        }
        let target = buffer.get_mut(..value.len()).ok_or(Error::Range)?;
        target.copy_from_slice(value);
        Ok(value.len())
    }

    pub(crate) fn set(&mut self, name: &[u8], value: &[u8], how: SetAttribute) -> Result<()> {
        let existing = self.position(name);
        match (existing, how) {
            (Some(_), SetAttribute::Create) => return Err(Error::Exists),
            (None, SetAttribute::Replace) => return Err(Error::NoData),
            _ => {}
        }
        let used: usize = self.0.iter().map(|(name, value)| name.as_bytes().len() + value.len()).sum();
        if used + name.len() + value.len() > TOTAL_MAX {
            return Err(Error::NoSpace);
        }
        let mut copy = Vec::new();
        allocation::extend(&mut copy, value)?;
        match existing {
            Some(index) => self.0[index].1 = copy,
            None => allocation::push(&mut self.0, (Name::new(name)?, copy))?,
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Result<()> {
        let index = self.position(name).ok_or(Error::NoData)?;
        self.0.remove(index);
        Ok(())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|(name, _)| name.as_bytes())
    }
}
