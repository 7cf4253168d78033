//! `/dev/hwrng`, and what says where its bytes come from: `/sys/class/misc/hw_random`.
//!
//! As on Linux: a read takes as many bytes as it asks for, however long that lasts, or those that there were until a signal came; one that does not wait takes those that are
//! there, or fails with `EAGAIN`. When the last source goes, `ENODEV`. The file is only for reading.

use alloc::sync::Arc;
use core::fmt::Write;

use device::random_source::{self, Failure};
use memory::buffer::{Sink, Source};
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::device::DeviceDriver;
use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::flags::OpenFlags;
use vfs::inode::Inode;
use vfs::text::Text;
use vfs::{Error, Result, allocation};

use crate::contents::Entries;

const MAJOR: u32 = 10;
const MINOR: u32 = 183;
/// Its name below `/sys`.
pub(crate) const NAME: &str = "hw_random";
/// Bytes moved at a time: they lie on the kernel stack.
const CHUNK_BYTES: usize = 64;

struct RandomDriver;

impl DeviceDriver for RandomDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn open(
        &self,
        _number: DeviceNumber,
        _inode: &Arc<Inode>,
        flags: OpenFlags,
    ) -> Result<Arc<dyn FileOperations>> {
        if !flags.readable() || flags.writable() {
            return Err(Error::Invalid);
        }
        Ok(allocation::arc(RandomFile)?)
    }
}

struct RandomFile;

fn error_of(failure: Failure) -> Error {
    match failure {
        Failure::Gone => Error::NoDevice,
        Failure::NotNow => Error::WouldBlock,
        Failure::Interrupted => Error::Interrupted,
        Failure::Broken => Error::Io,
    }
}

impl FileOperations for RandomFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::empty()
    }

    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let mut total = 0;
        while !sink.is_full() {
            let mut bytes = [0; CHUNK_BYTES];
            let wanted = sink.remaining().min(CHUNK_BYTES);
            let outcome = random_source::read(&mut bytes[..wanted], !file.non_block())
                .map_err(error_of)
                .and_then(|count| sink.write(&bytes[..count]).map(|_| count).map_err(|_| Error::BadAddress));
            match outcome {
                Ok(count) => total += count,
                Err(_) if total > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    fn write(&self, _file: &OpenFile, _position: &mut u64, _source: &mut Source<'_>) -> Result<usize> {
        Err(Error::Invalid)
    }
}

/// Whether a device is this one.
pub(crate) fn is_it(number: DeviceNumber) -> bool {
    number == DeviceNumber::new(MAJOR, MINOR)
}

/// What its directory has besides what all have.
pub(crate) fn fill(entries: &mut Entries) -> Result<()> {
    let current = |out: &mut Text| match random_source::current() {
        Some(source) => out.write_str(source.name()),
        None => out.write_str("none"),
    };
    entries.setting("rng_current", current, |text| {
        let name = Some(text).filter(|name| !name.is_empty());
        if random_source::choose(name) { Ok(()) } else { Err(Error::NoDevice) }
    })?;
    entries.line("rng_available", |out| {
        random_source::names().iter().try_for_each(|name| write!(out, "{name} "))
    })?;
    entries.line("rng_selected", |out| write!(out, "{}", u8::from(random_source::is_chosen())))
}

/// Registers it. At start-up.
pub(crate) fn register() {
    static DRIVER: RandomDriver = RandomDriver;
    vfs::device::register(FileKind::CharacterDevice, MAJOR, MINOR..=MINOR, &DRIVER);
    devfs::nodes::add(devfs::nodes::Node {
        path: "hwrng",
        kind: FileKind::CharacterDevice,
        number: DeviceNumber::new(MAJOR, MINOR),
        mode: 0o600,
    });
}
