//! What a driver of disks implements.

use alloc::string::String;
use alloc::vec::Vec;

use crate::request::Request;

/// What a device can do, and how much at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Its size in sectors of 512 bytes, at first; see [`Queue::set_sectors`](crate::Queue::set_sectors).
    pub sectors: u64,
    /// The unit of transfers: a power of two from 512 on.
    pub logical_block_bytes: u32,
    /// What it writes without reading first.
    pub physical_block_bytes: u32,
    /// Sectors of a request at most.
    pub sectors_max: u32,
    /// Pieces of memory of a request at most.
    pub segments_max: usize,
    /// Requests it takes at the same time.
    pub depth: u32,
    /// Whether completed writes may be lost until a flush.
    pub write_cache: bool,
    /// Whether it knows writes that are durable at once.
    pub force_unit_access: bool,
    /// Sectors of a discard at most; 0: it knows none.
    pub discard_sectors_max: u32,
    /// Sectors that one operation fills with zeros at most; 0: it knows none.
    pub zeroes_sectors_max: u32,
    /// Whether it refuses writes.
    pub read_only: bool,
    /// Whether distance costs time.
    pub rotational: bool,
    /// After how long without an answer a request has failed.
    pub timeout_ns: u64,
}

impl Limits {
    /// A device of this size that can do nothing special.
    pub const fn of_size(sectors: u64) -> Self {
        Self {
            sectors,
            logical_block_bytes: 512,
            physical_block_bytes: 512,
            sectors_max: 2560,
            segments_max: 128,
            depth: 128,
            write_cache: false,
            force_unit_access: false,
            discard_sectors_max: 0,
            zeroes_sectors_max: 0,
            read_only: false,
            rotational: false,
            timeout_ns: 30_000_000_000,
        }
    }
}

/// What becomes of a request whose time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutVerdict {
    /// The driver has completed it, or will do so now: it took the device apart, say.
    Handled,
    /// The device is slow but alive: it gets the same time again.
    MoreTime,
}

/// A driver's part of a device.
pub trait Driver: Send + Sync {
    /// What the device can do. Asked once.
    fn limits(&self) -> Limits;

    /// Begins a transfer, which [`Request::complete`] ends, perhaps at once. `cpu` is the submitting CPU, for
    /// devices with a queue for each.
    ///
    /// # Errors
    /// The request, when the device has no room for it now; it is offered again after the next completion.
    fn submit(&self, cpu: usize, request: Request) -> core::result::Result<(), Request>;

    /// Nobody has the device, or a part of it, open or claimed any more. Called in a thread's context, perhaps where nothing may sleep.
    fn unused(&self) {}

    /// What the directory of the disk below `/sys` shows in one of the driver's own: that one's name, names and texts of files.
    fn details(&self) -> Option<(&'static str, Vec<(&'static str, String)>)> {
        None
    }

    /// What the directory of the controller that has the disk shows below `/sys`: names and texts of files. Nothing if there is no controller between the disk and a bus.
    fn controller_details(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The oldest requests are under way since before `since_ns`.
    fn timed_out(&self, since_ns: u64) -> TimeoutVerdict {
        let _ = since_ns;
        TimeoutVerdict::MoreTime
    }
}
