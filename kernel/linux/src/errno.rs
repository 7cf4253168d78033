//! Error numbers as the manual pages name them, with the values of the x86-64 Linux ABI.
//!
//! An [`Errno`] is what a system call returns instead of a result. Values from 512 on never reach user space: they tell the return path (signal/deliver.rs)
//! how to restart the call that a signal interrupted.

use core::fmt;
use linux_raw_sys::errno as raw;

/// An error number; never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(u16);

/// What a system call returns.
pub type SysResult = Result<usize, Errno>;

macro_rules! errno_values {
    ($($name:ident)*) => {
        impl Errno {
            $(#[doc = concat!("The error `", stringify!($name), "`.")]
            pub const $name: Errno = Errno(raw::$name as u16);)*
        }

        /// Names for the log; aliases (EWOULDBLOCK, EDEADLOCK) print as their first name.
        const NAMES: &[(u16, &str)] = &[$((raw::$name as u16, stringify!($name)),)*];
    };
}

errno_values! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN EWOULDBLOCK ENOMEM EACCES EFAULT
    ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC
    ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK EDEADLOCK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP
    ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG EUNATCH ENOCSI EL2HLT EBADE EBADR EXFULL ENOANO
    EBADRQC EBADSLT EBFONT ENOSTR ENODATA ETIME ENOSR ENONET ENOPKG EREMOTE ENOLINK EADV ESRMNT ECOMM
    EPROTO EMULTIHOP EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG ELIBACC ELIBBAD ELIBSCN ELIBMAX
    ELIBEXEC EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT
    EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL
    ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN
    ETOOMANYREFS ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EUCLEAN
    ENOTNAM ENAVAIL EISNAM EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE ECANCELED ENOKEY EKEYEXPIRED
    EKEYREVOKED EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE ERFKILL EHWPOISON
}

impl Errno {
    /// Restart the call after the signal handler if the handler has SA_RESTART, or when no handler ran.
    pub const ERESTARTSYS: Errno = Errno(512);
    /// Restart the call in any case.
    pub const ERESTARTNOINTR: Errno = Errno(513);
    /// Restart the call only if no handler ran (else EINTR).
    pub const ERESTARTNOHAND: Errno = Errno(514);
    /// As ERESTARTNOHAND, but through `restart_syscall`, which continues with what is left to wait.
    pub const ERESTART_RESTARTBLOCK: Errno = Errno(516);

    /// The number as the manual gives it.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The error with this number, if it is one that user space may see.
    pub const fn from_number(number: u16) -> Option<Errno> {
        if number >= 1 && number < 512 { Some(Errno(number)) } else { None }
    }

    /// The value of the register that reports this error to the program.
    pub const fn to_register(self) -> u64 {
        (self.0 as i64).wrapping_neg() as u64
    }

    /// Whether this is one of the codes that ask for a restart.
    pub const fn is_restart(self) -> bool {
        self.0 >= 512
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

/// The register value of a result.
pub fn register_of(result: SysResult) -> u64 {
    match result {
        Ok(value) => value as u64,
        Err(errno) => errno.to_register(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_hold_negated_numbers() {
        assert_eq!(register_of(Err(Errno::ENOENT)) as i64, -2);
        assert_eq!(register_of(Ok(7)), 7);
        assert_eq!(alloc::format!("{:?}", Errno::EAGAIN), "EAGAIN");
    }

    #[test]
    fn restart_codes_are_not_visible_errors() {
        assert!(Errno::ERESTARTSYS.is_restart());
        assert!(!Errno::EINTR.is_restart());
        assert_eq!(Errno::from_number(512), None);
    }
}
