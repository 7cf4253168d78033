//! Vector registers of hosted user threads: there are none, only their image.

use crate::user_state::IMAGE_BYTES;

pub(crate) fn image_bytes() -> usize {
    IMAGE_BYTES
}

pub(crate) fn components() -> u64 {
    0b111
}

pub(crate) fn save(_image: &mut [u8; IMAGE_BYTES]) {}

pub(crate) fn restore(_image: &[u8; IMAGE_BYTES]) {}

pub(crate) fn bases(fs_base: u64, gs_base: u64) -> (u64, u64) {
    (fs_base, gs_base)
}

pub(crate) fn set_bases(_fs_base: u64, _gs_base: u64) {}
