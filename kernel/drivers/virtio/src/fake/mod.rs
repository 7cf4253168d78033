//! Devices that are a part of a test: registers, queues, and a will of their own.
//!
//! | module | what it decides |
//! |---|---|
//! | [`random`] | what happens, from a seed |
//! | [`queue`] | what the device sees of a queue, and what it writes there |
//! | [`device`] | registers; what the device does, as its [`Character`](device::Character) says |
//! | [`entropy`] | readers of random bytes, with devices that have none |
//! | [`hostile`] | drivers with such devices, from their probe to their end |
//!
//! The device reaches memory by the addresses that it is told, and a [`Witness`](::device::dma::witness::Witness) knows which of it the device has: memory that is freed too
//! early, or that is nobody's, is a fault.

mod device;
mod entropy;
mod hostile;
mod queue;
mod random;
