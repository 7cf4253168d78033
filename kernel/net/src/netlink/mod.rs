//! Messages between the kernel and programs (netlink(7)): events of devices (`NETLINK_KOBJECT_UEVENT`), and questions about links
//! (`NETLINK_ROUTE`).
//!
//! A *port* is a socket as the others know it: it has a number, once it is bound, and is a member of *groups*. What is sent to a group goes to all its members.
//!
//! # What a message costs
//! It is made once, whoever listens, and its receivers share it. Whoever makes messages asks first whether a group has members
//! ([`has_members`]): without, nothing is made. Each port counts what waits for it; one that is full loses what comes until it has read all that it has,
//! and is told so once (`ENOBUFS`).
//!
//! # Locks
//! One sleeping lock has the list of ports. Senders hold it from making a message to putting it into the last inbox, so all receivers see messages
//! in one order. It comes before the inboxes' locks. Receivers do not take it.

mod port;
mod route;
mod socket;
#[cfg(test)]
mod tests;

pub use port::{Address, Message, Reserved, has_members, publish};
pub use socket::{NetlinkSocket, Received, create};

/// Links, addresses and routes.
pub const ROUTES: u32 = 0;
/// Events of devices.
pub const DEVICE_EVENTS: u32 = 15;
/// The group that the kernel's events go to.
pub const KERNEL_GROUP: u32 = 1;
/// Groups are numbered from 1.
pub const GROUPS: u32 = 32;
