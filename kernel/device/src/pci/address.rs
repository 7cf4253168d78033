//! Where a function is: segment, bus, device and function number.

use core::fmt;

/// Devices on a bus.
pub const DEVICES_PER_BUS: u8 = 32;
/// Functions of a device.
pub const FUNCTIONS_PER_DEVICE: u8 = 8;

/// The place of a function in the machine's configuration space. Ordered as it is numbered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// Group of buses with a configuration space of its own; 0 on most machines.
    pub segment: u16,
    /// Bus number.
    pub bus: u8,
    device_function: u8,
}

impl Address {
    /// The function of a device on a bus. Numbers too high for a bus wrap.
    pub const fn new(segment: u16, bus: u8, device: u8, function: u8) -> Self {
        Self { segment, bus, device_function: ((device % 32) << 3) | (function % 8) }
    }

    /// The one that a requester id names: bus, and device and function in one byte.
    pub const fn from_requester(segment: u16, id: u16) -> Self {
        Self { segment, bus: (id >> 8) as u8, device_function: id as u8 }
    }

    /// Device number.
    pub const fn device(self) -> u8 {
        self.device_function >> 3
    }

    /// Function number.
    pub const fn function(self) -> u8 {
        self.device_function & 7
    }

    /// Device and function number in one byte.
    pub const fn device_function(self) -> u8 {
        self.device_function
    }

    /// Bus, device and function in the 16 bits that messages carry.
    pub const fn requester(self) -> u16 {
        (self.bus as u16) << 8 | self.device_function as u16
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:04x}:{:02x}:{:02x}.{}", self.segment, self.bus, self.device(), self.function())
    }
}

impl core::str::FromStr for Address {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| u16::from_str_radix(text, 16).map_err(|_| ());
        let (front, function) = text.rsplit_once('.').ok_or(())?;
        let mut parts = front.split(':');
        let mut part = || parts.next().ok_or(()).and_then(number);
        let (segment, bus, device, function) = (part()?, part()?, part()?, number(function)?);
        let fits = bus <= 0xff && device < DEVICES_PER_BUS.into() && function < FUNCTIONS_PER_DEVICE.into();
        if !fits || parts.next().is_some() {
            return Err(());
        }
        Ok(Self::new(segment, bus as u8, device as u8, function as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn text_form_is_linux_s() {
        let address = Address::new(0, 4, 31, 2);
        assert_eq!(address.to_string(), "0000:04:1f.2");
        assert_eq!("0000:04:1f.2".parse(), Ok(address));
        for wrong in ["", "04:00.0", "0000:04:20.0", "0000:04:00.8", "0:0:0:0.0", "0000:100:00.0"] {
            assert_eq!(wrong.parse::<Address>(), Err(()), "{wrong}");
        }
        assert_eq!(Address::from_requester(0, 0x0400), Address::new(0, 4, 0, 0));
        assert_eq!(Address::new(0, 4, 2, 1).requester(), 0x0411);
    }
}
