//! Devices: buses and drivers, PCI Express with its port services, interrupts by message, DMA, device registers.
//!
//! | module | what it decides |
//! |---|---|
//! | [`model`] | what a bus, a device and a driver are to each other; events for user space |
//! | [`pci`] | configuration space, enumeration, addresses, interrupts by message |
//! | [`express`] | the port bus and its services: hot-plug, error reporting, power events, virtual channels |
//! | [`interrupt`] | interrupts that several drivers share, spread over the processors |
//! | [`mmio`], [`dma`] | device registers, and memory that devices reach, behind safe types |
//! | [`signal`] | what an interrupt wakes a driver's thread by |
//!
//! What user space sees of all this (`/sys`, `/proc/bus/pci`) is made by a crate above the file systems from what is public here.
//!
//! Nearly everything is code that only sees [`pci::ConfigAccess`], a trait with a modelled machine behind it in tests.
#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

pub mod dma;
pub mod express;
pub mod interrupt;
pub mod interrupt_limit;
pub mod mmio;
pub mod model;
pub mod pci;
pub mod random_source;
pub mod signal;
