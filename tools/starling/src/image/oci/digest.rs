//! What names a blob: the hash of its bytes.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256, Sha512};

use crate::failure::{Context, Failure, Outcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Algorithm {
    Sha256,
    Sha512,
}

impl Algorithm {
    const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    const fn digits(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

/// A digest, as in `sha256:` and 64 digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Digest {
    algorithm: Algorithm,
    hexadecimal: String,
}

impl Digest {
    /// Where the blob is in a layout.
    pub(crate) fn path(&self) -> String {
        format!("blobs/{}/{}", self.algorithm.name(), self.hexadecimal)
    }

    /// The start of its digits, for people.
    pub(crate) fn short(&self) -> &str {
        &self.hexadecimal[..12]
    }

    /// The SHA-256 of some bytes.
    #[cfg(test)]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { algorithm: Algorithm::Sha256, hexadecimal: digits(&Sha256::digest(bytes)) }
    }

    /// Fails when the bytes that can be read are other ones than those it names.
    pub(crate) fn verify(&self, mut bytes: impl Read) -> Outcome<()> {
        let found = match self.algorithm {
            Algorithm::Sha256 => read_through::<Sha256>(&mut bytes),
            Algorithm::Sha512 => read_through::<Sha512>(&mut bytes),
        };
        let found = found.context(|| format!("reading blob {self}"))?;
        if found == self.hexadecimal {
            return Ok(());
        }
        let name = self.algorithm.name();
        Err(Failure::ours(format!("blob {self} is damaged: what is there has the digest {name}:{found}")))
    }
}

fn digits(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_through<D: sha2::Digest + io::Write>(bytes: &mut impl Read) -> io::Result<String> {
    let mut hash = D::new();
    io::copy(bytes, &mut hash)?;
    Ok(digits(&hash.finalize()))
}

/// Passes on what is written to it, and takes its SHA-256.
#[derive(Debug)]
pub(crate) struct HashingWriter<W> {
    out: W,
    hash: Sha256,
    /// Bytes so far.
    pub(crate) length: u64,
}

impl<W: io::Write> HashingWriter<W> {
    /// Nothing has been written yet.
    pub(crate) fn new(out: W) -> Self {
        Self { out, hash: Sha256::new(), length: 0 }
    }

    /// Where everything went, and its digest.
    pub(crate) fn finish(self) -> (W, Digest) {
        let hexadecimal = digits(&self.hash.finalize());
        (self.out, Digest { algorithm: Algorithm::Sha256, hexadecimal })
    }
}

impl<W: io::Write> io::Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.length += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.name(), self.hexadecimal)
    }
}

impl FromStr for Digest {
    type Err = Failure;

    fn from_str(text: &str) -> Outcome<Self> {
        let bad = || Failure::ours(format!("{} is no digest that is known here", text.escape_debug()));
        let (name, hexadecimal) = text.split_once(':').ok_or_else(bad)?;
        let algorithm = [Algorithm::Sha256, Algorithm::Sha512].into_iter().find(|known| known.name() == name);
        let algorithm = algorithm.ok_or_else(bad)?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hexadecimal.len() != algorithm.digits() || !hexadecimal.bytes().all(is_digit) {
            return Err(bad());
        }
        Ok(Self { algorithm, hexadecimal: hexadecimal.to_owned() })
    }
}

impl TryFrom<String> for Digest {
    type Error = Failure;

    fn try_from(text: String) -> Outcome<Self> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-4's example.
    const ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn digest_is_of_the_bytes() {
        let digest: Digest = ABC.parse().expect("well formed");
        assert_eq!(digest, Digest::of(b"abc"));
        digest.verify(&b"abc"[..]).expect("the same bytes");
        let failure = digest.verify(&b"abd"[..]).expect_err("others").to_string();
        assert!(failure.starts_with(&format!("blob {ABC} is damaged")), "{failure}");
        let mut writer = HashingWriter::new(Vec::new());
        io::Write::write_all(&mut writer, b"abc").expect("memory");
        assert_eq!((writer.length, writer.finish().1), (3, digest));
    }

    #[test]
    fn what_could_name_another_place_is_no_digest() {
        for text in ["sha256:../../etc/passwd", "md5:abc", "sha256", "", &ABC[..70], &ABC.to_uppercase()] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
