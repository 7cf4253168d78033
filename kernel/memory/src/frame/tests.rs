//! Frames as their users see them.

use super::*;

#[test]
fn a_frame_is_freed_with_its_last_handle() {
    let frame = Frame::allocate(Purpose::Kernel, Zeroed::No).expect("memory");
    let other = frame.clone();
    assert_eq!(frame.references(), 2);
    let address = frame.physical();
    drop(frame);
    assert_eq!(other.references(), 1);
    drop(other);
    let again = Frame::allocate(Purpose::Kernel, Zeroed::No).expect("memory");
    assert_eq!(again.physical(), address, "the frame freed last is the first to be used again");
}

#[test]
fn zeroed_frames_are_zero_even_when_reused() {
    let frame = Frame::allocate(Purpose::Anonymous, Zeroed::No).expect("memory");
    frame.write(100, &[1, 2, 3]);
    drop(frame);
    let frame = Frame::allocate(Purpose::Anonymous, Zeroed::Yes).expect("memory");
    let mut bytes = [0xff; 4096];
    frame.read(0, &mut bytes);
    assert!(bytes.iter().all(|&byte| byte == 0));
}

#[test]
fn frames_made_ahead_are_zero_and_used_first() {
    while zero_ahead() {}
    let hits = || {
        crate::local::local(|cpu| cpu.frames.counters.zeroed_hits.load(core::sync::atomic::Ordering::Relaxed))
    };
    let before = hits();
    let frame = Frame::allocate(Purpose::Anonymous, Zeroed::Yes).expect("memory");
    assert_eq!(hits(), before + 1);
    let mut bytes = [0xff; 64];
    frame.read(4032, &mut bytes);
    assert_eq!(bytes, [0; 64]);
}

#[test]
fn an_address_turns_back_into_its_frame() {
    let frame = Frame::allocate(Purpose::PageTable, Zeroed::No).expect("memory");
    let address = frame.into_physical();
    // SAFETY: the address came from `into_physical` just now.
    let frame = unsafe { Frame::from_physical(address) };
    assert_eq!(frame.references(), 1);
    assert_eq!(frame.purpose(), Purpose::PageTable);
}

#[test]
fn a_lookup_finds_only_frames_that_live() {
    let frame = Frame::allocate(Purpose::FileCache, Zeroed::No).expect("memory");
    let address = frame.physical();
    let found = Frame::try_from_physical(address).expect("the frame lives");
    assert_eq!(frame.references(), 2);
    drop((frame, found));
    assert!(Frame::try_from_physical(address).is_none());
}

#[test]
fn blocks_are_aligned_and_keep_only_what_was_asked_for() {
    let before = pool::lock().free();
    let block = Block::allocate(3, Purpose::Device, Zeroed::Yes).expect("memory");
    assert!(block.first().is_aligned(2));
    assert_eq!(block.bytes(), 3 * 4096);
    let mut bytes = [1; 8];
    block.read(3 * 4096 - 8, &mut bytes);
    assert_eq!(bytes, [0; 8]);
    drop(block);
    // Other tests allocate meanwhile; what matters is that no chunk is lost.
    assert!(pool::lock().free() + 4096 > before);
}

/// A holder of a block may leave the first bytes of a frame as they were, with the pattern of an earlier owner, and write the last ones
/// (a ring buffer that has grown does): whoever gets that frame next must not be told that it was written while it was free.
#[test]
fn a_block_that_was_written_in_part_is_freed_like_any_other() {
    let mut block = Block::allocate(2, Purpose::Slab, Zeroed::No).expect("memory");
    block.write(4096, &[0xd5; 8]);
    block.write(2 * 4096 - 16, &[1; 16]);
    block.mark_freed();
    for frame in [block.first(), block.first().add(1)] {
        poison::check(frame);
    }
}

#[test]
fn blocks_larger_than_a_chunk_are_refused() {
    assert!(Block::allocate(1025, Purpose::Device, Zeroed::No).is_err());
    assert!(Block::allocate(0, Purpose::Device, Zeroed::No).is_err());
}

#[test]
#[should_panic(expected = "beyond")]
fn reading_beyond_a_frame_is_a_bug() {
    let frame = Frame::allocate(Purpose::Kernel, Zeroed::No).expect("memory");
    frame.read(4090, &mut [0; 8]);
}

#[test]
fn purposes_are_counted() {
    let used = |purpose: Purpose| {
        crate::local::local(|cpu| {
            cpu.frames.counters.used[purpose as usize].load(core::sync::atomic::Ordering::Relaxed)
        })
    };
    let before = used(Purpose::Pipe);
    let frames: Vec<_> =
        (0..200).map(|_| Frame::allocate(Purpose::Pipe, Zeroed::No).expect("memory")).collect();
    assert_eq!(used(Purpose::Pipe), before + 200);
    drop(frames);
    assert_eq!(used(Purpose::Pipe), before);
}
