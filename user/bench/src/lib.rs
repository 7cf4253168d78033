//! What the programs behind `starling bench` and `starling trace` have in common.
//!
//! They are two programs: what the benchmarks cost includes the execution of their own, so that one is as small as can be.
//!
//! * [`disk`]: the disk with an ext4 of some suites
//! * [`measure`]: how a value is found, and the lines that the host reads
//! * [`process`]: forking and executing, in the few lines that need it
//! * [`signal`]: a handler that counts

pub mod disk;
pub mod measure;
pub mod process;
pub mod signal;
