//! Bringing a device up: reset, what it can and shall do, its queues.

use device::dma::Buffer;
use device::mmio::Window;
use device::model::DriverError;

use crate::ring::{Addresses, Area, Options, Ring};
use crate::transport::{Notifier, Status, Transport};

/// Features that all devices may have.
pub(crate) mod feature {
    pub(crate) const INDIRECT: u64 = 1 << 28;
    pub(crate) const EVENT_INDEX: u64 = 1 << 29;
    pub(crate) const VERSION_1: u64 = 1 << 32;
    /// The device's view of memory may be another than the driver's; on machines without an IOMMU it is the same.
    pub(crate) const ACCESS_PLATFORM: u64 = 1 << 33;
    pub(crate) const PACKED: u64 = 1 << 34;
}

/// How long a reset may take. QEMU ends what is under way before it answers.
const RESET_NS: u64 = 5_000_000_000;
/// Between looks at the status.
const PAUSE_NS: u64 = 1_000_000;
/// Times that the configuration is read again because it has changed meanwhile.
const READS_MAX: u32 = 16;

/// How a device takes a reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// It has forgotten everything.
    Reset,
    /// It answers as if it had been pulled out.
    Gone,
    /// It doesn't.
    Nothing,
}

/// Has the device forget everything.
pub(crate) fn reset(transport: &dyn Transport) -> Answer {
    transport.set_status(0);
    let until_ns = machine::time::now_ns() + RESET_NS;
    loop {
        let status = transport.status();
        match status {
            0 => return Answer::Reset,
            u8::MAX => return Answer::Gone,
            _ => {}
        }
        let now_ns = machine::time::now_ns();
        if now_ns > until_ns {
            return Answer::Nothing;
        }
        sched::timer::sleep_until_uninterruptible(now_ns + PAUSE_NS);
    }
}

/// Ends the device's work for good: after this it does not reach memory, in so far as that can be had.
pub(crate) fn stop(transport: &dyn Transport, name: &str) {
    match reset(transport) {
        Answer::Reset => return,
        // That it is gone is what it says.
        Answer::Gone => {}
        Answer::Nothing => log::error!("{name}: the device does not take a reset"),
    }
    transport.shut_off();
}

/// Stops a device that can't be started after all: memory that it was told of is freed next. The error is passed on.
pub(crate) fn stopped(transport: &dyn Transport, error: DriverError) -> DriverError {
    stop(transport, &transport.path());
    error
}

/// Resets the device and agrees on features: those wanted that it has. The layout of the first specification is required.
///
/// # Errors
/// [`DriverError::Broken`], [`DriverError::NotSupported`].
pub(crate) fn negotiate(transport: &dyn Transport, wanted: u64) -> Result<u64, DriverError> {
    if reset(transport) != Answer::Reset {
        return Err(DriverError::Broken);
    }
    transport.set_status(Status::ACKNOWLEDGE);
    transport.set_status(Status::ACKNOWLEDGE | Status::DRIVER);
    let general = feature::INDIRECT
        | feature::EVENT_INDEX
        | feature::VERSION_1
        | feature::ACCESS_PLATFORM
        | feature::PACKED;
    let features = transport.features() & (wanted | general);
    if features & feature::VERSION_1 == 0 {
        return Err(DriverError::NotSupported);
    }
    transport.accept_features(features);
    let status = Status::ACKNOWLEDGE | Status::DRIVER | Status::FEATURES_OK;
    transport.set_status(status);
    if transport.status() & Status::FEATURES_OK == 0 {
        return Err(DriverError::NotSupported);
    }
    Ok(features)
}

/// The device may begin.
pub(crate) fn go(transport: &dyn Transport) {
    let status = Status::ACKNOWLEDGE | Status::DRIVER | Status::FEATURES_OK | Status::DRIVER_OK;
    transport.set_status(status);
}

/// Has the device know that no driver has it.
pub(crate) fn give_up(transport: &dyn Transport) {
    transport.set_status(Status::FAILED);
}

/// What is read of a device's configuration, all from one state of it.
pub(crate) fn read_configuration<R>(transport: &dyn Transport, read: impl Fn(&Window) -> R) -> R {
    let window = transport.configuration();
    for _ in 0..READS_MAX {
        let before = transport.generation();
        let value = read(&window);
        if transport.generation() == before {
            return value;
        }
    }
    read(&window)
}

/// Makes a ring for a queue and switches the queue on. `entries` is how many pieces a buffer has at most; `most` limits the ring.
///
/// # Errors
/// [`DriverError`]; the device was stopped then, since it knows of this queue, or others, whose memory is freed next.
pub(crate) fn start_queue<T>(
    transport: &dyn Transport,
    queue: u16,
    features: u64,
    most: u16,
    entries: usize,
) -> Result<(Ring<T, Buffer>, Notifier, u16), DriverError> {
    let made = make_queue(transport, queue, features, most, entries);
    let (ring, size, addresses) = made.map_err(|error| stopped(transport, error))?;
    match transport.start_queue(queue, size, addresses) {
        Some(notifier) => Ok((ring, notifier, size)),
        None => Err(stopped(transport, DriverError::Broken)),
    }
}

fn make_queue<T>(
    transport: &dyn Transport,
    queue: u16,
    features: u64,
    most: u16,
    entries: usize,
) -> Result<(Ring<T, Buffer>, u16, Addresses), DriverError> {
    let packed = features & feature::PACKED != 0;
    let size = size_of_queue(transport.queue_size_max(queue), most).ok_or(DriverError::NotSupported)?;
    let options = Options { size, packed, event_index: features & feature::EVENT_INDEX != 0 };
    let buffer = |bytes| Buffer::allocate(bytes).map_err(|_| DriverError::Exhausted);
    let memory = buffer(Ring::<T, Buffer>::bytes(options))?;
    let addresses = Ring::<T, Buffer>::addresses(options, memory.physical());
    let tables = match features & feature::INDIRECT {
        0 => None,
        _ => Some(Area { memory: buffer(usize::from(size) * entries * 16)?, entries }),
    };
    let ring = Ring::new(memory, options, tables).map_err(|_| DriverError::Exhausted)?;
    Ok((ring, size, addresses))
}

/// Descriptors of a queue that could have so many, and gets `most` at most. The packed layout takes any size; one rule for both is simpler. None: it does not exist.
pub(crate) fn size_of_queue(offered: u16, most: u16) -> Option<u16> {
    offered.min(most).checked_ilog2().map(|bits| 1 << bits)
}
