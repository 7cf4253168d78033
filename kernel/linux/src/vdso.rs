//! The vDSO: an ELF image around the machine's clock-reading code, mapped into every program after the page of parameters it reads.
//!
//! The frames are made once and shared by all programs: those in later [name spaces of times](crate::name_space) have another page of parameters, which says that
//! the kernel is to be asked, so that others' clocks need know no offsets. A page for each such name space would be one more that each change of the parameters, which
//! interrupts make, had to write. The image has what dynamic loaders and static C libraries look for: one
//! loadable segment, a symbol table with a hash table of one bucket, a name. It is built at the first use.

use alloc::sync::Arc;
use alloc::vec::Vec;

use machine::address::{PAGE_SIZE, UserAddr};
use machine::vdso::{DATA_DISTANCE, Parameters, code, functions};
use memory::address_space::{AddressSpace, MapBacking, MapRequest, Protection};
use memory::frame::{Frame, Purpose, Zeroed};
use memory::region::SpecialMapping;
use sync::{IrqSpinLock, Once};
use zerocopy::IntoBytes;

use crate::errno::Errno;
use crate::name_space::{Space, TimeSpace};

const PAGE: u64 = PAGE_SIZE as u64;
/// Where the code starts in the image's page.
const CODE_OFFSET: usize = DATA_DISTANCE - PAGE_SIZE;
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const SYMBOL_BYTES: usize = 24;
const DATA_NAME: &str = "[vvar]";
const NAME: &str = "linux-vdso.so.1";
/// The version of its symbols.
const VERSION: &str = "LINUX_2.6";

struct Mappings {
    data: Arc<SpecialMapping>,
    /// For programs whose clocks have offsets; all zero.
    asking: Arc<SpecialMapping>,
    image: Arc<SpecialMapping>,
    /// Taken by the interrupt that trims the clock, too.
    parameters: IrqSpinLock<Frame>,
}

static MAPPINGS: Once<Mappings> = Once::new();

/// Makes the pages. Once, at start-up.
///
/// # Errors
/// ENOMEM.
pub fn start() -> Result<(), Errno> {
    let no_memory = |_| Errno::ENOMEM;
    let data = Frame::allocate(Purpose::Kernel, Zeroed::Yes).map_err(no_memory)?;
    let asking = Frame::allocate(Purpose::Kernel, Zeroed::Yes).map_err(no_memory)?;
    let image = Frame::allocate(Purpose::Kernel, Zeroed::Yes).map_err(no_memory)?;
    image.write(0, &build()?);
    let mapping = |name, frame: &Frame| {
        let mut frames = memory::fallible::try_vec(1).map_err(no_memory)?;
        frames.push(frame.clone());
        memory::fallible::try_arc(SpecialMapping::new(name, frames)).map_err(no_memory)
    };
    let mappings = Mappings {
        data: mapping(DATA_NAME, &data)?,
        asking: mapping(DATA_NAME, &asking)?,
        image: mapping("[vdso]", &image)?,
        parameters: IrqSpinLock::named("vdso", data),
    };
    MAPPINGS.call_once(|| mappings);
    update();
    machine::time::set_vdso_hook(update);
    Ok(())
}

impl Mappings {
    /// The page by which clocks are read in a name space of times.
    fn data_in(&self, times: &Space<TimeSpace>) -> &Arc<SpecialMapping> {
        if times.is_first() { &self.data } else { &self.asking }
    }
}

fn map_special(
    space: &AddressSpace,
    mapping: &Arc<SpecialMapping>,
    protection: Protection,
    address: u64,
) -> Result<(), Errno> {
    let request = MapRequest {
        backing: MapBacking::Special(mapping.clone()),
        maximum: Protection::READ | Protection::EXECUTE,
        ..MapRequest::anonymous(PAGE, protection)
    };
    space.map(request.at(UserAddr::new(address))).map(drop).map_err(crate::memory::errno_of)
}

/// Has a memory whose only thread is in another name space of times, or not there yet, read its clocks accordingly.
///
/// # Errors
/// ENOMEM.
pub(crate) fn follow(space: &AddressSpace, times: &Space<TimeSpace>) -> Result<(), Errno> {
    let Some(mappings) = MAPPINGS.get() else { return Ok(()) };
    let wanted = mappings.data_in(times);
    let mut outcome = Ok(());
    space.for_each_region(|region| {
        if let MapBacking::Special(found) = region.backing()
            && found.name() == DATA_NAME
            && !Arc::ptr_eq(found, wanted)
        {
            let moved = map_special(space, wanted, Protection::READ, region.start());
            outcome = outcome.and(moved);
        }
    });
    outcome
}

/// Maps it into a new program, which will be in a name space of times, if not in the first; returns its address, 0 when there is none.
pub(crate) fn map(space: &AddressSpace, times: Option<&Space<TimeSpace>>) -> Result<u64, Errno> {
    let Some(mappings) = MAPPINGS.get() else { return Ok(0) };
    let place = space
        .map(MapRequest::anonymous(2 * PAGE, Protection::empty()))
        .map_err(crate::memory::errno_of)?
        .as_u64();
    let data = times.map_or(&mappings.data, |times| mappings.data_in(times));
    map_special(space, data, Protection::READ, place)?;
    map_special(space, &mappings.image, Protection::READ | Protection::EXECUTE, place + PAGE)?;
    Ok(place + PAGE)
}

/// Publishes changed clock parameters: sequence odd, the rest, sequence even.
pub fn update() {
    let Some(mappings) = MAPPINGS.get() else { return };
    let frame = mappings.parameters.lock();
    let mut word = [0; 4];
    frame.read(0, &mut word);
    let sequence = u32::from_ne_bytes(word);
    debug_assert!(sequence.is_multiple_of(2), "updates are one at a time");
    frame.write(0, &sequence.wrapping_add(1).to_ne_bytes());
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    let parameters = current();
    let words = [
        u64::from(parameters.mode) << 32 | u64::from(sequence.wrapping_add(1)),
        parameters.base_cycles,
        parameters.base_ns,
        parameters.multiplier,
        parameters.shift.into(),
        parameters.realtime_offset_ns,
    ];
    frame.write(0, words.as_bytes());
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    frame.write(0, &sequence.wrapping_add(2).to_ne_bytes());
}

fn current() -> Parameters {
    let realtime_offset_ns = crate::time::clock::realtime_offset_ns();
    match machine::time::vdso_parameters() {
        Some(clock) => Parameters {
            mode: 1,
            base_cycles: clock.base_cycles,
            base_ns: clock.base_ns,
            multiplier: clock.multiplier,
            shift: clock.shift,
            realtime_offset_ns,
            ..Parameters::default()
        },
        None => Parameters::default(),
    }
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The names under which programs look a function up: its own, and the plain one as a weak symbol.
fn symbols_of(name: &'static str) -> [(&'static str, u8); 2] {
    const GLOBAL_FUNCTION: u8 = 0x12;
    const WEAK_FUNCTION: u8 = 0x22;
    [(name, GLOBAL_FUNCTION), (name.trim_start_matches("__vdso_"), WEAK_FUNCTION)]
}

/// The hash of a name as System V's ABI defines it.
fn elf_hash(name: &str) -> u32 {
    name.bytes().fold(0u32, |hash, byte| {
        let sum = (hash << 4).wrapping_add(byte.into());
        let high = sum & 0xf000_0000;
        (sum ^ (high >> 24)) & !high
    })
}

/// Puts a name after the others; returns its place in the string table, which starts at `names`.
fn put_name(image: &mut [u8], names: usize, next: &mut usize, name: &str) -> u32 {
    let place = *next;
    put(image, place, name.as_bytes());
    *next += name.len() + 1;
    (place - names) as u32
}

/// Version definitions: the image itself, then the version of its symbols. Returns where they end.
fn put_versions(image: &mut [u8], at: usize, own: (&str, u32), version: (&str, u32)) -> usize {
    const DEFINITION_BYTES: usize = 20;
    const ENTRY_BYTES: usize = DEFINITION_BYTES + 8;
    const BASE: u16 = 1;
    for (index, (name, place)) in [own, version].into_iter().enumerate() {
        let start = at + index * ENTRY_BYTES;
        let (flags, next) = if index == 0 { (BASE, ENTRY_BYTES as u32) } else { (0, 0) };
        put(image, start, [1, flags, index as u16 + 1, 1].as_bytes());
        put(image, start + 8, [elf_hash(name), DEFINITION_BYTES as u32, next].as_bytes());
        put(image, start + DEFINITION_BYTES, [place, 0].as_bytes());
    }
    at + 2 * ENTRY_BYTES
}

/// Builds the image: headers, symbols, names, hash table, versions and dynamic section below the code, all in one page.
fn build() -> Result<Vec<u8>, Errno> {
    let mut image = memory::fallible::try_vec_of(0u8, PAGE_SIZE).map_err(|_| Errno::ENOMEM)?;
    let functions = functions();
    let count = 2 * functions.len() + 1;
    let symbols = HEADER_BYTES + 2 * PROGRAM_HEADER_BYTES;
    let hash = symbols + count * SYMBOL_BYTES;
    let symbol_versions = hash + (2 + 1 + count) * 4;
    let names = symbol_versions + count * 2;

    // Names, and symbols that point to them.
    let mut next_name = names + 1;
    let entries =
        functions.iter().flat_map(|function| symbols_of(function.name).map(|entry| (function, entry)));
    for (index, (function, (name, kind))) in (1..).zip(entries) {
        let value = (CODE_OFFSET + function.offset) as u64;
        let place = put_name(&mut image, names, &mut next_name, name);
        let at = symbols + index * SYMBOL_BYTES;
        // In section 1 (any but "undefined").
        put(&mut image, at, &place.to_le_bytes());
        put(&mut image, at + 4, &[kind, 0, 1, 0]);
        put(&mut image, at + 8, &value.to_le_bytes());
        put(&mut image, at + 16, &32u64.to_le_bytes());
        put(&mut image, symbol_versions + index * 2, &2u16.to_le_bytes());
    }
    let own_name = put_name(&mut image, names, &mut next_name, NAME);
    let version_name = put_name(&mut image, names, &mut next_name, VERSION);

    // One bucket whose chain goes through all symbols.
    put(&mut image, hash, [1, count as u32, 1].as_bytes());
    for index in 0..count {
        let next = if index > 0 && index + 1 < count { index as u32 + 1 } else { 0 };
        put(&mut image, hash + 12 + index * 4, &next.to_le_bytes());
    }

    let versions = next_name.next_multiple_of(8);
    let dynamic =
        put_versions(&mut image, versions, (NAME, own_name), (VERSION, version_name)).next_multiple_of(8);
    let entries: [[u64; 2]; 10] = [
        [4, hash as u64],                      // DT_HASH
        [5, names as u64],                     // DT_STRTAB
        [6, symbols as u64],                   // DT_SYMTAB
        [10, (next_name - names) as u64],      // DT_STRSZ
        [11, SYMBOL_BYTES as u64],             // DT_SYMENT
        [14, own_name.into()],                 // DT_SONAME
        [0x6fff_fff0, symbol_versions as u64], // DT_VERSYM
        [0x6fff_fffc, versions as u64],        // DT_VERDEF
        [0x6fff_fffd, 2],                      // DT_VERDEFNUM
        [0, 0],
    ];
    put(&mut image, dynamic, entries.as_bytes());
    let code = code();
    assert!(dynamic + size_of_val(&entries) <= CODE_OFFSET, "tables lie below the code");
    assert!(CODE_OFFSET + code.len() <= PAGE_SIZE, "the code fits its page");
    put(&mut image, CODE_OFFSET, code);
    put_headers(&mut image, dynamic, size_of_val(&entries));
    Ok(image)
}

fn put_headers(image: &mut [u8], dynamic: usize, dynamic_bytes: usize) {
    put(image, 0, b"\x7fELF\x02\x01\x01");
    // Shared object for x86-64, version 1.
    put(image, 16, [3u16, 62, 1, 0].as_bytes());
    put(image, 24, [CODE_OFFSET as u64, HEADER_BYTES as u64, 0].as_bytes());
    put(image, 52, [HEADER_BYTES as u16, PROGRAM_HEADER_BYTES as u16, 2, 0, 0, 0].as_bytes());
    let mut header = |index: usize, kind: u32, flags: u32, start: usize, bytes: usize, align: u64| {
        let at = HEADER_BYTES + index * PROGRAM_HEADER_BYTES;
        let (start, bytes) = (start as u64, bytes as u64);
        put(image, at, [kind, flags].as_bytes());
        put(image, at + 8, [start, start, start, bytes, bytes, align].as_bytes());
    };
    header(0, 1, 5, 0, PAGE_SIZE, PAGE);
    header(1, 2, 4, dynamic, dynamic_bytes, 8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_an_elf_file_with_its_functions() {
        let image = build().expect("memory");
        let header = crate::elf::Header::parse(&image).expect("well formed");
        let start = header.offset as usize;
        let program = header.program(&image[start..start + header.table_bytes()]).expect("well formed");
        assert!(program.relocatable);
        assert_eq!(program.segments.len(), 1);
        let text = alloc::string::String::from_utf8_lossy(&image);
        assert!(text.contains("__vdso_clock_gettime") && text.contains(NAME));
        assert!(text.contains("\0clock_gettime\0") && text.contains(VERSION));
    }

    #[test]
    fn names_hash_as_the_abi_says() {
        assert_eq!(elf_hash("LINUX_2.6"), 0x03ae_75f6);
    }
}
