//! Signals: numbers, queues, dispositions, sending, delivery, and the calls about them.

pub mod information;
pub mod pending;
pub mod set;
