//! The signal frame on the user stack, as x86-64 Linux lays it out, and the way back from it.
//!
//! From high to low addresses: the red zone of 128 bytes (unless the handler gets another stack), the FPU state aligned to 64 bytes
//! (an XSAVE image with `_fpx_sw_bytes` in its software-reserved bytes and FP_XSTATE_MAGIC2 after it), the `rt_sigframe`, placed
//! so that the handler starts with its stack pointer 8 below a multiple of 16. Programs read and change all of it; sigreturn
//! therefore takes nothing from the frame on trust: flags are masked by the machine, an FPU image is checked by the CPU that loads it.
//!
//! # Cost
//! The FPU image is stored and loaded by the CPU where it lies, without a copy; what else is in the frame is copied once, and
//! `siginfo_t` is not read back.

use super::actions::{Action, ActionFlags};
use super::information::SignalInformation;
use super::set::{Signal, SignalSet};
use crate::abi::{AlternateStack, FpuSoftwareBytes, SignalContext, SignalFrame, UserContextWords};
use crate::errno::SysResult;
use crate::task::Task;
use crate::user_pointer::{UserPointer, read_bytes};
use machine::address::UserAddr;
use machine::user_state::{IMAGE_BYTES, UserState};

const RED_ZONE: u64 = 128;
/// Where the software-reserved bytes lie in the FPU image.
const SOFTWARE_OFFSET: u64 = 464;
const MAGIC_1: u32 = 0x4650_5853;
const MAGIC_2: u32 = 0x4650_5845;
const LEGACY_BYTES: usize = 512;
const UC_FP_XSTATE: u64 = 1;
const UC_SIGCONTEXT_SS: u64 = 2;
const UC_STRICT_RESTORE_SS: u64 = 4;
const RFLAGS_TRAP: u64 = 1 << 8;
const RFLAGS_DIRECTION: u64 = 1 << 10;
const RFLAGS_RESUME: u64 = 1 << 16;

/// `ss_flags`.
pub const SS_ONSTACK: i32 = 1;
/// `ss_flags`: no alternate stack.
pub const SS_DISABLE: i32 = 2;
/// `ss_flags`: disarm the stack while a handler runs on it.
pub const SS_AUTODISARM: i32 = i32::MIN;

/// Most bytes a frame takes, for AT_MINSIGSTKSZ.
pub fn largest_frame() -> usize {
    size_of::<SignalFrame>() + UserState::image_bytes() + 4 + 64 + 16 + 8
}

/// Whether `sp` lies on the alternate stack.
pub fn is_on(stack: &AlternateStack, sp: u64) -> bool {
    stack.flags & SS_AUTODISARM == 0 && sp > stack.base && sp - stack.base <= stack.size
}

/// Makes the thread run the handler of a signal. A frame that cannot be written ends in SIGSEGV.
#[inline(never)]
pub fn enter_handler(task: &mut Task, information: &SignalInformation, action: &Action) {
    crate::rseq::on_signal(task);
    let mask = task.saved_mask.take().unwrap_or(task.thread.blocked());
    if build(task, information, action, mask).is_none() {
        return fail(task, information.signal);
    }
    let mut blocked = task.thread.blocked() | action.mask;
    if !action.flags.contains(ActionFlags::NO_DEFER) {
        blocked.insert(information.signal);
    }
    task.set_blocked(blocked);
}

/// No frame possible: SIGSEGV, and death if SIGSEGV itself was to be handled.
fn fail(task: &mut Task, signal: Signal) {
    if signal == Signal::SIGSEGV {
        task.process().actions().force_default(Signal::SIGSEGV);
    }
    super::send::force(&task.thread, SignalInformation::from_kernel(Signal::SIGSEGV));
}

/// Writes the frame and points the registers at the handler.
fn build(task: &mut Task, information: &SignalInformation, action: &Action, mask: SignalSet) -> Option<()> {
    let (fpu_address, frame_address) = place(task, action)?;
    write_fpu(fpu_address)?;
    let frame = fill(task, information, action, mask, fpu_address);
    UserPointer::<SignalFrame>::new(frame_address).write(&frame).ok()?;
    if task.alternate_stack.flags & SS_AUTODISARM != 0 {
        task.alternate_stack = AlternateStack { flags: SS_DISABLE, ..Default::default() };
    }
    let registers = &mut task.user.registers;
    registers.rip = action.handler;
    registers.rsp = frame_address;
    registers.rdi = information.signal.number() as u64;
    registers.rsi = frame_address + core::mem::offset_of!(SignalFrame, info) as u64;
    registers.rdx = frame_address + core::mem::offset_of!(SignalFrame, user) as u64;
    registers.rax = 0;
    registers.rflags &= !(RFLAGS_DIRECTION | RFLAGS_RESUME | RFLAGS_TRAP);
    Some(())
}

/// Where the FPU state and the frame go.
fn place(task: &Task, action: &Action) -> Option<(u64, u64)> {
    let mut sp = task.user.registers.rsp.wrapping_sub(RED_ZONE);
    let stack = &task.alternate_stack;
    let on_stack = is_on(stack, task.user.registers.rsp);
    if action.flags.contains(ActionFlags::ON_STACK) && stack.size > 0 && !on_stack {
        sp = stack.base.wrapping_add(stack.size);
    }
    let fpu = sp.checked_sub(UserState::image_bytes() as u64 + 4)? & !63;
    let frame = (fpu.checked_sub(size_of::<SignalFrame>() as u64)? & !15).checked_sub(8)?;
    // A handler that overflows the alternate stack gets no frame.
    if on_stack && !is_on(stack, frame) {
        return None;
    }
    // Without SA_RESTORER there is nothing to return to: x86-64 has always demanded it.
    action.flags.contains(ActionFlags::RESTORER).then_some((fpu, frame))
}

/// Writes the FPU image: the CPU stores it where it belongs.
fn write_fpu(address: u64) -> Option<()> {
    let bytes = UserState::image_bytes();
    let software = FpuSoftwareBytes {
        magic: MAGIC_1,
        extended_size: bytes as u32 + 4,
        features: UserState::components(),
        state_size: bytes as u32,
        padding: [0; 7],
    };
    sched::current().save_registers_to_user(UserAddr::new(address)).ok()?;
    UserPointer::new(address + SOFTWARE_OFFSET).write(&software).ok()?;
    UserPointer::new(address + bytes as u64).write(&MAGIC_2).ok()
}

fn fill(
    task: &Task,
    information: &SignalInformation,
    action: &Action,
    mask: SignalSet,
    fpu: u64,
) -> SignalFrame {
    let r = &task.user.registers;
    let fault = &task.last_fault;
    SignalFrame {
        return_address: action.restorer,
        user: UserContextWords {
            flags: UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
            link: 0,
            stack: task.alternate_stack,
            context: SignalContext {
                r8: r.r8,
                r9: r.r9,
                r10: r.r10,
                r11: r.r11,
                r12: r.r12,
                r13: r.r13,
                r14: r.r14,
                r15: r.r15,
                rdi: r.rdi,
                rsi: r.rsi,
                rbp: r.rbp,
                rbx: r.rbx,
                rdx: r.rdx,
                rax: r.rax,
                rcx: r.rcx,
                rsp: r.rsp,
                rip: r.rip,
                rflags: r.rflags,
                cs: machine::user::USER_CODE_SELECTOR,
                gs: 0,
                fs: 0,
                ss: machine::user::USER_DATA_SELECTOR,
                error: fault.error_code,
                trap: fault.vector,
                old_mask: mask.bits(),
                cr2: fault.address,
                fpu_state: fpu,
                reserved: [0; 8],
            },
            mask: mask.bits(),
        },
        info: information.seen_in(task.credentials.space()).to_words(),
    }
}

/// Returns from a handler.
#[inline(never)]
pub fn rt_sigreturn(task: &mut Task) -> SysResult {
    // The handler's return popped the address of the frame, and left the stack pointer at what comes after it.
    match UserPointer::<UserContextWords>::new(task.user.registers.rsp).read() {
        Ok(saved) if restore_fpu(saved.context.fpu_state).is_some() => {
            restore(task, &saved);
            Ok(task.user.registers.rax as usize)
        }
        _ => {
            super::send::force(&task.thread, SignalInformation::from_kernel(Signal::SIGSEGV));
            Ok(task.user.registers.rax as usize)
        }
    }
}

fn restore(task: &mut Task, saved: &UserContextWords) {
    let c = &saved.context;
    let r = &mut task.user.registers;
    (r.r8, r.r9, r.r10, r.r11) = (c.r8, c.r9, c.r10, c.r11);
    (r.r12, r.r13, r.r14, r.r15) = (c.r12, c.r13, c.r14, c.r15);
    (r.rdi, r.rsi, r.rbp, r.rbx, r.rdx) = (c.rdi, c.rsi, c.rbp, c.rbx, c.rdx);
    (r.rax, r.rcx, r.rsp, r.rip, r.rflags) = (c.rax, c.rcx, c.rsp, c.rip, c.rflags);
    task.set_blocked(SignalSet::from_bits(saved.mask).blockable());
    // As in Linux, a stack that cannot be restored is not an error.
    let _ = super::calls::set_alternate_stack(task, &saved.stack);
    task.paused = None;
}

/// Loads the FPU state of a frame; `None` when it cannot be read or is not valid.
fn restore_fpu(address: u64) -> Option<()> {
    if address == 0 {
        return reset_fpu();
    }
    if !address.is_multiple_of(64) {
        return None;
    }
    let software = UserPointer::<FpuSoftwareBytes>::new(address + SOFTWARE_OFFSET).read().ok()?;
    let whole = UserState::image_bytes();
    let extended = software.magic == MAGIC_1
        && software.state_size as usize == whole
        && UserPointer::<u32>::new(address + whole as u64).read().is_ok_and(|magic| magic == MAGIC_2);
    if !extended || software.features != UserState::components() {
        return restore_fpu_by_parts(address, if extended { whole } else { LEGACY_BYTES });
    }
    if sched::current().load_registers_from_user(UserAddr::new(address)).is_err() {
        // What has been loaded so far is neither the old state nor the new one.
        reset_fpu();
        return None;
    }
    Some(())
}

/// Gives the registers the values that a program starts with.
#[inline(never)]
fn reset_fpu() -> Option<()> {
    sched::current().with_user_state(|state| {
        let (fs, gs) = (state.fs_base(), state.gs_base());
        state.reset();
        state.set_fs_base(fs);
        state.set_gs_base(gs);
    })
}

/// Loads an image that has not all of the CPU's components.
#[inline(never)]
fn restore_fpu_by_parts(address: u64, size: usize) -> Option<()> {
    let mut image = [0; IMAGE_BYTES];
    read_bytes(address, &mut image[..size]).ok()?;
    sched::current().with_user_state(|state| state.set_image(&image[..size]).ok())?
}
