//! A request becomes reads and writes of the file.

use alloc::sync::Arc;
use alloc::vec::Vec;

use block::{Error, Operation, Request, Result, SECTOR_BYTES};
use memory::buffer::{Sink, Source};
use memory::fallible;
use vfs::file::OpenFile;
use vfs::flags::AllocateMode;

/// Bytes moved at a time.
const ROOM_BYTES: usize = 64 << 10;

/// Where bytes are between the file and a request.
pub(crate) struct Room(Vec<u8>);

impl Room {
    /// Takes memory with the first use.
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    fn bytes(&mut self, count: usize) -> Result<&mut [u8]> {
        if self.0.is_empty() {
            self.0 = fallible::try_vec_of(0, ROOM_BYTES)?;
        }
        Ok(&mut self.0[..count])
    }
}

fn error_of(error: vfs::Error) -> Error {
    match error {
        vfs::Error::NoSpace => Error::NoSpace,
        vfs::Error::NotSupported | vfs::Error::NoDevice => Error::NotSupported,
        vfs::Error::OutOfMemory => Error::OutOfMemory,
        _ => Error::Io,
    }
}

/// Does what the request asks for, without completing it.
pub(crate) fn perform(
    file: &Arc<OpenFile>,
    offset: u64,
    request: &mut Request,
    room: &mut Room,
) -> Result<()> {
    let start = offset + request.sector() * SECTOR_BYTES as u64;
    let bytes = request.sectors() * SECTOR_BYTES as u64;
    match request.operation() {
        Operation::Flush => file.sync(true).map_err(error_of),
        Operation::Discard => make_hole(file, start, bytes),
        Operation::WriteZeroes => match make_hole(file, start, bytes) {
            Err(Error::NotSupported) => write_zeros(file, start, bytes, room),
            outcome => outcome,
        },
        Operation::Read => read(file, start, bytes, request, room),
        Operation::Write => write(file, start, bytes, request, room),
    }
}

fn position_of(place: u64) -> Result<i64> {
    i64::try_from(place).map_err(|_| Error::Invalid)
}

fn make_hole(file: &Arc<OpenFile>, start: u64, bytes: u64) -> Result<()> {
    let mode = AllocateMode::PUNCH_HOLE | AllocateMode::KEEP_SIZE;
    file.allocate(mode, position_of(start)?, position_of(bytes)?).map_err(error_of)
}

fn write_zeros(file: &Arc<OpenFile>, start: u64, bytes: u64, room: &mut Room) -> Result<()> {
    let mut done = 0;
    while done < bytes {
        let count = (bytes - done).min(ROOM_BYTES as u64) as usize;
        let zeros = room.bytes(count)?;
        zeros.fill(0);
        write_all(file, start + done, zeros)?;
        done += count as u64;
    }
    Ok(())
}

fn write_all(file: &Arc<OpenFile>, start: u64, bytes: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let place = position_of(start + done as u64)?;
        let written = file.write_at(place, &mut Source::kernel(&bytes[done..])).map_err(error_of)?;
        if written == 0 {
            return Err(Error::Io);
        }
        done += written;
    }
    Ok(())
}

/// What the file has not (any more) reads as zeros.
fn read_all(file: &Arc<OpenFile>, start: u64, bytes: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let place = position_of(start + done as u64)?;
        match file.read_at(place, &mut Sink::kernel(&mut bytes[done..])).map_err(error_of)? {
            0 => {
                bytes[done..].fill(0);
                break;
            }
            count => done += count,
        }
    }
    Ok(())
}

fn read(file: &Arc<OpenFile>, start: u64, bytes: u64, request: &mut Request, room: &mut Room) -> Result<()> {
    // What was read ahead of the segments: a part of the room.
    let (mut done, mut ready) = (0, 0..0);
    for segment in request.segments_mut() {
        let mut at = 0;
        while at < segment.len() {
            if ready.is_empty() {
                ready = 0..(bytes - done).min(ROOM_BYTES as u64) as usize;
                read_all(file, start + done, room.bytes(ready.end)?)?;
                done += ready.end as u64;
            }
            let count = ready.len().min(segment.len() - at);
            segment.copy_in(at, &room.0[ready.start..ready.start + count]);
            ready.start += count;
            at += count;
        }
    }
    Ok(())
}

fn write(file: &Arc<OpenFile>, start: u64, bytes: u64, request: &Request, room: &mut Room) -> Result<()> {
    let (mut done, mut held) = (0, 0);
    let total = room.bytes(bytes.min(ROOM_BYTES as u64) as usize)?.len();
    for segment in request.segments() {
        let mut at = 0;
        while at < segment.len() {
            let count = (total - held).min(segment.len() - at);
            segment.copy_out(at, &mut room.0[held..held + count]);
            held += count;
            at += count;
            if held == total {
                write_all(file, start + done, &room.0[..held])?;
                done += held as u64;
                held = 0;
            }
        }
    }
    write_all(file, start + done, &room.0[..held])
}
