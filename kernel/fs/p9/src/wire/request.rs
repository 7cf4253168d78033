//! What a client says.

use alloc::vec::Vec;

use memory::OutOfMemory;

use super::{Encoder, kind};

/// A request. Files are named by numbers that the client chose (*fids*).
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields are those of the protocol")]
pub enum Request<'a> {
    /// Which protocol, and how large messages may be; ends all that was before.
    Version { message_bytes: u32 },
    /// A fid for a tree.
    Attach { fid: u32, user_name: &'a [u8], tree: &'a [u8], user: u32 },
    /// The answer to a request is not wanted any more.
    Flush { tag: u16 },
    /// A new fid: for the file itself, or one in the directory.
    Walk { fid: u32, new_fid: u32, name: Option<&'a [u8]> },
    /// Reads from an open file.
    Read { fid: u32, offset: u64, count: u32 },
    /// Writes to an open file; the data follows.
    Write { fid: u32, offset: u64, count: u32 },
    /// The fid is not needed any more.
    Clunk { fid: u32 },
    /// `statfs`.
    Status { fid: u32 },
    /// Opens the file, with Linux's flags.
    Open { fid: u32, flags: u32 },
    /// Makes a file in the directory; the fid becomes that of the file, which is open.
    Create { fid: u32, name: &'a [u8], flags: u32, mode: u32, group: u32 },
    /// `symlink`.
    SymbolicLink { fid: u32, name: &'a [u8], target: &'a [u8], group: u32 },
    /// `mknod`.
    MakeNode { fid: u32, name: &'a [u8], mode: u32, major: u32, minor: u32, group: u32 },
    /// `readlink`.
    ReadLink { fid: u32 },
    /// `stat`.
    GetAttributes { fid: u32 },
    /// `chmod`, `chown`, `utimensat`, `truncate`.
    SetAttributes { fid: u32, change: &'a AttributeChange },
    /// A fid to read an extended attribute by, or with an empty name the list of all.
    WalkExtended { fid: u32, new_fid: u32, name: &'a [u8] },
    /// The fid becomes one to write an extended attribute by, which is set when it is clunked.
    CreateExtended { fid: u32, name: &'a [u8], bytes: u64, flags: u32 },
    /// Lists an open directory from where an entry said.
    ReadDirectory { fid: u32, offset: u64, count: u32 },
    /// `fsync`, `fdatasync`.
    Sync { fid: u32, data_only: bool },
    /// `link`.
    Link { directory: u32, fid: u32, name: &'a [u8] },
    /// `mkdir`.
    MakeDirectory { fid: u32, name: &'a [u8], mode: u32, group: u32 },
    /// `renameat`.
    Rename { old: u32, old_name: &'a [u8], new: u32, new_name: &'a [u8] },
    /// `unlinkat`.
    Unlink { fid: u32, name: &'a [u8], is_directory: bool },
}

/// All attributes that `stat` shows.
const BASIC_ATTRIBUTES: u64 = 0x7ff;
/// `AT_REMOVEDIR`.
const REMOVE_DIRECTORY: u32 = 0x200;

/// What of a file's attributes is to change.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttributeChange {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub user: Option<u32>,
    /// Group.
    pub group: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Time of access, in seconds and nanoseconds; `None` inside: now.
    pub accessed: Option<Option<(i64, u32)>>,
    /// Time of modification.
    pub modified: Option<Option<(i64, u32)>>,
}

impl AttributeChange {
    /// Which fields count.
    fn valid(&self) -> u32 {
        const MODE: u32 = 1;
        const USER: u32 = 2;
        const GROUP: u32 = 4;
        const SIZE: u32 = 8;
        const ACCESSED: u32 = 0x10;
        const MODIFIED: u32 = 0x20;
        const ACCESSED_TO: u32 = 0x80;
        const MODIFIED_TO: u32 = 0x100;
        let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        bit(self.mode.is_some(), MODE)
            | bit(self.user.is_some(), USER)
            | bit(self.group.is_some(), GROUP)
            | bit(self.size.is_some(), SIZE)
            | bit(self.accessed.is_some(), ACCESSED)
            | bit(self.modified.is_some(), MODIFIED)
            | bit(matches!(self.accessed, Some(Some(_))), ACCESSED_TO)
            | bit(matches!(self.modified, Some(Some(_))), MODIFIED_TO)
    }

    fn encode(&self, out: &mut Encoder) {
        let time = |time: Option<Option<(i64, u32)>>| time.flatten().unwrap_or_default();
        let (accessed, modified) = (time(self.accessed), time(self.modified));
        out.u32(self.valid()).u32(self.mode.unwrap_or(0));
        out.u32(self.user.unwrap_or(0)).u32(self.group.unwrap_or(0)).u64(self.size.unwrap_or(0));
        out.u64(accessed.0.cast_unsigned()).u64(accessed.1.into());
        out.u64(modified.0.cast_unsigned()).u64(modified.1.into());
    }
}

impl Request<'_> {
    /// The number of the message.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        match self {
            Self::Version { .. } => kind::VERSION,
            Self::Attach { .. } => kind::ATTACH,
            Self::Flush { .. } => kind::FLUSH,
            Self::Walk { .. } => kind::WALK,
            Self::Read { .. } => kind::READ,
            Self::Write { .. } => kind::WRITE,
            Self::Clunk { .. } => kind::CLUNK,
            Self::Status { .. } => kind::STATUS,
            Self::Open { .. } => kind::OPEN,
            Self::Create { .. } => kind::CREATE,
            Self::SymbolicLink { .. } => kind::SYMBOLIC_LINK,
            Self::MakeNode { .. } => kind::MAKE_NODE,
            Self::ReadLink { .. } => kind::READ_LINK,
            Self::GetAttributes { .. } => kind::GET_ATTRIBUTES,
            Self::SetAttributes { .. } => kind::SET_ATTRIBUTES,
            Self::WalkExtended { .. } => kind::WALK_EXTENDED,
            Self::CreateExtended { .. } => kind::CREATE_EXTENDED,
            Self::ReadDirectory { .. } => kind::READ_DIRECTORY,
            Self::Sync { .. } => kind::SYNC,
            Self::Link { .. } => kind::LINK,
            Self::MakeDirectory { .. } => kind::MAKE_DIRECTORY,
            Self::Rename { .. } => kind::RENAME,
            Self::Unlink { .. } => kind::UNLINK,
        }
    }

    /// The message, but for data that follows.
    ///
    /// # Errors
    /// No memory, or a text that no message can hold.
    pub fn encode(&self, tag: u16) -> Result<Vec<u8>, OutOfMemory> {
        let mut out = Encoder::new(self.kind(), tag);
        let mut more = 0;
        match *self {
            Self::Version { message_bytes } => {
                out.u32(message_bytes).text(super::VERSION);
            }
            Self::Attach { fid, user_name, tree, user } => {
                out.u32(fid).u32(super::NO_FID).text(user_name).text(tree).u32(user);
            }
            Self::Flush { tag } => {
                out.u16(tag);
            }
            Self::Walk { fid, new_fid, name } => {
                out.u32(fid).u32(new_fid).u16(name.is_some().into());
                if let Some(name) = name {
                    out.text(name);
                }
            }
            Self::Read { fid, offset, count } | Self::ReadDirectory { fid, offset, count } => {
                out.u32(fid).u64(offset).u32(count);
            }
            Self::Write { fid, offset, count } => {
                out.u32(fid).u64(offset).u32(count);
                more = count as usize;
            }
            Self::Clunk { fid } | Self::Status { fid } | Self::ReadLink { fid } => {
                out.u32(fid);
            }
            Self::Open { fid, flags } => {
                out.u32(fid).u32(flags);
            }
            Self::GetAttributes { fid } => {
                out.u32(fid).u64(BASIC_ATTRIBUTES);
            }
            Self::SetAttributes { fid, change } => change.encode(out.u32(fid)),
            Self::WalkExtended { fid, new_fid, name } => {
                out.u32(fid).u32(new_fid).text(name);
            }
            Self::CreateExtended { fid, name, bytes, flags } => {
                out.u32(fid).text(name).u64(bytes).u32(flags);
            }
            Self::Sync { fid, data_only } => {
                out.u32(fid).u32(data_only.into());
            }
            _ => self.encode_names(&mut out),
        }
        out.finish(more)
    }

    /// Those that change names.
    fn encode_names(&self, out: &mut Encoder) {
        match *self {
            Self::Create { fid, name, flags, mode, group } => {
                out.u32(fid).text(name).u32(flags).u32(mode).u32(group);
            }
            Self::SymbolicLink { fid, name, target, group } => {
                out.u32(fid).text(name).text(target).u32(group);
            }
            Self::MakeNode { fid, name, mode, major, minor, group } => {
                out.u32(fid).text(name).u32(mode).u32(major).u32(minor).u32(group);
            }
            Self::Link { directory, fid, name } => {
                out.u32(directory).u32(fid).text(name);
            }
            Self::MakeDirectory { fid, name, mode, group } => {
                out.u32(fid).text(name).u32(mode).u32(group);
            }
            Self::Rename { old, old_name, new, new_name } => {
                out.u32(old).text(old_name).u32(new).text(new_name);
            }
            Self::Unlink { fid, name, is_directory } => {
                out.u32(fid).text(name).u32(if is_directory { REMOVE_DIRECTORY } else { 0 });
            }
            _ => unreachable!("the others name no file"),
        }
    }
}
