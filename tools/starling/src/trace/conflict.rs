//! Cache lines that one processor writes and the other one touches.

use std::collections::{BTreeMap, BTreeSet};

use super::code::{Names, THREAD_SLOT};
use super::window::{Access, Window};

/// What one side did with a line.
#[derive(Clone, Debug, Default)]
struct Side {
    accesses: Vec<Access>,
}

impl Side {
    fn writes(&self) -> bool {
        self.accesses.iter().any(|access| access.kind.writes())
    }

    fn touches(&self) -> bool {
        !self.accesses.is_empty()
    }
}

/// Lines of one kind that are shared again and again: written by the same function in the same sort of object.
#[derive(Clone, Debug)]
pub(super) struct Conflict {
    /// What lies there.
    pub(super) object: String,
    /// The functions that write, and those that only read.
    pub(super) writers: BTreeSet<String>,
    pub(super) readers: BTreeSet<String>,
    /// Rounds in which it was seen.
    pub(super) rounds: usize,
    /// Lines in the round with the most of them.
    pub(super) lines: usize,
    /// One of the lines: an address in it, and where else in it something was touched.
    pub(super) example: BTreeSet<u64>,
}

/// What stands for the object when most rounds share a line, but no kind of line is shared in most of them.
const CHANGING: &str = "lines of a kind that changes";

/// The conflicts of a pair, given what both sides did in each round. What was seen in less than half of the rounds is no steady
/// state: an interrupt, or a batch that a processor fetches for many calls. Rounds that share a line each, of another kind each time,
/// have one conflict together.
pub(super) fn find(rounds: &[[&Window; 2]], names: &Names) -> Vec<Conflict> {
    let mut found: BTreeMap<(String, String), Conflict> = BTreeMap::new();
    for round in rounds {
        let mut in_round: BTreeMap<(String, String), usize> = BTreeMap::new();
        for sides in shared(round).into_values() {
            let key = key(&sides, names);
            *in_round.entry(key.clone()).or_default() += 1;
            let conflict = found.entry(key.clone()).or_insert_with(|| Conflict {
                object: key.0,
                writers: BTreeSet::new(),
                readers: BTreeSet::new(),
                rounds: 0,
                lines: 0,
                example: BTreeSet::new(),
            });
            describe(conflict, &sides, names);
        }
        for (key, lines) in in_round {
            if let Some(conflict) = found.get_mut(&key) {
                conflict.rounds += 1;
                conflict.lines = conflict.lines.max(lines);
            }
        }
    }
    let steady = |conflict: &Conflict| conflict.rounds * 2 >= rounds.len();
    let sharing = rounds.iter().filter(|round| lines(round) > 0).count();
    if sharing * 2 > rounds.len() && !found.values().any(steady) {
        return found.into_values().reduce(Conflict::with).map(|all| all.over(sharing)).into_iter().collect();
    }
    found.into_values().filter(steady).collect()
}

impl Conflict {
    /// Both, as one.
    fn with(mut self, other: Self) -> Self {
        self.writers.extend(other.writers);
        self.readers.extend(other.readers);
        self.lines = self.lines.max(other.lines);
        self
    }

    /// Of kinds that change, over so many rounds.
    fn over(self, rounds: usize) -> Self {
        Self { object: CHANGING.into(), rounds, ..self }
    }
}

/// How many lines of a round one side writes and the other one touches.
pub(super) fn lines(round: &[&Window; 2]) -> usize {
    shared(round).len()
}

/// The lines that one side writes and the other one touches.
fn shared(round: &[&Window; 2]) -> BTreeMap<u64, [Side; 2]> {
    let mut lines: BTreeMap<u64, [Side; 2]> = BTreeMap::new();
    for (side, window) in round.iter().enumerate() {
        for access in &window.accesses {
            lines.entry(access.line).or_default()[side].accesses.push(*access);
        }
    }
    lines.retain(|_, [first, second]| {
        (first.writes() && second.touches()) || (second.writes() && first.touches())
    });
    lines
}

/// What conflicts are told apart by: the object and the function that writes it first. A thread's slot is one kind, whoever writes there: it
/// is shared as a whole, because one processor's thread has the stack that the other's had before.
fn key(sides: &[Side; 2], names: &Names) -> (String, String) {
    let all = || sides.iter().flat_map(|side| &side.accesses);
    let write = all().find(|access| access.kind.writes());
    let write = write.or_else(|| all().next());
    let Some(access) = write else { return Default::default() };
    let object = names.object(access.address);
    let function = if object == THREAD_SLOT { String::new() } else { names.function(access.code) };
    (object, function)
}

fn describe(conflict: &mut Conflict, sides: &[Side; 2], names: &Names) {
    let fresh = conflict.example.is_empty();
    for access in sides.iter().flat_map(|side| &side.accesses) {
        let functions = if access.kind.writes() { &mut conflict.writers } else { &mut conflict.readers };
        functions.insert(names.function(access.code));
        if fresh {
            conflict.example.insert(access.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::Kind;
    use super::*;

    fn window(accesses: &[(Kind, u64)]) -> Window {
        let access =
            |(kind, line): &(Kind, u64)| Access { kind: *kind, line: *line, address: 0, code: 0, count: 1 };
        Window { processor: 0, accesses: accesses.iter().map(access).collect() }
    }

    fn shared_lines(first: &[(Kind, u64)], second: &[(Kind, u64)]) -> Vec<u64> {
        shared(&[&window(first), &window(second)]).into_keys().collect()
    }

    #[test]
    fn line_is_shared_when_one_side_writes_it() {
        assert_eq!(shared_lines(&[(Kind::Write, 1)], &[(Kind::Read, 1)]), [1]);
        assert_eq!(shared_lines(&[(Kind::Read, 1)], &[(Kind::Atomic, 1)]), [1]);
        assert_eq!(shared_lines(&[(Kind::Atomic, 1)], &[(Kind::Write, 1)]), [1]);
    }

    #[test]
    fn rounds_that_share_lines_of_changing_kinds_have_one_conflict() {
        // No function of any program is there.
        let nowhere = 1 << 60;
        let names = Names::of(&std::env::current_exe().expect("a test is a program")).expect("with names");
        let write = |code: u64| Window {
            processor: 0,
            accesses: vec![Access { kind: Kind::Write, line: 1, address: 0, code, count: 1 }],
        };
        let free = window(&[]);
        let pairs: Vec<_> = (1..=8).map(|code| [write(nowhere + code), write(nowhere + code)]).collect();
        let mut rounds: Vec<_> = pairs.iter().map(|[first, second]| [first, second]).collect();
        let found = find(&rounds, &names);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].object.as_str(), found[0].rounds, found[0].writers.len()), (CHANGING, 8, 8));
        rounds.truncate(4);
        rounds.extend([[&free, &free]; 4]);
        assert!(find(&rounds, &names).is_empty(), "half of the rounds are undisturbed");
    }

    #[test]
    fn what_both_read_or_only_one_touches_is_not_shared() {
        assert!(
            shared_lines(&[(Kind::Read, 1), (Kind::Write, 2)], &[(Kind::Read, 1), (Kind::Write, 3)])
                .is_empty()
        );
    }
}
