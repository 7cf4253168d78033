//! What operations on address spaces cost, printed as nanoseconds each. Under QEMU with `-icount shift=0` a nanosecond is
//! an instruction, so the figures can be compared between kernels and repeated exactly.

use super::{Outcome, Test, check, fail};
use ::machine::address::{PAGE_SIZE, UserAddr};
use ::machine::fault::Access;
use ::machine::time;
use ::memory::address_space::{AddressSpace, Advice, MapRequest, Protection};
use ::memory::buffer::Source;
use ::memory::file_cache::{CacheKind, FileCache};
use ::memory::region::FileMapping;
use alloc::sync::Arc;

pub(crate) const TESTS: &[Test] = &[Test { name: "address_space_costs::table", run: table }];

const READ_WRITE: Protection = Protection::READ.union(Protection::WRITE);
const PAGE: u64 = PAGE_SIZE as u64;
const PLACE: u64 = 0x4000_0000;
const PAGES: u64 = 1024;
const ROUNDS: u64 = 100;

/// Prints the mean of `count` operations that `work` does.
fn measure<R>(name: &str, count: u64, work: impl FnOnce() -> R) -> R {
    let start = time::now_ns();
    let result = work();
    let spent = time::now_ns() - start;
    ::machine::console::print(format_args!("cost {name}: {} ns\n", spent / count));
    result
}

fn at(page: u64) -> UserAddr {
    UserAddr::new(PLACE + page * PAGE)
}

fn touch(space: &AddressSpace, pages: impl Iterator<Item = u64>, access: Access) -> bool {
    let mut fine = true;
    for page in pages {
        fine &= space.fault(at(page), access).is_ok();
    }
    fine
}

fn table() -> Outcome {
    let Ok(space) = AddressSpace::new() else { fail!("no memory") };
    let anonymous = |pages: u64| MapRequest::anonymous(pages * PAGE, READ_WRITE);
    check!(space.map(anonymous(PAGES).at(at(0))).is_ok(), "map");
    check!(measure("fault, anonymous write", PAGES, || touch(&space, 0..PAGES, Access::Write)), "fault");
    check!(space.unmap(at(0), PAGES * PAGE).is_ok(), "unmap");
    check!(space.map(anonymous(PAGES).at(at(0))).is_ok(), "map");
    check!(
        measure("fault, anonymous write, warm", PAGES, || touch(&space, 0..PAGES, Access::Write)),
        "fault"
    );
    let dropped = measure("discard, a page", PAGES, || space.advise(at(0), PAGES * PAGE, Advice::DontNeed));
    check!(dropped.is_ok(), "discard");
    check!(measure("fault, anonymous read", PAGES, || touch(&space, 0..PAGES, Access::Read)), "fault");
    check!(measure("fault, zeros to private", PAGES, || touch(&space, 0..PAGES, Access::Write)), "fault");
    let child = measure("fork, a page", PAGES, || space.fork());
    let Ok(child) = child else { fail!("fork") };
    check!(measure("fault, copy on write", PAGES, || touch(&child, 0..PAGES, Access::Write)), "fault");
    check!(measure("fault, last holder", PAGES, || touch(&space, 0..PAGES, Access::Write)), "fault");
    measure("exit, a page", PAGES, || drop(child));
    let protect = |protection| space.protect(at(0), PAGES * PAGE, protection).is_ok();
    check!(measure("mprotect, a page", PAGES, || protect(Protection::READ)), "protect");
    measure("unmap, a page", PAGES, || space.unmap(at(0), PAGES * PAGE).is_ok());
    small_operations(&space)?;
    files(&space)
}

fn small_operations(space: &AddressSpace) -> Outcome {
    let anonymous = |pages: u64| MapRequest::anonymous(pages * PAGE, READ_WRITE);
    for number in 0..20 {
        check!(space.map(anonymous(1).at(at(100 + number * 4))).is_ok(), "map");
        check!(touch(space, core::iter::once(100 + number * 4), Access::Write), "fault");
    }
    let fine = measure("mmap and munmap, untouched", ROUNDS, || {
        (0..ROUNDS).all(|_| space.map(anonymous(1)).is_ok_and(|start| space.unmap(start, PAGE).is_ok()))
    });
    check!(fine, "map and unmap");
    let fine = measure("mmap, touch and munmap", ROUNDS, || {
        (0..ROUNDS).all(|_| {
            space.map(anonymous(1)).is_ok_and(|start| {
                space.fault(start, Access::Write).is_ok() && space.unmap(start, PAGE).is_ok()
            })
        })
    });
    check!(fine, "map, touch and unmap");
    let fine =
        measure("fork and exit, 20 regions of a page", ROUNDS, || (0..ROUNDS).all(|_| space.fork().is_ok()));
    check!(fine, "fork");
    Ok(())
}

fn files(space: &AddressSpace) -> Outcome {
    let cache = Arc::new(FileCache::new(CacheKind::SharedMemory));
    let page = [1; PAGE_SIZE];
    let write = |number: u64| cache.write_at(number * PAGE, &mut Source::kernel(&page)).is_ok();
    check!(measure("write, a new page", PAGES, || (0..PAGES).all(write)), "write");
    check!(measure("write, an old page", PAGES, || (0..PAGES).all(write)), "write");
    let mut buffer = [0; 64];
    let mut read =
        |number: u64| cache.read_at(number * PAGE, &mut ::memory::buffer::Sink::kernel(&mut buffer)).is_ok();
    check!(measure("read, 64 bytes", PAGES, || (0..PAGES).all(&mut read)), "read");
    let file = Arc::new(FileMapping::new(cache, None));
    let request = MapRequest::private_file(file, 0, PAGES * PAGE, READ_WRITE).at(at(4096));
    check!(space.map(request).is_ok(), "map");
    let pages = 4096..4096 + PAGES;
    check!(measure("fault, file read, a page", PAGES, || touch(space, pages, Access::Read)), "fault");
    let pages = 4096..4096 + PAGES;
    check!(measure("fault, file copy", PAGES, || touch(space, pages, Access::Write)), "fault");
    measure("unmap, a page", PAGES, || space.unmap(at(4096), PAGES * PAGE).is_ok());
    Ok(())
}
