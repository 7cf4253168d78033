//! What a server answers, checked.

use super::{Decoder, HEADER_BYTES, Malformed, kind};

/// Which file it is, as the server names files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Bits that say what it is.
    pub kind: u8,
    /// Changes with the contents.
    pub version: u32,
    /// The number of the file.
    pub path: u64,
}

impl Identity {
    /// In `kind`: a directory.
    pub const DIRECTORY: u8 = 0x80;
    /// In `kind`: a symbolic link.
    pub const SYMBOLIC_LINK: u8 = 0x02;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        Ok(Self { kind: from.u8()?, version: from.u32()?, path: from.u64()? })
    }
}

/// What `stat` shows.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields are those of stat")]
pub struct Attributes {
    pub identity: Identity,
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    pub links: u64,
    pub special: u64,
    pub size: u64,
    pub block_bytes: u64,
    pub blocks: u64,
    pub accessed: (u64, u64),
    pub modified: (u64, u64),
    pub changed: (u64, u64),
}

/// What `statfs` shows.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields are those of statfs")]
pub struct Status {
    pub block_bytes: u32,
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    pub name_bytes: u32,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Which file.
    pub identity: Identity,
    /// From where listing goes on behind it.
    pub next: u64,
    /// The `DT_*` value; 0: the server does not say.
    pub kind: u8,
    /// The name.
    pub name: &'a [u8],
}

/// Why a reply is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The server says so: an errno.
    Errno(u32),
    /// It is not a reply to the request.
    Malformed,
}

impl From<Malformed> for Refusal {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// The values of the reply to a request of that kind and tag. `bytes` is what arrived of it in one piece, of `total` altogether: data may lie elsewhere.
///
/// # Errors
/// [`Refusal`].
pub fn open(bytes: &[u8], total: usize, wanted: u8, tag: u16) -> Result<Decoder<'_>, Refusal> {
    let mut values = Decoder::new(bytes);
    let (length, kind, its_tag) = (values.u32()? as usize, values.u8()?, values.u16()?);
    if length < HEADER_BYTES || length > total || its_tag != tag {
        return Err(Refusal::Malformed);
    }
    // What lies behind the message's end is none of it.
    let inside = length.min(bytes.len()) - HEADER_BYTES;
    let mut values = Decoder::new(values.bytes(inside)?);
    match kind {
        kind::ERROR => Err(Refusal::Errno(values.u32()?)),
        kind if kind == wanted + 1 => Ok(values),
        _ => Err(Refusal::Malformed),
    }
}

/// The greatest length of a message that the server accepts; the version must be ours.
///
/// # Errors
/// [`Malformed`].
pub fn version(values: &mut Decoder<'_>) -> Result<u32, Malformed> {
    let bytes = values.u32()?;
    if values.text()? == super::VERSION { Ok(bytes) } else { Err(Malformed) }
}

/// Which file: of attaching and making.
///
/// # Errors
/// [`Malformed`].
pub fn identity(values: &mut Decoder<'_>) -> Result<Identity, Malformed> {
    Identity::decode(values)
}

/// Which file was walked to. None: the file itself, as no name was given.
///
/// # Errors
/// [`Malformed`], and if it is about another number of names.
pub fn walk(values: &mut Decoder<'_>, names: u16) -> Result<Option<Identity>, Malformed> {
    if values.u16()? != names || names > 1 {
        return Err(Malformed);
    }
    if names == 0 { Ok(None) } else { Identity::decode(values).map(Some) }
}

/// Which file was opened, and how many bytes a transfer may have; 0: as the message's length allows.
///
/// # Errors
/// [`Malformed`].
pub fn opened(values: &mut Decoder<'_>) -> Result<(Identity, u32), Malformed> {
    Ok((Identity::decode(values)?, values.u32()?))
}

/// What `stat` shows.
///
/// # Errors
/// [`Malformed`].
pub fn attributes(values: &mut Decoder<'_>) -> Result<Attributes, Malformed> {
    let _valid = values.u64()?;
    let attributes = Attributes {
        identity: Identity::decode(values)?,
        mode: values.u32()?,
        user: values.u32()?,
        group: values.u32()?,
        links: values.u64()?,
        special: values.u64()?,
        size: values.u64()?,
        block_bytes: values.u64()?,
        blocks: values.u64()?,
        accessed: (values.u64()?, values.u64()?),
        modified: (values.u64()?, values.u64()?),
        changed: (values.u64()?, values.u64()?),
    };
    // Time of creation, generation, version of the data: no use for them, but they must be there.
    values.bytes(4 * 8)?;
    Ok(attributes)
}

/// What `statfs` shows.
///
/// # Errors
/// [`Malformed`].
pub fn status(values: &mut Decoder<'_>) -> Result<Status, Malformed> {
    let _magic = values.u32()?;
    let block_bytes = values.u32()?;
    let (blocks, blocks_free, blocks_available) = (values.u64()?, values.u64()?, values.u64()?);
    let (files, files_free, _id) = (values.u64()?, values.u64()?, values.u64()?);
    let name_bytes = values.u32()?;
    Ok(Status { block_bytes, blocks, blocks_free, blocks_available, files, files_free, name_bytes })
}

/// How many bytes were read or written, of those asked for.
///
/// # Errors
/// [`Malformed`], and if there are more.
pub fn count(values: &mut Decoder<'_>, asked: u32) -> Result<u32, Malformed> {
    let count = values.u32()?;
    if count <= asked { Ok(count) } else { Err(Malformed) }
}

/// Bytes that were read, of those asked for.
///
/// # Errors
/// [`Malformed`].
pub fn data<'a>(values: &mut Decoder<'a>, asked: u32) -> Result<&'a [u8], Malformed> {
    let count = count(values, asked)?;
    values.bytes(count as usize)
}

/// The next entry of a list; `None` at its end.
///
/// # Errors
/// [`Malformed`]: also for names that no directory can have.
pub fn entry<'a>(list: &mut Decoder<'a>) -> Result<Option<Entry<'a>>, Malformed> {
    if list.rest().is_empty() {
        return Ok(None);
    }
    let identity = Identity::decode(list)?;
    let (next, kind, name) = (list.u64()?, list.u8()?, list.text()?);
    let is_name =
        !name.is_empty() && name.len() <= vfs::name::NAME_MAX && !name.contains(&b'/') && !name.contains(&0);
    if is_name { Ok(Some(Entry { identity, next, kind, name })) } else { Err(Malformed) }
}
