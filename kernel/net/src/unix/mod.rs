//! Local sockets (`AF_UNIX`): connected pairs.

mod end;
mod garbage;
mod identity;
mod message;
mod options;
mod pair;
mod payload;
mod receive;
mod rights;
mod send;
mod socket;
#[cfg(test)]
mod tests;

pub(crate) use identity::of_caller as identity_of_caller;
pub use identity::{Identity, set_identity_source};
pub use options::{BUFFER_MAX, Direction, Flags, Options};
pub use pair::{Ownership, create_pair};
pub use receive::{Received, Receiving};
pub use rights::{FILES_PER_MESSAGE_MAX, Rights, in_flight};
pub use send::Sending;
pub use socket::{Half, Kind, UnixSocket};
