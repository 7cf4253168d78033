//! What a scenario makes system calls with.

use linux::errno::Errno;
use linux::task::Task;
use machine::address::UserAddr;
use machine::user_memory;
use memory::fallible;

use crate::children::Part;

/// Numbers of the ABI.
#[allow(missing_docs, reason = "the names are those of the manual")]
pub(crate) mod numbers {
    use linux_raw_sys::general as abi;

    pub(crate) const EXIT: u64 = abi::__NR_exit as u64;
    pub(crate) const EXIT_GROUP: u64 = abi::__NR_exit_group as u64;
    pub(crate) const EXECVE: u64 = abi::__NR_execve as u64;
    pub(crate) const FUTEX: u64 = abi::__NR_futex as u64;
    pub(crate) const FUTEX_LOCK_PI: u64 = abi::FUTEX_LOCK_PI as u64;
    pub(crate) const PAUSE: u64 = abi::__NR_pause as u64;
    pub(crate) const GETPID: u64 = abi::__NR_getpid as u64;
    pub(crate) const KILL: u64 = abi::__NR_kill as u64;
    pub(crate) const OPEN: u64 = abi::__NR_open as u64;
    /// What scenarios have others decide about.
    pub(crate) const ASKED: u64 = abi::__NR_getpriority as u64;
    pub(crate) const WRITE: u64 = abi::__NR_write as u64;
    pub(crate) const SIGSTOP: u64 = abi::SIGSTOP as u64;
}

pub(crate) const PAGE: u64 = 4096;
/// The memory that a scenario has from the start: present, readable and writable.
pub(crate) const ARENA: u64 = 0x10_0000_0000;
const ARENA_PAGES: u64 = 8;

/// The scenario's process.
pub(crate) struct Program<'a> {
    task: &'a mut Task,
    /// The first byte of the arena that no argument takes.
    free: u64,
}

impl<'a> Program<'a> {
    /// Gives the process its arena.
    pub(crate) fn new(task: &'a mut Task) -> Self {
        const ADDR_NO_RANDOMIZE: u32 = 0x004_0000;
        linux::exec::personality(task, ADDR_NO_RANDOMIZE).expect("always possible");
        let mut program = Program { task, free: ARENA };
        let fixed_private_anonymous = 0x32;
        let arena = program.call(9, &[ARENA, ARENA_PAGES * PAGE, 3, fixed_private_anonymous, u64::MAX, 0]);
        assert_eq!(arena, Ok(ARENA));
        (0..ARENA_PAGES).for_each(|page| program.put_at(ARENA + page * PAGE, &[1]));
        program
    }

    /// A system call as a program makes it. One that fails because of the injected failure is checked, and repeated.
    pub(crate) fn call(&mut self, number: u64, arguments: &[u64]) -> Result<u64, Errno> {
        let had_failed = fallible::failed_at().is_some();
        let descriptors = self.task.files.open_count();
        let result = self.call_once(number, arguments);
        let Err(errno) = result else { return result };
        let Some(place) = fallible::failed_at().filter(|_| !had_failed) else { return result };
        assert!(is_permitted(number, errno), "call {number} says {errno:?} when {place} fails");
        assert_eq!(
            self.task.files.open_count(),
            descriptors,
            "descriptors after call {number} failed at {place}"
        );
        self.call_once(number, arguments)
    }

    fn call_once(&mut self, number: u64, arguments: &[u64]) -> Result<u64, Errno> {
        let mut six = [0; 6];
        six[..arguments.len()].copy_from_slice(arguments);
        let registers = &mut self.task.user.registers;
        registers.rax = number;
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] = six;
        self.task.user.call = number;
        linux::table::dispatch(self.task, number).map(|value| value as u64)
    }

    /// A call that must succeed.
    #[track_caller]
    pub(crate) fn must(&mut self, number: u32, arguments: &[u64]) -> u64 {
        match self.call(number.into(), arguments) {
            Ok(value) => value,
            Err(errno) => panic!("call {number} with {arguments:x?}: {errno:?}"),
        }
    }

    /// A call that must fail, whatever else fails.
    #[track_caller]
    pub(crate) fn refused(&mut self, number: u32, arguments: &[u64], expected: Errno) {
        assert_eq!(self.call(number.into(), arguments), Err(expected), "call {number}");
    }

    /// Room for an argument.
    pub(crate) fn room(&mut self, bytes: usize) -> u64 {
        let place = self.free;
        self.free = (place + bytes as u64).next_multiple_of(16);
        assert!(self.free <= ARENA + ARENA_PAGES * PAGE, "the arena is full");
        place
    }

    /// Bytes as an argument.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> u64 {
        let place = self.room(bytes.len());
        self.put_at(place, bytes);
        place
    }

    /// Words as an argument.
    pub(crate) fn words(&mut self, words: &[u64]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.bytes(&bytes)
    }

    /// A path or other text as an argument.
    pub(crate) fn text(&mut self, text: &str) -> u64 {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(&bytes)
    }

    /// Writes to the program's memory as it would itself. If the injected failure keeps the page away, it is touched again.
    #[track_caller]
    pub(crate) fn put_at(&mut self, address: u64, bytes: &[u8]) {
        let to = UserAddr::new(address);
        if user_memory::write(to, bytes).is_err() {
            assert!(fallible::failed_at().is_some(), "{address:#x} is not writable");
            user_memory::write(to, bytes).expect("the second try");
        }
    }

    /// Reads the program's memory.
    #[track_caller]
    pub(crate) fn get<const BYTES: usize>(&mut self, address: u64) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let from = UserAddr::new(address);
        if user_memory::read(&mut bytes, from).is_err() {
            assert!(fallible::failed_at().is_some(), "{address:#x} is not readable");
            user_memory::read(&mut bytes, from).expect("the second try");
        }
        bytes
    }

    /// Reads a 32-bit word.
    #[track_caller]
    pub(crate) fn word(&mut self, address: u64) -> u32 {
        u32::from_le_bytes(self.get(address))
    }

    /// Registers that the next child starts with.
    pub(crate) fn cast(&mut self, part: Part, arguments: [u64; 3]) {
        let registers = &mut self.task.user.registers;
        registers.rip = 0;
        registers.rbx = 0;
        registers.r15 = part as u64;
        [registers.r12, registers.r13, registers.r14] = arguments;
    }

    /// Its descriptors that are open.
    pub(crate) fn open_descriptors(&self) -> usize {
        self.task.files.open_count()
    }

    /// From now on the process itself does what a part says: it ends.
    pub(crate) fn end(&mut self) {
        self.cast(Part::End, [0; 3]);
        self.task.needs_work = true;
    }
}

/// Whether a call may answer so when an allocation failed.
fn is_permitted(number: u64, errno: Errno) -> bool {
    use linux_raw_sys::general as abi;
    match errno {
        Errno::ENOMEM => true,
        // No memory for a thread, a queued signal or a timer: fork(2), sigqueue(3), timer_create(2).
        Errno::EAGAIN => [
            abi::__NR_fork,
            abi::__NR_vfork,
            abi::__NR_clone,
            abi::__NR_clone3,
            abi::__NR_rt_sigqueueinfo,
            abi::__NR_timer_create,
        ]
        .iter()
        .any(|&call| u64::from(call) == number),
        // A page of the program's own that can't be brought in.
        Errno::EFAULT => fallible::failed_at().is_some_and(|place| place.file().contains("memory/src")),
        _ => false,
    }
}
