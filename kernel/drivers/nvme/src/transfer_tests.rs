//! What is named to the controller for requests of all shapes.

use alloc::sync::Arc;
use std::sync::Mutex;

use block::{Bio, BioFlags, Driver, Limits, Queue, Segment};
use memory::frame::{Frame, Purpose, Zeroed};

use super::*;

/// A driver that does what a controller would by what it is told, and notes it.
#[derive(Default)]
struct Recorder {
    seen: Mutex<Vec<(Vec<u64>, bool)>>,
}

/// Pages as a controller finds them by the two words and the list.
fn found(words: [u64; 2], bytes: usize, list: &Buffer, offset: usize) -> Vec<u64> {
    let first = PAGE_SIZE - words[0] as usize % PAGE_SIZE;
    let rest = bytes.saturating_sub(first).div_ceil(PAGE_SIZE);
    let mut pages = vec![words[0]];
    match rest {
        0 => {}
        1 => pages.push(words[1]),
        _ => {
            assert_eq!(words[1], list.physical().as_u64() + offset as u64);
            pages.extend((0..rest).map(|index| list.read_u64(offset + index * 8)));
        }
    }
    pages
}

impl Driver for Recorder {
    fn limits(&self) -> Limits {
        Limits { sectors_max: SECTORS_MAX, ..Limits::of_size(1 << 20) }
    }

    fn submit(&self, _cpu: usize, request: Request) -> Result<(), Request> {
        let transfer = Transfer::prepare(request)?;
        let list = Buffer::allocate(2 * LIST_BYTES).unwrap();
        let words = transfer.name_pages(&list, LIST_BYTES);
        let bytes = transfer.request().sectors() as usize * SECTOR_BYTES;
        let pages = found(words, bytes, &list, LIST_BYTES);
        assert!(pages[1..].iter().all(|page| (*page as usize).is_multiple_of(PAGE_SIZE)));
        if transfer.request().operation() == Operation::Read {
            for (index, copy) in transfer.copies.iter().enumerate() {
                (0..copy.bytes())
                    .step_by(8)
                    .for_each(|at| copy.write_u64(at, (index * COPY_BYTES + at) as u64));
            }
        }
        self.seen.lock().unwrap().push((pages, transfer.copies.is_empty()));
        transfer.complete(Ok(()));
        Ok(())
    }
}

fn transfer(segments: Vec<Segment>, operation: Operation) -> (Vec<u64>, bool, Vec<Segment>) {
    memory::initialize();
    let recorder = Arc::new(Recorder::default());
    let queue = Queue::new(recorder.clone()).unwrap();
    let back = Arc::new(Mutex::new(Vec::new()));
    let told = back.clone();
    let bio = Bio::new(operation, 0, segments, BioFlags::empty()).unwrap();
    queue.submit(
        bio.on_done(move |bio, outcome| {
            assert_eq!(outcome, Ok(()));
            *told.lock().unwrap() = bio.into_segments();
        })
        .unwrap(),
    );
    let (pages, in_place) = recorder.seen.lock().unwrap().pop().unwrap();
    let segments = core::mem::take(&mut *back.lock().unwrap());
    (pages, in_place, segments)
}

fn frame() -> Frame {
    memory::initialize();
    Frame::allocate(Purpose::Kernel, Zeroed::Yes).unwrap()
}

fn part(frame: &Frame, offset: usize, bytes: usize) -> Segment {
    Segment::new(Memory::Frame(frame.clone()), offset, bytes).unwrap()
}

#[test]
fn frames_are_named_where_they_are() {
    for count in [1, 2, 3, 60, 128] {
        let frames: Vec<Frame> = (0..count).map(|_| frame()).collect();
        let segments = frames.iter().map(|frame| part(frame, 0, PAGE_SIZE)).collect();
        let (pages, in_place, _) = transfer(segments, Operation::Write);
        assert!(in_place);
        assert_eq!(pages, frames.iter().map(|frame| frame.physical().as_u64()).collect::<Vec<_>>());
    }
}

#[test]
fn first_page_may_begin_and_the_last_may_end_anywhere() {
    let frames = [(); 3].map(|()| frame());
    let segments =
        vec![part(&frames[0], 3584, 512), part(&frames[1], 0, PAGE_SIZE), part(&frames[2], 0, 1024)];
    let (pages, in_place, _) = transfer(segments, Operation::Read);
    assert!(in_place);
    assert_eq!(pages[0], frames[0].physical().as_u64() + 3584);
    let (pages, in_place, _) = transfer(vec![part(&frames[0], 512, 512)], Operation::Read);
    assert!(in_place && pages == [frames[0].physical().as_u64() + 512]);
}

#[test]
fn other_shapes_are_copied() {
    let frames = [(); 2].map(|()| frame());
    for segments in [
        vec![part(&frames[0], 0, 512), part(&frames[1], 0, 512)],
        vec![part(&frames[0], 0, PAGE_SIZE), part(&frames[1], 512, 512)],
    ] {
        let (pages, in_place, _) = transfer(segments, Operation::Write);
        assert!(!in_place && !pages.contains(&frames[0].physical().as_u64()));
    }
}

#[test]
fn bytes_of_other_memory_come_back_in_order() {
    for sectors in [1, 8, 9, 64, 65, SECTORS_MAX as usize] {
        let bytes = sectors * SECTOR_BYTES;
        let segments = if sectors > 8 {
            let memory = |length| Memory::Owned(vec![0xff; length]);
            vec![Segment::whole(memory(512)).unwrap(), Segment::whole(memory(bytes - 512)).unwrap()]
        } else {
            vec![Segment::whole(Memory::Owned(vec![0xff; bytes])).unwrap()]
        };
        let (pages, in_place, segments) = transfer(segments, Operation::Read);
        assert!(!in_place && pages.len() == bytes.div_ceil(PAGE_SIZE));
        let mut at = 0_u64;
        for segment in segments {
            let mut seen = vec![0; segment.len()];
            segment.copy_out(0, &mut seen);
            for word in seen.chunks_exact(8) {
                assert_eq!(u64::from_le_bytes(word.try_into().unwrap()), at);
                at += 8;
            }
        }
        assert_eq!(at as usize, bytes);
    }
}
