//! The part of a user thread's state that stays in the CPU while the kernel runs: floating-point
//! and vector registers, and the FS and GS bases.
//!
//! The kernel is compiled without vector instructions and never touches these registers, so they
//! are saved and restored only when the CPU switches to another *user* thread (eagerly: no trap on
//! first use, hence no way to see another program's registers). A thread that is running has its
//! state in the CPU, and the copy here is stale until [`UserState::save`]. Changes made here to the
//! state of the running thread take effect at [`UserState::restore`].
//!
//! A signal frame gets its image straight from the CPU ([`save_to_user`]), and the CPU loads what sigreturn finds there
//! ([`load_from_user`]): no copy in between, and the kernel's one is not concerned.

#[cfg(not(target_os = "none"))]
use crate::backend::fpu;
#[cfg(target_os = "none")]
use crate::backend::fpu;

use crate::address::UserAddr;
#[cfg(not(target_os = "none"))]
use crate::backend::user_memory as raw;
#[cfg(target_os = "none")]
use crate::backend::user_memory as raw;
use crate::fault::Fault;

/// Bytes of the register image: legacy region (512), header (64) and the AVX halves (256). Components
/// beyond AVX are not enabled in XCR0, so the image of every enabled component fits.
pub const IMAGE_BYTES: usize = 832;

const MXCSR_OFFSET: usize = 24;
const HEADER_OFFSET: usize = 512;
const HEADER_BYTES: usize = 64;
const INITIAL_CONTROL_WORD: u16 = 0x37f;
const INITIAL_MXCSR: u32 = 0x1f80;
/// MXCSR bits that exist on every x86-64 CPU; loading any other raises an exception.
const MXCSR_MASK: u32 = 0xffff;

/// Register image that the CPU would refuse to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidImage;

#[repr(C, align(64))]
#[derive(Clone)]
struct Image([u8; IMAGE_BYTES]);

/// Floating-point and vector registers and segment bases of one user thread.
#[repr(C)]
#[derive(Clone)]
pub struct UserState {
    image: Image,
    fs_base: u64,
    gs_base: u64,
}

impl UserState {
    /// The state a program starts with: registers cleared, exceptions masked, bases zero.
    pub const fn new() -> Self {
        let mut image = [0; IMAGE_BYTES];
        let control = INITIAL_CONTROL_WORD.to_le_bytes();
        image[0] = control[0];
        image[1] = control[1];
        let mxcsr = INITIAL_MXCSR.to_le_bytes();
        image[MXCSR_OFFSET] = mxcsr[0];
        image[MXCSR_OFFSET + 1] = mxcsr[1];
        Self { image: Image(image), fs_base: 0, gs_base: 0 }
    }

    /// Copies the CPU's registers and bases here. Called for the running user thread, with
    /// interrupts off.
    #[inline]
    pub fn save(&mut self) {
        fpu::save(&mut self.image.0);
        (self.fs_base, self.gs_base) = fpu::bases(self.fs_base, self.gs_base);
    }

    /// Loads the CPU's registers and bases from here, with interrupts off.
    #[inline]
    pub fn restore(&self) {
        fpu::restore(&self.image.0);
        fpu::set_bases(self.fs_base, self.gs_base);
    }

    /// The FS base as last saved or set.
    pub fn fs_base(&self) -> u64 {
        self.fs_base
    }

    /// The GS base as last saved or set.
    pub fn gs_base(&self) -> u64 {
        self.gs_base
    }

    /// Sets the FS base; the caller has checked that it is a user address.
    pub fn set_fs_base(&mut self, base: u64) {
        self.fs_base = base;
    }

    /// Sets the GS base; the caller has checked that it is a user address.
    pub fn set_gs_base(&mut self, base: u64) {
        self.gs_base = base;
    }

    /// Bytes of the image that this CPU uses: 512 without XSAVE, 576 or 832 with.
    pub fn image_bytes() -> usize {
        fpu::image_bytes()
    }

    /// Components enabled in XCR0 (bit 0 x87, 1 SSE, 2 AVX); zero without XSAVE.
    pub fn components() -> u64 {
        fpu::components()
    }

    /// The register image in the XSAVE standard format, as last saved.
    pub fn image(&self) -> &[u8] {
        &self.image.0[..fpu::image_bytes()]
    }

    /// Replaces the register image by one that a program supplied (512 bytes: legacy registers only,
    /// the others become initial; or [`Self::image_bytes`]).
    ///
    /// # Errors
    /// [`InvalidImage`] when the length is neither, reserved MXCSR bits are set, or the header asks
    /// for components that are not enabled or for the compacted format.
    pub fn set_image(&mut self, bytes: &[u8]) -> Result<(), InvalidImage> {
        let full = fpu::image_bytes();
        if bytes.len() != HEADER_OFFSET && bytes.len() != full {
            return Err(InvalidImage);
        }
        let mxcsr = word(bytes, MXCSR_OFFSET);
        if mxcsr & !MXCSR_MASK != 0 {
            return Err(InvalidImage);
        }
        let mut image = [0; IMAGE_BYTES];
        image[..bytes.len()].copy_from_slice(bytes);
        const LEGACY_COMPONENTS: u8 = 0b11;
        let header = &mut image[HEADER_OFFSET..HEADER_OFFSET + HEADER_BYTES];
        if bytes.len() == HEADER_OFFSET {
            header.fill(0);
            header[0] = LEGACY_COMPONENTS;
        } else {
            let (components, rest) = header.split_at(8);
            let wanted = components.iter().rev().fold(0_u64, |value, &byte| (value << 8) | u64::from(byte));
            if wanted & !fpu::components() != 0 || rest.iter().any(|&byte| byte != 0) {
                return Err(InvalidImage);
            }
        }
        self.image.0 = image;
        Ok(())
    }

    /// Back to the state a program starts with (exec).
    pub fn reset(&mut self) {
        *self = Self::new();
    }
}

/// Writes the registers of the running user thread, which the CPU holds, to its memory as an image of [`UserState::image_bytes`],
/// except the 48 bytes of the legacy part that are for the use of software. May sleep. The address is aligned to 64.
///
/// # Errors
/// [`Fault`] when a byte can't be written.
pub fn save_to_user(to: UserAddr) -> Result<(), Fault> {
    let start = crate::user_memory::check(to, fpu::image_bytes())?;
    // SAFETY: the range lies in the user half; the components are those that are enabled.
    if unsafe { raw::save_registers(start, fpu::components() as u32) } == 0 { Ok(()) } else { Err(Fault) }
}

/// Loads the registers of the running user thread into the CPU from an image of [`UserState::image_bytes`] in its memory. May
/// sleep. The address is aligned to 64.
///
/// # Errors
/// [`Fault`] when a byte can't be read or the CPU refuses the image; the registers are a mixture of old and new values then.
pub fn load_from_user(from: UserAddr) -> Result<(), Fault> {
    let start = crate::user_memory::check(from, fpu::image_bytes())?;
    // SAFETY: the range lies in the user half; the components are those that are enabled, and the CPU checks the image itself.
    if unsafe { raw::load_registers(start, fpu::components() as u32) } == 0 { Ok(()) } else { Err(Fault) }
}

impl Default for UserState {
    fn default() -> Self {
        Self::new()
    }
}

fn word(bytes: &[u8], offset: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image_with(offset: usize, byte: u8) -> [u8; IMAGE_BYTES] {
        let mut image = [0; IMAGE_BYTES];
        image[offset] = byte;
        image
    }

    #[test]
    fn reserved_mxcsr_bits_are_refused() {
        let image = image_with(MXCSR_OFFSET + 2, 1);
        assert_eq!(UserState::new().set_image(&image[..512]), Err(InvalidImage));
    }

    #[test]
    fn legacy_images_are_taken() {
        let mut state = UserState::new();
        assert_eq!(state.set_image(&image_with(160, 7)[..512]), Ok(()));
        assert_eq!(state.image()[160], 7);
    }

    #[test]
    fn odd_lengths_are_refused() {
        assert_eq!(UserState::new().set_image(&[0; 100]), Err(InvalidImage));
    }
}
