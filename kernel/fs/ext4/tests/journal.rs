//! Transactions written by us, cut off anywhere, replayed by us and by `e2fsck`.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;

use std::sync::Arc;

use block::{DiskEvent, FaultyDisk, Queue, Volume};
use ext4::{FileSystem, LogWriter, recover};
use image::{Image, Random};

const BLOCK: usize = 1024;
/// Blocks that no file uses in these images.
const FREE: std::ops::Range<u64> = 3000..3040;

/// What the free blocks hold after each transaction, and how many events the disk had seen when it was committed.
struct History {
    states: Vec<Vec<u8>>,
    committed_at: Vec<usize>,
}

fn free_bytes(image: &[u8]) -> Vec<u8> {
    image[FREE.start as usize * BLOCK..FREE.end as usize * BLOCK].to_vec()
}

fn device(disk: &Arc<FaultyDisk>) -> Volume {
    Volume::whole(Queue::new(disk.clone()).expect("a sound device"))
}

/// Random transactions, with checkpoints in between, on a recording disk.
fn work(disk: &Arc<FaultyDisk>, transactions: usize, random: &mut Random) -> History {
    let start = disk.contents().expect("there is memory");
    let mut history = History { states: vec![free_bytes(&start)], committed_at: vec![0] };
    disk.record();
    let system = FileSystem::mount(&device(disk)).expect("a sound image");
    let mut writer = LogWriter::open(&system).expect("a clean journal");
    for _ in 0..transactions {
        let mut state = history.states.last().expect("there is a first one").clone();
        let mut blocks = Vec::new();
        let first = random.below(FREE.count() - 8);
        for at in first..first + 1 + random.below(8) {
            let mut bytes: Vec<u8> = (0..BLOCK).map(|_| random.next() as u8).collect();
            if random.below(3) == 0 {
                bytes[..4].copy_from_slice(&0xc03b_3998u32.to_be_bytes());
            }
            state[at * BLOCK..(at + 1) * BLOCK].copy_from_slice(&bytes);
            blocks.push((FREE.start + at as u64, Arc::new(bytes)));
        }
        writer.commit(&system, &blocks, &[]).expect("the disk works");
        history.states.push(state);
        history.committed_at.push(disk.event_count());
        if random.below(5) == 0 {
            writer.checkpoint(&system).expect("the disk works");
        }
    }
    history
}

/// What may be on the disk after a crash behind the first `cut` events: all that was flushed, and any of the rest.
fn crash(start: &[u8], events: &[DiskEvent], cut: usize, random: &mut Random) -> Vec<u8> {
    let flushed = events[..cut].iter().rposition(|event| matches!(event, DiskEvent::Flush)).unwrap_or(0);
    let mut image = start.to_vec();
    for (index, event) in events[..cut].iter().enumerate() {
        let DiskEvent::Write { sector, bytes, durable } = event else { continue };
        if *durable || index < flushed || random.below(2) == 0 {
            let at = *sector as usize * 512;
            image[at..at + bytes.len()].copy_from_slice(bytes);
        } else if random.below(3) == 0 {
            // Torn: some of its sectors.
            for piece in (0..bytes.len()).step_by(512).filter(|_| random.below(2) == 0) {
                let at = *sector as usize * 512 + piece;
                image[at..at + 512].copy_from_slice(&bytes[piece..piece + 512]);
            }
        }
    }
    image
}

fn recovered(image: &[u8]) -> Vec<u8> {
    let disk = Arc::new(FaultyDisk::new(image).expect("there is memory"));
    let system = recover(&device(&disk)).expect("every crash leaves what can be recovered");
    assert_eq!(system.transactions_replayed(), 0, "nothing is left to replay");
    disk.contents().expect("there is memory")
}

const SMALL_JOURNAL: [&str; 8] = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "64"];

#[test]
fn after_a_crash_at_any_moment_whole_transactions_are_there() {
    let image = Image::make(&SMALL_JOURNAL, 4 << 20, None);
    let start = image.bytes();
    let disk = Arc::new(FaultyDisk::new(&start).expect("there is memory"));
    let mut random = Random(11);
    let history = work(&disk, 25, &mut random);
    let events = disk.take_events();
    for cut in 0..=events.len() {
        let after = recovered(&crash(&start, &events, cut, &mut random));
        let found = free_bytes(&after);
        // What had been committed before the cut must be there; of what was under way, all or nothing.
        let promised = history.committed_at.iter().rposition(|at| *at <= cut).expect("the first one is at 0");
        let state = history.states.iter().rposition(|state| *state == found);
        let state = state.unwrap_or_else(|| panic!("cut at {cut}: a part of a transaction"));
        assert!(
            (promised..=promised + 1).contains(&state),
            "cut at {cut}: {state} of {promised} transactions"
        );
    }
}

#[test]
fn what_is_committed_goes_home_before_it_takes_too_much_memory() {
    let image = Image::make(&SMALL_JOURNAL, 4 << 20, None);
    let disk = Arc::new(FaultyDisk::new(&image.bytes()).expect("there is memory"));
    let system = FileSystem::mount(&device(&disk)).expect("a sound image");
    let mut writer = LogWriter::open(&system).expect("a clean journal");
    writer.keep_at_most(10);
    let mut kept = Vec::new();
    // One alone may be more; the same blocks again are no more.
    for (transaction, count) in [4, 4, 4, 12, 1, 9, 9].into_iter().enumerate() {
        let blocks: Vec<_> = FREE
            .skip(if transaction < 3 { transaction * 4 } else { 0 })
            .take(count)
            .map(|block| (block, Arc::new(vec![transaction as u8 + 1; BLOCK])))
            .collect();
        writer.commit(&system, &blocks, &[]).expect("the disk works");
        kept.push(writer.pending());
    }
    assert_eq!(kept, [4, 8, 4, 12, 1, 9, 9]);
    writer.close(&system).expect("the disk works");
    let found = free_bytes(&disk.contents().expect("there is memory"));
    let values: Vec<u8> = found.iter().step_by(BLOCK).copied().take(13).collect();
    assert_eq!(values, [7, 7, 7, 7, 7, 7, 7, 7, 7, 4, 4, 4, 0]);
}

#[test]
fn e2fsck_replays_what_we_wrote_and_finds_nothing_wrong() {
    let second = [&SMALL_JOURNAL[..], &["-O", "^metadata_csum,^64bit"]].concat();
    for options in [&SMALL_JOURNAL[..], &second] {
        let image = Image::make(options, 4 << 20, None);
        let start = image.bytes();
        let disk = Arc::new(FaultyDisk::new(&start).expect("there is memory"));
        let mut random = Random(5);
        work(&disk, 12, &mut random);
        let events = disk.take_events();
        for _ in 0..12 {
            let cut = random.below(events.len() + 1);
            // Without checksums a torn commit can't be told; there everything that was written has arrived.
            let crashed = if options.len() == SMALL_JOURNAL.len() {
                crash(&start, &events, cut, &mut random)
            } else {
                let flushed: Vec<_> = events[..cut].iter().map(as_durable).collect();
                crash(&start, &flushed, cut, &mut random)
            };
            let ours = recovered(&crashed);
            image.set_bytes(&ours);
            image.run("e2fsck", &["-fn"]);
            image.set_bytes(&crashed);
            image.run_unchecked("e2fsck", &["-fy"]);
            assert!(
                free_bytes(&image.bytes()) == free_bytes(&ours),
                "cut at {cut}: e2fsck replays something else"
            );
        }
    }
}

fn as_durable(event: &DiskEvent) -> DiskEvent {
    match event.clone() {
        DiskEvent::Write { sector, bytes, .. } => DiskEvent::Write { sector, bytes, durable: true },
        flush => flush,
    }
}

#[test]
fn revoked_blocks_keep_what_was_written_to_them_since() {
    let image = Image::make(&SMALL_JOURNAL, 4 << 20, None);
    let disk = Arc::new(FaultyDisk::new(&image.bytes()).expect("there is memory"));
    let volume = device(&disk);
    {
        let system = FileSystem::mount(&volume).expect("a sound image");
        let mut writer = LogWriter::open(&system).expect("a clean journal");
        let old = Arc::new(vec![1; BLOCK]);
        writer.commit(&system, &[(3001, old.clone()), (3002, old)], &[]).expect("the disk works");
        writer.commit(&system, &[], &[3001]).expect("the disk works");
        // Freed by the second transaction: now it is some file's data.
        let data = block::Memory::Owned(vec![9; BLOCK]);
        volume.write(3001 * 2, data, block::BioFlags::empty()).expect("the disk works");
    }
    recover(&volume).expect("a sound journal");
    let after = disk.contents().expect("there is memory");
    assert!(after[3001 * BLOCK..3002 * BLOCK] == [9; BLOCK]);
    assert!(after[3002 * BLOCK..3003 * BLOCK] == [1; BLOCK]);
}

#[test]
fn the_log_goes_around_and_is_closed_clean() {
    let image = Image::make(&SMALL_JOURNAL, 4 << 20, None);
    let disk = Arc::new(FaultyDisk::new(&image.bytes()).expect("there is memory"));
    let volume = device(&disk);
    let system = FileSystem::mount(&volume).expect("a sound image");
    let mut writer = LogWriter::open(&system).expect("a clean journal");
    let most = writer.blocks_max();
    for round in 0..20u8 {
        let blocks: Vec<_> =
            FREE.take(most).map(|block| (block, Arc::new(vec![round ^ block as u8; BLOCK]))).collect();
        for _ in 0..4 {
            writer.commit(&system, &blocks, &[]).expect("the disk works");
        }
    }
    writer.close(&system).expect("the disk works");
    let after = disk.contents().expect("there is memory");
    for block in FREE.take(most) {
        assert_eq!(after[block as usize * BLOCK], 19 ^ block as u8);
    }
    image.set_bytes(&after);
    image.run("e2fsck", &["-fn"]);
    assert_eq!(FileSystem::mount(&volume).expect("a sound image").transactions_replayed(), 0);
}

#[test]
fn an_error_of_the_disk_is_told_and_nothing_of_the_transaction_remains() {
    let image = Image::make(&SMALL_JOURNAL, 4 << 20, None);
    let start = image.bytes();
    for failing in 1..6 {
        let disk = Arc::new(FaultyDisk::new(&start).expect("there is memory"));
        let volume = device(&disk);
        let system = FileSystem::mount(&volume).expect("a sound image");
        let mut writer = LogWriter::open(&system).expect("a clean journal");
        writer.commit(&system, &[(3001, Arc::new(vec![1; BLOCK]))], &[]).expect("the disk works");
        disk.fail_after(failing, block::Error::Io, true);
        if writer.commit(&system, &[(3001, Arc::new(vec![2; BLOCK]))], &[]).is_ok() {
            break;
        }
        assert!(failing < 5, "it fails however late the disk does");
        let after = recovered(&disk.contents().expect("there is memory"));
        assert!(after[3001 * BLOCK..3002 * BLOCK] == [1; BLOCK]);
    }
}

#[test]
fn a_commit_block_that_is_torn_is_the_end_of_the_log() {
    let image = Image::make(&SMALL_JOURNAL, 4 << 20, None);
    let disk = Arc::new(FaultyDisk::new(&image.bytes()).expect("there is memory"));
    disk.record();
    let system = FileSystem::mount(&device(&disk)).expect("a sound image");
    let mut writer = LogWriter::open(&system).expect("a clean journal");
    for transaction in 1..5 {
        let blocks: Vec<_> = FREE.map(|block| (block, Arc::new(vec![transaction; BLOCK]))).collect();
        writer.commit(&system, &blocks, &[]).expect("the disk works");
    }
    let Some(DiskEvent::Write { sector, .. }) = disk.take_events().pop() else {
        panic!("a commit block is durable itself")
    };
    let mut crashed = disk.contents().expect("there is memory");
    let second = (sector as usize + 1) * 512;
    crashed[second..second + 512].fill(0xaa);
    assert!(free_bytes(&recovered(&crashed)).iter().all(|byte| *byte == 3));
}
