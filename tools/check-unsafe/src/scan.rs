//! Finds the places where a source says `unsafe`, and whether they are explained.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// How far above an `unsafe` its explanation may start: attributes, documentation and the start of its statement lie between.
const LINES_ABOVE: usize = 60;

/// An `unsafe` in a source.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its line, from 1.
    pub(crate) line: usize,
    /// Whether a comment says why it is sound.
    pub(crate) explained: bool,
}

/// All places in a source.
///
/// # Errors
/// When the source cannot be cut into tokens.
pub(crate) fn find_unsafe(text: &str) -> Result<Vec<Place>, String> {
    // A byte order mark or a `#!` line never occurs in this project, so the text is tokens only.
    let tokens: TokenStream = text.parse().map_err(|error| format!("not Rust: {error}"))?;
    let lines: Vec<&str> = text.lines().collect();
    let mut places = Vec::new();
    walk(tokens, &lines, Around::default(), &mut places);
    Ok(places)
}

/// What lies around some tokens.
#[derive(Clone, Copy, Default)]
struct Around {
    /// The line on which the statement or item around them starts, if it goes on.
    statement: Option<usize>,
    /// They are the body of an explained `unsafe impl`: what its unsafe functions want, the trait says.
    explained_impl: bool,
}

/// Looks at all tokens.
fn walk(tokens: TokenStream, lines: &[&str], around: Around, places: &mut Vec<Place>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut statement: Option<usize> = None;
    let mut explained_impl = false;
    for (index, token) in tokens.iter().enumerate() {
        let line = token.span().start().line;
        let first = *statement.get_or_insert(line);
        match token {
            TokenTree::Ident(word) if *word == "unsafe" && !is_type(&tokens[index + 1..]) => {
                let next = tokens.get(index + 1).map(ToString::to_string).unwrap_or_default();
                let starts = [Some(line), Some(first), around.statement];
                let explained = starts.into_iter().flatten().any(|start| is_explained(lines, start))
                    || (around.explained_impl && next == "fn");
                explained_impl = explained && next == "impl";
                places.push(Place { line, explained });
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                // Inside braces statements start anew.
                walk(group.stream(), lines, Around { statement: None, explained_impl }, places);
                (statement, explained_impl) = (None, false);
            }
            TokenTree::Group(group) => {
                walk(group.stream(), lines, Around { statement: Some(first), explained_impl: false }, places);
            }
            TokenTree::Punct(mark) if matches!(mark.as_char(), ';' | ',') => statement = None,
            _ => {}
        }
    }
}

/// Whether what follows makes the `unsafe` part of a function pointer's type, which does nothing by itself.
fn is_type(rest: &[TokenTree]) -> bool {
    let mut rest = rest.iter().skip_while(|token| match token {
        TokenTree::Ident(word) => *word == "extern",
        TokenTree::Literal(_) => true,
        _ => false,
    });
    let is_function = matches!(rest.next(), Some(TokenTree::Ident(word)) if *word == "fn");
    is_function && matches!(rest.next(), Some(TokenTree::Group(_)))
}

/// Whether the line itself, or the comments and attributes right above it, explain.
fn is_explained(lines: &[&str], line: usize) -> bool {
    let says = |text: &str| text.contains("SAFETY:") || text.contains("# Safety");
    let own = lines
        .get(line - 1)
        .is_some_and(|text| text.split_once("//").is_some_and(|(_, comment)| says(comment)));
    let above = lines[..line - 1].iter().rev().take(LINES_ABOVE).map(|text| text.trim());
    let mut above =
        above.take_while(|text| text.starts_with("//") || text.starts_with("#[") || text.starts_with("#!["));
    own || above.any(|text| text.starts_with("//") && says(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(text: &str) -> Vec<bool> {
        find_unsafe(text).expect("tokens").into_iter().map(|place| place.explained).collect()
    }

    #[test]
    fn comment_right_above_explains() {
        assert_eq!(explained("// SAFETY: yes.\nunsafe impl Send for X {}"), [true]);
        assert_eq!(explained("// SAFETY: a long\n// story.\n#[inline]\nunsafe fn f() {}"), [true]);
        assert_eq!(explained("/// # Safety\n/// Only when asleep.\npub unsafe fn f() {}"), [true]);
        assert_eq!(explained("let x = unsafe { y }; // SAFETY: yes."), [true]);
    }

    #[test]
    fn comment_above_the_statement_explains() {
        assert_eq!(
            explained("fn f() {\n    // SAFETY: yes.\n    let x =\n        g(unsafe { y });\n}"),
            [true]
        );
        assert_eq!(
            explained(
                "fn f() {\n    // SAFETY: yes.\n    let x = match unsafe { y } {\n        _ => 1,\n    };\n}"
            ),
            [true]
        );
    }

    #[test]
    fn comment_elsewhere_does_not_explain() {
        assert_eq!(explained("// SAFETY: yes.\n\nunsafe impl Send for X {}"), [false]);
        assert_eq!(explained("// SAFETY: yes.\nlet a = 1;\nlet b = unsafe { y };"), [false]);
        assert_eq!(explained("// SAFETY: yes.\nfn f() {\n    unsafe { x };\n}"), [false]);
        assert_eq!(explained("// SAFETY: one.\nlet a = unsafe { x };\nlet b = unsafe { y };"), [true, false]);
        assert_eq!(explained("// Not dangerous.\nunsafe impl Send for X {}"), [false]);
        assert_eq!(explained("let s = \"SAFETY: no\"; unsafe { x };"), [false]);
    }

    #[test]
    fn words_in_comments_and_strings_are_no_code() {
        assert!(
            explained("// unsafe { x }\n/* unsafe */\nlet s = \"unsafe {}\"; let r = r#\"unsafe\"#;")
                .is_empty()
        );
        assert!(explained("#![forbid(unsafe_code)]").is_empty());
    }

    #[test]
    fn macro_bodies_are_code() {
        assert_eq!(explained("macro_rules! m { () => { unsafe { x } } }"), [false]);
        assert_eq!(explained("#[unsafe(no_mangle)]\nfn f() {}"), [false]);
        assert_eq!(explained("// SAFETY: the name is ours.\n#[unsafe(no_mangle)]\nfn f() {}"), [true]);
    }

    #[test]
    fn contract_of_a_trait_explains_its_functions() {
        assert_eq!(
            explained("// SAFETY: yes.\nunsafe impl T for X {\n    unsafe fn f() {}\n}"),
            [true, true]
        );
        assert_eq!(explained("unsafe impl T for X {\n    unsafe fn f() {}\n}"), [false, false]);
        assert_eq!(
            explained("// SAFETY: yes.\nunsafe impl T for X {\n    fn f() { unsafe { x } }\n}"),
            [true, false]
        );
        assert_eq!(explained("// SAFETY: yes.\nimpl T for X {\n    unsafe fn f() {}\n}"), [false]);
    }

    #[test]
    fn types_do_nothing() {
        assert!(explained("struct S { f: unsafe extern \"C\" fn(u8) -> u8, g: unsafe fn() }").is_empty());
        assert_eq!(explained("unsafe extern \"C\" { fn f(); }"), [false]);
    }
}
