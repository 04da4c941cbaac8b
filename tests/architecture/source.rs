//! A minimal reader of Rust that finds the paths in a file. It knows tokens without comments, items for tests only, module
//! declarations, and paths with their groups expanded. Macros are not expanded, but paths in their arguments count.

use std::ops::RangeInclusive;

/// One token. Numbers and lifetimes are left out, because they do not matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    /// `::`
    Sep,
    Sign(char),
}

impl Token {
    fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

type Tokens = Vec<(usize, Token)>;

/// A declaration `mod name;`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleFile {
    pub name: String,
    /// `#[path = "..."]`
    pub path: Option<String>,
    /// Under `#[cfg(test)]`.
    pub test: bool,
}

/// A path as written, with its line. `crate`, `super` and `self` are not resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub line: usize,
    pub path: Vec<String>,
}

/// The parts of a file that the rules check.
#[derive(Clone, Debug, Default)]
pub struct Source {
    pub modules: Vec<ModuleFile>,
    /// Paths outside of tests.
    pub named: Vec<Named>,
    /// Texts outside of tests, with their lines.
    pub texts: Vec<(usize, String)>,
    /// Number of lines outside of tests.
    pub lines: usize,
    /// The `//!` lines at its start.
    pub header: Vec<String>,
}

impl Source {
    /// Reads the text of a file.
    pub fn read(text: &str) -> Self {
        let (tokens, tests) = without_tests(&tokens(text));
        let test_lines: usize = tests.iter().map(|(lines, _)| lines.end() - lines.start() + 1).sum();
        let mut modules = modules(&tokens, false);
        modules.extend(tests.iter().flat_map(|(_, item)| self::modules(item, true)));
        Self {
            modules,
            named: named(&tokens),
            texts: tokens.iter().filter_map(|(line, t)| Some((*line, t.text()?.to_owned()))).collect(),
            lines: text.lines().count() - test_lines,
            header: text.lines().map_while(|l| l.strip_prefix("//!")).map(str::to_owned).collect(),
        }
    }
}

/// Splits a text into tokens with their lines.
fn tokens(text: &str) -> Tokens {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < chars.len() {
        let (length, token) = next(&chars[at..]);
        tokens.extend(token.map(|token| (line, token)));
        line += chars[at..at + length].iter().filter(|c| **c == '\n').count();
        at += length;
    }
    tokens
}

/// Returns the length of the next element, and its token if it has one.
fn next(rest: &[char]) -> (usize, Option<Token>) {
    let starts = |prefix: &str| prefix.chars().enumerate().all(|(i, c)| rest.get(i) == Some(&c));
    if starts("//") {
        return (until(rest, 0, |c| c == '\n'), None);
    }
    if starts("/*") {
        return (block_comment(rest), None);
    }
    if let Some((length, text)) = string(rest) {
        return (length, Some(Token::Text(text)));
    }
    match rest[0] {
        '\'' => (quoted(rest), None),
        c if c.is_ascii_digit() => (until(rest, 0, |c| !is_word(c)), None),
        c if is_word(c) => {
            let raw = if starts("r#") { 2 } else { 0 };
            let end = until(rest, raw, |c| !is_word(c));
            (end, Some(Token::Word(rest[raw..end].iter().collect())))
        }
        c if c.is_whitespace() => (1, None),
        ':' if starts("::") => (2, Some(Token::Sep)),
        c => (1, Some(Token::Sign(c))),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the index of the first character at or after `from` that satisfies `ends`.
fn until(rest: &[char], from: usize, ends: fn(char) -> bool) -> usize {
    rest[from..].iter().position(|c| ends(*c)).map_or(rest.len(), |length| from + length)
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match (rest[at], rest.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Reads a string of any kind: returns its length with prefix and quotes, and its content.
fn string(rest: &[char]) -> Option<(usize, String)> {
    let prefix = rest.iter().take_while(|c| matches!(c, 'b' | 'c' | 'r')).count();
    let raw = rest[..prefix].contains(&'r');
    let hashes = if raw { rest[prefix..].iter().take_while(|c| **c == '#').count() } else { 0 };
    let begin = prefix + hashes + 1;
    if prefix > 2 || rest.get(begin - 1) != Some(&'"') {
        return None;
    }
    let mut end = begin;
    while end < rest.len() {
        match rest[end] {
            '\\' if !raw => end += 1,
            '"' if rest[end + 1..].iter().take_while(|c| **c == '#').count() >= hashes => break,
            _ => {}
        }
        end += 1;
    }
    let end = end.min(rest.len());
    Some(((end + 1 + hashes).min(rest.len()), rest[begin..end].iter().collect()))
}

/// Returns the length of a character literal, or 1 for the quote of a lifetime.
fn quoted(rest: &[char]) -> usize {
    match rest.get(1) {
        Some('\\') => rest[3..].iter().position(|c| *c == '\'').map_or(rest.len(), |length| length + 4),
        Some(_) if rest.get(2) == Some(&'\'') => 3,
        _ => 1,
    }
}

/// Returns the index after the bracket that closes the one at `open`.
fn closing(tokens: &[(usize, Token)], open: usize) -> usize {
    let mut depth = 0_usize;
    for (i, (_, token)) in tokens.iter().enumerate().skip(open) {
        match token {
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

fn is(tokens: &[(usize, Token)], at: usize, sign: char) -> bool {
    matches!(tokens.get(at), Some((_, Token::Sign(s))) if *s == sign)
}

fn word(tokens: &[(usize, Token)], at: usize) -> Option<&str> {
    match tokens.get(at) {
        Some((_, Token::Word(word))) => Some(word),
        _ => None,
    }
}

/// Separates the items under `#[cfg(test)]`, each with its lines, from the other tokens.
fn without_tests(tokens: &[(usize, Token)]) -> (Tokens, Vec<(RangeInclusive<usize>, Tokens)>) {
    let (mut kept, mut tests) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        if is(tokens, at, '#') && is(tokens, at + 1, '[') && is_test(&tokens[at + 2..closing(tokens, at + 1)]) {
            let end = item_end(tokens, at);
            tests.push((tokens[at].0..=tokens[end - 1].0, tokens[at..end].to_vec()));
            at = end;
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    (kept, tests)
}

fn is_test(attribute: &[(usize, Token)]) -> bool {
    let has = |w: &str| attribute.iter().any(|(_, t)| matches!(t, Token::Word(word) if word == w));
    word(attribute, 0) == Some("cfg") && has("test") && !has("not") && !has("any")
}

/// Returns the index after the item that begins, with its attributes, at `at`.
fn item_end(tokens: &[(usize, Token)], mut at: usize) -> usize {
    while is(tokens, at, '#') {
        at = closing(tokens, at + 1);
    }
    let statement = (at..tokens.len()).map_while(|i| word(tokens, i)).find(|w| *w != "pub").is_some_and(|w| w == "use");
    while at < tokens.len() {
        match &tokens[at].1 {
            Token::Sign(';') => return at + 1,
            Token::Sign('{') if !statement => return closing(tokens, at),
            Token::Sign('(' | '[' | '{') => at = closing(tokens, at),
            _ => at += 1,
        }
    }
    at
}

/// Returns the declarations of modules in separate files.
fn modules(tokens: &[(usize, Token)], test: bool) -> Vec<ModuleFile> {
    let declared = |at: usize| {
        let name = word(tokens, at + 1).filter(|_| word(tokens, at) == Some("mod") && is(tokens, at + 2, ';'))?;
        let before = tokens[..at].iter().rev().take_while(|(_, t)| !matches!(t, Token::Sign(';' | '{' | '}')));
        let attributes: Vec<_> = before.map(|(_, t)| t).collect();
        let path = attributes.windows(3).find_map(|w| match w {
            [Token::Text(path), Token::Sign('='), Token::Word(key)] if key == "path" => Some(path.clone()),
            _ => None,
        });
        Some(ModuleFile { name: name.to_owned(), path, test })
    };
    (0..tokens.len()).filter_map(declared).collect()
}

/// Returns all paths of two or more words, and all imports.
fn named(tokens: &[(usize, Token)]) -> Vec<Named> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let line = tokens[at].0;
        let mut paths = Vec::new();
        let import = word(tokens, at) == Some("use") && !is(tokens, at + 1, '<');
        if import {
            let first = if tokens.get(at + 1).is_some_and(|(_, t)| *t == Token::Sep) { at + 2 } else { at + 1 };
            at = tree(tokens, first, &[], &mut paths);
        } else if word(tokens, at).is_some() && tokens.get(at + 1).is_some_and(|(_, t)| *t == Token::Sep) {
            at = tree(tokens, at, &[], &mut paths);
        } else {
            at += 1;
        }
        all.extend(paths.into_iter().map(|path| Named { line, path }));
    }
    all
}

/// Expands a path or a tree of imports, and returns the index after it.
fn tree(tokens: &[(usize, Token)], at: usize, before: &[String], paths: &mut Vec<Vec<String>>) -> usize {
    match tokens.get(at).map(|(_, t)| t) {
        Some(Token::Word(word)) => {
            let path = [before, std::slice::from_ref(word)].concat();
            if tokens.get(at + 1).is_some_and(|(_, t)| *t == Token::Sep) {
                return tree(tokens, at + 2, &path, paths);
            }
            paths.push(path);
            let renamed = matches!(tokens.get(at + 1), Some((_, Token::Word(word))) if word == "as");
            at + if renamed { 3 } else { 1 }
        }
        Some(Token::Sign('{')) => {
            let end = closing(tokens, at);
            let mut inner = at + 1;
            while inner + 1 < end {
                inner = if is(tokens, inner, ',') { inner + 1 } else { tree(tokens, inner, before, paths) };
            }
            end
        }
        Some(Token::Sign('*')) => {
            paths.push([before, &["*".to_owned()]].concat());
            at + 1
        }
        // Arguments of a generic: the path ends before them.
        _ => {
            paths.push(before.to_vec());
            at + 1
        }
    }
}
