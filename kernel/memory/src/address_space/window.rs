//! Time windows: points between two steps of a protocol at which a test has something else happen.
//!
//! A test names a window and gives an action; the thread of the test that comes to the window then performs the action right there,
//! once (specs/fiasco-mp.md §N46). So a race is a plain sequence of calls, the same each time. Actions may pass windows
//! themselves: then races nest. Nothing of this is in the kernel.

use std::cell::RefCell;

/// Where an action can come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    /// A fork has closed the parent's link to a table, and the child has none yet.
    TableClosed,
    /// A fork has taken the permission to store from an entry that it has not copied yet.
    EntryProtected,
    /// A fork has shared everything, and nobody has forgotten translations that allow stores.
    NotForgotten,
    /// A table with other holders is to be copied.
    OwnDecided,
    /// The copy is complete, and not in place.
    OwnCopied,
    /// The copy is in place, and the shared table still has our reference.
    OwnReplaced,
    /// A table without other holders is to be opened again.
    OwnAlone,
    /// A page that others hold has been copied, and the copy is not in its entry.
    PageCopied,
    /// The last reference to a table is gone, and its entries hold their pages still.
    TableDead,
    /// A huge page and its table are ready, and `change` is not held.
    HugePrepared,
    /// A table is closed for its pages to become a huge one.
    CollapseClosed,
    /// Somebody who looks at all spaces has found one, and has a reference to it.
    SpaceFound,
}

impl Window {
    /// Those that forks and what meets them pass.
    pub(super) const ALL: [Window; 9] = [
        Window::TableClosed,
        Window::EntryProtected,
        Window::NotForgotten,
        Window::OwnDecided,
        Window::OwnCopied,
        Window::OwnReplaced,
        Window::OwnAlone,
        Window::PageCopied,
        Window::TableDead,
    ];
}

type Action = Box<dyn FnOnce()>;

thread_local! {
    static ACTIONS: RefCell<Vec<(Window, Action)>> = const { RefCell::new(Vec::new()) };
}

/// Has this thread perform the action when it next comes to the window. The action given last for a window comes first.
pub(super) fn at(window: Window, action: impl FnOnce() + 'static) {
    ACTIONS.with_borrow_mut(|actions| actions.push((window, Box::new(action))));
}

/// Forgets the actions whose windows were not passed; returns how many.
pub(super) fn clear() -> usize {
    ACTIONS.with_borrow_mut(|actions| actions.drain(..).count())
}

/// This thread is in the window.
pub(super) fn pass(window: Window) {
    let action = ACTIONS.with_borrow_mut(|actions| {
        let last = actions.iter().rposition(|(at, _)| *at == window)?;
        Some(actions.remove(last).1)
    });
    if let Some(action) = action {
        // Stands for another thread.
        sync::classes::without_order(action);
    }
}
