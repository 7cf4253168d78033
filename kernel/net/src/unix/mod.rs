//! Local sockets (`AF_UNIX`).
//!
//! Every socket is a side of a `pair`: both sides are made together, or the second one is what a listening socket accepts, or there is
//! none and datagrams go to whatever has a name.

mod datagram;
mod end;
mod endpoint;
mod garbage;
mod identity;
mod listen;
mod message;
mod name;
mod options;
mod pair;
mod payload;
mod receive;
mod rights;
mod send;
mod socket;
#[cfg(test)]
mod tests;
mod urgent;

pub use endpoint::Endpoint;
pub(crate) use identity::of_caller as identity_of_caller;
pub use identity::{Identity, Principal, set_identity_source};
pub use name::{NAME_MAX, Name, find_abstract, find_file};
pub use options::{BUFFER_MAX, Direction, Flags, Options, Stamping, settings};
pub use pair::{Ownership, create, create_pair};
pub use receive::{Received, Receiving};
pub use rights::{FILES_PER_MESSAGE_MAX, Rights, in_flight};
pub use send::Sending;
pub use socket::{Half, Kind, UnixSocket};
pub use urgent::set_urgent_signal;
