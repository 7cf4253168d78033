//! pidfds: descriptors that stand for processes (pidfd_open(2)).

use alloc::sync::Arc;

use vfs::{
    DescriptorFlags, FileFeatures, FileOperations, OpenFile, OpenFlags, PollEvents, PollTable,
    ReservedDescriptor,
};

use crate::credentials::inspection::Inspector;
use crate::errno::{Errno, SysResult};
use crate::process::limits::Resource;
use crate::process::pid_space::PidSpace;
use crate::process::process::Process;
use crate::process::thread::Thread;
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// The file behind a pidfd; readable once the process has ended.
struct ProcessFile(Arc<Process>);

impl FileOperations for ProcessFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.0.end_pollers);
        }
        if self.0.is_zombie() { PollEvents::INPUT } else { PollEvents::empty() }
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn core::fmt::Write) -> core::fmt::Result {
        out.write_str("anon_inode:[pidfd]")
    }

    fn information(&self, _file: &OpenFile, out: &mut dyn core::fmt::Write) -> core::fmt::Result {
        if self.0.state() == crate::process::process::State::Dead {
            return out.write_str("Pid:\t-1\nNSpid:\t-1\n");
        }
        let view = crate::name_space::view_of_reader();
        write!(out, "Pid:\t{}\nNSpid:", view.viewer().seen(self.0.pid()))?;
        let mut result = Ok(());
        PidSpace::each_within(view.viewer().processes, self.0.space(), self.0.pid(), |number| {
            result = result.and_then(|()| write!(out, "\t{number}"));
        });
        result.and_then(|()| out.write_str("\n"))
    }
}

fn file_for(process: &Arc<Process>, flags: OpenFlags) -> Result<Arc<OpenFile>, Errno> {
    let operations = memory::fallible::try_arc(ProcessFile(process.clone())).map_err(|_| Errno::ENOMEM)?;
    let inode = vfs::anonymous::shared_inode()?;
    Ok(OpenFile::anonymous(inode, operations, flags | OpenFlags::READ_WRITE)?)
}

/// A file for a process that did something to a file which another one watches.
pub(crate) fn file_of_watched(process: &Arc<dyn core::any::Any + Send + Sync>) -> vfs::Result<Arc<OpenFile>> {
    let process: Arc<Process> = process.clone().downcast().map_err(|_| vfs::Error::NoProcess)?;
    if process.is_zombie() || process.state() == crate::process::process::State::Dead {
        return Err(vfs::Error::NoProcess);
    }
    file_for(&process, OpenFlags::empty()).map_err(|_| vfs::Error::OutOfMemory)
}

/// A pidfd of a child that is being made: nothing can fail once the child runs.
pub struct PreparedPidfd(Option<(ReservedDescriptor, Arc<OpenFile>)>);

impl PreparedPidfd {
    /// Makes the file and reserves a descriptor, if a pidfd is wanted.
    pub fn new(task: &Task, wanted: bool, thread: &Arc<Thread>) -> Result<PreparedPidfd, Errno> {
        if !wanted {
            return Ok(PreparedPidfd(None));
        }
        let reserved = task.files.reserve(task.process().limit(Resource::OpenFiles))?;
        Ok(PreparedPidfd(Some((reserved, file_for(thread.process(), OpenFlags::empty())?))))
    }

    /// Tells the program which descriptor it will be.
    pub fn write_number(&self, address: u64) -> Result<(), Errno> {
        match &self.0 {
            Some((reserved, _)) => UserPointer::<u32>::new(address).write(&reserved.descriptor()),
            None => Ok(()),
        }
    }

    /// Makes the descriptor usable.
    pub fn install(self, _task: &Task) {
        if let Some((reserved, file)) = self.0 {
            reserved.install(file, DescriptorFlags::CLOSE_ON_EXEC);
        }
    }
}

/// The process of a pidfd.
pub fn process_of(task: &Task, descriptor: i32) -> Result<Arc<Process>, Errno> {
    let file = task.usable_file(descriptor)?;
    file.object::<ProcessFile>().map(|file| file.0.clone()).ok_or(Errno::EBADF)
}

/// The process of a pidfd, or of a process's directory in a `/proc`, which `pidfd_send_signal` takes, too.
pub fn process_to_signal(task: &Task, descriptor: i32) -> Result<Arc<Process>, Errno> {
    let file = task.usable_file(descriptor)?;
    match file.object::<ProcessFile>() {
        Some(file) => Ok(file.0.clone()),
        None => Ok(crate::proc::process::of_directory(&file).ok_or(Errno::EBADF)??),
    }
}

/// Whether waiting on the pidfd shall not block.
pub fn is_non_blocking(task: &Task, descriptor: i32) -> Result<bool, Errno> {
    Ok(task.usable_file(descriptor)?.non_block())
}

/// Makes a pidfd of a process.
pub fn pidfd_open(task: &mut Task, pid: i32, flags: u32) -> SysResult {
    let known = OpenFlags::NON_BLOCK;
    if flags & !known.bits() != 0 || pid <= 0 {
        return Err(Errno::EINVAL);
    }
    let process = match task.find_process(pid as u32) {
        Some(process) => process,
        None if task.find_thread(pid as u32).is_some() => return Err(Errno::EINVAL),
        None => return Err(Errno::ESRCH),
    };
    let reserved = task.files.reserve(task.process().limit(Resource::OpenFiles))?;
    let file = file_for(&process, OpenFlags::from_bits_truncate(flags))?;
    Ok(reserved.install(file, DescriptorFlags::CLOSE_ON_EXEC) as usize)
}

/// Frees the memory of a process that is about to end: it does that itself when it ends.
pub fn process_mrelease(task: &mut Task, descriptor: i32, flags: u32) -> SysResult {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let process = process_of(task, descriptor)?;
    if process.is_zombie() || process.state() == crate::process::process::State::Dead {
        return Err(Errno::ESRCH);
    }
    let is_ending = process.signals.lock().group_exit.is_some();
    if is_ending { Ok(0) } else { Err(Errno::EINVAL) }
}

/// A copy of another process's descriptor.
pub fn pidfd_getfd(task: &mut Task, descriptor: i32, target: i32, flags: u32) -> SysResult {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let process = process_of(task, descriptor)?;
    let file: Result<_, Errno> = Inspector::attaching(task).inspect(&process, || {
        let files = process.representative().and_then(|thread| thread.files()).ok_or(Errno::ESRCH)?;
        Ok(files.get(u32::try_from(target).map_err(|_| Errno::EBADF)?)?)
    })?;
    let file = file?;
    let reserved = task.files.reserve(task.process().limit(Resource::OpenFiles))?;
    Ok(reserved.install(file, DescriptorFlags::CLOSE_ON_EXEC) as usize)
}
