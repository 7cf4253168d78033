//! Credentials: user and group ids, capabilities, and the calls that change them.

pub mod account;
pub mod calls;
pub mod capabilities;
pub mod identity;
pub(crate) mod inspection;
