//! The command's standard streams: files that are connected to the host through the host link.
//!
//! They are no terminals: reading blocks until the host sends something or ends its input, writing waits for room. What is read is copied
//! through a page on the heap, because the link's buffers may not be touched while a page fault is served.

use alloc::sync::Arc;

use hostlink::{Link, Output, SendError};
use machine::address::PAGE_SIZE;
use memory::buffer::{Sink, Source};
use memory::fallible;
use sched::{Registration, Waker};
use sync::Once;
use vfs::attributes::FileKind;
use vfs::{Error, FileOperations, OpenFile, OpenFlags, PollEvents, PollList, PollTable, Result};

/// Most bytes of one transfer: a frame of the link with room to spare.
const CHUNK_BYTES: usize = PAGE_SIZE / 2;

/// Those who poll one of the streams.
struct Watchers {
    list: PollList,
    events: PollEvents,
}

impl Waker for Watchers {
    fn wake(&self) {
        self.list.notify(self.events);
    }
}

static INPUT: Once<(Arc<Watchers>, Registration)> = Once::new();
static OUTPUT: Once<(Arc<Watchers>, Registration)> = Once::new();

fn watch(queue: &sched::WaitQueue, events: PollEvents) -> (Arc<Watchers>, Registration) {
    let watchers = Arc::new(Watchers { list: PollList::new(), events });
    let registration = queue.register(watchers.clone());
    (watchers, registration)
}

fn error_of(error: SendError) -> Error {
    match error {
        SendError::WouldBlock => Error::WouldBlock,
        SendError::Interrupted => Error::Interrupted,
        SendError::Closed => Error::BrokenPipe,
    }
}

/// Standard input.
struct InputStream(&'static Link);

impl FileOperations for InputStream {
    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let wanted = sink.remaining().min(CHUNK_BYTES);
        let mut bytes = fallible::try_vec_of(0u8, wanted).map_err(|_| Error::OutOfMemory)?;
        let mut taken = self.0.try_read(&mut bytes);
        if taken.is_none() {
            if file.non_block() {
                return Err(Error::WouldBlock);
            }
            let waited = self.0.input_queue().wait_interruptible(|| {
                taken = self.0.try_read(&mut bytes);
                taken.is_some()
            });
            if taken.is_none() && waited.is_err() {
                return Err(Error::Interrupted);
            }
        }
        Ok(sink.write(&bytes[..taken.unwrap_or(0)])?)
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&INPUT.call_once(|| watch(self.0.input_queue(), PollEvents::INPUT)).0.list);
        }
        if self.0.can_read() { PollEvents::INPUT } else { PollEvents::empty() }
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn core::fmt::Write) -> core::fmt::Result {
        out.write_str("host:[stdin]")
    }
}

/// Standard output or standard error.
struct OutputStream(&'static Link, Output);

impl FileOperations for OutputStream {
    fn write(&self, file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let mut bytes =
            fallible::try_vec_of(0u8, source.remaining().min(CHUNK_BYTES)).map_err(|_| Error::OutOfMemory)?;
        let mut done = 0;
        while !source.is_empty() {
            let count = source.remaining().min(bytes.len());
            let count = source.read(&mut bytes[..count])?;
            let sent = self.send(&bytes[..count], file.non_block());
            match sent {
                Ok(sent) => done += sent,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            if sent != Ok(count) {
                break;
            }
        }
        Ok(done)
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&OUTPUT.call_once(|| watch(self.0.output_queue(), PollEvents::OUTPUT)).0.list);
        }
        match (self.0.is_closed(self.1), self.0.can_write(self.1)) {
            (true, _) => PollEvents::OUTPUT | PollEvents::ERROR,
            (false, true) => PollEvents::OUTPUT,
            (false, false) => PollEvents::empty(),
        }
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn core::fmt::Write) -> core::fmt::Result {
        out.write_str(if self.1 == Output::Stdout { "host:[stdout]" } else { "host:[stderr]" })
    }
}

impl OutputStream {
    fn send(&self, mut bytes: &[u8], non_block: bool) -> Result<usize> {
        let mut sent = 0;
        while !bytes.is_empty() {
            let part = match non_block {
                true => self.0.try_write(self.1, bytes),
                false => self.0.write(self.1, bytes),
            };
            match part {
                Ok(count) => {
                    sent += count;
                    bytes = &bytes[count..];
                }
                Err(_) if sent > 0 => break,
                Err(error) => return Err(error_of(error)),
            }
        }
        Ok(sent)
    }
}

/// Opens the three streams: descriptors 0, 1, 2.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn open(link: &'static Link) -> Result<[Arc<OpenFile>; 3]> {
    let file = |object: Arc<dyn FileOperations>, flags| {
        let inode = vfs::anonymous::new_inode(FileKind::Fifo, 0o600, 0, 0)?;
        OpenFile::anonymous(inode, object, flags)
    };
    Ok([
        file(vfs::allocation::arc(InputStream(link))?, OpenFlags::empty())?,
        file(vfs::allocation::arc(OutputStream(link, Output::Stdout))?, OpenFlags::WRITE_ONLY)?,
        file(vfs::allocation::arc(OutputStream(link, Output::Stderr))?, OpenFlags::WRITE_ONLY)?,
    ])
}
