//! Layers: unpacking them, and putting them over each other.

use std::io::{self, BufReader, Read, Write};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

use super::super::content::Section;
use super::super::tarball;
use super::super::tree::Tree;
use super::digest::Digest;
use crate::failure::{Context, Failure, Outcome};

/// How archives of layers are compressed.
const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

/// The uncompressed archive of a layer, with the digest that the configuration has for it.
///
/// # Errors
/// When it is damaged, or another one than the configuration says.
pub(super) fn unpack(layer: &Section, digest: &Digest) -> Outcome<Section> {
    let start = layer.first_bytes(ZSTD.len()).context(|| "a layer".into())?;
    let damaged = || format!("layer {digest} is damaged");
    let plain = if start.starts_with(GZIP) {
        copy(MultiGzDecoder::new(BufReader::new(layer.reader()))).context(damaged)?
    } else if start.starts_with(ZSTD) {
        let frame = StreamingDecoder::new(BufReader::new(layer.reader()))
            .map_err(|error| Failure::ours(format!("{}: {error}", damaged())))?;
        copy(frame).context(damaged)?
    } else {
        layer.clone()
    };
    digest.verify(plain.reader()).map(|()| plain)
}

/// Into a file without a name, so that members can be read at any position and nothing is left behind.
fn copy(mut from: impl Read) -> io::Result<Section> {
    let mut plain = tempfile::tempfile()?;
    io::copy(&mut from, &mut plain)?;
    plain.flush()?;
    Section::whole(plain)
}

/// The tree of some layers, the lowest first.
///
/// # Errors
/// When one is no archive, or a name in it leaves the root.
pub(super) fn tree(layers: &[(Section, Digest)]) -> Outcome<Tree> {
    let mut tree = Tree::default();
    for (layer, digest) in layers {
        let plain = unpack(layer, digest)?;
        tarball::apply_layer(&mut tree, &plain).context(|| format!("layer {digest}"))?;
    }
    Ok(tree)
}
