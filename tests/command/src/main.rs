//! `command-tests`: `./starling run` as a user sees it, on the real kernel.
//!
//! What can be tested without a kernel is tested beside the command (`tools/starling/tests`). Here are the promises that
//! need both: exit statuses, streams, options, images, numbers of processors, start-up time.
//!
//! * [`case`]: a call of the command and what must come of it
//! * [`promises`]: the cases
//! * [`images`]: root file systems that the cases use
//! * [`balloon`]: memory lent to the host
//! * [`consoles`]: ports of virtio consoles
//! * [`disks`]: disks, and ext4 on them
//! * [`crash`]: machines that are killed while they write to an ext4
//! * [`folders`]: directories of the host
//! * [`access_lists`]: access lists on ext4, with Debian's programs
//! * [`root_images`]: file systems in files as the root
//! * [`schedulers`]: I/O schedulers of busy disks, and statistics of partitions
//! * [`random`]: random bytes of devices
//! * [`variants`]: virtio devices with pins, packed rings, other numbers of queues
//! * [`faults`]: disks that fail or go away
//! * [`damaged`]: damaged images in a running machine
//! * [`debian`]: Debian's programs for disks and file systems
//! * [`debian_image`]: an image of Debian made from packages
//! * [`fio`]: Debian's program that writes to disks in many ways and verifies what it reads
//! * [`full_disk`]: a disk that is full
//! * [`mapped_files`]: files larger than memory, mapped
//! * [`profile`]: where the kernel spends its time
//! * [`small_memory`]: more is written and read than there is memory
//! * [`kept_images`]: images in layers, kept by name
//! * [`saved_images`]: archives of `docker save`
//! * [`devices`]: ports of PCI Express, driven through QEMU's monitor
//! * [`functions`]: files of PCI functions
//! * [`hot_plug`]: disks that come and go while programs write to them
//! * [`upheaval`]: all that can happen to devices, at once
//! * [`device_events`]: programs that listen to events of devices
//! * [`kernel_size`]: the size of what QEMU loads
//! * [`streams`]: what carries the command's streams
//! * [`thread_traces`]: what the threads of programs do with each other
//! * [`tracing`]: Debian's programs that watch others
//! * [`trees`]: a large tree, unpacked, searched and removed
//! * [`start_up`]: the time until the command's first instruction
//!
//! `command-tests [--long] [WORD...]` runs the cases whose names contain one of the words, or all.
#![forbid(unsafe_code)]

mod access_lists;
mod balloon;
mod case;
mod consoles;
mod crash;
mod damaged;
mod debian;
mod debian_image;
mod device_events;
mod devices;
mod disks;
mod entries;
mod faults;
mod fio;
mod folders;
mod full_disk;
mod functions;
mod hot_plug;
mod images;
mod kept_images;
mod kernel_size;
mod mapped_files;
mod profile;
mod promises;
mod random;
mod recovery;
mod root_images;
mod saved_images;
mod schedulers;
mod small_memory;
mod start_up;
mod streams;
mod thread_traces;
mod tracing;
mod trees;
mod upheaval;
mod variants;

use std::process::ExitCode;

fn main() -> ExitCode {
    let (options, words): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let long = options.iter().any(|option| option == "--long");
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let images = match images::Images::make() {
        Ok(images) => images,
        Err(error) => {
            eprintln!("command-tests: making images: {error}");
            println!("0 passed, 1 failed");
            return ExitCode::FAILURE;
        }
    };
    let (mut passed, mut failed) = (0, 0);
    let mut count = |name: &str, result: Result<(), String>| match result {
        Ok(()) => {
            passed += 1;
            println!("test {name} ... ok");
        }
        Err(why) => {
            failed += 1;
            println!("test {name} ... FAILED: {why}");
        }
    };
    let more = if long { promises::long_cases() } else { Vec::new() };
    let short = promises::cases(&images).into_iter().chain(streams::cases());
    for case in short.chain(more).filter(|case| wanted(&case.name)) {
        count(&case.name, case.run());
    }
    if wanted(kept_images::NAME) {
        count(kept_images::NAME, kept_images::check(&images));
    }
    if wanted(saved_images::NAME) {
        count(saved_images::NAME, saved_images::check(&images));
    }
    for (entry, cpus) in entries::all().filter(|(entry, cpus)| wanted(&entry.name(*cpus))) {
        count(&entry.name(cpus), entry.check(&images, cpus));
    }
    if wanted(kernel_size::NAME) {
        count(kernel_size::NAME, kernel_size::check());
    }
    if wanted(debian::NAME) {
        count(debian::NAME, debian::check(long));
    }
    if wanted(access_lists::NAME) {
        count(access_lists::NAME, access_lists::check());
    }
    if wanted(full_disk::NAME) {
        count(full_disk::NAME, full_disk::check());
    }
    if wanted(profile::NAME) {
        count(profile::NAME, profile::check());
    }
    if wanted(small_memory::NAME) {
        count(small_memory::NAME, small_memory::check());
    }
    if wanted(device_events::NAME) {
        count(device_events::NAME, device_events::check());
    }
    if wanted(schedulers::NAME) {
        count(schedulers::NAME, schedulers::check(long));
    }
    for (name, check) in streams::CHECKS.iter().filter(|(name, _)| long && wanted(name)) {
        count(name, check());
    }
    let short =
        disks::CHECKS.iter().chain(&faults::CHECKS).chain(&root_images::CHECKS).chain(&folders::CHECKS);
    for (name, check) in short.filter(|(name, _)| wanted(name)) {
        count(name, check());
    }
    let more = root_images::LONG_CHECKS.iter().chain(&folders::LONG_CHECKS).chain(&trees::CHECKS);
    for (name, check) in more.chain(&damaged::CHECKS).filter(|(name, _)| long && wanted(name)) {
        count(name, check());
    }
    if long && wanted(consoles::NAME) {
        count(consoles::NAME, consoles::check());
    }
    for (name, check, rounds) in crash::CHECKS.iter().filter(|(name, ..)| wanted(name)) {
        count(name, check(if long { rounds.long } else { rounds.short }));
    }
    if long && wanted(saved_images::DAMAGED_NAME) {
        count(saved_images::DAMAGED_NAME, saved_images::check_damaged(&images));
    }
    if long && wanted(debian_image::NAME) {
        count(debian_image::NAME, debian_image::check());
    }
    if long && wanted(fio::NAME) {
        count(fio::NAME, fio::check());
    }
    if long && wanted(mapped_files::NAME) {
        count(mapped_files::NAME, mapped_files::check());
    }
    if long && wanted(balloon::NAME) {
        count(balloon::NAME, balloon::check());
    }
    if wanted(thread_traces::NAME) {
        count(thread_traces::NAME, thread_traces::check());
    }
    if wanted(tracing::NAME) {
        count(tracing::NAME, tracing::check());
    }
    if wanted(random::NAME) {
        count(random::NAME, random::check());
    }
    if wanted(recovery::NAME) {
        count(recovery::NAME, recovery::check());
    }
    if wanted(hot_plug::NAME) {
        count(
            hot_plug::NAME,
            if long { hot_plug::check(ROUNDS.1, "2") } else { hot_plug::check(ROUNDS.0, "1") },
        );
    }
    if wanted(upheaval::NAME) {
        count(upheaval::NAME, upheaval::check(if long { ROUNDS.1 } else { ROUNDS.0 }));
    }
    for (name, check) in variants::CHECKS.iter().filter(|(name, _)| wanted(name)) {
        count(name, check());
    }
    check_devices(long, &wanted, &mut count);
    for measurement in
        start_up::measurements().into_iter().filter(|measurement| long && wanted(measurement.name))
    {
        count(measurement.name, measurement.run());
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Rounds of plugging a device in and out: in short, and as the sheet demands.
const ROUNDS: (usize, usize) = (2, 50);

/// The checks of devices, in one machine.
fn check_devices(long: bool, wanted: &dyn Fn(&str) -> bool, count: &mut dyn FnMut(&str, Result<(), String>)) {
    let chosen: Vec<_> = devices::CHECKS.iter().filter(|(name, _)| wanted(name)).collect();
    if chosen.is_empty() {
        return;
    }
    match devices::Machine::start(if long { ROUNDS.1 } else { ROUNDS.0 }) {
        Ok(mut machine) => chosen.iter().for_each(|(name, check)| count(name, check(&mut machine))),
        Err(why) => chosen.iter().for_each(|(name, _)| count(name, Err(why.clone()))),
    }
}
