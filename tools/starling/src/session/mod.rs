//! A session: everything between the start of a virtual machine and the exit status.
//!
//! * [`proxy`]: the loop that moves bytes and frames between the guest and the host's streams
//! * [`output`], [`input`], [`log`]: the streams
//! * [`wire`]: one of the streams that carry the link
//! * [`terminal`], [`signals`]: what the host's terminal and kernel have to say
//! * [`dialogue`]: the kernel debugger's
//! * [`boot_trace`]: where the time went before the command's first instruction

mod boot_trace;
mod dialogue;
mod input;
mod log;
mod output;
mod proxy;
mod signals;
mod terminal;
mod wire;

pub(crate) use dialogue::Dialogue;
pub(crate) use proxy::{Conclusion, Options, Proxy};
pub(crate) use terminal::{is_terminal, size as terminal_size};
