//! A source of entropy: bytes that the host says are random. The kernel's generator is given some when the device is found; programs read them by `/dev/hwrng`.
//!
//! One buffer is with the device at a time. Whoever is interrupted while he waits leaves it there for the next one who wants bytes. What the device says to have written
//! is checked by the ring; what it has written is only as random as the device is honest, and so is mixed with what the kernel has, never used alone.
//!
//! # States
//! Working, or *gone* for good: pulled out, or broken the rules. What waits for bytes then ends.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::dma::Buffer;
use device::model::{Binding, DriverError};
use device::random_source::{self, Failure, RandomSource};
use memory::fallible;
use sched::{Mutex, WaitQueue};
use sync::{Once, SpinLock};

use crate::ring::{Piece, Ring, Trouble};
use crate::start;
use crate::transport::{Connection, Handlers, Notifier, Transport};

/// Bytes asked for at a time.
const REQUEST_BYTES: usize = 64;
/// Descriptors: one buffer is all there is.
const RING: u16 = 2;
/// Answers without a byte in a row that are borne.
const EMPTY_MAX: usize = 64;
/// Devices that have a name of their own at a time.
const NAMES: u64 = u64::BITS as u64;

/// Takes random bytes into the kernel's generator.
pub type Mixer = fn(&[u8]);

static MIXER: Once<Mixer> = Once::new();
/// A bit for each name in use.
static NAMED: AtomicU64 = AtomicU64::new(0);

struct Wakes(WaitQueue);

impl Handlers for Wakes {
    fn queue(&self, _index: usize) {
        self.0.wake_all();
    }

    fn configuration(&self) {
        self.0.wake_all();
    }

    fn queue_name(&self, _index: usize) -> String {
        "input".into()
    }
}

/// A name as on Linux: the lowest number that no other device has.
struct Name {
    number: u64,
    text: String,
}

impl Name {
    fn take() -> Option<Self> {
        // Relaxed: the bits stand for nothing but themselves.
        let before = NAMED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken != u64::MAX).then(|| taken | 1 << taken.trailing_ones())
        });
        let number = u64::from(before.ok()?.trailing_ones());
        debug_assert!(number < NAMES, "there was a free one");
        Some(Self { number, text: format!("virtio_rng.{number}") })
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        NAMED.fetch_and(!(1 << self.number), Ordering::Relaxed);
    }
}

pub(crate) struct Generator {
    transport: Box<dyn Transport>,
    name: Name,
    ring: SpinLock<Ring<(), Buffer>>,
    notifier: Notifier,
    buffer: Buffer,
    wakes: Arc<Wakes>,
    /// Held by who waits for bytes.
    reading: Mutex<()>,
    gone: AtomicBool,
    connection: SpinLock<Option<Connection>>,
    /// As it is registered.
    registered: SpinLock<Option<Arc<dyn RandomSource>>>,
}

/// Takes a device that is such a source.
pub(crate) fn probe(transport: Box<dyn Transport>) -> Result<Arc<dyn Binding>, DriverError> {
    let begun = begin(&*transport);
    let Begun { name, connection, wakes, ring, notifier, buffer } = begun.inspect_err(|_| {
        start::stop(&*transport, "virtio-rng");
        transport.disconnect();
        start::give_up(&*transport);
    })?;
    start::go(&*transport);
    let generator = Arc::new(Generator {
        transport,
        name,
        ring: SpinLock::named("virtio random queue", ring),
        notifier,
        buffer,
        wakes,
        reading: Mutex::named("virtio random source", ()),
        gone: AtomicBool::new(false),
        connection: SpinLock::named("virtio interrupts", Some(connection)),
        registered: SpinLock::named("virtio random source's registration", None),
    });
    let source: Arc<dyn RandomSource> = generator.clone();
    *generator.registered.lock() = Some(source.clone());
    if random_source::register(source).is_err() {
        generator.remove();
        return Err(DriverError::Exhausted);
    }
    let own = generator.clone();
    let feed = Box::new(move || {
        let mut bytes = [0; REQUEST_BYTES];
        if let (Ok(count), Some(mix)) = (own.read(&mut bytes, true), MIXER.get()) {
            mix(&bytes[..count]);
        }
    });
    if sched::spawn(sched::Builder::new("hwrng"), feed).is_err() {
        log::warn!("virtio-rng: no memory for the thread that reads the first bytes");
    }
    Ok(generator)
}

struct Begun {
    name: Name,
    connection: Connection,
    wakes: Arc<Wakes>,
    ring: Ring<(), Buffer>,
    notifier: Notifier,
    buffer: Buffer,
}

fn begin(transport: &dyn Transport) -> Result<Begun, DriverError> {
    let features = start::negotiate(transport, 0)?;
    let exhausted = |memory::OutOfMemory| DriverError::Exhausted;
    let name = Name::take().ok_or(DriverError::Exhausted)?;
    let wakes = fallible::try_arc(Wakes(WaitQueue::new())).map_err(exhausted)?;
    let connection = transport.connect(1, wakes.clone()).ok_or(DriverError::Exhausted)?;
    let buffer = Buffer::allocate(REQUEST_BYTES).map_err(exhausted)?;
    let (ring, notifier, _) = start::start_queue(transport, 0, features, RING, 1)?;
    Ok(Begun { name, connection, wakes, ring, notifier, buffer })
}

impl Generator {
    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Gives the device the buffer, unless it has it.
    fn ask(&self) -> Result<(), Failure> {
        let mut ring = self.ring.lock();
        if ring.with_device() > 0 {
            return Ok(());
        }
        let piece = Piece::written(self.buffer.physical(), REQUEST_BYTES as u32);
        ring.add(&[piece], ()).map_err(|()| Failure::Broken)?;
        ring.want_interrupt();
        let notify = ring.publish();
        drop(ring);
        if notify {
            self.notifier.notify();
        }
        Ok(())
    }

    /// What has come: None if nothing has.
    fn look(&self) -> Option<Result<usize, Failure>> {
        if self.is_gone() {
            return Some(Err(Failure::Gone));
        }
        match self.ring.lock().take() {
            Ok(None) => None,
            Ok(Some(((), bytes))) => Some(Ok(bytes as usize)),
            Err(trouble) => Some(Err(self.breaks(trouble))),
        }
    }

    fn breaks(&self, trouble: Trouble) -> Failure {
        log::error!("{}: the device breaks the rules: {trouble:?}", self.name.text);
        Failure::Broken
    }

    /// How many bytes have come in the buffer, at least one.
    fn wait(&self, may_wait: bool) -> Result<usize, Failure> {
        for _ in 0..EMPTY_MAX {
            self.ask()?;
            let mut outcome = self.look();
            if outcome.is_none() && may_wait {
                let there = || {
                    outcome = self.look();
                    outcome.is_some()
                };
                self.wakes.0.wait_interruptible(there).map_err(|_| Failure::Interrupted)?;
            }
            match outcome {
                Some(Ok(0)) => {}
                Some(outcome) => return outcome,
                None => return Err(Failure::NotNow),
            }
        }
        Err(self.breaks(Trouble::Empty))
    }

    /// The device works no more.
    fn stop(&self) {
        let registered = self.registered.lock().take();
        if let Some(registered) = &registered {
            random_source::unregister(registered);
        }
        self.gone.store(true, Ordering::Release);
        start::stop(&*self.transport, "virtio-rng");
        self.wakes.0.wake_all();
    }
}

impl RandomSource for Generator {
    fn name(&self) -> &str {
        &self.name.text
    }

    fn read(&self, into: &mut [u8], may_wait: bool) -> Result<usize, Failure> {
        let reading = if may_wait {
            self.reading.lock_interruptible().map_err(|_| Failure::Interrupted)?
        } else {
            self.reading.try_lock().ok_or(Failure::NotNow)?
        };
        let count = self.wait(may_wait).inspect_err(|failure| {
            if *failure == Failure::Broken {
                self.stop();
            }
        })?;
        let count = count.min(into.len());
        self.buffer.read(0, &mut into[..count]);
        drop(reading);
        Ok(count)
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

/// Names who takes random bytes. At start-up.
pub(crate) fn register(mixer: Mixer) {
    MIXER.call_once(|| mixer);
}
