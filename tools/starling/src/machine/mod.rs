//! The virtual machine: the kernel it boots, the accelerator it runs on, and QEMU.

mod accelerator;
mod kernel_image;
mod probe_guest;
mod qemu;
mod repository;

pub(crate) use accelerator::Accelerator;
pub(crate) use kernel_image::{Build, Kernel, kernel_packages};
pub(crate) use qemu::{
    Configuration, ROOT_DISK, Share, VirtualMachine, base_arguments, bound_to_parent, disk_arguments,
    program as qemu_program,
};
pub(crate) use repository::Repository;
