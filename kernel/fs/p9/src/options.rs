//! What `mount -o` says.

use alloc::vec::Vec;
use core::fmt;

use vfs::{Error, Result, allocation};

/// How large messages are without `msize=`: a run of pages fits, with what goes before it.
const MESSAGE_BYTES: u32 = (128 << 10) + 4096;
/// What `msize=` may say at most.
const MESSAGE_BYTES_MAX: u32 = 1 << 20;

/// What is kept of files between calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// Nothing: every call asks the server.
    None,
    /// Names, attributes and pages: nobody else changes the files.
    Loose,
}

/// What carries messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// A device, by the name that is mounted.
    Virtio,
    /// What the program that mounts has open, by number: where replies come from, and where requests go.
    Files { from: u32, to: u32 },
}

/// Options of a mount.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) carrier: Carrier,
    pub(crate) message_bytes: u32,
    pub(crate) caching: Caching,
    /// The user's name, told to the server.
    pub(crate) user_name: Vec<u8>,
    /// Which of the server's trees.
    pub(crate) tree: Vec<u8>,
}

/// What is said of a carrier, in any order.
#[derive(Default)]
struct Words {
    by_files: bool,
    from: Option<u32>,
    to: Option<u32>,
}

fn number(text: &[u8]) -> Result<u32> {
    core::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Error::Invalid)
}

fn one_of(value: &[u8], known: &[&[u8]]) -> Result<()> {
    if known.contains(&value) { Ok(()) } else { Err(Error::Invalid) }
}

fn copied(text: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    allocation::extend(&mut copy, text)?;
    Ok(copy)
}

impl Options {
    /// Reads them; words that nobody knows are passed over, as Linux does.
    ///
    /// # Errors
    /// `EINVAL` for values that make no sense, or that are not supported.
    pub(crate) fn parse(text: &[u8]) -> Result<Self> {
        let mut options = Self {
            carrier: Carrier::Virtio,
            message_bytes: MESSAGE_BYTES,
            caching: Caching::None,
            user_name: copied(b"nobody")?,
            tree: Vec::new(),
        };
        let mut words = Words::default();
        for word in text.split(|&byte| byte == b',').filter(|word| !word.is_empty()) {
            let mut parts = word.splitn(2, |&byte| byte == b'=');
            let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            options.set(name, value, &mut words).inspect_err(|_| {
                log::warn!("9p: option {}", word.escape_ascii());
            })?;
        }
        if words.by_files {
            let (from, to) = (words.from.ok_or(Error::Invalid)?, words.to.ok_or(Error::Invalid)?);
            options.carrier = Carrier::Files { from, to };
        }
        Ok(options)
    }

    fn set(&mut self, name: &[u8], value: &[u8], words: &mut Words) -> Result<()> {
        match name {
            b"trans" => one_of(value, &[b"virtio", b"fd"]).map(|()| words.by_files = value == b"fd"),
            b"rfdno" => number(value).map(|number| words.from = Some(number)),
            b"wfdno" => number(value).map(|number| words.to = Some(number)),
            b"version" => one_of(value, &[b"9p2000.L"]),
            // Who may do what is decided here, by owners and modes.
            b"access" => one_of(value, &[b"client", b"any", b"user"]),
            b"msize" => {
                self.message_bytes = number(value)?.min(MESSAGE_BYTES_MAX);
                if self.message_bytes < crate::client::MESSAGE_BYTES_MIN {
                    Err(Error::Invalid)
                } else {
                    Ok(())
                }
            }
            b"cache" => {
                self.caching = match value {
                    b"none" | b"mmap" | b"0" => Caching::None,
                    b"loose" | b"fscache" | b"readahead" => Caching::Loose,
                    _ => return Err(Error::Invalid),
                };
                Ok(())
            }
            b"uname" => copied(value).map(|name| self.user_name = name),
            b"aname" => copied(value).map(|tree| self.tree = tree),
            _ => {
                log::info!("9p: option {} has no meaning here", name.escape_ascii());
                Ok(())
            }
        }
    }

    /// As `/proc/mounts` shows them.
    pub(crate) fn show(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        if self.caching == Caching::Loose {
            out.write_str(",cache=loose")?;
        }
        if !self.tree.is_empty() {
            write!(out, ",aname={}", self.tree.escape_ascii())?;
        }
        write!(out, ",access=client,msize={}", self.message_bytes)?;
        match self.carrier {
            Carrier::Virtio => out.write_str(",trans=virtio"),
            Carrier::Files { from, to } => write!(out, ",trans=fd,rfd={from},wfd={to}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_linux() {
        let text = b"trans=virtio,version=9p2000.L,msize=65536,access=any,cache=loose,aname=/srv,posixacl";
        let options = Options::parse(text).expect("known words");
        assert_eq!((options.message_bytes, options.caching), (65536, Caching::Loose));
        assert_eq!(options.tree, b"/srv");
        assert_eq!(Options::parse(b"").expect("nothing is fine").caching, Caching::None);
        let carrier = |text: &[u8]| Options::parse(text).expect("known words").carrier;
        assert_eq!(carrier(b"trans=fd,wfdno=4,rfdno=3"), Carrier::Files { from: 3, to: 4 });
        assert_eq!(carrier(b"rfdno=3,wfdno=4"), Carrier::Virtio);
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        for text in [
            "version=9p2000.u",
            "trans=tcp",
            "msize=100",
            "msize=x",
            "cache=best",
            "access=7",
            "trans=fd",
            "trans=fd,rfdno=3",
            "trans=fd,rfdno=3,wfdno=x",
        ] {
            assert!(Options::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
