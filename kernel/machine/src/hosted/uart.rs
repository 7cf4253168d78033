//! A hosted machine has no serial ports.

use crate::uart::Register;

pub(crate) fn exists(_index: usize) -> bool {
    false
}

pub(crate) fn read(_index: usize, _register: Register) -> u8 {
    0xff
}

pub(crate) fn write(_index: usize, _register: Register, _value: u8) {}

pub(crate) fn write_burst(_index: usize, _bytes: &[u8]) {}
