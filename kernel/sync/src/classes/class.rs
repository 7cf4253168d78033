//! What a lock knows of its class.

#[cfg(feature = "lcount")]
use core::sync::atomic::AtomicU8;

/// The kinds of locks; locks of different kinds are of different classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// [`crate::SpinLock`].
    Spin,
    /// [`crate::IrqSpinLock`].
    IrqSpin,
    /// [`crate::RwSpinLock`].
    RwSpin,
    /// The sleeping lock of one holder.
    Mutex,
    /// The sleeping lock of many readers or one writer.
    RwLock,
}

impl Kind {
    /// Whether waiters sleep.
    pub const fn sleeps(self) -> bool {
        matches!(self, Self::Mutex | Self::RwLock)
    }

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::IrqSpin => "irq",
            Self::RwSpin => "rw-spin",
            Self::Mutex => "mutex",
            Self::RwLock => "rw-lock",
        }
    }
}

/// Part of every lock: the name of its class, if it is not that of its value's type. Empty where classes are not compiled in.
#[derive(Debug, Default)]
pub struct Class {
    #[cfg(any(debug_assertions, feature = "lcount"))]
    name: Option<&'static str>,
    /// 1 + the CPU that had the lock last. Written by the holder.
    #[cfg(feature = "lcount")]
    pub(super) last_cpu: AtomicU8,
}

impl Class {
    /// The class of the value's type.
    pub const fn natural() -> Self {
        Self {
            #[cfg(any(debug_assertions, feature = "lcount"))]
            name: None,
            #[cfg(feature = "lcount")]
            last_cpu: AtomicU8::new(0),
        }
    }

    /// The class of that name.
    #[cfg_attr(
        not(any(debug_assertions, feature = "lcount")),
        allow(unused_variables, reason = "names are not compiled in")
    )]
    pub const fn named(name: &'static str) -> Self {
        Self {
            #[cfg(any(debug_assertions, feature = "lcount"))]
            name: Some(name),
            #[cfg(feature = "lcount")]
            last_cpu: AtomicU8::new(0),
        }
    }

    /// Its name, for a lock around a `T`.
    #[cfg(any(debug_assertions, feature = "lcount"))]
    #[inline]
    pub(super) fn name<T: ?Sized>(&self) -> &'static str {
        match self.name {
            Some(name) => name,
            None => core::any::type_name::<T>(),
        }
    }
}
