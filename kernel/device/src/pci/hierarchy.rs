//! A host bridge and all that is behind it: enumeration, what comes later, and what goes.
//!
//! The list of functions is in order of address within each walk, bridges before what is behind them. It is changed under `changing`, which may
//! be held while devices answer; readers copy handles under a spin lock.
//!
//! What is found is not yet offered to drivers: the caller adds it to the [`crate::pci::BUS`], and takes it from there before
//! [`Hierarchy::forget`].

use alloc::sync::Arc;
use alloc::vec::Vec;

use sched::Mutex;
use sync::SpinLock;

use super::config::ConfigAccess;
use super::function::Function;
use super::registers::COMMAND;
use super::window::Windows;
use super::{Address, assign, scan};

/// What a host bridge passes on.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// Number of its group of buses.
    pub segment: u16,
    /// Its own bus.
    pub first_bus: u8,
    /// The highest one it can reach.
    pub last_bus: u8,
    /// Addresses.
    pub windows: Windows,
}

/// A host bridge with all functions behind it.
pub struct Hierarchy {
    access: Arc<dyn ConfigAccess>,
    root: Root,
    functions: SpinLock<Vec<Arc<Function>>>,
    changing: Mutex<()>,
}

impl Hierarchy {
    /// One that was not looked at yet.
    pub fn new(access: Arc<dyn ConfigAccess>, root: Root) -> Self {
        Self {
            access,
            root,
            functions: SpinLock::named("PCI functions", Vec::new()),
            changing: Mutex::named("PCI hierarchy", ()),
        }
    }

    /// What the host bridge passes on.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The way to configuration space.
    pub fn access(&self) -> &Arc<dyn ConfigAccess> {
        &self.access
    }

    /// All functions, bridges before what is behind them.
    pub fn functions(&self) -> Vec<Arc<Function>> {
        // Copied with room made outside of the lock.
        let mut copy = Vec::new();
        loop {
            let wanted = self.functions.lock().len();
            copy.reserve(wanted);
            let functions = self.functions.lock();
            if functions.len() <= copy.capacity() {
                copy.extend(functions.iter().cloned());
                return copy;
            }
        }
    }

    /// The function at an address.
    pub fn find(&self, address: Address) -> Option<Arc<Function>> {
        self.functions.lock().iter().find(|function| function.address() == address).cloned()
    }

    /// Finds everything and gives addresses to what firmware left without. Returns all functions.
    pub fn enumerate(&self) -> Vec<Arc<Function>> {
        let _changing = self.changing.lock();
        let Root { segment, first_bus, last_bus, windows } = self.root;
        let found = scan::scan(&self.access, segment, first_bus, last_bus, None, &[]);
        if !assign::is_complete(&found) {
            assign::clear(&found);
        }
        assign::assign(None, &windows, &found);
        let old = core::mem::replace(&mut *self.functions.lock(), found.clone());
        assert!(old.is_empty(), "enumerated once");
        found
    }

    /// Whether this function is one of those there are: not one that was taken out, even if another one has its place.
    pub fn has(&self, function: &Function) -> bool {
        self.functions.lock().iter().any(|known| core::ptr::eq(Arc::as_ptr(known), function))
    }

    /// Looks for what is new behind a bridge, or everywhere. Returns what was found, with addresses: nothing behind a bridge that was taken out.
    pub fn rescan(&self, bridge: Option<&Arc<Function>>) -> Vec<Arc<Function>> {
        let _changing = self.changing.lock();
        let known = self.functions();
        let mut new = Vec::new();
        if bridge.is_some_and(|bridge| !self.has(bridge)) {
            return new;
        }
        let mut tops: Vec<Option<Arc<Function>>> = match bridge {
            Some(bridge) => alloc::vec![Some(bridge.clone())],
            None => known.iter().filter(|function| function.is_bridge()).cloned().map(Some).collect(),
        };
        if bridge.is_none() {
            tops.insert(0, None);
        }
        for top in tops {
            let found = self.scan_new(top.as_ref(), &known);
            if found.is_empty() {
                continue;
            }
            // What is there keeps its place; what is new gets one beside it, whatever it had when it was there before.
            assign::clear(&found);
            let address = top.as_ref().map(|bridge| bridge.address());
            let windows = top.as_ref().map_or(self.root.windows, |bridge| bridge.windows());
            let siblings = known.iter().filter(|function| function.upstream == address).cloned();
            let together: Vec<_> = siblings.chain(found.iter().cloned()).collect();
            assign::assign(address, &windows, &together);
            new.extend(found);
        }
        let mut list = known;
        list.extend(new.iter().cloned());
        let old = core::mem::replace(&mut *self.functions.lock(), list);
        drop(old);
        new
    }

    /// What is directly behind a bridge and not known, with what is behind it.
    fn scan_new(&self, top: Option<&Arc<Function>>, known: &[Arc<Function>]) -> Vec<Arc<Function>> {
        let (bus, limit) = match top {
            None => (self.root.first_bus, self.root.last_bus),
            Some(bridge) => match bridge.buses() {
                Some(buses) => buses,
                None => return Vec::new(),
            },
        };
        scan::scan(&self.access, self.root.segment, bus, limit, top.cloned(), known)
    }

    /// A function and all behind it, deepest first: the order in which they go. Nothing of one that was taken out.
    pub fn subtree(&self, top: &Function) -> Vec<Arc<Function>> {
        if !self.has(top) {
            return Vec::new();
        }
        let functions = self.functions();
        let behind = |function: &Function| match top.buses() {
            Some((first, last)) => (first..=last).contains(&function.address().bus),
            None => false,
        };
        let belongs = |function: &&Arc<Function>| function.address() == top.address() || behind(function);
        let mut subtree: Vec<_> = functions.iter().filter(belongs).cloned().collect();
        subtree.reverse();
        subtree
    }

    /// All functions behind a bridge, deepest first.
    pub fn behind(&self, bridge: &Function) -> Vec<Arc<Function>> {
        let mut functions = self.subtree(bridge);
        functions.retain(|function| function.address() != bridge.address());
        functions
    }

    /// Takes functions out. They answer no more through handles that others still have.
    pub fn forget(&self, gone: &[Arc<Function>]) {
        let _changing = self.changing.lock();
        for function in gone {
            if function.config.is_present() {
                // Still there: it shall not answer where something else may be put.
                function.config.write_u16(COMMAND, 0);
            }
            function.config.set_gone();
        }
        let is_gone = |function: &Arc<Function>| gone.iter().any(|one| Arc::ptr_eq(one, function));
        let rest: Vec<_> = self.functions().into_iter().filter(|function| !is_gone(function)).collect();
        let old = core::mem::replace(&mut *self.functions.lock(), rest);
        drop(old);
    }
}
