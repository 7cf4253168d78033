//! The run request: what the kernel is asked to run, as the bytes of the file [`FILE`] in the initramfs.
//!
//! A sequence of records `key NUL value NUL`. Keys may repeat (`arg`, `env`); their order is kept. The kernel takes
//! the file out of the archive, so programs never see it.

use crate::FrameError;

/// Where the request lies in the initramfs.
pub const FILE: &str = ".starling/run";

/// The keys of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// One argument of the command, in order, the program first. None at all: the interactive shell `/bin/sh`.
    Argument,
    /// One `NAME=VALUE` of the environment.
    Environment,
    /// The directory that the command starts in.
    WorkingDirectory,
    /// `1`: the command has the terminal `/dev/console`; `0`: it has three streams.
    Terminal,
    /// Lines of the terminal.
    Rows,
    /// Characters in a line of the terminal.
    Columns,
    /// `UID:GID` in decimal.
    User,
    /// The host name.
    HostName,
    /// `TAG rw`: the root file system is at the file server of that tag. `TAG ro`: that is only read, and changes are kept in memory.
    /// `SERIAL rw TYPE` and `SERIAL ro TYPE`: the same of the disk with that serial number, which has a file system of that type on it.
    Root,
    /// `TAG OPTIONS PATH`: what the file server of that tag has is mounted at the path. Options are `ro` or `rw`, then `,loose` if nobody else changes the files.
    Volume,
}

impl Key {
    /// All keys.
    pub const ALL: [Self; 10] = [
        Self::Argument,
        Self::Environment,
        Self::WorkingDirectory,
        Self::Terminal,
        Self::Rows,
        Self::Columns,
        Self::User,
        Self::HostName,
        Self::Root,
        Self::Volume,
    ];

    /// The key as it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Argument => "arg",
            Self::Environment => "env",
            Self::WorkingDirectory => "workdir",
            Self::Terminal => "tty",
            Self::Rows => "rows",
            Self::Columns => "columns",
            Self::User => "user",
            Self::HostName => "hostname",
            Self::Root => "root",
            Self::Volume => "volume",
        }
    }

    /// The key that is written like this.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name().as_bytes() == name)
    }
}

/// Appends the record `key`=`value` to `out`.
///
/// # Errors
/// [`FrameError::BadValue`] when `value` has a NUL byte in it.
pub fn append(out: &mut impl Extend<u8>, key: Key, value: &[u8]) -> Result<(), FrameError> {
    if value.contains(&0) {
        return Err(FrameError::BadValue(0));
    }
    out.extend(key.name().bytes().chain([0]).chain(value.iter().copied()).chain([0]));
    Ok(())
}

/// The records of a request, in order. Records with a key that this version does not know are passed over.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// The records in the bytes of the file.
    #[must_use]
    pub const fn new(file: &'a [u8]) -> Self {
        Self { rest: file }
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        let (string, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Some(string)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (Key, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (name, value) = (self.string()?, self.string()?);
            if let Some(key) = Key::from_name(name) {
                return Some((key, value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_in_order() {
        let mut file = Vec::new();
        append(&mut file, Key::Argument, b"sh").expect("no NUL");
        append(&mut file, Key::Argument, b"").expect("no NUL");
        append(&mut file, Key::Environment, b"A=b\nc=d").expect("no NUL");
        append(&mut file, Key::Terminal, b"0").expect("no NUL");
        let records: Vec<_> = Records::new(&file).collect();
        assert_eq!(
            records,
            [
                (Key::Argument, &b"sh"[..]),
                (Key::Argument, b""),
                (Key::Environment, b"A=b\nc=d"),
                (Key::Terminal, b"0")
            ]
        );
    }

    #[test]
    fn value_with_a_nul_is_refused() {
        assert_eq!(append(&mut Vec::new(), Key::Argument, b"a\0b"), Err(FrameError::BadValue(0)));
    }

    #[test]
    fn unknown_keys_are_passed_over_and_a_cut_off_record_ends_the_list() {
        let file = b"future\0x\0user\x000:0\0tty\x001";
        let records: Vec<_> = Records::new(file).collect();
        assert_eq!(records, [(Key::User, &b"0:0"[..])]);
    }
}
