//! Pipes and FIFOs, and moving bytes through them without copying.

mod end;
mod fifo;
mod ring;
mod splice;
mod whole;

pub use end::{Pipe, WrittenPipe, create_pipe};
pub use fifo::FarEnd;
pub(crate) use fifo::open_fifo;
pub use ring::{CAPACITY_DEFAULT, CAPACITY_MAX};
pub use splice::{UserMemory, copy_file_range, sendfile, splice, tee, vmsplice};
