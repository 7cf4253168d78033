//! The kernel's own tests, which `test=` on the command line asks for. Only a kernel that is built with the feature `tests` has them: they are a
//! twentieth of its file, and what is used need not carry them.

use machine::boot;
use machine::cpu::CpuId;

/// The tests that the command line names.
#[derive(Clone, Copy)]
#[cfg(feature = "tests")]
pub(crate) struct Selection(&'static str);

/// No kernel without the feature has one.
#[derive(Clone, Copy)]
#[cfg(not(feature = "tests"))]
pub(crate) enum Selection {}

/// What the command line asks for.
#[cfg(feature = "tests")]
pub(crate) fn selection() -> Option<Selection> {
    boot::info().option("test").map(Selection)
}

/// What the command line asks for; says so if that is not to be had.
#[cfg(not(feature = "tests"))]
pub(crate) fn selection() -> Option<Selection> {
    if boot::info().option("test").is_some() {
        log::error!("test= has no effect: this kernel was built without the feature `tests`");
    }
    None
}

#[cfg(feature = "tests")]
impl Selection {
    /// Where application processors begin, for the tests of the machine to direct them.
    pub(crate) fn application_processor(self) -> fn(CpuId) -> ! {
        kernel_tests::application_processor
    }

    /// Runs those of the machine.
    pub(crate) fn run_early(self) {
        kernel_tests::run_early(self.0);
    }

    /// Runs all others, and turns the machine off.
    pub(crate) fn run(self) -> ! {
        kernel_tests::run(self.0)
    }
}

#[cfg(not(feature = "tests"))]
impl Selection {
    pub(crate) fn application_processor(self) -> fn(CpuId) -> ! {
        match self {}
    }

    pub(crate) fn run_early(self) {
        match self {}
    }

    pub(crate) fn run(self) -> ! {
        match self {}
    }
}
