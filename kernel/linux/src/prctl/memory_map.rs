//! `PR_SET_MM`: a process says where the parts of its program are and what its file is, for who restores one from an image (prctl(2)).
//!
//! All of it but the heap only changes what `/proc/PID` shows. The heap moves from where it is put. The values are kept by the process, not by its
//! memory: a child that borrows its parent's changes only its own.

use alloc::sync::Arc;

use machine::address::{USER_END, UserAddr};
use memory::address_space::{MINIMUM_ADDRESS, MapBacking};
use vfs::{Access, Capabilities, FileKind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::elf::ExecutableGuard;
use crate::errno::{Errno, SysResult};
use crate::exec::MappedFile;
use crate::exec::open::allows_execution;
use crate::process::limits::Resource;
use crate::process::process::{AUXILIARY_WORDS, AuxiliaryVector, Executable, Process};
use crate::task::Task;
use crate::user_pointer::{UserPointer, read_bytes};

/// What is set.
mod field {
    pub(super) const START_CODE: u64 = 1;
    pub(super) const END_CODE: u64 = 2;
    pub(super) const START_DATA: u64 = 3;
    pub(super) const END_DATA: u64 = 4;
    pub(super) const START_STACK: u64 = 5;
    pub(super) const START_BREAK: u64 = 6;
    pub(super) const BREAK: u64 = 7;
    pub(super) const START_ARGUMENTS: u64 = 8;
    pub(super) const END_ARGUMENTS: u64 = 9;
    pub(super) const START_ENVIRONMENT: u64 = 10;
    pub(super) const END_ENVIRONMENT: u64 = 11;
    pub(super) const AUXILIARY: u64 = 12;
    pub(super) const EXECUTABLE_FILE: u64 = 13;
    pub(super) const ALL: u64 = 14;
    pub(super) const SIZE_OF_ALL: u64 = 15;
}

/// Bytes of an auxiliary vector.
const AUXILIARY_BYTES: usize = AUXILIARY_WORDS * 8;
/// In the place of a descriptor: the file stays.
const NO_FILE: u32 = u32::MAX;

/// Where everything is: the head of `struct prctl_mm_map`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Places {
    code: [u64; 2],
    data: [u64; 2],
    heap: [u64; 2],
    start_stack: u64,
    arguments: [u64; 2],
    environment: [u64; 2],
}

/// `struct prctl_mm_map`
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct MemoryMap {
    places: Places,
    auxiliary: u64,
    auxiliary_bytes: u32,
    file: u32,
}

const _: () = assert!(size_of::<MemoryMap>() == 104);

impl Places {
    /// The address of a field; `None` for what is none.
    fn field(&mut self, number: u64) -> Option<&mut u64> {
        Some(match number {
            field::START_CODE => &mut self.code[0],
            field::END_CODE => &mut self.code[1],
            field::START_DATA => &mut self.data[0],
            field::END_DATA => &mut self.data[1],
            field::START_STACK => &mut self.start_stack,
            field::START_BREAK => &mut self.heap[0],
            field::BREAK => &mut self.heap[1],
            field::START_ARGUMENTS => &mut self.arguments[0],
            field::END_ARGUMENTS => &mut self.arguments[1],
            field::START_ENVIRONMENT => &mut self.environment[0],
            field::END_ENVIRONMENT => &mut self.environment[1],
            _ => return None,
        })
    }

    /// Whether a program can lie so, with so many bytes of data at most.
    fn are_valid(&self, data_limit: u64) -> bool {
        let pairs = [self.code, self.data, self.heap, self.arguments, self.environment];
        let addresses = pairs.as_flattened().iter().chain([&self.start_stack]);
        let is_ordered = |pair: &[u64; 2]| pair[0] <= pair[1];
        addresses.copied().all(is_user_address)
            && pairs.iter().all(is_ordered)
            && self.code[0] < self.code[1]
            && (self.heap[1] - self.heap[0]) + (self.data[1] - self.data[0]) <= data_limit
    }
}

fn is_user_address(address: u64) -> bool {
    (MINIMUM_ADDRESS..USER_END as u64).contains(&address)
}

/// `PR_SET_MM`
#[inline(never)]
pub(super) fn set(task: &mut Task, option: u64, value: u64, bytes: u64, unused: u64) -> SysResult {
    let takes_size = matches!(option, field::AUXILIARY | field::ALL | field::SIZE_OF_ALL);
    if unused != 0 || bytes != 0 && !takes_size {
        return Err(Errno::EINVAL);
    }
    match option {
        field::SIZE_OF_ALL => {
            return UserPointer::<u32>::new(value).write(&(size_of::<MemoryMap>() as u32)).map(|()| 0);
        }
        field::ALL => return set_all(task, value, bytes),
        _ if !task.credentials.has(Capabilities::SYS_RESOURCE) => return Err(Errno::EPERM),
        field::EXECUTABLE_FILE => replace_file(task, value as i32)?,
        field::AUXILIARY => {
            let before = auxiliary_of(task);
            let vector = read_auxiliary(value, bytes, before)?;
            let former = task.process().executable.lock().own_auxiliary.replace(vector);
            drop(former);
        }
        _ => set_one(task, option, value)?,
    }
    Ok(0)
}

fn set_one(task: &Task, option: u64, address: u64) -> Result<(), Errno> {
    if !is_user_address(address) {
        return Err(Errno::EINVAL);
    }
    let mut places = places_of(task);
    *places.field(option).ok_or(Errno::EINVAL)? = address;
    check(task, &places)?;
    let is_memory = matches!(
        option,
        field::START_STACK
            | field::START_ARGUMENTS
            | field::END_ARGUMENTS
            | field::START_ENVIRONMENT
            | field::END_ENVIRONMENT
    );
    // Somewhere at or above it there must be memory.
    if is_memory && task.address_space.region_at_or_after(UserAddr::new(address)).is_none() {
        return Err(Errno::EFAULT);
    }
    install(task, &places, None);
    Ok(())
}

fn set_all(task: &mut Task, address: u64, bytes: u64) -> SysResult {
    if bytes != size_of::<MemoryMap>() as u64 {
        return Err(Errno::EINVAL);
    }
    let map: MemoryMap = UserPointer::new(address).read()?;
    check(task, &map.places)?;
    let vector = match (map.auxiliary, map.auxiliary_bytes) {
        (_, 0) => None,
        (0, _) => return Err(Errno::EINVAL),
        (address, bytes) => Some(read_auxiliary(address, bytes.into(), [0; AUXILIARY_WORDS])?),
    };
    if map.file != NO_FILE {
        let credentials = &task.credentials;
        if ![Capabilities::CHECKPOINT_RESTORE, Capabilities::SYS_ADMIN]
            .iter()
            .any(|&c| credentials.has_here(c))
        {
            return Err(Errno::EPERM);
        }
        replace_file(task, map.file as i32)?;
    }
    install(task, &map.places, vector);
    Ok(0)
}

fn check(task: &Task, places: &Places) -> Result<(), Errno> {
    let data_limit = task.process().limit(Resource::Data);
    if places.are_valid(data_limit) { Ok(()) } else { Err(Errno::EINVAL) }
}

fn places_of(task: &Task) -> Places {
    let layout = task.address_space.layout();
    let executable = task.process().executable.lock();
    let pair = |(start, end)| [start, end];
    Places {
        code: pair(executable.code),
        data: pair(executable.data),
        heap: [layout.break_start, layout.break_end],
        start_stack: executable.start_stack,
        arguments: pair(executable.arguments),
        environment: pair(executable.environment),
    }
}

fn install(task: &Task, places: &Places, auxiliary: Option<Arc<AuxiliaryVector>>) {
    let [start, end] = places.heap.map(UserAddr::new);
    task.address_space.place_heap(start, end);
    let former = {
        let executable = &mut *task.process().executable.lock();
        let pair = |[start, end]: [u64; 2]| (start, end);
        executable.code = pair(places.code);
        executable.data = pair(places.data);
        executable.start_break = places.heap[0];
        executable.start_stack = places.start_stack;
        executable.arguments = pair(places.arguments);
        executable.environment = pair(places.environment);
        auxiliary.and_then(|new| executable.own_auxiliary.replace(new))
    };
    drop(former);
}

/// The vector that is shown now.
fn auxiliary_of(task: &Task) -> [u64; AUXILIARY_WORDS] {
    let (range, own) = {
        let executable = task.process().executable.lock();
        (executable.auxiliary, executable.own_auxiliary.clone())
    };
    if let Some(own) = own {
        return own.words();
    }
    let mut words = [0u64; AUXILIARY_WORDS];
    let bytes = words.as_mut_bytes();
    let length = bytes.len().min((range.1 - range.0) as usize);
    // What is not there any more is not shown either.
    let _ = task.address_space.read_remote(UserAddr::new(range.0), &mut bytes[..length]);
    words
}

/// Reads a vector, which takes the place of the beginning of another one.
fn read_auxiliary(
    address: u64,
    bytes: u64,
    mut words: [u64; AUXILIARY_WORDS],
) -> Result<Arc<AuxiliaryVector>, Errno> {
    if bytes > AUXILIARY_BYTES as u64 {
        return Err(Errno::EINVAL);
    }
    read_bytes(address, &mut words.as_mut_bytes()[..bytes as usize])?;
    memory::fallible::try_arc(AuxiliaryVector::new(words)).map_err(|_| Errno::ENOMEM)
}

/// Makes an open file what the process executes, as soon as nothing of the former one is mapped.
fn replace_file(task: &Task, descriptor: i32) -> Result<(), Errno> {
    let file = task.usable_file(descriptor)?;
    let place = file.path().filter(|_| file.inode().kind == FileKind::Regular).ok_or(Errno::EACCES)?;
    if !allows_execution(&file) {
        return Err(Errno::EACCES);
    }
    let places = task.file_system.places();
    task.path_context(&places).check_place(place, Access::EXECUTE)?;
    if maps_its_file(task, task.process()) {
        return Err(Errno::EBUSY);
    }
    let guard = ExecutableGuard::new(file.inode()).map_err(|_| Errno::EACCES)?;
    let guard = memory::fallible::try_arc(guard).map_err(|_| Errno::ENOMEM)?;
    let former = {
        let executable: &mut Executable = &mut task.process().executable.lock();
        (executable.file.replace(place.clone()), executable.guard.replace(guard))
    };
    drop(former);
    Ok(())
}

fn maps_its_file(task: &Task, process: &Process) -> bool {
    let Some(former) = process.executable.lock().file.clone() else { return false };
    let mut is_mapped = false;
    task.address_space.for_each_region(|region| {
        let MapBacking::File(mapping) = region.backing() else { return };
        let object: Option<&dyn core::any::Any> = mapping.object().map(|object| &**object as _);
        let mapped = object.and_then(|object| object.downcast_ref::<MappedFile>());
        is_mapped |= mapped.and_then(|mapped| mapped.file().path()).is_some_and(|path| path.same(&former));
    });
    is_mapped
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: Places = Places {
        code: [0x40_0000, 0x40_1000],
        data: [0x40_2000, 0x40_2000],
        heap: [0x50_0000, 0x50_0000],
        start_stack: 0x7fff_0000_0000,
        arguments: [0x7fff_0000_1000, 0x7fff_0000_1000],
        environment: [0x7fff_0000_1000, 0x7fff_0000_2000],
    };

    #[test]
    fn parts_of_a_program_may_be_empty_except_its_code() {
        assert!(VALID.are_valid(0));
        assert!(!Places { code: [0x40_0000; 2], ..VALID }.are_valid(u64::MAX));
    }

    #[test]
    fn the_end_of_a_part_is_not_before_its_start() {
        for start in [field::START_DATA, field::START_BREAK, field::START_ARGUMENTS, field::START_ENVIRONMENT]
        {
            let mut places = VALID;
            *places.field(start).unwrap() += 0x2000;
            assert!(!places.are_valid(u64::MAX), "{start}");
        }
    }

    #[test]
    fn every_address_is_one_of_user_memory() {
        for number in field::START_CODE..=field::END_ENVIRONMENT {
            for address in [0, MINIMUM_ADDRESS - 1, USER_END as u64, u64::MAX] {
                let mut places = VALID;
                *places.field(number).unwrap() = address;
                assert!(!places.are_valid(u64::MAX), "{number} {address:#x}");
            }
        }
        assert_eq!({ VALID }.field(field::AUXILIARY), None);
        assert_eq!({ VALID }.field(0), None);
    }

    #[test]
    fn data_and_heap_are_limited_together() {
        let places = Places { data: [0x40_2000, 0x40_3000], heap: [0x50_0000, 0x50_1000], ..VALID };
        assert!(places.are_valid(0x2000));
        assert!(!places.are_valid(0x1fff));
    }
}
