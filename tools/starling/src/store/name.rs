//! Names of images in the store: `NAME[:TAG]`, as docker's.

use std::fmt;
use std::str::FromStr;

use crate::failure::{Failure, Outcome};

/// The tag of a name without one.
const USUAL_TAG: &str = "latest";
/// The longest name and tag, as docker has them.
const NAME_BYTES_MAX: usize = 255;
const TAG_BYTES_MAX: usize = 128;

/// A name that an image can have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ImageName(String);

impl ImageName {
    /// As text, with its tag.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ImageName {
    type Err = Failure;

    fn from_str(text: &str) -> Outcome<Self> {
        let (name, tag) = text.split_once(':').unwrap_or((text, USUAL_TAG));
        if !is_name(name) || !is_tag(tag) {
            return Err(Failure::ours(format!(
                "{} is no name of an image: small letters, digits and . _ - / with a tag after : at most",
                text.escape_debug()
            )));
        }
        Ok(Self(format!("{name}:{tag}")))
    }
}

/// Parts of small letters and digits, with separators only inside.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= NAME_BYTES_MAX
        && name.split('/').all(|part| {
            let bytes = part.as_bytes();
            bytes.first().is_some_and(|byte| is_plain(*byte))
                && bytes.last().is_some_and(|byte| is_plain(*byte))
                && bytes.iter().all(|byte| is_plain(*byte) || b"._-".contains(byte))
        })
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=TAG_BYTES_MAX).contains(&tag.len())
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || b".-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dockers() {
        let name = |text: &str| text.parse::<ImageName>().map(|name| name.to_string()).ok();
        assert_eq!(name("debian").as_deref(), Some("debian:latest"));
        assert_eq!(name("lib/debian:12.5").as_deref(), Some("lib/debian:12.5"));
        for bad in ["", "Debian", "a//b", "/a", "a:", ":b", "a:b:c", "../x", "a b", "-a", "a:-x", "./x"] {
            assert_eq!(name(bad), None, "{bad}");
        }
    }
}
