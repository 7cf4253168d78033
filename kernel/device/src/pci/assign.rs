//! Addresses for functions and windows for bridges.
//!
//! Two passes over a tree of functions that enumeration has listed with bridges before what is behind them:
//!
//! 1. *Bottom up*, what each bridge must pass on: all regions behind it and all windows of bridges there, packed by falling alignment;
//!    a hot-plug port asks for [`RESERVED`] at least, so that what is plugged in later finds room.
//! 2. *Top down*, places: in each window, what is needed directly behind, again by falling alignment, lowest free place first. What was
//!    packed so in the first pass fits in the second.
//!
//! What finds no place stays without an address and is logged; its function still answers in configuration space.
//!
//! 64-bit prefetchable regions go into the prefetchable window, everything else that is memory into the other one: a window
//! above 4 GiB must not hold what only takes 32 bits.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Address;
use super::function::Function;
use super::region::{ROM_REGION, Region, Space};
use super::registers::{COMMAND, COMMAND_IO, COMMAND_MASTER, COMMAND_MEMORY};
use super::window::{FreeRanges, Range, WindowKind, Windows};

/// Kept behind a hot-plug port, by kind of window.
pub const RESERVED: [u64; 3] = [0x1000, 2 << 20, 2 << 20];

/// The kind of window a region belongs into.
fn kind_of(region: &Region) -> WindowKind {
    match region.space {
        Space::Io => WindowKind::Io,
        Space::Memory64 if region.prefetchable => WindowKind::Prefetch,
        _ => WindowKind::Memory,
    }
}

/// Something that needs a place in a window.
#[derive(Clone)]
struct Item {
    function: Arc<Function>,
    /// Index of the region; None: the bridge's window.
    region: Option<usize>,
    bytes: u64,
    align: u64,
}

/// What a bridge must pass on, by kind: bytes and alignment.
type Needs = [(u64, u64); 3];

struct Assignment<'a> {
    functions: &'a [Arc<Function>],
    /// By index of the bridge in `functions`.
    needs: Vec<Needs>,
}

/// Gives places in `windows` to the functions directly behind `top` and to all behind them. Regions that have an address within the
/// windows keep it.
pub(crate) fn assign(top: Option<Address>, windows: &Windows, functions: &[Arc<Function>]) {
    let mut assignment = Assignment { functions, needs: alloc::vec![[(0, 1); 3]; functions.len()] };
    for index in (0..functions.len()).rev() {
        if functions[index].is_bridge() {
            assignment.needs[index] = assignment.needs_behind(index);
        }
    }
    assignment.place_behind(top, windows);
    for bridge in functions.iter().filter(|function| function.is_bridge()) {
        assignment.place_behind(Some(bridge.address()), &bridge.windows());
        let bits = COMMAND_IO | COMMAND_MEMORY | COMMAND_MASTER;
        bridge.config.modify_u16(COMMAND, bits, bits);
    }
}

/// Whether firmware has given every region a place that reaches it.
pub(crate) fn is_complete(functions: &[Arc<Function>]) -> bool {
    functions.iter().all(|function| {
        let above = function.upstream.and_then(|bridge| find(functions, bridge));
        let reached = |region: &Region| {
            let window = above.map(|bridge| bridge.windows());
            region.start != 0 && window.is_none_or(|windows| passes(&windows, region))
        };
        let regions = function.regions();
        let wanted = regions.iter().take(ROM_REGION).flatten().filter(|region| region.space != Space::Io);
        wanted.into_iter().all(reached) && has_room(function)
    })
}

/// A hot-plug port without a window can't be used for what it is there for.
fn has_room(function: &Function) -> bool {
    !function.is_hot_plug_port() || function.windows().get(WindowKind::Memory).bytes() > 0
}

fn passes(windows: &Windows, region: &Region) -> bool {
    WindowKind::ALL.iter().any(|kind| windows.get(*kind).contains(region.start, region.end()))
}

fn find(functions: &[Arc<Function>], address: Address) -> Option<&Arc<Function>> {
    functions.iter().find(|function| function.address() == address)
}

/// Takes all addresses away, so that all are given anew.
pub(crate) fn clear(functions: &[Arc<Function>]) {
    for function in functions {
        let decoding = COMMAND_IO | COMMAND_MEMORY;
        function.config.modify_u16(COMMAND, decoding, 0);
        for (index, region) in function.regions().iter().enumerate() {
            if region.is_some_and(|region| region.start != 0) {
                function.set_region_start(index, 0);
            }
        }
        if function.is_bridge() {
            function.set_windows(Windows::NONE);
        }
    }
}

impl Assignment<'_> {
    fn children(&self, bridge: Option<Address>) -> impl Iterator<Item = (usize, &Arc<Function>)> {
        self.functions.iter().enumerate().filter(move |(_, function)| function.upstream == bridge)
    }

    /// All that needs a place of this kind right behind a bridge, by falling alignment.
    fn items(&self, bridge: Option<Address>, kind: WindowKind, within: Option<Range>) -> Vec<Item> {
        let mut items = Vec::new();
        for (index, function) in self.children(bridge) {
            for (number, region) in function.regions().iter().enumerate() {
                let Some(region) = region.filter(|region| kind_of(region) == kind) else { continue };
                if within.is_some_and(|window| is_placed(&region, window)) {
                    continue;
                }
                let (function, bytes) = (function.clone(), region.bytes);
                // A page at least: what has a page to itself can be given to somebody.
                let align = if kind == WindowKind::Io { bytes } else { bytes.max(4096) };
                items.push(Item { function, region: Some(number), bytes: bytes.max(align), align });
            }
            let (bytes, align) = self.needs[index][kind as usize];
            if bytes > 0 && function.windows().get(kind).bytes() == 0 {
                items.push(Item { function: function.clone(), region: None, bytes, align });
            }
        }
        items.sort_by_key(|item| core::cmp::Reverse(item.align));
        items
    }

    fn needs_behind(&self, index: usize) -> Needs {
        let bridge = &self.functions[index];
        let mut needs = [(0, 1); 3];
        for kind in WindowKind::ALL {
            let mut bytes: u64 = 0;
            let mut align = kind.granularity();
            for item in self.items(Some(bridge.address()), kind, None) {
                align = align.max(item.align);
                bytes = bytes.next_multiple_of(item.align).saturating_add(item.bytes);
            }
            if bridge.is_hot_plug_port() {
                bytes = bytes.max(RESERVED[kind as usize]);
            }
            // A size that overflows fits nowhere; it must only not wrap.
            let bytes = bytes.checked_next_multiple_of(kind.granularity()).unwrap_or(!0xfff);
            needs[kind as usize] = (bytes, align);
        }
        needs
    }

    /// Gives places in a bridge's windows to all directly behind it.
    fn place_behind(&self, bridge: Option<Address>, windows: &Windows) {
        for kind in WindowKind::ALL {
            let mut window = windows.get(kind);
            if kind == WindowKind::Prefetch && window.bytes() == 0 {
                // Without one of their own, prefetchable regions share the other.
                window = windows.get(WindowKind::Memory);
            }
            let mut free = FreeRanges::new(window);
            self.keep_placed(bridge, &mut free, window);
            for item in self.items(bridge, kind, Some(window)) {
                match free.allocate(item.bytes, item.align) {
                    Some(place) => put(&item, kind, place),
                    None => self.report(&item, kind),
                }
            }
        }
    }

    /// Takes out what has its place already.
    fn keep_placed(&self, bridge: Option<Address>, free: &mut FreeRanges, window: Range) {
        for (_, function) in self.children(bridge) {
            for region in function.regions().iter().flatten().filter(|region| is_placed(region, window)) {
                free.take(Range { start: region.start, end: region.end() });
            }
            for kind in WindowKind::ALL {
                let taken = function.windows().get(kind);
                if taken.bytes() > 0 {
                    free.take(taken);
                }
            }
        }
    }

    fn report(&self, item: &Item, kind: WindowKind) {
        // Nobody needs a ROM, and few need ports.
        let wanted = item.region.is_none_or(|region| region != ROM_REGION) && kind != WindowKind::Io;
        if wanted {
            let address = item.function.address();
            log::warn!("{address}: no {kind:?} addresses left for {:#x} bytes", item.bytes);
        }
    }
}

fn is_placed(region: &Region, window: Range) -> bool {
    region.start != 0 && window.contains(region.start, region.end())
}

fn put(item: &Item, kind: WindowKind, place: Range) {
    match item.region {
        Some(region) => item.function.set_region_start(region, place.start),
        None => {
            let mut windows = item.function.windows();
            windows.set(kind, place);
            item.function.set_windows(windows);
        }
    }
}
