//! How big the kernel is that QEMU loads.

use std::env;
use std::path::{Path, PathBuf};

/// What is promised.
pub(crate) const NAME: &str = "the kernel image is under 4 MiB";

const BYTES_MAX: u64 = 4 << 20;

/// Looks at the image that the cases have booted.
pub(crate) fn check() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let image = root.join(target).join("x86_64-unknown-none/release/starling-kernel.image");
    let bytes = std::fs::metadata(&image).map_err(|error| format!("{}: {error}", image.display()))?.len();
    if bytes < BYTES_MAX { Ok(()) } else { Err(format!("{} has {bytes} bytes", image.display())) }
}
