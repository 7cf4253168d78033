//! `pcbench`: what sequential look-ups, insertions and removals cost in each page index, in nanoseconds a page, for more and more pages
//! (specs/page-cache.md 16 i), and look-ups in radix trees of other widths (16 iii).
//!
//!     cargo run --release -p memory --example pcbench -- [--max 4194304]

use core::num::NonZeroU64;
use memory::page_index::{ExtendibleHash, PageIndex, RadixTree, ThreadedTree, Treap};
use std::hint::black_box;
use std::time::Instant;

fn word(page: u64) -> NonZeroU64 {
    NonZeroU64::new((page + 1) << 2).expect("not zero")
}

/// Makes an empty index.
type Make = fn() -> Box<dyn PageIndex>;

/// Nanoseconds a page.
fn time(pages: u64, mut each: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    (0..pages).for_each(&mut each);
    start.elapsed().as_nanos() as f64 / pages as f64
}

/// Insertion, look-up and removal.
fn measure(index: &mut dyn PageIndex, pages: u64) -> [f64; 3] {
    let insert = time(pages, |page| index.insert(page, word(page)).expect("memory"));
    let lookup = time(pages, |page| assert_eq!(black_box(index.lookup(page)), Some(word(page))));
    let remove = time(pages, |page| assert_eq!(index.remove(page), Some(word(page))));
    [insert, lookup, remove]
}

fn main() {
    let mut arguments = std::env::args().skip_while(|word| word != "--max").skip(1);
    let most: u64 = arguments.next().map_or(1 << 20, |text| text.parse().expect("--max takes a number"));
    let indices: [(&str, Make); 9] = [
        ("radix, shift 6", || Box::new(RadixTree::<6>::new())),
        ("extendible hash", || Box::new(ExtendibleHash::new().expect("memory"))),
        ("threaded red-black", || Box::new(ThreadedTree::new())),
        ("treap", || Box::new(Treap::new())),
        ("radix, shift 4", || Box::new(RadixTree::<4>::new())),
        ("radix, shift 7", || Box::new(RadixTree::<7>::new())),
        ("radix, shift 8", || Box::new(RadixTree::<8>::new())),
        ("radix, shift 10", || Box::new(RadixTree::<10>::new())),
        ("radix, shift 12", || Box::new(RadixTree::<12>::new())),
    ];
    println!("{:20} {:>9} {:>10} {:>10} {:>10}  ns a page", "index", "pages", "insert", "look-up", "remove");
    for (name, make) in indices {
        let mut pages = 1024;
        while pages <= most {
            let [insert, lookup, remove] = measure(&mut *make(), pages);
            println!("{name:20} {pages:9} {insert:10.1} {lookup:10.1} {remove:10.1}");
            pages *= 8;
        }
    }
}
