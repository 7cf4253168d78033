//! An open queue: a small file that tells how the queue is, and can be polled.

use alloc::sync::Arc;
use core::fmt::Write;

use memory::buffer::Sink;
use vfs::file::FileFeatures;
use vfs::inode::InodeOperations;
use vfs::text::Text;
use vfs::{FileOperations, Inode, OpenFile, OpenFlags, PollEvents, PollTable, Result};

use super::queue::Queue;
use crate::terminal::calling_thread;

/// What an inode of a queue has.
pub(super) struct QueueInode(pub(super) Arc<Queue>);

impl InodeOperations for QueueInode {
    fn open(&self, _inode: &Arc<Inode>, _flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        let file: Arc<dyn FileOperations> = vfs::allocation::arc(QueueFile(self.0.clone()))?;
        Ok(Some(file))
    }
}

/// What a descriptor of it has.
pub(super) struct QueueFile(pub(super) Arc<Queue>);

impl FileOperations for QueueFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE | FileFeatures::SEEKABLE
    }

    fn read(&self, _file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let status = self.0.status();
        let (how, signal, pid) = status.notice.unwrap_or_default();
        let pid = crate::name_space::view_of_reader().viewer().seen(pid);
        let mut text = Text::new();
        // What does not fit into memory is remembered by the text.
        let _ = writeln!(
            text,
            "QSIZE:{:<10} NOTIFY:{how:<5} SIGNO:{signal:<5} NOTIFY_PID:{pid:<6}",
            status.bytes
        );
        let text = text.finish()?;
        let rest = usize::try_from(*position).ok().and_then(|from| text.get(from..)).unwrap_or_default();
        let count = sink.write(&rest[..rest.len().min(sink.remaining())])?;
        *position += count as u64;
        Ok(count)
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.0.pollers);
        }
        let messages = self.0.status().messages as u64;
        let mut ready = PollEvents::empty();
        ready.set(PollEvents::READABLE, messages > 0);
        ready.set(PollEvents::WRITABLE, messages < self.0.size.messages);
        ready
    }

    /// Who closes a descriptor of it is not told of messages any more.
    fn flush(&self, _file: &OpenFile) -> Result<()> {
        if let Some(thread) = calling_thread() {
            self.0.forget_notice(thread.process());
        }
        Ok(())
    }
}
