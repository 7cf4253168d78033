//! Names of mapped files, for /proc/PID/maps.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use memory::region::MappedObject;
use vfs::OpenFile;

use crate::errno::Errno;

/// An open file that is mapped.
pub struct MappedFile(Arc<OpenFile>);

impl MappedFile {
    /// The file.
    pub fn file(&self) -> &Arc<OpenFile> {
        &self.0
    }
}

impl MappedObject for MappedFile {
    fn write_name(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let mut name = Vec::new();
        if self.0.write_name(&mut name).is_err() {
            return Err(fmt::Error);
        }
        for chunk in name.utf8_chunks() {
            out.write_str(chunk.valid())?;
            for byte in chunk.invalid() {
                write!(out, "\\{byte:03o}")?;
            }
        }
        Ok(())
    }

    fn identity(&self) -> (u64, u64) {
        let status = self.0.status();
        (status.device.encode(), status.inode)
    }

    fn make_durable(&self, start: u64, end: u64) -> bool {
        self.0.operations().sync_range(&self.0, start, end, false).is_ok()
    }
}

/// What a mapping keeps of its file.
///
/// # Errors
/// ENOMEM.
pub fn mapped_object(file: &Arc<OpenFile>) -> Result<Arc<dyn MappedObject>, Errno> {
    let object = memory::fallible::try_arc(MappedFile(file.clone())).map_err(|_| Errno::ENOMEM)?;
    Ok(object)
}
