//! Mappings: made, split, moved, shared, forked.

use linux_raw_sys::general as abi;

use crate::children::Part;
use crate::machine_under_test::exhaust;
use crate::program::{ARENA, PAGE, Program};

const PRIVATE: u64 = 0x22;
const SHARED: u64 = 0x21;
const READ_WRITE: u64 = 3;

fn map(program: &mut Program<'_>, pages: u64, flags: u64) -> u64 {
    program.must(abi::__NR_mmap, &[0, pages * PAGE, READ_WRITE, flags, u64::MAX, 0])
}

#[test]
fn splitting_and_merging() {
    exhaust("splitting mappings", 30, |program| {
        let start = map(program, 200, PRIVATE);
        for page in (0..200).step_by(2) {
            program.must(abi::__NR_mprotect, &[start + page * PAGE, PAGE, 1]);
        }
        for page in (1..200).step_by(4) {
            program.must(abi::__NR_munmap, &[start + page * PAGE, PAGE]);
        }
        program.put_at(start + 3 * PAGE, &[3]);
        program.must(abi::__NR_madvise, &[start + 3 * PAGE, PAGE, abi::MADV_DONTNEED.into()]);
        assert_eq!(program.get(start + 3 * PAGE), [0]);
        program.must(abi::__NR_mlock, &[start + 3 * PAGE, PAGE]);
        program.must(abi::__NR_mmap, &[start, 200 * PAGE, READ_WRITE, PRIVATE | 0x10, u64::MAX, 0]);
        program.put_at(start, &[1]);
    });
}

#[test]
fn policies_of_ranges() {
    exhaust("policies of ranges", 10, |program| {
        const BIND: u64 = 2;
        let start = map(program, 200, PRIVATE);
        let first_node = program.words(&[1]);
        for page in (0..200).step_by(2) {
            program.must(abi::__NR_mbind, &[start + page * PAGE, PAGE, BIND, first_node, 8, 0]);
        }
        program.must(abi::__NR_set_mempolicy_home_node, &[start, 200 * PAGE, 0, 0]);
        program.must(abi::__NR_mbind, &[start, 200 * PAGE, 0, 0, 0, 0]);
    });
}

#[test]
fn huge_pages() {
    exhaust("huge pages", 5, |program| {
        const HUGE: u64 = 512 * PAGE;
        let start = map(program, 3 * 512, PRIVATE).next_multiple_of(HUGE);
        program.put_at(start + 3 * PAGE, &[3]);
        program.must(abi::__NR_madvise, &[start, 2 * HUGE, abi::MADV_HUGEPAGE.into()]);
        program.put_at(start + HUGE + PAGE, &[4]);
        program.must(abi::__NR_madvise, &[start, HUGE, abi::MADV_COLLAPSE.into()]);
        program.must(abi::__NR_mprotect, &[start, PAGE, 1]);
        program.must(abi::__NR_munmap, &[start + HUGE, PAGE]);
        assert_eq!(program.get(start + 3 * PAGE), [3]);
        assert_eq!(program.get(start + HUGE + PAGE), [4]);
    });
}

#[test]
fn pages_of_the_pool() {
    use memory::huge_pool::{HUGE_PAGE_BYTES as HUGE, counts, set_size};
    exhaust("pages of the pool", 20, |program| {
        while counts().total < 4 {
            set_size(4);
        }
        let huge_pages = 0x4_0000;
        let start = program.must(abi::__NR_mmap, &[0, 2 * HUGE, 3, PRIVATE | huge_pages, u64::MAX, 0]);
        program.put_at(start + PAGE, &[3]);
        program.must(abi::__NR_mprotect, &[start, HUGE, 1]);
        let name = program.text("name");
        let file = program.must(abi::__NR_memfd_create, &[name, abi::MFD_HUGETLB.into()]);
        let mapped = program.must(abi::__NR_mmap, &[0, HUGE, 3, 1, file, 0]);
        program.put_at(mapped + PAGE, &[4]);
        let segment = program.must(abi::__NR_shmget, &[0, HUGE, 0o1000 | 0o4000 | 0o600]);
        let attached = program.must(abi::__NR_shmat, &[segment, 0, 0]);
        program.put_at(attached, &[5]);
        assert_eq!(program.get(start + PAGE), [3]);
        program.must(abi::__NR_shmctl, &[segment, 0, 0]);
        program.must(abi::__NR_shmdt, &[attached]);
        program.must(abi::__NR_close, &[file]);
        program.must(abi::__NR_munmap, &[mapped, HUGE]);
        program.must(abi::__NR_munmap, &[start, 2 * HUGE]);
        set_size(0);
    });
}

#[test]
fn moving_and_growing() {
    exhaust("moving mappings", 20, |program| {
        let start = map(program, 20, PRIVATE);
        for page in 0..20 {
            program.put_at(start + page * PAGE, &[page as u8]);
        }
        let moved = program.must(abi::__NR_mremap, &[start + 5 * PAGE, 10 * PAGE, 40 * PAGE, 1, 0]);
        assert_eq!(program.get(moved + 9 * PAGE), [14]);
        let target = map(program, 50, PRIVATE) + 20 * PAGE;
        let fixed = program.must(abi::__NR_mremap, &[moved, 40 * PAGE, 20 * PAGE, 3, target]);
        assert_eq!((fixed, program.get(fixed)), (target, [5]));
        let end = program.must(abi::__NR_brk, &[0]);
        // No memory: the break stays where it is, and may be moved again.
        if program.must(abi::__NR_brk, &[end + 10 * PAGE]) == end {
            program.must(abi::__NR_brk, &[end + 10 * PAGE]);
        }
    });
}

#[test]
fn forking_what_is_written() {
    exhaust("copy on write", 40, |program| {
        let private = map(program, 600, PRIVATE);
        let shared = map(program, 10, SHARED);
        for page in (0..600).step_by(60) {
            program.put_at(private + page * PAGE, &[1]);
        }
        program.put_at(shared, &[1]);
        program.cast(Part::End, [0; 3]);
        program.must(abi::__NR_fork, &[]);
        program.put_at(private, &[2]);
        program.put_at(shared + PAGE, &[2]);
        program.must(abi::__NR_wait4, &[u64::MAX, 0, 0, 0]);
        assert_eq!((program.get(private), program.get(private + 60 * PAGE)), ([2], [1]));
    });
}

#[test]
fn looking_into_another_process() {
    exhaust("memory of others", 15, |program| {
        let place = map(program, 3, PRIVATE);
        program.put_at(place, &[9; 100]);
        program.cast(Part::Pause, [0; 3]);
        let child = program.must(abi::__NR_fork, &[]);
        let ranges: Vec<u64> = (0..20).flat_map(|part| [place + part, 1]).collect();
        let remote = program.words(&ranges);
        let local = program.words(&[ARENA + PAGE, 20]);
        assert_eq!(program.must(abi::__NR_process_vm_readv, &[child, local, 1, remote, 20, 0]), 20);
        assert_eq!(program.get(ARENA + PAGE + 19), [9]);
        assert_eq!(program.must(abi::__NR_process_vm_writev, &[child, local, 1, remote, 20, 0]), 20);
        let resident = program.room(8);
        program.must(abi::__NR_mincore, &[place, 3 * PAGE, resident]);
        program.must(abi::__NR_kill, &[child, abi::SIGKILL.into()]);
        program.must(abi::__NR_wait4, &[u64::MAX, 0, 0, 0]);
    });
}
