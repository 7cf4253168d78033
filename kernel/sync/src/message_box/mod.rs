//! Message boxes: how one CPU has another one do something (specs/fiasco-mp.md §G).
//!
//! - `protocol`: the matrix of boxes and what may be done with it in which order; the host's model checker tries all its
//!   interleavings (`tests/models.rs`).
//! - `request`: the types of requests, and who handles them.
//! - `sending`: sending a request and waiting for its answer; the interrupt.
//! - `statistics`: how many of each type, and between whom.
//! - `defects`: historic bugs, which tests put in to see whether they would notice.

mod defects;
mod protocol;
mod request;
mod sending;
mod statistics;

pub use defects::inject_defects;
pub use protocol::WORDS;
pub use request::{Handler, Kind, Request, Response, set_handler};
pub use sending::{
    BEFORE_TAKING, BETWEEN_LOOKS, in_handler, is_waiting, request, request_from_handler, request_halting,
    serve,
};
pub(crate) use sending::{call, initialize};
pub use statistics::{counts, served, state_of, taken, write_matrix};
