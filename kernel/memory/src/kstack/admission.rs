//! Why growing never fails: the admission invariant (specs/kernel-stacks.md §M7).
//!
//! A CPU switches to a thread only when its reserve holds a frame for each page that the thread's window may still
//! grow by. Only the running thread can grow on a CPU (interrupts have their own stacks), and each page grown uses one
//! frame and makes the window one page less growable: the invariant
//!
//! ```text
//! reserve(c) ≥ growable(running thread of c)
//! ```
//!
//! holds from switch to switch, so a growth fault always finds a frame. These decisions are pure; the test below
//! drives them through every kind of step, with refills that fail, and never reaches a growth without a frame.

use super::geometry::Window;

/// Frames that a CPU keeps at least in its reserve: what a thread with the default window may need.
pub(crate) const RESERVE_MIN: u32 = 3;

/// Frames that a CPU keeps at most beyond an admission. Threads with larger windows make it fetch more when they are
/// admitted, and that goes back after them.
pub(crate) const RESERVE_TARGET_MAX: u32 = 15;

/// Frames that are missing for the thread to be admitted.
pub(crate) const fn shortage(reserve: u32, window: &Window) -> u32 {
    window.growable().saturating_sub(reserve)
}

/// The reserve that a CPU aims at when windows have up to `pages` pages.
pub(crate) const fn target(pages: u32) -> u32 {
    let wanted = pages.saturating_sub(1);
    if wanted < RESERVE_MIN {
        RESERVE_MIN
    } else if wanted > RESERVE_TARGET_MAX {
        RESERVE_TARGET_MAX
    } else {
        wanted
    }
}

/// Frames that a CPU has too many: beyond its target, and not needed by the running thread.
pub(crate) const fn surplus(reserve: u32, target: u32, running: Option<&Window>) -> u32 {
    let needed = match running {
        Some(window) => window.growable(),
        None => 0,
    };
    reserve.saturating_sub(if needed > target { needed } else { target })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::geometry::{FaultClass, Layout, classify, slot_order};
    use super::super::trim::pages_to_keep;
    use super::*;

    const CPUS: usize = 3;
    const THREADS: usize = 5;

    #[derive(Clone, Debug)]
    enum Step {
        Switch { cpu: usize, thread: usize, memory: u32 },
        Touch { cpu: usize, offset: u64 },
        Refill { cpu: usize, memory: u32 },
        GiveBack { cpu: usize },
        Trim { thread: usize, offset: u64 },
        Replace { thread: usize, pages: u32, layout_a: bool },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..CPUS, 0..THREADS, 0u32..8).prop_map(|(cpu, thread, memory)| Step::Switch { cpu, thread, memory }),
            8 => (0..CPUS, any::<u64>()).prop_map(|(cpu, offset)| Step::Touch { cpu, offset }),
            2 => (0..CPUS, 0u32..8).prop_map(|(cpu, memory)| Step::Refill { cpu, memory }),
            1 => (0..CPUS).prop_map(|cpu| Step::GiveBack { cpu }),
            2 => (0..THREADS, any::<u64>()).prop_map(|(thread, offset)| Step::Trim { thread, offset }),
            1 => (0..THREADS, 1u32..40, any::<bool>())
                .prop_map(|(thread, pages, layout_a)| Step::Replace { thread, pages, layout_a }),
        ]
    }

    fn fresh(thread: usize, pages: u32, layout_a: bool) -> Window {
        let layout = if layout_a && pages > 1 { Layout::A } else { Layout::B };
        Window { slot: thread as u32 * 16, order: slot_order(pages), pages, mapped: 1, layout }
    }

    struct Model {
        reserve: [u32; CPUS],
        running: [Option<usize>; CPUS],
        windows: Vec<Window>,
    }

    impl Model {
        fn is_running(&self, thread: usize) -> bool {
            self.running.contains(&Some(thread))
        }

        fn apply(&mut self, step: &Step) -> Result<(), TestCaseError> {
            match *step {
                Step::Switch { cpu, thread, memory } if !self.is_running(thread) => {
                    let missing = shortage(self.reserve[cpu], &self.windows[thread]);
                    self.reserve[cpu] += missing.min(memory);
                    if shortage(self.reserve[cpu], &self.windows[thread]) == 0 {
                        self.running[cpu] = Some(thread);
                    }
                }
                Step::Touch { cpu, offset } => {
                    let Some(thread) = self.running[cpu] else { return Ok(()) };
                    let window = &mut self.windows[thread];
                    let address = window.base() + offset % (window.top() - window.base());
                    if let FaultClass::Grow { first, last } = classify(0, address, address, Some(window)) {
                        let pages = last - first + 1;
                        prop_assert!(self.reserve[cpu] >= pages, "growing failed: {window:?}");
                        self.reserve[cpu] -= pages;
                        window.mapped += pages;
                    }
                }
                Step::Refill { cpu, memory } => self.reserve[cpu] += memory,
                Step::GiveBack { cpu } => {
                    let running = self.running[cpu].map(|thread| self.windows[thread]);
                    self.reserve[cpu] -= surplus(self.reserve[cpu], RESERVE_MIN, running.as_ref());
                }
                Step::Trim { thread, offset } if !self.is_running(thread) => {
                    let window = &mut self.windows[thread];
                    let bytes = u64::from(window.mapped) * super::super::geometry::PAGE_BYTES;
                    window.mapped = pages_to_keep(window, window.top() - 1 - offset % bytes);
                }
                Step::Replace { thread, pages, layout_a } if !self.is_running(thread) => {
                    self.windows[thread] = fresh(thread, pages, layout_a);
                }
                _ => {}
            }
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn growing_never_fails(steps in prop::collection::vec(step(), 1..120)) {
            let mut model = Model {
                reserve: [RESERVE_MIN; CPUS],
                running: [None; CPUS],
                windows: (0..THREADS).map(|thread| fresh(thread, 4, false)).collect(),
            };
            for step in &steps {
                model.apply(step)?;
                for cpu in 0..CPUS {
                    if let Some(thread) = model.running[cpu] {
                        prop_assert!(model.reserve[cpu] >= model.windows[thread].growable(), "after {step:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn targets_follow_the_windows() {
        assert_eq!(target(1), 3);
        assert_eq!(target(4), 3);
        assert_eq!(target(8), 7);
        assert_eq!(target(127), 15);
    }
}
