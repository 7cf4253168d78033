//! From a task to what the file layer needs: where paths begin, and who asks.

pub use vfs::walk::{FileSystemContext, FileSystemUse};
use vfs::walk::{PathContext, Places};
use vfs::{Error, Path};

use super::path::UserPath;
use crate::errno::Errno;
use crate::task::Task;

/// The directory descriptor that means the working directory.
pub const AT_FDCWD: i32 = -100;
/// Do not follow a symbolic link in the last component.
pub const AT_SYMLINK_NOFOLLOW: u32 = 0x100;
/// For `unlinkat`: remove a directory. For `faccessat`: use the effective ids.
pub const AT_REMOVEDIR: u32 = 0x200;
/// For `faccessat2`: use the effective ids.
pub const AT_EACCESS: u32 = 0x200;
/// Follow a symbolic link in the last component.
pub const AT_SYMLINK_FOLLOW: u32 = 0x400;
/// Accepted and without effect: nothing is mounted by itself.
pub const AT_NO_AUTOMOUNT: u32 = 0x800;
/// An empty path means the descriptor itself.
pub const AT_EMPTY_PATH: u32 = 0x1000;

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        match error {
            // Nothing was done yet: the call is restarted unless the signal's handler forbids it.
            Error::Interrupted => Errno::ERESTARTSYS,
            other => Errno::from_number(other.errno() as u16).unwrap_or(Errno::EIO),
        }
    }
}

/// The errno of a wait that is never restarted (poll(2), epoll_wait(2)): `EINTR` even with SA_RESTART.
pub fn not_restarted(error: Error) -> Errno {
    match error {
        Error::Interrupted => Errno::ERESTARTNOHAND,
        other => other.into(),
    }
}

impl Task {
    /// Runs `operation` with the task's places and credentials and the place that `directory` stands for.
    ///
    /// # Errors
    /// Those of `operation`; EBADF and ENOTDIR for the directory when the path is relative.
    pub fn with_places<R>(
        &self,
        directory: i32,
        path: &UserPath,
        operation: impl FnOnce(&PathContext<'_>, &Path, &[u8]) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let places = self.file_system.places();
        let context = self.path_context(&places);
        let bytes = path.as_bytes();
        if directory == AT_FDCWD || bytes.first() == Some(&b'/') {
            return operation(&context, &places.cwd, bytes);
        }
        let start = self.start_of(directory)?;
        operation(&context, &start, bytes)
    }

    /// The context of a walk.
    pub fn path_context<'a>(&'a self, places: &'a Places) -> PathContext<'a> {
        PathContext { places, credentials: &self.credentials.file, umask: self.file_system.umask() }
    }

    /// The place that a descriptor stands for as the start of a relative path.
    ///
    /// # Errors
    /// EBADF; ENOTDIR for files without a place in the tree.
    pub fn start_of(&self, descriptor: i32) -> Result<Path, Errno> {
        Ok(self.lent_file(descriptor)?.path_or_detached()?)
    }

    /// The open file of a descriptor, O_PATH handles included.
    ///
    /// # Errors
    /// EBADF.
    #[inline]
    pub fn file(&self, descriptor: i32) -> Result<alloc::sync::Arc<vfs::OpenFile>, Errno> {
        Ok(self.files.get(descriptor_number(descriptor)?)?)
    }

    /// The open file of a descriptor whose contents are wanted: O_PATH handles are EBADF.
    ///
    /// # Errors
    /// EBADF.
    #[inline]
    pub fn usable_file(&self, descriptor: i32) -> Result<alloc::sync::Arc<vfs::OpenFile>, Errno> {
        Ok(self.files.get_usable(descriptor_number(descriptor)?)?)
    }

    /// As [`file`](Self::file), borrowed for this call: without an atomic operation where no other task has the table.
    ///
    /// # Errors
    /// EBADF.
    #[inline]
    pub fn lent_file(&self, descriptor: i32) -> Result<vfs::FileRef<'_>, Errno> {
        Ok(self.files.look_up(descriptor_number(descriptor)?)?)
    }

    /// As [`usable_file`](Self::usable_file), borrowed for this call.
    ///
    /// # Errors
    /// EBADF.
    #[inline(always)]
    pub fn lent_usable_file(&self, descriptor: i32) -> Result<vfs::FileRef<'_>, Errno> {
        Ok(self.files.look_up_usable(descriptor_number(descriptor)?)?)
    }

    /// The limit on descriptors.
    pub fn descriptor_limit(&self) -> u64 {
        self.process().limit(crate::process::limits::Resource::OpenFiles)
    }

    /// Gives a new open file the lowest free descriptor.
    ///
    /// # Errors
    /// EMFILE, ENOMEM.
    pub fn install_file(
        &self,
        file: alloc::sync::Arc<vfs::OpenFile>,
        close_on_exec: bool,
    ) -> crate::errno::SysResult {
        let reserved = self.files.reserve(self.descriptor_limit())?;
        Ok(reserved.install(file, descriptor_flags(close_on_exec)) as usize)
    }
}

/// A descriptor number that could be in a table.
///
/// # Errors
/// EBADF for negative numbers.
pub fn descriptor_number(descriptor: i32) -> Result<u32, Errno> {
    u32::try_from(descriptor).map_err(|_| Errno::EBADF)
}

/// The flags of a descriptor.
pub fn descriptor_flags(close_on_exec: bool) -> vfs::DescriptorFlags {
    if close_on_exec { vfs::DescriptorFlags::CLOSE_ON_EXEC } else { vfs::DescriptorFlags::empty() }
}
