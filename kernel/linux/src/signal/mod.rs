//! Signals: numbers, queues, dispositions, sending, delivery, and the calls about them.

pub mod actions;
pub mod calls;
pub mod deliver;
pub mod frame;
pub mod information;
pub mod pending;
pub mod send;
pub mod set;
pub mod shared;
pub mod source;
