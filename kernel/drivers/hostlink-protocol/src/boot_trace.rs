//! The records of a `BOOT_TRACE` frame: a name and a time since the kernel was entered.
//!
//! Each record is `u64 nanoseconds, u8 name length, name`. [`BootRecords::decode`] checks the whole payload once, so
//! that iterating over it cannot fail.

use crate::FrameError;
use crate::GuestFrame;
use crate::wire::Reader;

/// One moment of the boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootRecord<'a> {
    /// Nanoseconds since the kernel was entered.
    pub nanoseconds: u64,
    /// What was finished then, UTF-8.
    pub name: &'a [u8],
}

impl<'a> BootRecord<'a> {
    /// The longest name of a record.
    pub const MAX_NAME: usize = u8::MAX as usize;

    fn read(fields: &mut Reader<'a>) -> Result<Self, FrameError> {
        let nanoseconds = fields.u64()?;
        let length = fields.u8()?;
        Ok(Self { nanoseconds, name: fields.bytes(length.into())? })
    }

    /// Appends the record's bytes (without a frame header) to the front of `out` and returns their number.
    ///
    /// # Errors
    /// [`FrameError::NoRoom`] when `out` is too small, [`FrameError::TooLong`] for a name over [`Self::MAX_NAME`].
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, FrameError> {
        let length = u8::try_from(self.name.len()).map_err(|_| FrameError::TooLong(self.name.len()))?;
        let bytes = 9 + self.name.len();
        let (record, _) = out.split_at_mut_checked(bytes).ok_or(FrameError::NoRoom)?;
        record[..8].copy_from_slice(&self.nanoseconds.to_le_bytes());
        record[8] = length;
        record[9..].copy_from_slice(self.name);
        Ok(bytes)
    }
}

/// The records of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootRecords<'a>(&'a [u8]);

impl<'a> BootRecords<'a> {
    /// The records in `payload`.
    ///
    /// # Errors
    /// [`FrameError::WrongLength`] when a record is cut off.
    pub fn decode(payload: &'a [u8]) -> Result<Self, FrameError> {
        let mut fields = Reader::new(GuestFrame::BOOT_TRACE, payload);
        while !fields.is_empty() {
            BootRecord::read(&mut fields)?;
        }
        Ok(Self(payload))
    }

    /// The records as they travel.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for BootRecords<'a> {
    type Item = BootRecord<'a>;

    fn next(&mut self) -> Option<BootRecord<'a>> {
        let mut fields = Reader::new(GuestFrame::BOOT_TRACE, self.0);
        let record = BootRecord::read(&mut fields).ok()?;
        self.0 = fields.remainder();
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_in_order() {
        let mut bytes = [0; 64];
        let mut filled = 0;
        for (nanoseconds, name) in [(1, &b"entry"[..]), (2_000_000, b"processors")] {
            filled += BootRecord { nanoseconds, name }.encode(&mut bytes[filled..]).expect("fits");
        }
        let names: Vec<_> = BootRecords::decode(&bytes[..filled]).expect("whole records").collect();
        assert_eq!(names[0], BootRecord { nanoseconds: 1, name: b"entry" });
        assert_eq!(names[1], BootRecord { nanoseconds: 2_000_000, name: b"processors" });
        assert_eq!(names.len(), 2);
    }

    #[test]
    fn cut_off_record_is_an_error() {
        let mut bytes = [0; 64];
        let filled = BootRecord { nanoseconds: 1, name: b"entry" }.encode(&mut bytes).expect("fits");
        for cut in 1..filled {
            assert!(BootRecords::decode(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn overlong_name_is_an_error() {
        let name = [b'x'; 256];
        let record = BootRecord { nanoseconds: 0, name: &name };
        assert_eq!(record.encode(&mut [0; 512]), Err(FrameError::TooLong(256)));
    }
}
