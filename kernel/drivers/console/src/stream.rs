//! Standard input, output and error of a command without a terminal.
//!
//! Reads wait for the host's bytes and end with its end of file; writes wait for room in the link. A stream whose
//! host end is closed is a broken pipe. Bytes arrive exactly as written.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use hostlink::{Link, OUTPUT_BYTES_MAX, Output, SendError};
use memory::buffer::{Sink, Source};
use memory::fallible;
use sched::{Registration, Waker};
use vfs::attributes::FileKind;
use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::flags::OpenFlags;
use vfs::pipe::FarEnd;
use vfs::poll::{PollEvents, PollList, PollTable};
use vfs::{Error, Result, allocation};

/// Bytes moved between user memory and the link at a time: they lie on the kernel stack.
const CHUNK_BYTES: usize = 512;
/// The same where more is wanted: these do not.
const LARGE_CHUNK_BYTES: usize = OUTPUT_BYTES_MAX;

/// What bytes pass through: allocated if so many are wanted that it pays, and if there is memory.
struct Chunk {
    small: [u8; CHUNK_BYTES],
    large: Option<Vec<u8>>,
}

impl Chunk {
    fn for_bytes(wanted: usize) -> Self {
        let allocate = || fallible::try_vec_of(0, wanted.min(LARGE_CHUNK_BYTES)).ok();
        Self { small: [0; CHUNK_BYTES], large: if wanted > CHUNK_BYTES { allocate() } else { None } }
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.large.as_deref_mut().unwrap_or(&mut self.small)
    }
}

/// Which stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard input.
    Input,
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// Passes the link's wake-ups on to those who poll a stream.
struct Notifier {
    watchers: PollList,
    events: PollEvents,
}

impl Waker for Notifier {
    fn wake(&self) {
        self.watchers.notify(self.events);
    }
}

/// A stream as an open file.
struct StreamFile {
    link: &'static Link,
    stream: Stream,
    notifier: Arc<Notifier>,
    _registration: Registration,
}

/// Opens a stream.
///
/// # Errors
/// [`Error::OutOfMemory`], [`Error::FileTableFull`].
pub fn open(link: &'static Link, stream: Stream) -> Result<Arc<OpenFile>> {
    let inode = vfs::anonymous::new_inode(FileKind::Fifo, 0o600, 0, 0)?;
    let flags = if stream == Stream::Input { OpenFlags::empty() } else { OpenFlags::WRITE_ONLY };
    let operations = operations(link, stream)?;
    inode.attach(allocation::arc(FarEnd(operations.clone()))?);
    OpenFile::anonymous(inode, operations, flags)
}

/// What an open file of a stream works on.
pub(crate) fn operations(link: &'static Link, stream: Stream) -> Result<Arc<dyn FileOperations>> {
    let (queue, events) = match stream {
        Stream::Input => (link.input_queue(), PollEvents::INPUT),
        Stream::Output | Stream::Error => (link.output_queue(), PollEvents::OUTPUT),
    };
    let notifier = allocation::arc(Notifier { watchers: PollList::new(), events })?;
    let registration = queue.register(notifier.clone());
    Ok(allocation::arc(StreamFile { link, stream, notifier, _registration: registration })?)
}

impl StreamFile {
    fn output(&self) -> Result<Output> {
        match self.stream {
            Stream::Input => Err(Error::BadDescriptor),
            Stream::Output => Ok(Output::Stdout),
            Stream::Error => Ok(Output::Stderr),
        }
    }

    fn send(&self, bytes: &[u8], non_block: bool) -> core::result::Result<(), (usize, Error)> {
        let output = self.output().map_err(|error| (0, error))?;
        let mut sent = 0;
        while sent < bytes.len() {
            let rest = &bytes[sent..];
            let result =
                if non_block { self.link.try_write(output, rest) } else { self.link.write(output, rest) };
            match result {
                Ok(count) => sent += count,
                Err(SendError::WouldBlock) => return Err((sent, Error::WouldBlock)),
                Err(SendError::Closed) => return Err((sent, Error::BrokenPipe)),
                Err(SendError::Interrupted) => return Err((sent, Error::Interrupted)),
            }
        }
        Ok(())
    }
}

impl FileOperations for StreamFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE
    }

    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        if self.stream != Stream::Input {
            return Err(Error::BadDescriptor);
        }
        let mut chunk = Chunk::for_bytes(sink.remaining());
        let chunk = chunk.bytes();
        let wanted = sink.remaining().min(chunk.len());
        if wanted == 0 {
            return Ok(0);
        }
        loop {
            if let Some(count) = self.link.try_read(&mut chunk[..wanted]) {
                return sink.write(&chunk[..count]).map_err(|_| Error::BadAddress).map(|_| count);
            }
            if file.non_block() {
                return Err(Error::WouldBlock);
            }
            let link = self.link;
            link.input_queue().wait_interruptible(|| link.can_read()).map_err(|_| Error::Interrupted)?;
        }
    }

    fn write(&self, file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let mut total = 0;
        let mut chunk = Chunk::for_bytes(source.remaining());
        let chunk = chunk.bytes();
        while !source.is_empty() {
            let count = match source.read(chunk) {
                Ok(count) => count,
                Err(_) if total > 0 => break,
                Err(_) => return Err(Error::BadAddress),
            };
            match self.send(&chunk[..count], file.non_block()) {
                Ok(()) => total += count,
                Err((sent, error)) => {
                    total += sent;
                    return if total > 0 { Ok(total) } else { Err(error) };
                }
            }
        }
        Ok(total)
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.notifier.watchers);
        }
        let mut ready = PollEvents::empty();
        match self.output() {
            Err(_) => ready.set(PollEvents::INPUT, self.link.can_read()),
            Ok(output) => {
                ready.set(PollEvents::OUTPUT, self.link.can_write(output));
                ready.set(PollEvents::ERROR, self.link.is_closed(output));
            }
        }
        ready
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        let name = match self.stream {
            Stream::Input => "stdin",
            Stream::Output => "stdout",
            Stream::Error => "stderr",
        };
        write!(out, "hostlink:[{name}]")
    }
}
