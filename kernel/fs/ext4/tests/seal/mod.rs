//! Damage that checksums do not tell: bytes of metadata are changed, and the sums over them made right again.
//!
//! What is where is learnt from the sound image: superblock, descriptors, bitmaps, inodes, blocks of extents, of directories and of attributes, and what the
//! journal holds. Sums are those of the feature `metadata_csum`; images without it need no sealing.

use crate::image::Random;

const SUPERBLOCK_AT: usize = 1024;
const SUPERBLOCK_BYTES: usize = 1024;
const BITS_64: u32 = 0x80;
const SEED_STORED: u32 = 0x2000;
const METADATA_CHECKSUM: u32 = 0x400;
const EXTENTS: u32 = 0x8_0000;
const INDEXED: u32 = 0x1000;
const JOURNAL_INODE: u32 = 8;
const JOURNAL_CHECKSUMS: u32 = 8 | 16;

fn crc32c(mut sum: u32, bytes: &[u8]) -> u32 {
    // Four bits at a time.
    const TABLE: [u32; 16] = {
        let mut table = [0; 16];
        let mut index = 0;
        while index < 16 {
            let (mut value, mut bit) = (index as u32, 0);
            while bit < 4 {
                value = if value & 1 == 0 { value >> 1 } else { value >> 1 ^ 0x82f6_3b78 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    for byte in bytes {
        sum ^= u32::from(*byte);
        sum = sum >> 4 ^ TABLE[sum as usize & 15];
        sum = sum >> 4 ^ TABLE[sum as usize & 15];
    }
    sum
}

fn u16_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u16_at(bytes, at) | u16_at(bytes, at + 2) << 16
}

fn big_at(bytes: &[u8], at: usize) -> u32 {
    u32_at(bytes, at).swap_bytes()
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// What a piece of metadata is; numbers are those of groups and inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Superblock,
    Descriptor(u32),
    BlockBitmap(u32),
    InodeBitmap(u32),
    Inode(u32),
    Extents(u32),
    Leaf(u32),
    /// With the place of its count and limit.
    Index(u32, usize),
    Attributes,
    JournalSuperblock,
    /// A descriptor or a revocation: its sum is at the block's end.
    JournalBlock,
    JournalCommit,
    /// With the place of its tag's sum, and of the descriptor.
    JournalCopy(usize, usize),
}

/// A piece of metadata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) kind: Kind,
    at: usize,
    length: usize,
}

/// What is where in an image.
pub(crate) struct Seals {
    block_bytes: usize,
    descriptors_at: usize,
    descriptor_bytes: usize,
    inode_bytes: usize,
    inodes_per_group: u32,
    /// Where the tables of inodes are, by group.
    tables: Vec<usize>,
    seed: u32,
    journal_seed: u32,
    sealed: bool,
    journal_sealed: bool,
    pub(crate) pieces: Vec<Piece>,
    /// Numbers that mean something: of blocks with metadata, of inodes.
    numbers: Vec<u32>,
}

impl Seals {
    /// Looks at a sound image.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let at = SUPERBLOCK_AT;
        let block_bytes = 1024 << u32_at(bytes, at + 0x18);
        let incompatible = u32_at(bytes, at + 0x60);
        let first = u32_at(bytes, at + 0x14);
        let uuid = crc32c(!0, &bytes[at + 0x68..at + 0x78]);
        let mut seals = Self {
            block_bytes,
            descriptors_at: (first as usize + 1) * block_bytes,
            descriptor_bytes: if incompatible & BITS_64 == 0 {
                32
            } else {
                u16_at(bytes, at + 0xfe) as usize
            },
            inode_bytes: u16_at(bytes, at + 0x58) as usize,
            inodes_per_group: u32_at(bytes, at + 0x28),
            tables: Vec::new(),
            seed: if incompatible & SEED_STORED == 0 { uuid } else { u32_at(bytes, at + 0x270) },
            journal_seed: 0,
            sealed: u32_at(bytes, at + 0x64) & METADATA_CHECKSUM != 0,
            journal_sealed: false,
            pieces: Vec::new(),
            numbers: Vec::new(),
        };
        seals.add(Kind::Superblock, at, SUPERBLOCK_BYTES);
        let groups = (u32_at(bytes, at + 4) - first).div_ceil(u32_at(bytes, at + 0x20));
        for group in 0..groups {
            let descriptor = seals.descriptor(group);
            seals.tables.push(u32_at(bytes, descriptor + 8) as usize * block_bytes);
            seals.add(Kind::Descriptor(group), descriptor, seals.descriptor_bytes);
            seals.add_block(Kind::BlockBitmap(group), u32_at(bytes, descriptor));
            seals.add_block(Kind::InodeBitmap(group), u32_at(bytes, descriptor + 4));
        }
        for number in 1..=u32_at(bytes, at) {
            seals.look_at_inode(bytes, number);
        }
        seals
    }

    fn add(&mut self, kind: Kind, at: usize, length: usize) {
        self.pieces.push(Piece { kind, at, length });
        self.numbers.push((at / self.block_bytes) as u32);
    }

    fn add_block(&mut self, kind: Kind, block: u32) {
        self.add(kind, block as usize * self.block_bytes, self.block_bytes);
    }

    fn descriptor(&self, group: u32) -> usize {
        self.descriptors_at + group as usize * self.descriptor_bytes
    }

    fn inode(&self, number: u32) -> usize {
        let (group, index) = ((number - 1) / self.inodes_per_group, (number - 1) % self.inodes_per_group);
        self.tables[group as usize] + index as usize * self.inode_bytes
    }

    fn look_at_inode(&mut self, bytes: &[u8], number: u32) {
        let at = self.inode(number);
        let (mode, flags) = (u16_at(bytes, at), u32_at(bytes, at + 0x20));
        if mode == 0 {
            return;
        }
        self.add(Kind::Inode(number), at, self.inode_bytes);
        self.numbers.push(number);
        let attributes = u32_at(bytes, at + 0x68);
        if attributes != 0 {
            self.add_block(Kind::Attributes, attributes);
        }
        // Fast links have their target there.
        let blocks = if flags & EXTENTS != 0 { self.extents(bytes, number, at + 0x28) } else { Vec::new() };
        if mode >> 12 == 4 {
            for (index, block) in blocks.iter().enumerate() {
                let head = &bytes[*block as usize * self.block_bytes..];
                let kind = if index == 0 && flags & INDEXED != 0 {
                    Kind::Index(number, 32)
                } else if u32_at(head, 0) == 0 && u16_at(head, 4) as usize == self.block_bytes {
                    Kind::Index(number, 8)
                } else {
                    Kind::Leaf(number)
                };
                self.add_block(kind, *block);
            }
        }
        if number == JOURNAL_INODE {
            self.look_at_journal(bytes, &blocks);
        }
    }

    /// The blocks of a file in order; its blocks of extents are added.
    fn extents(&mut self, bytes: &[u8], number: u32, at: usize) -> Vec<u32> {
        let (entries, depth) = (u16_at(bytes, at + 2) as usize, u16_at(bytes, at + 6));
        let mut blocks = Vec::new();
        for entry in (0..entries).map(|index| at + 12 + index * 12) {
            if depth == 0 {
                let (length, start) = (u16_at(bytes, entry + 4) & 0x7fff, u32_at(bytes, entry + 8));
                blocks.extend(start..start + length);
            } else {
                let block = u32_at(bytes, entry + 4);
                self.add_block(Kind::Extents(number), block);
                blocks.extend(self.extents(bytes, number, block as usize * self.block_bytes));
            }
        }
        blocks
    }

    fn look_at_journal(&mut self, bytes: &[u8], blocks: &[u32]) {
        let place = |index: usize| blocks[index] as usize * self.block_bytes;
        let superblock = place(0);
        let features = big_at(bytes, superblock + 40);
        self.journal_seed = crc32c(!0, &bytes[superblock + 48..superblock + 64]);
        self.journal_sealed = features & JOURNAL_CHECKSUMS != 0;
        let version_3 = features & 16 != 0;
        let (mut found, mut copies) = (vec![(Kind::JournalSuperblock, superblock, 1024)], Vec::new());
        for index in 1..blocks.len() {
            let at = place(index);
            if let Some((tag, descriptor)) = copies.pop() {
                found.push((Kind::JournalCopy(tag, descriptor), at, self.block_bytes));
                continue;
            }
            if big_at(bytes, at) != 0xc03b_3998 {
                continue;
            }
            match big_at(bytes, at + 4) {
                1 if version_3 => {
                    found.push((Kind::JournalBlock, at, self.block_bytes));
                    let mut tag = at + 12;
                    loop {
                        copies.push((tag + 12, at));
                        let flags = big_at(bytes, tag + 4);
                        if flags & 8 != 0 || tag + 64 > at + self.block_bytes {
                            break;
                        }
                        tag += if flags & 2 != 0 { 16 } else { 32 };
                    }
                    copies.reverse();
                }
                2 => found.push((Kind::JournalCommit, at, 64)),
                _ => found.push((Kind::JournalBlock, at, self.block_bytes)),
            }
        }
        for (kind, at, length) in found {
            self.add(kind, at, length);
        }
    }

    /// Whether there are pieces of such a kind.
    pub(crate) fn has(&self, wanted: impl Fn(Kind) -> bool) -> bool {
        self.pieces.iter().any(|piece| wanted(piece.kind))
    }

    /// Changes something in one piece, and seals it.
    pub(crate) fn damage(&self, bytes: &mut [u8], random: &mut Random) {
        let kinds: fn(Kind) -> bool = match random.below(14) {
            0 => |kind| kind == Kind::Superblock,
            1 => |kind| matches!(kind, Kind::Descriptor(_)),
            2 => |kind| matches!(kind, Kind::BlockBitmap(_) | Kind::InodeBitmap(_)),
            3..=6 => |kind| matches!(kind, Kind::Inode(_)),
            7 | 8 => |kind| matches!(kind, Kind::Extents(_)),
            9 => |kind| matches!(kind, Kind::Leaf(_)),
            10 => |kind| matches!(kind, Kind::Index(..)),
            11 => |kind| kind == Kind::Attributes,
            _ => |kind| {
                matches!(
                    kind,
                    Kind::JournalSuperblock
                        | Kind::JournalBlock
                        | Kind::JournalCommit
                        | Kind::JournalCopy(..)
                )
            },
        };
        let mut chosen: Vec<Piece> = self.pieces.iter().copied().filter(|piece| kinds(piece.kind)).collect();
        if chosen.is_empty() {
            chosen.clone_from(&self.pieces);
        }
        let piece = chosen[random.below(chosen.len())];
        self.change(&mut bytes[piece.at..piece.at + piece.length], random);
        if self.sealed {
            self.seal(bytes, piece);
        }
    }

    fn change(&self, piece: &mut [u8], random: &mut Random) {
        // Near what is used, most of the time.
        let mut at = random.below(piece.len());
        for _ in 0..6 {
            if piece[at] != 0 {
                break;
            }
            at = random.below(piece.len().min(256));
        }
        let known = self.numbers[random.below(self.numbers.len())];
        let value = [0, 1, 2, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, u32::MAX, known, known]
            [random.below(11)];
        match random.below(4) {
            0 => piece[at] = random.next() as u8,
            1 => piece[at] ^= 1 << random.below(8),
            2 => put(piece, at & !1, &(value as u16).to_le_bytes()),
            _ if at + 4 <= piece.len() => put(piece, at & !3, &value.to_le_bytes()),
            _ => piece[at] = value as u8,
        }
    }

    fn seed_of(&self, bytes: &[u8], number: u32) -> u32 {
        let at = self.inode(number);
        crc32c(crc32c(self.seed, &number.to_le_bytes()), &bytes[at + 0x64..at + 0x68])
    }

    /// Makes a sum right that covers a whole piece in which it is a number of 32 bits.
    fn seal_whole(bytes: &mut [u8], piece: Piece, seed: u32, sum_at: usize, big: bool) {
        let at = piece.at + sum_at;
        put(bytes, at, &[0; 4]);
        let sum = crc32c(seed, &bytes[piece.at..piece.at + piece.length]);
        put(bytes, at, &if big { sum.to_be_bytes() } else { sum.to_le_bytes() });
    }

    /// The same for a sum that covers what is before it.
    fn seal_before(bytes: &mut [u8], at: usize, end: usize, sum_at: usize, seed: u32) {
        let sum = crc32c(seed, &bytes[at..end]);
        put(bytes, sum_at, &sum.to_le_bytes());
    }

    fn seal(&self, bytes: &mut [u8], piece: Piece) {
        let (at, end) = (piece.at, piece.at + piece.length);
        match piece.kind {
            Kind::Superblock => Self::seal_before(bytes, at, at + 0x3fc, at + 0x3fc, !0),
            Kind::Descriptor(group) => self.seal_descriptor(bytes, group),
            Kind::BlockBitmap(group) => self.seal_bitmap(bytes, piece, group, [0x18, 0x38], self.block_bytes),
            Kind::InodeBitmap(group) => {
                let length = self.inodes_per_group as usize / 8;
                self.seal_bitmap(bytes, piece, group, [0x1a, 0x3a], length);
            }
            Kind::Inode(number) => self.seal_inode(bytes, at, number),
            Kind::Extents(number) => {
                let tail = at + 12 + 12 * u16_at(bytes, at + 4) as usize;
                if tail + 4 <= end {
                    Self::seal_before(bytes, at, tail, tail, self.seed_of(bytes, number));
                }
            }
            Kind::Leaf(number) => {
                Self::seal_before(bytes, at, end - 12, end - 4, self.seed_of(bytes, number));
            }
            Kind::Index(number, counts) => {
                let (limit, count) =
                    (u16_at(bytes, at + counts) as usize, u16_at(bytes, at + counts + 2) as usize);
                let (entries_end, tail) = (at + counts + count * 8, at + counts + limit * 8);
                if entries_end <= end && tail + 8 <= end {
                    let sum = crc32c(self.seed_of(bytes, number), &bytes[at..entries_end]);
                    let sum = crc32c(crc32c(sum, &bytes[tail..tail + 4]), &[0; 4]);
                    put(bytes, tail + 4, &sum.to_le_bytes());
                }
            }
            Kind::Attributes => {
                let block = (at / self.block_bytes) as u64;
                Self::seal_whole(bytes, piece, crc32c(self.seed, &block.to_le_bytes()), 16, false);
            }
            _ if !self.journal_sealed => {}
            Kind::JournalSuperblock => Self::seal_whole(bytes, piece, !0, 0xfc, true),
            Kind::JournalBlock => {
                Self::seal_whole(bytes, piece, self.journal_seed, self.block_bytes - 4, true);
            }
            Kind::JournalCommit => {
                let whole = Piece { length: self.block_bytes, ..piece };
                Self::seal_whole(bytes, whole, self.journal_seed, 16, true);
            }
            Kind::JournalCopy(tag, descriptor) => {
                let sum = crc32c(self.journal_seed, &bytes[descriptor + 8..descriptor + 12]);
                let sum = crc32c(sum, &bytes[at..end]);
                put(bytes, tag, &sum.to_be_bytes());
                let piece = Piece { kind: Kind::JournalBlock, at: descriptor, length: self.block_bytes };
                self.seal(bytes, piece);
            }
        }
    }

    fn seal_descriptor(&self, bytes: &mut [u8], group: u32) {
        let at = self.descriptor(group);
        put(bytes, at + 0x1e, &[0; 2]);
        let sum = crc32c(self.seed, &group.to_le_bytes());
        let sum = crc32c(sum, &bytes[at..at + self.descriptor_bytes]);
        put(bytes, at + 0x1e, &(sum as u16).to_le_bytes());
    }

    fn seal_bitmap(&self, bytes: &mut [u8], piece: Piece, group: u32, halves: [usize; 2], length: usize) {
        let sum = crc32c(self.seed, &bytes[piece.at..piece.at + length.min(piece.length)]);
        let descriptor = self.descriptor(group);
        put(bytes, descriptor + halves[0], &(sum as u16).to_le_bytes());
        if self.descriptor_bytes > 32 {
            put(bytes, descriptor + halves[1], &((sum >> 16) as u16).to_le_bytes());
        }
        self.seal_descriptor(bytes, group);
    }

    fn seal_inode(&self, bytes: &mut [u8], at: usize, number: u32) {
        let wide = self.inode_bytes > 128 && u16_at(bytes, at + 0x80) >= 4;
        put(bytes, at + 0x7c, &[0; 2]);
        if wide {
            put(bytes, at + 0x82, &[0; 2]);
        }
        let sum = crc32c(self.seed_of(bytes, number), &bytes[at..at + self.inode_bytes]);
        put(bytes, at + 0x7c, &(sum as u16).to_le_bytes());
        if wide {
            put(bytes, at + 0x82, &((sum >> 16) as u16).to_le_bytes());
        }
    }

    /// Seals everything anew, which must not change a sound image.
    pub(crate) fn seal_all(&self, bytes: &mut [u8]) {
        if self.sealed {
            for piece in &self.pieces {
                self.seal(bytes, *piece);
            }
        }
    }
}
