//! Requests of one direction in two orders at once: by age and by sector.
//!
//! Each has a place in one vector, and there it is an element of a doubly linked list, in the order they came in, and a node of a search tree by sector.
//! The tree is a treap: each node has a random rank, and none is below one of a lower rank. Its depth is logarithmic, whatever comes in
//! whichever order, and it is changed without going back up. So the oldest is found at once, and one by its sector by a walk down.
//!
//! Nothing but [`Waiting::reserve`] allocates.

use alloc::vec::Vec;

use memory::fallible;

use crate::Result;
use crate::request::Request;

/// No place.
const NONE: u32 = u32::MAX;

/// Where a request waits.
pub(super) type Place = u32;

struct Node {
    /// None: the place is free.
    request: Option<Request>,
    older: Place,
    /// Of a free place: the next free one.
    younger: Place,
    lower: Place,
    higher: Place,
    rank: u32,
}

/// What names a node of the tree.
#[derive(Clone, Copy)]
enum Link {
    Root,
    LowerOf(Place),
    HigherOf(Place),
}

/// See the theory of this file.
pub(super) struct Waiting {
    nodes: Vec<Node>,
    free: Place,
    root: Place,
    oldest: Place,
    youngest: Place,
    /// Of the ranks; never 0.
    random: u32,
}

impl Default for Waiting {
    fn default() -> Self {
        // Nobody outside knows the moment well enough to choose sectors that make the tree deep.
        let random = machine::time::now_ns() as u32 | 1;
        Self { nodes: Vec::new(), free: NONE, root: NONE, oldest: NONE, youngest: NONE, random }
    }
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.root == NONE
    }

    /// Makes room for one more.
    pub(super) fn reserve(&mut self) -> Result<()> {
        if self.free == NONE {
            fallible::try_reserve(&mut self.nodes, 1)?;
        }
        Ok(())
    }

    /// The one that has waited longest.
    pub(super) fn oldest(&self) -> Option<Place> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// The lowest one that begins at this sector or above.
    pub(super) fn at_or_above(&self, sector: u64) -> Option<Place> {
        let (mut at, mut found) = (self.root, None);
        while at != NONE {
            if self.get(at).sector() >= sector {
                found = Some(at);
                at = self.node(at).lower;
            } else {
                at = self.node(at).higher;
            }
        }
        found
    }

    /// The highest one that begins below this sector.
    pub(super) fn below(&self, sector: u64) -> Option<Place> {
        let (mut at, mut found) = (self.root, None);
        while at != NONE {
            if self.get(at).sector() < sector {
                found = Some(at);
                at = self.node(at).higher;
            } else {
                at = self.node(at).lower;
            }
        }
        found
    }

    /// The request at a place.
    pub(super) fn get(&self, place: Place) -> &Request {
        self.node(place).request.as_ref().expect("places in the list and the tree have requests")
    }

    /// Changes the request at a place, perhaps its sector too.
    pub(super) fn change<R>(&mut self, place: Place, change: impl FnOnce(&mut Request) -> R) -> R {
        let before = self.get(place).sector();
        let mut request = self.nodes[place as usize].request.take().expect("there is a request here");
        let result = change(&mut request);
        let moved = request.sector() != before;
        if !moved {
            self.nodes[place as usize].request = Some(request);
            return result;
        }
        let changed = self.nodes[place as usize].request.insert(request).sector();
        debug_assert_ne!(before, changed);
        self.remove_from_tree(place, before);
        self.add_to_tree(place);
        result
    }

    /// Adds one, for which there is room.
    pub(super) fn push(&mut self, request: Request) {
        let place = self.free;
        let node = Node {
            request: Some(request),
            older: self.youngest,
            younger: NONE,
            lower: NONE,
            higher: NONE,
            rank: self.next_rank(),
        };
        let place = if place == NONE {
            debug_assert!(
                self.nodes.len() < self.nodes.capacity(),
                "whoever adds a request made room for it"
            );
            self.nodes.push(node);
            (self.nodes.len() - 1) as Place
        } else {
            self.free = self.node(place).younger;
            self.nodes[place as usize] = node;
            place
        };
        match self.youngest {
            NONE => self.oldest = place,
            youngest => self.nodes[youngest as usize].younger = place,
        }
        self.youngest = place;
        self.add_to_tree(place);
    }

    /// Takes one out.
    pub(super) fn take(&mut self, place: Place) -> Request {
        self.remove_from_tree(place, self.get(place).sector());
        let free = self.free;
        let node = &mut self.nodes[place as usize];
        let (older, younger) = (node.older, node.younger);
        node.younger = free;
        let request = node.request.take().expect("there is a request here");
        self.free = place;
        match older {
            NONE => self.oldest = younger,
            older => self.nodes[older as usize].younger = younger,
        }
        match younger {
            NONE => self.youngest = older,
            younger => self.nodes[younger as usize].older = older,
        }
        request
    }

    fn node(&self, place: Place) -> &Node {
        &self.nodes[place as usize]
    }

    /// Marsaglia's xorshift.
    fn next_rank(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random
    }

    fn follow(&self, link: Link) -> Place {
        match link {
            Link::Root => self.root,
            Link::LowerOf(place) => self.node(place).lower,
            Link::HigherOf(place) => self.node(place).higher,
        }
    }

    fn set(&mut self, link: Link, to: Place) {
        match link {
            Link::Root => self.root = to,
            Link::LowerOf(place) => self.nodes[place as usize].lower = to,
            Link::HigherOf(place) => self.nodes[place as usize].higher = to,
        }
    }

    /// The order of the tree: requests that begin at the same sector are told apart by their places.
    fn key(&self, place: Place) -> (u64, Place) {
        (self.get(place).sector(), place)
    }

    /// Goes down to where the rank belongs, and divides what is there.
    fn add_to_tree(&mut self, place: Place) {
        let (key, rank) = (self.key(place), self.node(place).rank);
        let mut link = Link::Root;
        let mut at = self.follow(link);
        while at != NONE && self.node(at).rank >= rank {
            link = if key < self.key(at) { Link::LowerOf(at) } else { Link::HigherOf(at) };
            at = self.follow(link);
        }
        self.set(link, place);
        let (mut lower, mut higher) = (Link::LowerOf(place), Link::HigherOf(place));
        while at != NONE {
            if self.key(at) < key {
                self.set(lower, at);
                lower = Link::HigherOf(at);
                at = self.follow(lower);
            } else {
                self.set(higher, at);
                higher = Link::LowerOf(at);
                at = self.follow(higher);
            }
        }
        self.set(lower, NONE);
        self.set(higher, NONE);
    }

    /// Puts the two halves below a node in its place. It was added with this sector.
    fn remove_from_tree(&mut self, place: Place, sector: u64) {
        let mut link = Link::Root;
        let mut at = self.root;
        while at != place {
            debug_assert_ne!(at, NONE, "what waits is in the tree");
            link = if (sector, place) < self.key(at) { Link::LowerOf(at) } else { Link::HigherOf(at) };
            at = self.follow(link);
        }
        let (mut lower, mut higher) = (self.node(place).lower, self.node(place).higher);
        loop {
            if lower == NONE || higher == NONE {
                return self.set(link, if lower == NONE { higher } else { lower });
            }
            if self.node(lower).rank >= self.node(higher).rank {
                self.set(link, lower);
                link = Link::HigherOf(lower);
                lower = self.follow(link);
            } else {
                self.set(link, higher);
                link = Link::LowerOf(higher);
                higher = self.follow(link);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bio::{Bio, BioFlags, Memory, Operation};
    use proptest::prelude::*;

    fn request(sector: u64, age: u64) -> Request {
        let memory = Memory::Owned(vec![0; 512]);
        let mut bio = Bio::single(Operation::Read, sector, memory, BioFlags::empty()).expect("a sector");
        bio.submitted_ns = age;
        Request::new(Vec::with_capacity(1), bio)
    }

    fn depth(waiting: &Waiting, at: Place) -> usize {
        if at == NONE {
            return 0;
        }
        let node = waiting.node(at);
        1 + depth(waiting, node.lower).max(depth(waiting, node.higher))
    }

    #[test]
    fn ascending_sectors_do_not_make_the_tree_deep() {
        let mut waiting = Waiting::default();
        for sector in 0..10_000 {
            waiting.reserve().expect("there is memory");
            waiting.push(request(sector, sector));
        }
        let depth = depth(&waiting, waiting.root);
        assert!(depth < 80, "{depth} levels; 60 are expected at the very most");
    }

    proptest! {
        /// A vector in the order of age says what must be found.
        #[test]
        fn finds_what_a_plain_list_finds(steps in prop::collection::vec((0u8..4, 0u64..40), 1..200)) {
            let mut waiting = Waiting::default();
            let mut model: Vec<(u64, u64)> = Vec::new();
            for (age, (what, sector)) in steps.into_iter().enumerate() {
                let age = age as u64;
                let found = match what {
                    0 => waiting.oldest(),
                    1 => waiting.at_or_above(sector),
                    _ => {
                        waiting.reserve().expect("there is memory");
                        waiting.push(request(sector, age));
                        model.push((sector, age));
                        continue;
                    }
                };
                let expected = match what {
                    0 => model.first().map(|one| one.0),
                    _ => model.iter().map(|one| one.0).filter(|one| *one >= sector).min(),
                };
                prop_assert_eq!(found.map(|place| waiting.get(place).sector()), expected);
                let below = model.iter().map(|one| one.0).filter(|one| *one < sector).max();
                prop_assert_eq!(waiting.below(sector).map(|place| waiting.get(place).sector()), below);
                if let Some(place) = found {
                    let taken = waiting.take(place);
                    let at = model.iter().position(|one| *one == (taken.sector(), taken.submitted_ns()));
                    model.remove(at.expect("it was put in"));
                }
                prop_assert_eq!(waiting.is_empty(), model.is_empty());
            }
            while let Some(oldest) = waiting.oldest() {
                let taken = waiting.take(oldest);
                prop_assert_eq!((taken.sector(), taken.submitted_ns()), model.remove(0));
            }
            prop_assert!(model.is_empty() && waiting.is_empty());
        }
    }
}
