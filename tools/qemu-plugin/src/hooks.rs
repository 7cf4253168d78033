//! QEMU's side: its plugin interface, version 1, declared after its public documentation, and what is hooked into it.
//!
//! When QEMU translates a block of the guest's code it calls [`translate`]. That asks for a call at every memory access of the
//! kernel's instructions and at every execution of a marker. Nothing else of the guest is slowed down.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::ptr::without_provenance_mut;
use std::slice;

use crate::calls::{self, Marks};
use crate::instruction::{self, Marker};
use crate::recording::{self, Access, Kind};

/// The version of the interface that is spoken here.
// SAFETY: nothing else in this library has the name, and QEMU expects a number of this type.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)] // QEMU looks for it under this name.
static qemu_plugin_version: c_int = 1;

/// The kernel's half of the address space.
const KERNEL: u64 = 1 << 63;
/// Set in what an access callback is given when the instruction locks. The bits of a canonical address from 48 on repeat bit 47,
/// so they carry nothing.
const LOCKED: usize = 1 << 48;
/// The callback looks at no registers.
const NO_REGISTERS: c_int = 0;
/// Loads and stores are asked for.
const LOADS_AND_STORES: c_int = 3;
/// Only stores are.
const STORES: c_int = 2;

/// A block that is being translated.
#[repr(C)]
struct Block {
    _private: [u8; 0],
}

/// An instruction of it.
#[repr(C)]
struct Instruction {
    _private: [u8; 0],
}

/// Where an access goes.
#[repr(C)]
struct HardwareAddress {
    _private: [u8; 0],
}

type TranslateCallback = extern "C" fn(id: u64, block: *mut Block);
type ExecuteCallback = extern "C" fn(processor: u32, data: *mut c_void);
type AccessCallback = extern "C" fn(processor: u32, info: u32, address: u64, data: *mut c_void);

// SAFETY: these are the functions' types as QEMU's documentation gives them.
unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, callback: TranslateCallback);
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const u8;
    fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        callback: ExecuteCallback,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        callback: AccessCallback,
        flags: c_int,
        accesses: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_mem_is_store(info: u32) -> bool;
    fn qemu_plugin_get_hwaddr(info: u32, address: u64) -> *mut HardwareAddress;
    fn qemu_plugin_hwaddr_is_io(address: *const HardwareAddress) -> bool;
    fn qemu_plugin_hwaddr_phys_addr(address: *const HardwareAddress) -> u64;
}

/// QEMU calls this when it loads the plugin; anything but 0 refuses.
///
/// # Safety
/// `arguments` must be an array of `count` C strings, as QEMU passes it.
// SAFETY: nothing else in this library has the name, and QEMU expects a function of this type.
#[unsafe(no_mangle)]
unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    _: *const c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    let (mut path, mut marks) = (None, None);
    for index in 0..count {
        // SAFETY: the caller promises as many C strings.
        let argument = unsafe { CStr::from_ptr(*arguments.add(index)) };
        match argument.to_str().ok().and_then(|argument| argument.split_once('=')) {
            Some(("out", value)) => path = Some(value),
            Some(("marks", value)) if Marks::parse(value).is_some() => marks = Marks::parse(value),
            _ => {
                eprintln!("qemu-plugin: what is {}?", argument.to_string_lossy());
                return 1;
            }
        }
    }
    let Some(path) = path else {
        eprintln!("qemu-plugin: out=PATH is missing");
        return 1;
    };
    match File::create(path) {
        Ok(file) => match marks {
            Some(marks) => calls::begin(marks, file),
            None => recording::write_to(file),
        },
        Err(error) => {
            eprintln!("qemu-plugin: {path}: {error}");
            return 1;
        }
    }
    // SAFETY: the number is the one QEMU gave this plugin, and the function is what it asks for.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, translate) };
    0
}

extern "C" fn translate(_: u64, block: *mut Block) {
    // SAFETY: QEMU passes a block that is valid during this call.
    let count = unsafe { qemu_plugin_tb_n_insns(block) };
    for index in 0..count {
        // SAFETY: the block is valid, and has so many instructions.
        let instruction = unsafe { qemu_plugin_tb_get_insn(block, index) };
        // SAFETY: the instruction is the block's; its bytes are as many as it says, and stay during this call.
        let (bytes, address) = unsafe {
            let length = qemu_plugin_insn_size(instruction);
            let bytes = slice::from_raw_parts(qemu_plugin_insn_data(instruction), length);
            (bytes, qemu_plugin_insn_vaddr(instruction))
        };
        if calls::are_counted() {
            if address >= KERNEL {
                watch_call(instruction, bytes);
            }
        } else if let Some(marker) = Marker::decode(bytes) {
            let data = without_provenance_mut(encode(marker));
            // SAFETY: the instruction is being translated, which is when callbacks can be asked for.
            unsafe { qemu_plugin_register_vcpu_insn_exec_cb(instruction, marked, NO_REGISTERS, data) };
        } else if address >= KERNEL {
            let locked = instruction::is_locked(bytes);
            let data = (address as usize) & (LOCKED - 1) | if locked { LOCKED } else { 0 };
            let data = without_provenance_mut(data);
            // SAFETY: as above.
            unsafe {
                qemu_plugin_register_vcpu_mem_cb(instruction, accessed, NO_REGISTERS, LOADS_AND_STORES, data);
            }
        }
    }
}

/// Asks for what counts atomic operations by call.
fn watch_call(instruction: *mut Instruction, bytes: &[u8]) {
    let nothing = without_provenance_mut(0);
    if instruction::is_atomic(bytes) {
        // SAFETY: the instruction is being translated, which is when callbacks can be asked for.
        unsafe { qemu_plugin_register_vcpu_insn_exec_cb(instruction, executed, NO_REGISTERS, nothing) };
    }
    if instruction::stores_constant_byte(bytes) {
        // SAFETY: as above.
        unsafe { qemu_plugin_register_vcpu_mem_cb(instruction, stored, NO_REGISTERS, STORES, nothing) };
    }
}

extern "C" fn executed(processor: u32, _: *mut c_void) {
    calls::count(processor as usize);
}

extern "C" fn stored(processor: u32, _: u32, address: u64, _: *mut c_void) {
    calls::stored(processor as usize, address);
}

/// A marker as the number that its callback is given.
fn encode(marker: Marker) -> usize {
    match marker {
        Marker::Begin(label) => usize::from(label) + 1,
        Marker::End => 0,
    }
}

extern "C" fn marked(processor: u32, data: *mut c_void) {
    let marker = match data.addr() {
        0 => Marker::End,
        label => Marker::Begin((label - 1) as u16),
    };
    recording::mark(processor as usize, marker);
}

extern "C" fn accessed(processor: u32, info: u32, address: u64, data: *mut c_void) {
    let processor = processor as usize;
    // What the kernel does with the program's own memory is the program's doing.
    if !recording::is_recording(processor) || address < KERNEL {
        return;
    }
    // SAFETY: `info` and the address are those of the access that this call is about.
    let place = unsafe { qemu_plugin_get_hwaddr(info, address) };
    // SAFETY: unless it is null, the place is valid until the next call for this processor.
    if place.is_null() || unsafe { qemu_plugin_hwaddr_is_io(place) } {
        return;
    }
    // SAFETY: as above.
    let physical = unsafe { qemu_plugin_hwaddr_phys_addr(place) };
    let data = data.addr();
    // SAFETY: `info` is that of this access.
    let store = unsafe { qemu_plugin_mem_is_store(info) };
    let kind = match (store, data & LOCKED != 0) {
        (_, true) => Kind::Atomic,
        (true, false) => Kind::Write,
        (false, false) => Kind::Read,
    };
    let code = (data & (LOCKED - 1)) as u64 | !(LOCKED as u64 - 1);
    recording::record(processor, Access { kind, physical, virtual_address: address, code });
}
