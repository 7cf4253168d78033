//! What the table of calls does not have, and why: each number that a program may ask for in vain has its explanation here.
//!
//! `/proc/starling/missing_syscalls` shows it beside the count, and the book's page of calls lists it.

/// Linux 6.1 answers ENOSYS itself, however it was built for x86-64.
const NOR_LINUX: &str = "Linux 6.1 has no such call either";
/// Linux's modules.
const MODULES: &str = "there are no loadable modules";
/// Starting another kernel from this one.
const KEXEC: &str = "no kernel is started from this one";
/// Swap space.
const SWAP: &str = "there is no swap space";
/// Disk quotas.
const QUOTAS: &str = "no file system counts what its users have";
/// Keys and keyrings.
const KEYS: &str = "there are no keyrings";
/// Landlock's rules.
const LANDLOCK: &str = "there are no Landlock rules; seccomp and name spaces confine programs";
/// Numbers between the two ranges that x86-64 uses.
const NO_NUMBER: &str = "x86-64 has no call of this number: programs try what there is";
/// Calls that came after 6.1.
const NEWER: &str = "newer than Linux 6.1";

/// What is counted together.
const BEYOND: &str = "this number and all above it: newer than Linux 6.1, or of no call";

/// Number, name and reason, in the order of numbers.
const ABSENT: &[(usize, &str, &str)] = &[
    (134, "uselib", "Debian's Linux 6.1 is built without it"),
    (154, "modify_ldt", "there are no local descriptor tables: 64-bit programs need none"),
    (156, "_sysctl", NOR_LINUX),
    (167, "swapon", SWAP),
    (168, "swapoff", SWAP),
    (174, "create_module", NOR_LINUX),
    (175, "init_module", MODULES),
    (176, "delete_module", MODULES),
    (177, "get_kernel_syms", NOR_LINUX),
    (178, "query_module", NOR_LINUX),
    (179, "quotactl", QUOTAS),
    (180, "nfsservctl", NOR_LINUX),
    (181, "getpmsg", NOR_LINUX),
    (182, "putpmsg", NOR_LINUX),
    (183, "afs_syscall", NOR_LINUX),
    (184, "tuxcall", NOR_LINUX),
    (185, "security", NOR_LINUX),
    (205, "set_thread_area", NOR_LINUX),
    (211, "get_thread_area", NOR_LINUX),
    (212, "lookup_dcookie", "of a profiler that Linux 6.8 dropped, with the call"),
    (214, "epoll_ctl_old", NOR_LINUX),
    (215, "epoll_wait_old", NOR_LINUX),
    (236, "vserver", NOR_LINUX),
    (246, "kexec_load", KEXEC),
    (248, "add_key", KEYS),
    (249, "request_key", KEYS),
    (250, "keyctl", KEYS),
    (298, "perf_event_open", "there are no performance events"),
    (313, "finit_module", MODULES),
    (320, "kexec_file_load", KEXEC),
    (321, "bpf", "the kernel runs no programs of eBPF; seccomp takes classic BPF"),
    (
        323,
        "userfaultfd",
        "page faults are not served by programs through this call; pagers serve them by messages",
    ),
    (443, "quotactl_fd", QUOTAS),
    (444, "landlock_create_ruleset", LANDLOCK),
    (445, "landlock_add_rule", LANDLOCK),
    (446, "landlock_restrict_self", LANDLOCK),
    (447, "memfd_secret", "Linux 6.1 answers the same unless it is started with secretmem.enable"),
];

/// Numbers that x86-64 skips.
const SKIPPED: core::ops::RangeInclusive<usize> = 335..=423;

/// Name and reason of a number that the table has no call for.
pub fn why(number: usize) -> (&'static str, &'static str) {
    match ABSENT.binary_search_by_key(&number, |entry| entry.0) {
        Ok(index) => (ABSENT[index].1, ABSENT[index].2),
        Err(_) if SKIPPED.contains(&number) => ("-", NO_NUMBER),
        Err(_) if number >= super::COUNT => ("-", BEYOND),
        Err(_) => ("-", NEWER),
    }
}

/// The part of the book's page about calls that are not there, as Markdown.
pub(super) fn reference() -> alloc::string::String {
    let mut page = alloc::string::String::from(
        "\n## Calls that are not there\n\n| number | call | why |\n|---:|---|---|\n",
    );
    for (number, name, reason) in ABSENT {
        page.push_str(&alloc::format!("| {number} | `{name}` | {reason} |\n"));
    }
    page.push_str(&alloc::format!("| {} to {} | | {NO_NUMBER} |\n", SKIPPED.start(), SKIPPED.end()));
    page.push_str(&alloc::format!("| others from {} on | | {NEWER} |\n", super::COUNT_OF_6_1));
    page
}

#[cfg(test)]
mod tests {
    use super::super::{COUNT_OF_6_1, descriptions};
    use super::*;

    #[test]
    fn each_number_is_served_or_explained_and_never_both() {
        assert!(ABSENT.windows(2).all(|pair| pair[0].0 < pair[1].0), "binary search");
        for number in 0..COUNT_OF_6_1 {
            let served = descriptions().any(|call| call.number == number);
            let explained = why(number).1 != NEWER;
            assert_ne!(served, explained, "call {number}");
        }
    }
}
