//! Boot information of a hosted machine: none but an empty command line.

use crate::address::PhysAddr;
use crate::boot::{BootInfo, PhysRange};

static INFO: BootInfo = BootInfo {
    memory_map: &[],
    command_line: "",
    initramfs: None,
    rsdp: None,
    kernel_image: PhysRange { start: PhysAddr::new(0), end: PhysAddr::new(0) },
};

pub(crate) fn info() -> &'static BootInfo {
    &INFO
}

pub(crate) fn early_allocate(_bytes: usize, _align: usize) -> Option<PhysAddr> {
    None
}

pub(crate) fn hand_over() -> &'static [PhysRange] {
    &[]
}
