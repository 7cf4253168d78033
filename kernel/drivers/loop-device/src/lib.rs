//! Files as disks: `/dev/loop0` and so on, after `loop(4)`.
//!
//! | module | what it decides |
//! |---|---|
//! | `device` | the devices there are; what a device is bound to, and how that begins and ends |
//! | `transfer` | a request becomes reads and writes of the file |
//! | `requests` | `LOOP_*` requests of `ioctl` on a device |
//! | `control` | `/dev/loop-control` |
//! | `layout` | the structures that programs give and get |
//!
//! # How a transfer proceeds
//! A device that is bound has a thread of its own, which reads and writes the file: submitting must not wait for another device. Requests
//! wait for it in a list that has room for as many as the queue lets through, so nothing is allocated on the way. A flush
//! is an `fdatasync` of the file; a discard makes a hole, where the file's file system can.
//!
//! # Locks
//! A device's `changing` (sleeping) is held while a binding begins, changes or ends, also over the last transfers; the thread does not take it. `CHAINING` (sleeping), held
//! while it is found out where a file leads, and `DEVICES` (sleeping) come after it in this order. `DEVICES` is held while a device is made or taken
//! away. What the driver is bound to and the list of requests are under spin locks.
//!
//! # What is not as on Linux
//! Blocks are of 512 bytes (`LOOP_SET_BLOCK_SIZE` refuses others), nothing is encrypted, and the file is always used through its pages (`LOOP_SET_DIRECT_IO`
//! refuses to change that).
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod control;
mod device;
mod layout;
mod requests;
mod transfer;

/// Registers `/dev/loop-control` and the requests of the devices. Once, at start-up, before /dev is first mounted.
pub fn register() {
    control::register();
    vfs::disk::device::set_own_requests(block::disk::LOOP.major, requests::answer);
}
