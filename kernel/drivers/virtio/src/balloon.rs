//! A balloon: memory that the guest lends to the host.
//!
//! The host says how many pages it would like to have; a thread takes so many from the frame allocator and tells which, or takes them back. Programs' memory goes
//! before: the balloon takes only what leaves a part of memory free, and tries again later. It does not grow again for what it gave back in need until the host asks for another size.
//!
//! # In need
//! If the device allows it (`deflate-on-oom`), pages are given back when memory gets short: the host is told afterwards, by the thread.
//!
//! # Statistics
//! The device has a buffer with numbers about memory, which it gives back when it wants new ones.
//!
//! # Locking
//! `pages` is a sleeping lock, held by the thread while it moves a batch; who is short of memory only tries it. One batch is with the device at a time.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use device::dma::Buffer;
use device::model::{Binding, DriverError};
use machine::address::PAGE_SIZE;
use memory::fallible;
use memory::frame::{Frame, Purpose, Zeroed};
use memory::reclaim::{self, Reclaimer};
use sched::{Completion, Mutex, WaitQueue};
use sync::SpinLock;

use crate::ring::{Piece, Ring};
use crate::start;
use crate::transport::{Connection, Handlers, Notifier, Transport};

/// Features.
const STATISTICS: u64 = 1 << 1;
const DEFLATE_IN_NEED: u64 = 1 << 2;
/// Registers of the configuration.
const WANTED: usize = 0;
const ACTUAL: usize = 4;
/// Pages told at a time: their numbers fill a part of a frame.
const BATCH: usize = 256;
/// Statistics lie behind them.
const STATISTICS_AT: usize = BATCH * 4;
/// Bytes of a number with its tag.
const STATISTIC_BYTES: usize = 10;
/// Tags of statistics.
const FREE: u16 = 4;
const TOTAL: u16 = 5;
const AVAILABLE: u16 = 6;
const CACHES: u16 = 7;
/// This part of memory is left free.
const LEFT_SHARE: u64 = 16;
/// Between tries to grow when there is not enough memory.
const PAUSE_NS: u64 = 1_000_000_000;
/// How long the device may take for a batch.
const BATCH_NS: u64 = 5_000_000_000;

/// What interrupts wake.
struct Wakes {
    raised: AtomicBool,
    queue: WaitQueue,
}

impl Wakes {
    fn raise(&self) {
        self.raised.store(true, Ordering::Release);
        self.queue.wake_all();
    }
}

impl Handlers for Wakes {
    fn queue(&self, _index: usize) {
        self.raise();
    }

    fn configuration(&self) {
        self.raise();
    }

    fn queue_name(&self, index: usize) -> String {
        ["inflate", "deflate", "stats"].get(index).copied().unwrap_or_default().into()
    }
}

/// A queue of the device with one buffer.
struct Line {
    ring: Ring<(), Buffer>,
    notifier: Notifier,
}

/// The pages that the host has.
struct Pages {
    frames: Vec<Frame>,
    /// Numbers of pages given back in need, of which the device has not been told. Has room for all frames.
    untold: Vec<u32>,
    inflate: Line,
    deflate: Line,
    statistics: Option<Line>,
    /// Numbers that the device reads.
    buffer: Buffer,
}

/// See the theory of this file.
struct Balloon {
    transport: Box<dyn Transport>,
    pages: Mutex<Pages>,
    wakes: Arc<Wakes>,
    may_deflate: bool,
    /// What the host wanted when pages were given back in need, plus 1; 0: none were.
    relieved_at: AtomicU32,
    gone: AtomicBool,
    ended: Completion,
    connection: SpinLock<Option<Connection>>,
}

/// The balloon that gives pages back in need.
static CURRENT: SpinLock<Option<Arc<Balloon>>> = SpinLock::named("balloon", None);

struct Relief;

impl Reclaimer for Relief {
    fn name(&self) -> &'static str {
        "balloon"
    }

    fn reclaim(&self, frames: usize) -> usize {
        let balloon = CURRENT.lock().clone();
        balloon.map_or(0, |balloon| balloon.relieve(frames))
    }
}

/// Registers what gives pages back. At start-up.
pub(crate) fn register() {
    static RELIEF: Relief = Relief;
    reclaim::register(&RELIEF);
}

fn exhausted(_: memory::OutOfMemory) -> DriverError {
    DriverError::Exhausted
}

/// Takes a device that is a balloon.
pub(crate) fn probe(transport: Box<dyn Transport>) -> Result<Arc<dyn Binding>, DriverError> {
    let begun = begin(&*transport).inspect_err(|_| {
        start::stop(&*transport, "virtio-balloon");
        transport.disconnect();
        start::give_up(&*transport);
    })?;
    let (features, connection, wakes, pages) = begun;
    let balloon = Arc::new(Balloon {
        transport,
        pages: Mutex::named("balloon's pages", pages),
        wakes,
        may_deflate: features & DEFLATE_IN_NEED != 0,
        relieved_at: AtomicU32::new(0),
        gone: AtomicBool::new(false),
        ended: Completion::default(),
        connection: SpinLock::named("virtio interrupts", Some(connection)),
    });
    start::go(&*balloon.transport);
    let own = balloon.clone();
    if sched::spawn(sched::Builder::new("balloon"), Box::new(move || own.serve())).is_err() {
        balloon.ended.complete();
        balloon.remove();
        return Err(DriverError::Exhausted);
    }
    if balloon.may_deflate {
        *CURRENT.lock() = Some(balloon.clone());
    }
    balloon.wakes.raise();
    Ok(balloon)
}

fn begin(transport: &dyn Transport) -> Result<(u64, Connection, Arc<Wakes>, Pages), DriverError> {
    let features = start::negotiate(transport, STATISTICS | DEFLATE_IN_NEED)?;
    let wakes = Wakes { raised: AtomicBool::new(false), queue: WaitQueue::new() };
    let wakes = fallible::try_arc(wakes).map_err(exhausted)?;
    let has_statistics = features & STATISTICS != 0;
    let queues = if has_statistics { 3 } else { 2 };
    let connection = transport.connect(queues, wakes.clone()).ok_or(DriverError::Exhausted)?;
    let buffer = Buffer::allocate(PAGE_SIZE).map_err(exhausted)?;
    let line = |queue| {
        let (ring, notifier, _) = start::start_queue(transport, queue, features, 2, 1)?;
        Ok(Line { ring, notifier })
    };
    let pages = Pages {
        frames: Vec::new(),
        untold: Vec::new(),
        inflate: line(0)?,
        deflate: line(1)?,
        statistics: if has_statistics { Some(line(2)?) } else { None },
        buffer,
    };
    Ok((features, connection, wakes, pages))
}

fn number(frame: &Frame) -> u32 {
    // The device counts pages in 32 bits; `grow` takes no others.
    (frame.physical().as_u64() / PAGE_SIZE as u64) as u32
}

/// Whether so many frames more can be spared.
fn can_spare(frames: usize) -> bool {
    let memory = memory::statistics::memory();
    let wanted_kib = memory.total_kib() / LEFT_SHARE + (frames * PAGE_SIZE / 1024) as u64;
    memory.free_kib() >= wanted_kib
        || (reclaim::reclaim_now(frames) > 0 && memory::statistics::memory().free_kib() >= wanted_kib)
}

impl Line {
    /// Gives the device this part of the buffer to read.
    fn give(&mut self, buffer: &Buffer, offset: usize, bytes: usize) {
        let address = machine::address::PhysAddr::new(buffer.physical().as_u64() + offset as u64);
        if self.ring.add(&[Piece::read(address, bytes as u32)], ()).is_ok() {
            if self.ring.publish() {
                self.notifier.notify();
            }
            self.ring.want_interrupt();
        }
    }
}

impl Balloon {
    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn wanted(&self) -> usize {
        start::read_configuration(&*self.transport, |window| window.read_u32(WANTED)) as usize
    }

    fn serve(self: Arc<Self>) {
        let mut hungry = false;
        loop {
            let raised = || self.wakes.raised.swap(false, Ordering::AcqRel);
            if hungry {
                let deadline_ns = machine::time::now_ns() + PAUSE_NS;
                self.wakes.queue.wait_until_deadline(raised, deadline_ns);
            } else {
                self.wakes.queue.wait_until(raised);
            }
            if self.is_gone() {
                break;
            }
            self.refill_statistics();
            hungry = self.follow();
        }
        // Once more, if somebody else is just at it: the frames are not the device's after this.
        start::stop(&*self.transport, "virtio-balloon");
        let frames = core::mem::take(&mut self.pages.lock().frames);
        drop(frames);
        self.ended.complete();
    }

    /// Grows or shrinks as the host wants. True if memory is too short for that.
    fn follow(&self) -> bool {
        let mut hungry = false;
        loop {
            let wanted = self.wanted();
            if self.transport.status() == u8::MAX {
                // What was pulled out, or whose link is broken, wants all ones.
                return hungry;
            }
            let mut pages = self.pages.lock();
            let has = pages.frames.len();
            let relieved = self.relieved_at.load(Ordering::Acquire) as usize;
            let may_grow = relieved == 0 || relieved != wanted + 1;
            let moved = if self.is_gone() {
                0
            } else if !pages.untold.is_empty() {
                self.tell_of_relief(&mut pages)
            } else if has > wanted {
                self.shrink(&mut pages, (has - wanted).min(BATCH))
            } else if has < wanted && may_grow {
                self.relieved_at.store(0, Ordering::Release);
                let count = (wanted - has).min(BATCH);
                hungry = !can_spare(count);
                if hungry { 0 } else { self.grow(&mut pages, count) }
            } else {
                0
            };
            let actual = pages.frames.len() as u32;
            drop(pages);
            self.transport.configuration().write_u32(ACTUAL, actual);
            if moved == 0 {
                return hungry;
            }
        }
    }

    /// Tells the device so many numbers that are in the buffer, and waits until it has read them. False if it breaks the rules.
    fn tell(&self, pages: &mut Pages, inflate: bool, count: usize) -> bool {
        let Pages { inflate: first, deflate: second, buffer, .. } = pages;
        let line = if inflate { first } else { second };
        line.give(buffer, 0, count * 4);
        let until_ns = machine::time::now_ns() + BATCH_NS;
        let mut outcome = Ok(None);
        self.wakes.queue.wait_until_deadline(
            || {
                outcome = line.ring.take();
                !matches!(outcome, Ok(None)) || self.is_gone()
            },
            until_ns,
        );
        if matches!(outcome, Ok(Some(_))) {
            return true;
        }
        if !self.is_gone() {
            match outcome {
                Err(trouble) => self.break_off(&format_args!("{trouble:?}")),
                Ok(_) => self.break_off(&"it does not answer"),
            }
        }
        false
    }

    /// The device works no more.
    fn break_off(&self, why: &dyn core::fmt::Display) {
        log::error!("virtio-balloon: the device breaks the rules: {why}");
        start::stop(&*self.transport, "virtio-balloon");
        self.gone.store(true, Ordering::Release);
        self.wakes.raise();
    }

    /// Lends frames; how many.
    fn grow(&self, pages: &mut Pages, count: usize) -> usize {
        let before = pages.frames.len();
        let untold_room = before + count - pages.untold.len();
        if fallible::try_reserve(&mut pages.frames, count).is_err()
            || fallible::try_reserve(&mut pages.untold, untold_room).is_err()
        {
            return 0;
        }
        for _ in 0..count {
            let Ok(frame) = Frame::allocate_atomic(Purpose::Device, Zeroed::No) else { break };
            if frame.physical().as_u64() / PAGE_SIZE as u64 > u32::MAX.into() {
                break;
            }
            pages.buffer.write_u32((pages.frames.len() - before) * 4, number(&frame));
            pages.frames.push(frame);
        }
        let grown = pages.frames.len() - before;
        if grown > 0 {
            // If the device does not answer, it was stopped: the frames are ours again when the balloon goes.
            self.tell(pages, true, grown);
        }
        grown
    }

    /// Takes frames back; how many.
    fn shrink(&self, pages: &mut Pages, count: usize) -> usize {
        let first = pages.frames.len() - count;
        for (index, frame) in pages.frames[first..].iter().enumerate() {
            pages.buffer.write_u32(index * 4, number(frame));
        }
        if !self.tell(pages, false, count) {
            // They are ours again when the device was stopped.
            return 0;
        }
        pages.frames.truncate(first);
        count
    }

    /// Tells the device of pages that were given back in need; how many.
    fn tell_of_relief(&self, pages: &mut Pages) -> usize {
        let count = pages.untold.len().min(BATCH);
        for (index, number) in pages.untold.drain(..count).enumerate() {
            pages.buffer.write_u32(index * 4, number);
        }
        self.tell(pages, false, count);
        count
    }

    /// Gives frames back because memory is short, and says how many. Does not wait for the device.
    fn relieve(&self, frames: usize) -> usize {
        let Some(mut pages) = self.pages.try_lock() else { return 0 };
        if self.is_gone() {
            return 0;
        }
        let room = pages.untold.capacity() - pages.untold.len();
        let count = frames.min(pages.frames.len()).min(BATCH).min(room);
        if count == 0 {
            return 0;
        }
        let wanted = self.wanted() as u32;
        self.relieved_at.store(wanted.saturating_add(1), Ordering::Release);
        let Pages { frames, untold, .. } = &mut *pages;
        let first = frames.len() - count;
        untold.extend(frames[first..].iter().map(number));
        frames.truncate(first);
        drop(pages);
        self.wakes.raise();
        count
    }

    /// Gives the device new numbers, if it has given back the buffer, or has not had it.
    fn refill_statistics(&self) {
        let mut pages = self.pages.lock();
        let Pages { statistics: Some(line), buffer, .. } = &mut *pages else { return };
        if self.is_gone() {
            return;
        }
        if line.ring.with_device() > 0 {
            match line.ring.take() {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(trouble) => {
                    drop(pages);
                    return self.break_off(&format_args!("{trouble:?}"));
                }
            }
        }
        let memory = memory::statistics::memory();
        let numbers = [
            (FREE, memory.free_kib()),
            (TOTAL, memory.total_kib()),
            (AVAILABLE, memory.available_kib()),
            (CACHES, memory.used_kib(Purpose::FileCache)),
        ];
        for (index, (tag, kib)) in numbers.into_iter().enumerate() {
            let at = STATISTICS_AT + index * STATISTIC_BYTES;
            buffer.write(at, &tag.to_le_bytes());
            buffer.write(at + 2, &(kib * 1024).to_le_bytes());
        }
        line.give(buffer, STATISTICS_AT, numbers.len() * STATISTIC_BYTES);
    }
}

impl Binding for Balloon {
    fn remove(&self) {
        let mut current = CURRENT.lock();
        let own = current.take_if(|known| core::ptr::eq(Arc::as_ptr(known), self));
        drop(current);
        // The binding has another reference.
        drop(own);
        self.gone.store(true, Ordering::Release);
        start::stop(&*self.transport, "virtio-balloon");
        self.wakes.raise();
        self.ended.wait();
        let connection = self.connection.lock().take();
        drop(connection);
        self.transport.disconnect();
        self.transport.shut_off();
    }
}
