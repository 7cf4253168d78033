//! What is left of records when power fails: rebuilds an image as it may be behind any of the writes that QEMU's driver `blklogwrites` has logged, with
//! what was not flushed missing, torn or reordered, and looks whether all acknowledged records are there.
//!
//! `power_failures START LOG SEED WRITERS POINTS`: START is the image as it was in the beginning, and as many points are tried. Each image is mounted
//! (the journal is replayed), checked, unmounted and judged by `e2fsck -fn`; `e2fsck -p`, which can do little more than replay the journal, must
//! come to the same.
//!
//! The log has the format of Linux' device mapper target `log-writes`: a superblock, and behind it entries of one sector, each followed by
//! what was written. QEMU logs a write or flush when it is done, so all that a flush made durable is before it.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use block::checksum::crc32c;
use block::{Queue, RamDisk, SECTOR_BYTES, Volume};
use ext4::{FileSystem, Inode, Kind, Time, Writer};
use records::{MARK_BYTES, MARKS_AT, Random, Tree};

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLAG_FLUSH: u64 = 1;
const FLAG_DURABLE: u64 = 2;
const FLAG_DISCARD: u64 = 4;

const SUPERBLOCK_AT: usize = 1024;
const SUPERBLOCK_BYTES: usize = 1024;
/// In a superblock: features that one must know to write.
const READ_ONLY_FEATURES_AT: usize = 100;
/// Of their second byte: `metadata_csum`.
const HAS_CHECKSUMS: u8 = 4;

/// One entry of the log.
enum Event<'a> {
    Write {
        at: usize,
        bytes: &'a [u8],
        durable: bool,
    },
    /// All before is durable. The record of a writer was acknowledged.
    Flush,
    Mark {
        writer: usize,
        records: u64,
    },
}

fn number(bytes: &[u8], index: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(index * 8..index * 8 + 8)?.try_into().ok()?))
}

/// The entries, up to where the machine was stopped.
fn parse(log: &[u8]) -> Result<Vec<Event<'_>>, String> {
    if number(log, 0) != Some(MAGIC) {
        return Err("this is no log of writes".into());
    }
    let sector = number(log, 3).unwrap_or(0) as u32 as usize;
    if sector < SECTOR_BYTES || !sector.is_multiple_of(SECTOR_BYTES) {
        return Err(format!("sectors of {sector} bytes"));
    }
    let mut events = Vec::new();
    let mut at = sector;
    while let Some(head) = log.get(at..at + sector) {
        let field = |index| number(head, index).unwrap_or(0);
        let (place, length, flags) = (field(0) as usize * sector, field(1) as usize * sector, field(2));
        if length == 0 && flags == 0 {
            break;
        }
        at += sector;
        if flags & FLAG_FLUSH != 0 {
            events.push(Event::Flush);
        }
        if flags & FLAG_DISCARD != 0 || length == 0 {
            continue;
        }
        let Some(bytes) = log.get(at..at + length) else { break };
        at += length;
        match place.checked_sub(MARKS_AT as usize) {
            None => events.push(Event::Write { at: place, bytes, durable: flags & FLAG_DURABLE != 0 }),
            // Marks that lie beside each other may come as one write.
            Some(behind) => {
                for (index, mark) in bytes.chunks_exact(MARK_BYTES as usize).enumerate() {
                    let one_more = number(mark, 0).filter(|records| number(mark, 1) == Some(*records));
                    let records =
                        one_more.and_then(|records| records.checked_sub(1)).ok_or("a mark is damaged")?;
                    events.push(Event::Mark { writer: behind / MARK_BYTES as usize + index, records });
                }
            }
        }
    }
    Ok(events)
}

/// How the disk treats what was not flushed when power fails.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// Nothing of it is there.
    All,
    /// Everything is there.
    Nothing,
    /// Any part of it.
    Any,
}

/// Whether a write is of a commit block of the journal: it is there whole or not at all. Where a block is more than a sector, we take a torn one for the end of the log,
/// but `e2fsck` for damage, whoever wrote it.
fn is_commit(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2])
}

/// Whether the superblock's checksum is wrong: a sector of it was written, and the other was not.
fn has_torn_superblock(image: &[u8]) -> bool {
    let superblock = &image[SUPERBLOCK_AT..][..SUPERBLOCK_BYTES];
    let (bytes, sum) = superblock.split_at(SUPERBLOCK_BYTES - 4);
    let has_checksums = superblock[READ_ONLY_FEATURES_AT + 1] & HAS_CHECKSUMS != 0;
    has_checksums && crc32c(!0, bytes).to_le_bytes() != *sum
}

/// The image behind the first `cut` events. Of writes to one place the order is kept.
fn image_at(start: &[u8], events: &[Event<'_>], cut: usize, loss: Loss, random: &mut Random) -> Vec<u8> {
    let flushed = events[..cut].iter().rposition(|event| matches!(event, Event::Flush)).unwrap_or(0);
    let mut image = start.to_vec();
    for (index, event) in events[..cut].iter().enumerate() {
        let Event::Write { at, bytes, durable } = *event else { continue };
        let safe = durable || index < flushed;
        let fate = match loss {
            _ if safe => 2,
            Loss::All => 0,
            Loss::Nothing => 2,
            Loss::Any => random.below(4),
        };
        match fate {
            0 => {}
            1 if !is_commit(bytes) => {
                for piece in (0..bytes.len()).step_by(SECTOR_BYTES).filter(|_| random.below(2) == 0) {
                    image[at + piece..][..SECTOR_BYTES].copy_from_slice(&bytes[piece..][..SECTOR_BYTES]);
                }
            }
            _ => image[at..at + bytes.len()].copy_from_slice(bytes),
        }
    }
    image
}

/// The last acknowledged record of each writer.
fn acknowledged(events: &[Event<'_>], writers: usize) -> Vec<Option<u64>> {
    let mut last = vec![None; writers];
    for event in events {
        if let Event::Mark { writer, records } = *event
            && let Some(last) = last.get_mut(writer)
        {
            *last = Some(records);
        }
    }
    last
}

/// A file system as the checks want to see it.
struct Files<'a>(&'a FileSystem);

impl Files<'_> {
    fn find(&self, path: &str) -> Result<Inode, ext4::Error> {
        let mut inode = self.0.root()?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            inode = self.0.lookup(&inode, name.as_bytes())?;
        }
        Ok(inode)
    }
}

impl Tree for Files<'_> {
    fn names(&self, folder: &str) -> Result<BTreeSet<String>, String> {
        let why = |error: ext4::Error| format!("{folder}: {error}");
        let inode = self.find(folder).map_err(why)?;
        let mut names = BTreeSet::new();
        self.0
            .list(&inode, 0, |entry, _| {
                names.insert(String::from_utf8_lossy(entry.name).into_owned());
                true
            })
            .map_err(why)?;
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let why = |error: ext4::Error| format!("{path}: {error}");
        let inode = self.find(path).map_err(why)?;
        if inode.kind != Kind::Regular {
            return Err(format!("{path} is no regular file"));
        }
        let mut bytes = vec![0; inode.size as usize];
        let mut at = 0;
        while at < bytes.len() {
            match self.0.read(&inode, at as u64, &mut bytes[at..]).map_err(why)? {
                0 => return Err(format!("{path} ends at {at} of {}", bytes.len())),
                count => at += count,
            }
        }
        Ok(bytes)
    }
}

/// A run over one log.
struct Run<'a> {
    start: &'a [u8],
    events: &'a [Event<'a>],
    seed: u64,
    writers: usize,
    /// Where `e2fsck` finds images.
    scratch: PathBuf,
}

impl Run<'_> {
    fn check_files(&self, system: &FileSystem, records: &[Option<u64>]) -> Result<(), String> {
        let files = Files(system);
        for (writer, records) in records.iter().enumerate() {
            let Some(records) = records else { continue };
            records::check(&files, self.seed, writer as u64, *records)?;
        }
        records::check_noise(&files)
    }

    /// Runs `e2fsck`: whether its status is allowed.
    fn judge(&self, option: &str, image: &[u8], allowed: i32) -> Result<(), String> {
        std::fs::write(&self.scratch, image).map_err(|error| error.to_string())?;
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let mut e2fsck = Command::new("e2fsck");
        e2fsck.env("PATH", path).arg(option).arg(&self.scratch);
        let output = e2fsck.output().map_err(|error| format!("e2fsck: {error}"))?;
        match output.status.code() {
            Some(status) if status & !allowed == 0 => Ok(()),
            _ => Err(format!(
                "e2fsck {option}: {}, {}",
                output.status,
                String::from_utf8_lossy(&output.stdout)
            )),
        }
    }

    fn point(&self, cut: usize, loss: Loss, random: &mut Random) -> Result<(), String> {
        let image = image_at(self.start, self.events, cut, loss, random);
        self.check_image(&image, cut).map_err(|why| {
            let kept = self.scratch.with_extension("failed");
            std::fs::write(&kept, &image).map_or_else(
                |error| format!("{why}; {error}"),
                |()| format!("{why}; the image is {}", kept.display()),
            )
        })
    }

    fn check_image(&self, image: &[u8], cut: usize) -> Result<(), String> {
        let records = acknowledged(&self.events[..cut], self.writers);
        let size = image.len();
        let text = |error: ext4::Error| error.to_string();
        let disk = Arc::new(RamDisk::from_bytes(image).map_err(|error| error.to_string())?);
        let volume = Volume::whole(Queue::new(disk.clone()).map_err(|error| error.to_string())?);
        let writer = Writer::mount(&volume, b"/", Time::default()).map_err(text)?;
        self.check_files(writer.system(), &records)?;
        writer.unmount().map_err(text)?;
        self.check_files(writer.system(), &records).map_err(|why| format!("after the unmount: {why}"))?;
        let mut after = vec![0; size];
        disk.read_at(0, &mut after);
        self.judge("-fn", &after, 0)?;
        // The journal has a torn superblock whole, and we take it from there; `e2fsck` looks for another one, and asks.
        if has_torn_superblock(image) {
            return Ok(());
        }
        self.judge("-p", image, 1)?;
        let replayed = std::fs::read(&self.scratch).map_err(|error| error.to_string())?;
        self.judge("-fn", &replayed, 0)?;
        let disk = Arc::new(RamDisk::from_bytes(&replayed).map_err(|error| error.to_string())?);
        let volume = Volume::whole(Queue::new(disk).map_err(|error| error.to_string())?);
        let system = FileSystem::mount(&volume).map_err(text)?;
        self.check_files(&system, &records).map_err(|why| format!("replayed by e2fsck: {why}"))
    }

    /// Half of the points are just behind an acknowledgement, where most can be lost.
    fn points(&self, count: u64) -> Result<(), String> {
        let mut random = Random(self.seed ^ 0x5eed);
        let is_mark = |index: &usize| matches!(self.events[*index], Event::Mark { .. });
        let marks: Vec<usize> = (0..self.events.len()).filter(is_mark).collect();
        if marks.len() < 10 {
            return Err(format!("only {} records were written", marks.len()));
        }
        for number in 0..count {
            let any = random.below(self.events.len() as u64 + 1) as usize;
            let behind_mark = marks[random.below(marks.len() as u64) as usize] + 1;
            let cut = if number % 2 == 0 { behind_mark } else { any };
            let loss = [Loss::All, Loss::Any, Loss::Any, Loss::Nothing][random.below(4) as usize];
            self.point(cut, loss, &mut random).map_err(|why| {
                format!("power fails behind event {cut}, losing {loss:?} (point {number}): {why}")
            })?;
        }
        Ok(())
    }
}

fn run(words: &[String]) -> Result<(), String> {
    let [start, log, seed, writers, points] = words else {
        return Err("power_failures START LOG SEED WRITERS POINTS".into());
    };
    let read = |path: &String| std::fs::read(path).map_err(|error| format!("{path}: {error}"));
    let number = |word: &String| word.parse::<u64>().map_err(|_| format!("{word} is no number"));
    let (start, log_bytes) = (read(start)?, read(log)?);
    let events = parse(&log_bytes)?;
    let scratch = Path::new(log).with_extension("scratch");
    let (seed, writers) = (number(seed)?, number(writers)? as usize);
    let run = Run { start: &start, events: &events, seed, writers, scratch };
    run.points(number(points)?)?;
    let flushes = events.iter().filter(|event| matches!(event, Event::Flush)).count();
    let records: Vec<_> = acknowledged(&events, writers).into_iter().flatten().collect();
    println!("{} events, {flushes} flushes, records {records:?}: all points are sound", events.len());
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("power_failures: {why}");
            ExitCode::FAILURE
        }
    }
}
