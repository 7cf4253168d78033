//! Options of a mount.
//!
//! `lowerdir=A:B:C,upperdir=U,workdir=W`; of the lower directories the first is uppermost. A backslash takes its meaning from a colon, comma or backslash
//! that follows. Options that switch off what is not there anyway are accepted.

use alloc::vec::Vec;

use vfs::{Error, Result, allocation};

/// Most lower layers.
pub(crate) const LOWERS_MAX: usize = 500;

/// Said without need: this is how it is.
const WITHOUT_EFFECT: [&[u8]; 17] = [
    b"redirect_dir=off",
    b"redirect_dir=nofollow",
    b"index=off",
    b"metacopy=off",
    b"nfs_export=off",
    b"xino=off",
    b"xino=auto",
    b"uuid=off",
    b"uuid=auto",
    b"uuid=on",
    b"uuid=null",
    b"verity=off",
    b"fsync=auto",
    b"fsync=strict",
    b"default_permissions",
    b"ro",
    b"rw",
];

/// See the theory of this file. Paths are as given, without escapes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) lowers: Vec<Vec<u8>>,
    pub(crate) upper: Option<Vec<u8>>,
    pub(crate) work: Option<Vec<u8>>,
    /// Nothing is made to last: neither what is copied up, nor by `sync`.
    pub(crate) volatile: bool,
}

/// The pieces between separators that are not escaped.
fn pieces(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    core::iter::from_fn(move || {
        let text = rest?;
        let mut escaped = false;
        let end = text.iter().position(|&byte| {
            let ends = byte == separator && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        rest = end.map(|end| &text[end + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

/// A path without its escapes.
fn plain(text: &[u8]) -> Result<Vec<u8>> {
    let mut path = Vec::new();
    allocation::reserve(&mut path, text.len())?;
    let mut escaped = false;
    for &byte in text {
        if byte == b'\\' && !escaped {
            escaped = true;
        } else {
            escaped = false;
            path.push(byte);
        }
    }
    Ok(path)
}

impl Options {
    /// # Errors
    /// `EINVAL` for options that are not known, or do not fit together.
    pub(crate) fn parse(text: &[u8]) -> Result<Self> {
        let mut options = Self::default();
        for option in pieces(text, b',').filter(|option| !option.is_empty()) {
            if let Some(list) = option.strip_prefix(b"lowerdir=") {
                options.lowers.clear();
                for path in pieces(list, b':') {
                    allocation::push(&mut options.lowers, plain(path)?)?;
                }
            } else if let Some(path) = option.strip_prefix(b"upperdir=") {
                options.upper = Some(plain(path)?);
            } else if let Some(path) = option.strip_prefix(b"workdir=") {
                options.work = Some(plain(path)?);
            } else if option == b"volatile" {
                options.volatile = true;
            } else if !WITHOUT_EFFECT.contains(&option) {
                log::warn!("overlay: the option {} is not supported", option.escape_ascii());
                return Err(Error::Invalid);
            }
        }
        options.check()
    }

    fn check(mut self) -> Result<Self> {
        let wrong = |why: &str| {
            log::warn!("overlay: {why}");
            Err(Error::Invalid)
        };
        if self.lowers.is_empty() || self.lowers.iter().any(Vec::is_empty) {
            return wrong("lowerdir= is missing, or has an empty path");
        }
        if self.lowers.len() > LOWERS_MAX {
            return wrong("too many lower directories");
        }
        if self.upper.is_some() && self.work.is_none() {
            return wrong("upperdir= needs workdir=");
        }
        if self.upper.is_none() {
            self.work = None;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_separated_by_colons_and_escaped_by_backslashes() {
        let options = Options::parse(br"lowerdir=/a:/b\:c:/d\,e\\,upperdir=u,workdir=w").unwrap();
        assert_eq!(options.lowers, [&b"/a"[..], b"/b:c", br"/d,e\"]);
        assert_eq!((options.upper.as_deref(), options.work.as_deref()), (Some(&b"u"[..]), Some(&b"w"[..])));
        assert!(!options.volatile);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for text in
            ["", "upperdir=u,workdir=w", "lowerdir=a:,b", "lowerdir=a,upperdir=u", "lowerdir=a,index=on"]
        {
            assert_eq!(Options::parse(text.as_bytes()), Err(Error::Invalid), "{text}");
        }
        let lower_only = Options::parse(b"lowerdir=a,workdir=w,xino=off").unwrap();
        assert_eq!((lower_only.upper, lower_only.work), (None, None));
    }
}
