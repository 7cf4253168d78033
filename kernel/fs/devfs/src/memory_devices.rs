//! The devices of major 1: data without hardware.

use alloc::sync::Arc;

use machine::address::UserAddr;
use machine::set_once::SetOnce;
use memory::buffer::{Sink, Source};
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::device::DeviceDriver;
use vfs::file::{FileFeatures, FileMappingKind, FileOperations, OpenFile, SeekFrom};
use vfs::flags::OpenFlags;
use vfs::inode::Inode;
use vfs::{Error, Result, allocation};

use crate::file_system::character;
use crate::messages::{Messages, administers_log, is_log_restricted};
use crate::nodes;

const MAJOR: u32 = 1;
const NULL: u32 = 3;
const ZERO: u32 = 5;
const FULL: u32 = 7;
const RANDOM: u32 = 8;
const URANDOM: u32 = 9;
const KMSG: u32 = 11;

/// Bytes moved between user memory and the kernel at a time: they lie on the kernel stack.
const CHUNK_BYTES: usize = 256;

/// Fills a buffer with random bytes.
pub type RandomSource = fn(&mut [u8]);

static RANDOM_SOURCE: SetOnce<RandomSource> = SetOnce::new();

struct MemoryDriver;

pub(crate) fn register(random: RandomSource) {
    RANDOM_SOURCE.set(random);
    static DRIVER: MemoryDriver = MemoryDriver;
    vfs::device::register(FileKind::CharacterDevice, MAJOR, 0..=255, &DRIVER);
    for (name, minor) in
        [("null", NULL), ("zero", ZERO), ("full", FULL), ("random", RANDOM), ("urandom", URANDOM)]
    {
        nodes::add(character(name, MAJOR, minor, 0o666));
    }
    nodes::add(character("kmsg", MAJOR, KMSG, 0o644));
}

impl DeviceDriver for MemoryDriver {
    fn name(&self) -> &'static str {
        "mem"
    }

    fn open(
        &self,
        number: DeviceNumber,
        _inode: &Arc<Inode>,
        flags: OpenFlags,
    ) -> Result<Arc<dyn FileOperations>> {
        let operations: Arc<dyn FileOperations> = match number.minor {
            NULL => allocation::arc(Null)?,
            ZERO => allocation::arc(Zero)?,
            FULL => allocation::arc(Full)?,
            RANDOM | URANDOM => allocation::arc(Random)?,
            KMSG => {
                let only_writes = flags.writable() && !flags.readable();
                if !only_writes && is_log_restricted() && !administers_log() {
                    return Err(Error::NotPermitted);
                }
                allocation::arc(Messages::new())?
            }
            _ => return Err(Error::NoDeviceAddress),
        };
        Ok(operations)
    }
}

/// Seeking these devices always leads to the start.
fn at_start() -> Result<u64> {
    Ok(0)
}

fn swallow(source: &mut Source<'_>) -> usize {
    let count = source.remaining();
    source.skip(count);
    count
}

fn read_zeros(sink: &mut Sink<'_>) -> Result<usize> {
    let count = sink.remaining();
    sink.write_zeros(count).map_err(|_| Error::BadAddress)
}

/// `/dev/null`: empty to read, takes everything.
struct Null;

impl FileOperations for Null {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE
    }

    fn read(&self, _file: &OpenFile, _position: &mut u64, _sink: &mut Sink<'_>) -> Result<usize> {
        Ok(0)
    }

    fn write(&self, _file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        Ok(swallow(source))
    }

    fn seek(&self, _file: &OpenFile, _current: u64, _target: SeekFrom) -> Result<u64> {
        at_start()
    }
}

/// `/dev/zero`: zeros to read and to map, takes everything.
struct Zero;

impl FileOperations for Zero {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE
    }

    fn read(&self, _file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        read_zeros(sink)
    }

    fn write(&self, _file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        Ok(swallow(source))
    }

    fn seek(&self, _file: &OpenFile, _current: u64, _target: SeekFrom) -> Result<u64> {
        at_start()
    }

    fn mapping(&self, _file: &OpenFile) -> Result<FileMappingKind> {
        Ok(FileMappingKind::Zeroes)
    }
}

/// `/dev/full`: zeros to read, no room to write.
struct Full;

impl FileOperations for Full {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE
    }

    fn read(&self, _file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        read_zeros(sink)
    }

    fn write(&self, _file: &OpenFile, _position: &mut u64, _source: &mut Source<'_>) -> Result<usize> {
        Err(Error::NoSpace)
    }

    fn seek(&self, _file: &OpenFile, _current: u64, _target: SeekFrom) -> Result<u64> {
        at_start()
    }
}

/// `/dev/random` and `/dev/urandom`: the generator is seeded before the first program runs, so neither waits.
struct Random;

const RNDGETENTCNT: u32 = 0x8004_5200;
const ENTROPY_BITS: u32 = 256;

impl FileOperations for Random {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE
    }

    fn read(&self, _file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let source = RANDOM_SOURCE.get().ok_or(Error::NoDevice)?;
        let mut total = 0;
        while !sink.is_full() {
            let mut chunk = [0; CHUNK_BYTES];
            let count = sink.remaining().min(CHUNK_BYTES);
            source(&mut chunk[..count]);
            match sink.write(&chunk[..count]) {
                Ok(written) => total += written,
                Err(_) if total > 0 => break,
                Err(_) => return Err(Error::BadAddress),
            }
        }
        Ok(total)
    }

    /// What is written would be mixed into the pool; the generator needs no more than its hardware seed.
    fn write(&self, _file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        Ok(swallow(source))
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        if command != RNDGETENTCNT {
            return Err(Error::Invalid);
        }
        machine::user_memory::write(argument, &ENTROPY_BITS.to_ne_bytes()).map_err(|_| Error::BadAddress)?;
        Ok(0)
    }
}
