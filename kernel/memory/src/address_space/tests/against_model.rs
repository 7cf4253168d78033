//! Random sequences of operations on several address spaces and files, checked against the model page by page.

use super::model::{FILE_PAGES, FILES, Files, Outcome, PAGES, Page, Shown, Space};
use super::*;
use core::ops::Range;
use proptest::prelude::*;

/// What a page of the model stands for: so many pages, of which the first is used. With `huge`, anonymous memory gets huge pages.
#[derive(Clone, Copy)]
struct Scale {
    pages: u64,
    huge: bool,
}

impl Scale {
    fn bytes(self, pages: usize) -> u64 {
        pages as u64 * self.pages * PAGE
    }

    fn address(self, page: usize) -> u64 {
        BOUNDARY - self.bytes(PAGES / 2) + self.bytes(page)
    }
}

const MAX_SPACES: usize = 4;

#[derive(Clone, Debug)]
enum Operation {
    Map { first: usize, count: usize, protection: u32, kind: usize, file_page: usize, shared: bool },
    Unmap { first: usize, count: usize },
    Protect { first: usize, count: usize, protection: u32 },
    Write { page: usize, value: u8 },
    Read { page: usize },
    Discard { first: usize, count: usize },
    Collapse { first: usize, count: usize },
    Move { first: usize, count: usize, to: usize },
    Fork,
    Exit,
    Truncate { file: usize, pages: usize },
    WriteFile { file: usize, page: usize, value: u8 },
}

fn operation() -> impl Strategy<Value = Operation> {
    let first = 0..PAGES - 12;
    let count = 1..12_usize;
    prop_oneof![
        4 => (first.clone(), count.clone(), 0..4_u32, 0..4_usize, 0..FILE_PAGES, any::<bool>()).prop_map(
            |(first, count, protection, kind, file_page, shared)| Operation::Map { first, count, protection, kind, file_page, shared }
        ),
        2 => (first.clone(), count.clone()).prop_map(|(first, count)| Operation::Unmap { first, count }),
        2 => (first.clone(), count.clone(), 0..4_u32)
            .prop_map(|(first, count, protection)| Operation::Protect { first, count, protection }),
        8 => (0..PAGES, any::<u8>()).prop_map(|(page, value)| Operation::Write { page, value }),
        4 => (0..PAGES).prop_map(|page| Operation::Read { page }),
        1 => (first.clone(), count.clone()).prop_map(|(first, count)| Operation::Discard { first, count }),
        1 => (first.clone(), count.clone()).prop_map(|(first, count)| Operation::Collapse { first, count }),
        2 => (first.clone(), count, first).prop_map(|(first, count, to)| Operation::Move { first, count, to }),
        1 => Just(Operation::Fork),
        1 => Just(Operation::Exit),
        1 => (0..FILES, 0..=FILE_PAGES).prop_map(|(file, pages)| Operation::Truncate { file, pages }),
        1 => (0..FILES, 0..FILE_PAGES, any::<u8>())
            .prop_map(|(file, page, value)| Operation::WriteFile { file, page, value }),
    ]
}

/// The system under test and its model, side by side.
struct Pair {
    scale: Scale,
    spaces: Vec<(Arc<AddressSpace>, Space)>,
    caches: [Arc<FileCache>; FILES],
    mappings: [Arc<FileMapping>; FILES],
    files: Files,
}

fn outcome(result: Result<u8, FaultError>) -> Outcome {
    match result {
        Ok(value) => Outcome::Value(value),
        Err(FaultError::NotMapped) => Outcome::NotMapped,
        Err(FaultError::AccessDenied) => Outcome::Denied,
        Err(FaultError::Bus) => Outcome::Bus,
        Err(FaultError::OutOfMemory) => panic!("there is enough memory"),
        Err(FaultError::Pager) => panic!("no range has a pager"),
    }
}

fn protection_of(bits: u32) -> Protection {
    Protection::from_bits_truncate(bits)
}

impl Pair {
    fn new(scale: Scale) -> Pair {
        let caches: [_; FILES] = core::array::from_fn(|_| file(FILE_PAGES as u64 * scale.pages));
        let mappings = core::array::from_fn(|number| mapping(&caches[number]));
        Pair { scale, spaces: vec![(space(), Space::new())], caches, mappings, files: Files::new() }
    }

    fn apply(&mut self, which: usize, operation: Operation) {
        let scale = self.scale;
        let number = which % self.spaces.len();
        let space = self.spaces[number].0.clone();
        let space = &*space;
        let model = &mut self.spaces[number].1;
        match operation {
            Operation::Map { first, count, protection, kind, file_page, shared } => {
                let protection = protection_of(protection);
                let file = kind.checked_sub(2);
                let shared = shared && file.is_some();
                let backing =
                    file.map_or(MapBacking::Anonymous, |file| MapBacking::File(self.mappings[file].clone()));
                let mut request =
                    MapRequest::anonymous(scale.bytes(count), protection).at(at(scale.address(first)));
                request.backing = backing;
                request.offset = scale.bytes(file_page);
                request.flags.set(MapFlags::SHARED, shared);
                assert_eq!(space.map(request), Ok(at(scale.address(first))));
                if scale.huge && file.is_none() {
                    space
                        .advise(at(scale.address(first)), scale.bytes(count), Advice::HugePage)
                        .expect("it is mapped");
                }
                let was_writable = !shared && protection.contains(Protection::WRITE);
                for offset in 0..count {
                    let shown =
                        file.map_or(Shown::Zeros, |file| Shown::File { file, page: file_page + offset });
                    model.0[first + offset] =
                        Some(Page { protection, shown, shared, was_writable, own: None });
                }
            }
            Operation::Unmap { first, count } => {
                assert_eq!(space.unmap(at(scale.address(first)), scale.bytes(count)), Ok(()));
                model.0[first..first + count].fill(None);
            }
            Operation::Protect { first, count, protection } => {
                let protection = protection_of(protection);
                let result = space.protect(at(scale.address(first)), scale.bytes(count), protection);
                assert_eq!(result, model.protect(first, count, protection));
            }
            Operation::Write { page, value } => {
                let result = outcome(put(space, scale.address(page), value).map(|()| value));
                assert_eq!(result, model.write(&mut self.files, page, value));
            }
            Operation::Read { page } => {
                assert_eq!(outcome(get(space, scale.address(page))), model.read(&self.files, page));
            }
            Operation::Discard { first, count } => {
                let result = space.advise(at(scale.address(first)), scale.bytes(count), Advice::DontNeed);
                assert_eq!(result, model.discard(first, count));
            }
            Operation::Collapse { first, count } => {
                // What can be collapsed the model does not know; nothing that it does know changes.
                let _ = space.advise(at(scale.address(first)), scale.bytes(count), Advice::Collapse);
            }
            Operation::Move { first, count, to } => move_range(scale, space, model, first..first + count, to),
            Operation::Fork => {
                if self.spaces.len() < MAX_SPACES {
                    let child = (space.fork().expect("memory"), self.spaces[number].1.clone());
                    self.spaces.push(child);
                }
            }
            Operation::Exit => {
                if self.spaces.len() > 1 {
                    self.spaces.remove(number);
                }
            }
            Operation::Truncate { file, pages } => {
                self.caches[file].truncate(scale.bytes(pages)).expect("a small file");
                self.files.truncate(file, pages);
                self.spaces.iter_mut().for_each(|(_, model)| model.cut(file, pages));
            }
            Operation::WriteFile { file, page, value } => {
                if page < self.files.pages[file] {
                    let mut source = crate::buffer::Source::kernel(core::slice::from_ref(&value));
                    assert_eq!(self.caches[file].write_at(scale.bytes(page), &mut source), Ok(1));
                    self.files.bytes[file][page] = value;
                }
            }
        }
    }

    /// Reads everything everywhere.
    fn check_all(&self) {
        for (space, model) in &self.spaces {
            for page in 0..PAGES {
                assert_eq!(
                    outcome(get(space, self.scale.address(page))),
                    model.read(&self.files, page),
                    "page {page}"
                );
            }
            let mapped = model.0.iter().flatten().count() as u64 * self.scale.pages;
            assert_eq!(space.usage().mapped_pages, mapped);
            let mut usage = [0; 2];
            space.for_each_region(|region| {
                let found = space.region_usage(region);
                usage[0] += found.resident / PAGE;
                usage[1] += found.anonymous / PAGE;
            });
            let totals = space.usage();
            let resident = totals.private_pages + totals.file_pages + totals.shared_memory_pages;
            assert_eq!([resident, totals.private_pages], usage, "counters agree with the tables");
        }
    }
}

fn move_range(scale: Scale, space: &AddressSpace, model: &mut Space, from: Range<usize>, to: usize) {
    let (first, count) = (from.start, from.len());
    let overlaps = first < to + count && to < first + count;
    let flags = RemapFlags::MAY_MOVE | RemapFlags::FIXED;
    let length = scale.bytes(count);
    let result = space.remap(at(scale.address(first)), length, length, flags, at(scale.address(to)));
    if overlaps {
        assert_eq!(result, Err(MapError::InvalidArgument));
    } else if model.is_uniform(first, count) {
        assert_eq!(result, Ok(at(scale.address(to))));
        for offset in 0..count {
            model.0[to + offset] = model.0[first + offset].take();
        }
    } else {
        assert_eq!(result, Err(MapError::BadAddress));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn spaces_agree_with_the_model(steps in prop::collection::vec((0..MAX_SPACES, operation()), 1..120)) {
        check(Scale { pages: 1, huge: false }, steps);
    }

    /// Regions have whole leaf tables here, which forks share.
    #[test]
    fn large_spaces_agree_with_the_model(steps in prop::collection::vec((0..MAX_SPACES, operation()), 1..120)) {
        check(Scale { pages: 64, huge: false }, steps);
    }

    #[test]
    fn huge_pages_agree_with_the_model(steps in prop::collection::vec((0..MAX_SPACES, operation()), 1..120)) {
        check(Scale { pages: 128, huge: true }, steps);
    }
}

fn check(scale: Scale, steps: Vec<(usize, Operation)>) {
    without_leaks(|| {
        let mut pair = Pair::new(scale);
        for (which, operation) in steps {
            pair.apply(which, operation);
        }
        pair.check_all();
    });
}
