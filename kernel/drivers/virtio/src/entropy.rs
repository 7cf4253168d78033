//! A source of entropy: bytes that the host says are random. The kernel's generator is given some when the device is found; programs read `/dev/hwrng`.
//!
//! One buffer is with the device at a time. Whoever is interrupted while he waits leaves it there for the next one who wants bytes. What the device says to have written
//! is checked by the ring; what it has written is only as random as the device is honest, and so is mixed with what the kernel has, never used alone.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use device::dma::Buffer;
use device::model::{Binding, DriverError};
use memory::buffer::{Sink, Source};
use sched::{Mutex, WaitQueue};
use sync::{Once, SpinLock};
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::device::DeviceDriver;
use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::flags::OpenFlags;
use vfs::inode::Inode;
use vfs::{Error, Result, allocation};

use crate::ring::{Piece, Ring};
use crate::start;
use crate::transport::{Connection, Handlers, Notifier, Transport};

/// Bytes asked for at a time.
const REQUEST_BYTES: usize = 64;
/// Descriptors: one buffer is all there is.
const RING: u16 = 2;
/// The number of `/dev/hwrng`.
const MAJOR: u32 = 10;
const MINOR: u32 = 183;

/// Takes random bytes into the kernel's generator.
pub type Mixer = fn(&[u8]);

static MIXER: Once<Mixer> = Once::new();
/// The device that programs read.
static CURRENT: SpinLock<Option<Arc<Generator>>> = SpinLock::named("hardware random source", None);

struct Wakes(WaitQueue);

impl Handlers for Wakes {
    fn queue(&self, _index: usize) {
        self.0.wake_all();
    }

    fn configuration(&self) {
        self.0.wake_all();
    }
}

struct Generator {
    transport: Box<dyn Transport>,
    ring: SpinLock<Ring<(), Buffer>>,
    notifier: Notifier,
    buffer: Buffer,
    wakes: Arc<Wakes>,
    /// Held by who waits for bytes.
    reading: Mutex<()>,
    gone: AtomicBool,
    connection: SpinLock<Option<Connection>>,
}

/// Takes a device that is such a source.
pub(crate) fn probe(transport: Box<dyn Transport>) -> core::result::Result<Arc<dyn Binding>, DriverError> {
    let begun = begin(&*transport);
    let (connection, wakes, ring, notifier, buffer) = begun.inspect_err(|_| {
        start::stop(&*transport, "virtio-rng");
        transport.disconnect();
        start::give_up(&*transport);
    })?;
    start::go(&*transport);
    let generator = Arc::new(Generator {
        transport,
        ring: SpinLock::named("virtio random queue", ring),
        notifier,
        buffer,
        wakes,
        reading: Mutex::named("virtio random source", ()),
        gone: AtomicBool::new(false),
        connection: SpinLock::named("virtio interrupts", Some(connection)),
    });
    *CURRENT.lock() = Some(generator.clone());
    let own = generator.clone();
    let feed = Box::new(move || {
        let mut bytes = [0; REQUEST_BYTES];
        if let (Ok(count), Some(mix)) = (own.read(&mut bytes), MIXER.get()) {
            mix(&bytes[..count]);
        }
    });
    if sched::spawn(sched::Builder::new("hwrng"), feed).is_err() {
        log::warn!("virtio-rng: no memory for the thread that reads the first bytes");
    }
    Ok(generator)
}

type Begun = (Connection, Arc<Wakes>, Ring<(), Buffer>, Notifier, Buffer);

fn begin(transport: &dyn Transport) -> core::result::Result<Begun, DriverError> {
    let features = start::negotiate(transport, 0)?;
    let wakes = Arc::new(Wakes(WaitQueue::new()));
    let connection = transport.connect(1, wakes.clone()).ok_or(DriverError::Exhausted)?;
    let buffer = Buffer::allocate(REQUEST_BYTES).map_err(|_| DriverError::Exhausted)?;
    let (ring, notifier, _) = start::start_queue(transport, 0, features, RING, 1)?;
    Ok((connection, wakes, ring, notifier, buffer))
}

impl Generator {
    /// Waits for bytes; how many there are, at least one.
    fn read(&self, into: &mut [u8]) -> Result<usize> {
        let _reading = self.reading.lock();
        let mut ring = self.ring.lock();
        let mut notify = false;
        if ring.with_device() == 0 {
            let piece = Piece::written(self.buffer.physical(), REQUEST_BYTES as u32);
            ring.add(&[piece], ()).map_err(|()| Error::Io)?;
            ring.want_interrupt();
            notify = ring.publish();
        }
        drop(ring);
        if notify {
            self.notifier.notify();
        }
        let mut outcome = None;
        let there = || {
            if self.gone.load(Ordering::Acquire) {
                outcome = Some(Err(Error::NoDevice));
            } else {
                match self.ring.lock().take() {
                    Ok(None) => {}
                    Ok(Some(((), bytes))) => outcome = Some(Ok(bytes as usize)),
                    Err(_) => outcome = Some(Err(Error::Io)),
                }
            }
            outcome.is_some()
        };
        self.wakes.0.wait_interruptible(there).map_err(|_| Error::Interrupted)?;
        let count = outcome.unwrap_or(Err(Error::Io)).inspect_err(|error| {
            if *error == Error::Io {
                log::error!("virtio-rng: the device breaks the rules");
                self.stop();
            }
        })?;
        let count = count.min(into.len());
        self.buffer.read(0, &mut into[..count]);
        Ok(count)
    }

    fn stop(&self) {
        self.gone.store(true, Ordering::Release);
        start::stop(&*self.transport, "virtio-rng");
        let mut current = CURRENT.lock();
        if current.as_ref().is_some_and(|known| core::ptr::eq(Arc::as_ptr(known), self)) {
            // The binding has another reference.
            *current = None;
        }
        drop(current);
        self.wakes.0.wake_all();
    }
}

impl Binding for Generator {
    fn remove(&self) {
        self.stop();
        let connection = self.connection.lock().take();
        drop(connection);
        self.transport.disconnect();
        self.transport.shut_off();
    }
}

/// `/dev/hwrng`
struct RandomDriver;

impl DeviceDriver for RandomDriver {
    fn name(&self) -> &'static str {
        "hw_random"
    }

    fn open(
        &self,
        _number: DeviceNumber,
        _inode: &Arc<Inode>,
        _flags: OpenFlags,
    ) -> Result<Arc<dyn FileOperations>> {
        Ok(allocation::arc(RandomFile)?)
    }
}

struct RandomFile;

impl FileOperations for RandomFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::empty()
    }

    fn read(&self, _file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let mut total = 0;
        while !sink.is_full() {
            let generator = CURRENT.lock().clone().ok_or(Error::NoDevice);
            let mut bytes = [0; REQUEST_BYTES];
            let wanted = sink.remaining().min(REQUEST_BYTES);
            let outcome = generator
                .and_then(|generator| generator.read(&mut bytes[..wanted]))
                .and_then(|count| sink.write(&bytes[..count]).map_err(|_| Error::BadAddress));
            match outcome {
                Ok(0) | Err(_) if total > 0 => break,
                Ok(count) => total += count,
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    fn write(&self, _file: &OpenFile, _position: &mut u64, _source: &mut Source<'_>) -> Result<usize> {
        Err(Error::Invalid)
    }
}

/// Registers `/dev/hwrng`, and names who takes random bytes. At start-up.
pub(crate) fn register(mixer: Mixer) {
    static DRIVER: RandomDriver = RandomDriver;
    MIXER.call_once(|| mixer);
    vfs::device::register(FileKind::CharacterDevice, MAJOR, MINOR..=MINOR, &DRIVER);
    devfs::nodes::add(devfs::nodes::Node {
        path: "hwrng",
        kind: FileKind::CharacterDevice,
        number: DeviceNumber::new(MAJOR, MINOR),
        mode: 0o600,
    });
}
