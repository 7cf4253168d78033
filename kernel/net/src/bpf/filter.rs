//! Filters of sockets: programs that say how much of a message is kept.
//!
//! Loads read the message, as numbers in the order of networks; what reads behind its end ends the program, and the message is dropped. Places from
//! [`ANCILLARY`] on stand for what is known besides. Local and netlink messages come from no device and have no protocol, mark or tag: those are 0, or
//! end the program.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use vfs::{Error, Result};

use super::attributes;
use super::machine::{self, Instruction, Loaded, code};

/// Places from here on are no bytes (`SKF_AD_OFF`).
const ANCILLARY: u32 = -0x1000_i32 as u32;
/// Places from here on begin at the network's header (`SKF_NET_OFF`): these messages begin with that.
const NETWORK: u32 = -0x10_0000_i32 as u32;

/// What places behind [`ANCILLARY`] stand for (`SKF_AD_…`).
mod ancillary {
    pub(super) const INTERFACE: u32 = 8;
    pub(super) const ATTRIBUTE: u32 = 12;
    pub(super) const NESTED_ATTRIBUTE: u32 = 16;
    pub(super) const HARDWARE_TYPE: u32 = 28;
    pub(super) const CPU: u32 = 36;
    pub(super) const XOR_X: u32 = 40;
    pub(super) const RANDOM: u32 = 56;
    /// One behind the last one; they are words.
    pub(super) const END: u32 = 64;
}

/// A message, as filters read it.
pub trait Packet {
    /// Its bytes.
    fn length(&self) -> usize;
    /// Copies bytes from a place on; false if not all of them are there.
    fn read(&self, from: usize, into: &mut [u8]) -> bool;
}

impl Packet for [u8] {
    fn length(&self) -> usize {
        self.len()
    }

    fn read(&self, from: usize, into: &mut [u8]) -> bool {
        let end = from.checked_add(into.len());
        end.and_then(|end| self.get(from..end)).is_some_and(|bytes| {
            into.copy_from_slice(bytes);
            true
        })
    }
}

/// A filter that was checked.
#[derive(Debug)]
pub struct Filter(Vec<Instruction>);

impl Filter {
    /// Checks a program.
    ///
    /// # Errors
    /// `EINVAL`, `ENOMEM`.
    pub fn new(instructions: Vec<Instruction>) -> Result<Self> {
        if machine::is_sound(&instructions, is_load)? { Ok(Self(instructions)) } else { Err(Error::Invalid) }
    }

    /// What it is made of.
    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// How many bytes of a message are kept at most; 0: it is dropped.
    pub fn run(&self, packet: &(impl Packet + ?Sized)) -> u32 {
        let length = packet.length() as u32;
        let outcome = machine::interpret(&self.0, |instruction, a, x| {
            let Instruction { code, constant, .. } = instruction;
            let loaded = |value: Option<u32>| value.map_or(Loaded::End(0), Loaded::A);
            match code {
                code::LD_W_LEN => Loaded::A(length),
                code::LDX_W_LEN => Loaded::X(length),
                code::LDX_B_MSH => match read(packet, constant, 1) {
                    Some(byte) => Loaded::X((byte & 0xf) << 2),
                    None => Loaded::End(0),
                },
                code::LD_W_IND | code::LD_H_IND | code::LD_B_IND => {
                    loaded(read(packet, x.wrapping_add(constant), width(code)))
                }
                _ if constant >= ANCILLARY => load_ancillary(packet, constant - ANCILLARY, a, x),
                _ => loaded(read(packet, constant, width(code))),
            }
        });
        outcome.unwrap_or(0)
    }
}

/// Bytes that a load reads.
fn width(code: u16) -> usize {
    match code {
        code::LD_W_ABS | code::LD_W_IND => 4,
        code::LD_H_ABS | code::LD_H_IND => 2,
        _ => 1,
    }
}

/// Whether there is such a load.
fn is_load(instruction: Instruction) -> bool {
    let Instruction { code, constant, .. } = instruction;
    match code {
        code::LD_W_IND | code::LD_H_IND | code::LD_B_IND | code::LDX_B_MSH => true,
        code::LD_W_ABS | code::LD_H_ABS | code::LD_B_ABS => match constant.checked_sub(ANCILLARY) {
            Some(what) => what < ancillary::END && what.is_multiple_of(4),
            None => true,
        },
        _ => false,
    }
}

/// A number of the message.
fn read(packet: &(impl Packet + ?Sized), place: u32, width: usize) -> Option<u32> {
    let place = match place {
        NETWORK.. => place - NETWORK,
        // Other places below zero are in the header of a device, which there is none of.
        place if place > i32::MAX as u32 => return None,
        place => place,
    };
    let mut bytes = [0; 4];
    packet.read(place as usize, &mut bytes[4 - width..]).then(|| u32::from_be_bytes(bytes))
}

fn load_ancillary(packet: &(impl Packet + ?Sized), what: u32, a: u32, x: u32) -> Loaded {
    match what {
        // Without a device the program ends with what it has.
        ancillary::INTERFACE | ancillary::HARDWARE_TYPE => Loaded::End(a),
        ancillary::ATTRIBUTE => Loaded::A(attributes::find(packet, a, x)),
        ancillary::NESTED_ATTRIBUTE => Loaded::A(attributes::find_nested(packet, a, x)),
        ancillary::CPU => Loaded::A(::machine::cpu::current().index() as u32),
        ancillary::XOR_X => Loaded::A(a ^ x),
        ancillary::RANDOM => Loaded::A(random()),
        _ => Loaded::A(0),
    }
}

/// A number for who takes samples: evenly spread, and nobody's secret.
fn random() -> u32 {
    /// What a number differs from the one before by, and factors that spread its bits (the generator SplitMix64).
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    const FACTORS: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];
    static STATE: AtomicU64 = AtomicU64::new(0);
    let mut value = STATE.fetch_add(STEP, Ordering::Relaxed) ^ ::machine::time::now_ns();
    value = (value ^ value >> 30).wrapping_mul(FACTORS[0]);
    value = (value ^ value >> 27).wrapping_mul(FACTORS[1]);
    (value >> 32) as u32
}
