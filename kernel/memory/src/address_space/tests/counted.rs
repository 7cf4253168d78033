//! Objects that are told of the regions that show them.

use super::*;
use crate::region::MappedObject;
use core::fmt;
use core::sync::atomic::AtomicI64;

#[derive(Default)]
struct Segment {
    regions: AtomicI64,
}

impl Segment {
    fn count(&self) -> i64 {
        self.regions.load(Ordering::Relaxed)
    }
}

impl MappedObject for Segment {
    fn write_name(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("segment")
    }

    fn identity(&self) -> (u64, u64) {
        (1, 2)
    }

    fn make_durable(&self, _start: u64, _end: u64) -> bool {
        true
    }

    fn region_added(&self) {
        self.regions.fetch_add(1, Ordering::Relaxed);
    }

    fn region_removed(&self) {
        self.regions.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Attached {
    segment: Arc<Segment>,
    cache: Arc<FileCache>,
}

impl Attached {
    fn new(pages: u64) -> Attached {
        let cache = FileCache::with_size(CacheKind::SharedMemory, pages * PAGE).expect("a small size");
        Attached { segment: Arc::new(Segment::default()), cache: Arc::new(cache) }
    }

    fn attach(&self, space: &AddressSpace, address: u64) {
        let mapping = FileMapping::counted(self.cache.clone(), self.segment.clone());
        let request = MapRequest::private_file(Arc::new(mapping), 0, self.cache.size(), READ_WRITE);
        space.map(request.at(at(address)).with(MapFlags::SHARED)).expect("a free place");
    }

    fn count(&self) -> i64 {
        self.segment.count()
    }
}

#[test]
fn pieces_are_counted_and_stay_pieces() {
    without_leaks(|| {
        let (object, space) = (Attached::new(4), space());
        object.attach(&space, BOUNDARY);
        assert_eq!(object.count(), 1);
        space.protect(at(BOUNDARY + PAGE), PAGE, Protection::READ).expect("it is mapped");
        assert_eq!(object.count(), 3);
        space.protect(at(BOUNDARY + PAGE), PAGE, READ_WRITE).expect("it is mapped");
        assert_eq!(object.count(), 3, "regions of counted objects are never merged");
        space.unmap(at(BOUNDARY + 2 * PAGE), PAGE).expect("a range");
        assert_eq!(object.count(), 3);
        object.attach(&space, BOUNDARY + 4 * PAGE);
        assert_eq!(object.count(), 4);
        drop(space);
        assert_eq!(object.count(), 0);
    });
}

#[test]
fn a_copy_counts_until_it_goes() {
    without_leaks(|| {
        let (object, space) = (Attached::new(2), space());
        object.attach(&space, BOUNDARY);
        let child = space.fork().expect("memory");
        assert_eq!(object.count(), 2);
        space
            .remap(at(BOUNDARY), 2 * PAGE, 2 * PAGE, RemapFlags::MAY_MOVE | RemapFlags::FIXED, at(1 << 40))
            .expect("free");
        assert_eq!(object.count(), 2);
        drop(space);
        assert_eq!(object.count(), 1);
        drop(child);
        assert_eq!(object.count(), 0);
    });
}

#[test]
fn detaching_finds_the_fragments_of_one_attachment() {
    without_leaks(|| {
        let (object, other, space) = (Attached::new(4), Attached::new(1), space());
        object.attach(&space, BOUNDARY);
        object.attach(&space, BOUNDARY + 8 * PAGE);
        put(&space, BOUNDARY, 7).expect("it is mapped");
        assert_eq!(get(&space, BOUNDARY + 8 * PAGE), Ok(7));
        other.attach(&space, BOUNDARY + PAGE);
        assert_eq!((object.count(), other.count()), (3, 1));
        for wrong in [BOUNDARY + 1, BOUNDARY + 2 * PAGE, BOUNDARY + 4 * PAGE, USER_TOP] {
            assert_eq!(space.detach(at(wrong)), Err(MapError::InvalidArgument));
        }
        space.detach(at(BOUNDARY)).expect("attached");
        assert_eq!((object.count(), other.count()), (1, 1));
        space.detach(at(BOUNDARY + PAGE)).expect("attached");
        space.detach(at(BOUNDARY + 8 * PAGE)).expect("attached");
        assert_eq!((object.count(), other.count()), (0, 0));
        assert_eq!(space.region_count(), 0);
    });
}

#[test]
fn what_is_left_after_the_first_page_is_gone_can_be_detached() {
    without_leaks(|| {
        let (object, space) = (Attached::new(3), space());
        object.attach(&space, BOUNDARY);
        space.unmap(at(BOUNDARY), PAGE).expect("a range");
        space.detach(at(BOUNDARY)).expect("two pages are left");
        assert_eq!(object.count(), 0);
        assert_eq!(space.detach(at(BOUNDARY)), Err(MapError::InvalidArgument));
    });
}
