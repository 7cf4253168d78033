//! A plugin for QEMU's translator (`-plugin`) that records which cache lines the kernel reads and writes inside windows that
//! the program in the guest opens and closes.
//!
//! A window is what one processor does between two *markers*: instructions that do nothing, with a number in them
//! (`instruction::Marker`). The program needs no privilege for them, and they change nothing where no plugin listens. Inside a
//! window every load and store of an instruction in the upper half of the address space is recorded, by physical cache line, so
//! that one line under two virtual addresses is one line, with the address of the instruction and whether it is locked.
//!
//! # Output
//! Into the file of the argument `out=PATH`, a block a window, written when the window closes:
//!
//! ```text
//! window PROCESSOR LABEL
//! KIND PHYSICAL VIRTUAL CODE COUNT
//! ...
//! end
//! ```
//!
//! with `r`, `w` or `a` (an atomic read-modify-write) as the kind and numbers in hexadecimal. PHYSICAL is the address of the
//! first byte touched, as is VIRTUAL; a line that one instruction touches at several places is told once.
//!
//! * `instruction`: what is read off the bytes of an instruction
//! * `recording`: windows, and how they are printed
//! * `calls`: with the argument `marks=ADDRESS+LENGTH` no windows are recorded, but atomic operations counted by system call
//! * `hooks`: QEMU's side; its interface is declared here after its public documentation
// The hooks are left out of the tests, whose program has no QEMU to link with, and all else seems unused without them.
#![cfg_attr(test, allow(dead_code))]

mod calls;
#[cfg(not(test))]
mod hooks;
mod instruction;
mod recording;
