//! The conditions of triggers in Argo CD Notifications, which are written in the language of the library `expr`. Pure.
//!
//! In: an expression. Out: alternatives, each of which is a list of [`Test`]s that must all be true, or why the expression has no counterpart. It is
//! no engine: only comparisons of fields with constants are understood.

/// Maximum length of an expression, in bytes.
const LONGEST: usize = 4_096;
/// Maximum number of alternatives, and of tests in one of them.
const MOST: usize = 32;
/// Maximum depth of brackets.
const DEEPEST: usize = 16;

/// A comparison of a field with constants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) path: Vec<String>,
    pub(super) is: Is,
    pub(super) negated: bool,
}

/// What a field is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Is {
    /// It exists.
    Present,
    /// It is one of these texts.
    Any(Vec<String>),
    /// It contains, starts with, ends with or matches a text. The name of the operator is that of CEL.
    Like(&'static str, String),
    /// A call, without white space. The path is empty.
    Called(String),
    /// Always. The path is empty.
    Always,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A path, a word or an operator.
    Word(String),
    Path(Vec<String>),
    Text(String),
    Call(String),
    Sign(&'static str),
}

enum Tree {
    Test(Test),
    Not(Box<Tree>),
    And(Vec<Tree>),
    Or(Vec<Tree>),
}

/// Parses an expression.
pub(super) fn parse(text: &str) -> Result<Vec<Vec<Test>>, &'static str> {
    if text.len() > LONGEST {
        return Err("the expression is too long");
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0 };
    let tree = parser.or(0)?;
    if parser.at < parser.tokens.len() {
        return Err(UNKNOWN);
    }
    alternatives(&tree, false)
}

const UNKNOWN: &str = "only comparisons of fields with texts have a counterpart, joined by and, or, not";
/// The library reads `not a == b` as `(not a) == b`, which fails.
const NOT: &str = "`not` negates the field and not the comparison, so Argo CD fails; write the comparison in brackets";
const SIGNS: [&str; 11] = ["==", "!=", "&&", "||", "(", ")", "[", "]", ",", "!", "?."];
const WORDS: [&str; 11] =
    ["and", "or", "not", "in", "nil", "true", "false", "contains", "startsWith", "endsWith", "matches"];

fn tokens(text: &str) -> Result<Vec<Token>, &'static str> {
    let mut all = Vec::new();
    let mut rest = text.trim_start();
    while let Some(c) = rest.chars().next() {
        let length = if c == '\'' || c == '"' {
            let end = rest[1..].find(c).ok_or("a text is not closed")?;
            let inner = &rest[1..=end];
            if inner.contains('\\') {
                return Err("a text with a backslash has no counterpart");
            }
            all.push(Token::Text(inner.to_owned()));
            end + 2
        } else if c.is_ascii_alphabetic() || c == '_' {
            let (token, length) = name(rest)?;
            all.push(token);
            length
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign)).ok_or(UNKNOWN)?;
            all.push(Token::Sign(sign));
            sign.len()
        };
        rest = rest[length..].trim_start();
    }
    Ok(all)
}

/// Reads a word, a path such as `app.metadata.labels["x"]`, or a call.
fn name(rest: &str) -> Result<(Token, usize), &'static str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut path, mut at) = (Vec::new(), 0);
    loop {
        let length = rest[at..].find(|c: char| !is_part(c)).unwrap_or(rest.len() - at);
        if length > 0 {
            path.push(rest[at..at + length].to_owned());
        }
        at += length;
        let next = &rest[at..];
        if let Some(quote) = ["['", "[\""].into_iter().find(|open| next.starts_with(open)) {
            let close = format!("{}]", &quote[1..]);
            let end = next[2..].find(&close).ok_or("a bracket is not closed")?;
            path.push(next[2..2 + end].to_owned());
            at += 2 + end + 2;
        }
        let next = &rest[at..];
        if next.starts_with('(') {
            let end = call(rest, at)?;
            let text = rest[..end].split_whitespace().collect::<String>().replace("?.", ".");
            return Ok((Token::Call(text), end));
        }
        let dot = ["?.", "."].into_iter().find(|dot| next.starts_with(dot));
        match dot {
            Some(dot) if next[dot.len()..].starts_with(is_part) => at += dot.len(),
            _ => break,
        }
    }
    let word = path.first().filter(|word| path.len() == 1 && WORDS.contains(&word.as_str())).cloned();
    Ok((word.map_or(Token::Path(path), Token::Word), at))
}

/// Returns the end of a call, with calls of methods of its result.
fn call(rest: &str, open: usize) -> Result<usize, &'static str> {
    let mut depth = 0_usize;
    let mut end = open;
    for (at, c) in rest.char_indices().skip_while(|(at, _)| *at < open) {
        match c {
            '(' => depth += 1,
            ')' => {
                depth = depth.saturating_sub(1);
                end = at + 1;
                if depth == 0 && !rest[end..].starts_with('.') {
                    return Ok(end);
                }
            }
            // The name of a method.
            c if depth == 0 && !(c.is_ascii_alphanumeric() || c == '.') => return Ok(end),
            _ => {}
        }
    }
    Err("a bracket is not closed")
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn takes(&mut self, words: &[&str]) -> bool {
        let is = match self.tokens.get(self.at) {
            Some(Token::Word(word)) => words.contains(&word.as_str()),
            Some(Token::Sign(sign)) => words.contains(sign),
            _ => false,
        };
        self.at += usize::from(is);
        is
    }

    /// Whether a condition follows, and not a comparison without brackets.
    fn is_whole(&self) -> bool {
        match self.tokens.get(self.at) {
            Some(Token::Word(word)) => ["not", "true"].contains(&word.as_str()),
            Some(Token::Sign(sign)) => ["!", "("].contains(sign),
            Some(Token::Call(_)) => true,
            Some(Token::Path(_) | Token::Text(_)) | None => false,
        }
    }

    fn or(&mut self, depth: usize) -> Result<Tree, &'static str> {
        let mut all = vec![self.and(depth)?];
        while self.takes(&["or", "||"]) {
            all.push(self.and(depth)?);
        }
        Ok(Tree::Or(all))
    }

    fn and(&mut self, depth: usize) -> Result<Tree, &'static str> {
        let mut all = vec![self.not(depth)?];
        while self.takes(&["and", "&&"]) {
            all.push(self.not(depth)?);
        }
        Ok(Tree::And(all))
    }

    fn not(&mut self, depth: usize) -> Result<Tree, &'static str> {
        if depth > DEEPEST {
            return Err("brackets are nested too deeply");
        }
        if self.takes(&["not", "!"]) {
            if !self.is_whole() {
                return Err(NOT);
            }
            return Ok(Tree::Not(Box::new(self.not(depth + 1)?)));
        }
        if self.takes(&["("]) {
            let inner = self.or(depth + 1)?;
            return if self.takes(&[")"]) { Ok(inner) } else { Err("a bracket is not closed") };
        }
        let leaf = |path, is, negated| Ok(Tree::Test(Test { path, is, negated }));
        let token = self.tokens.get(self.at).cloned().ok_or("the expression is not complete")?;
        self.at += 1;
        let path = match token {
            Token::Word(word) if word == "true" => return leaf(Vec::new(), Is::Always, false),
            Token::Call(text) => return leaf(Vec::new(), Is::Called(text), false),
            Token::Path(path) => path,
            _ => return Err(UNKNOWN),
        };
        for (sign, negated) in [("==", false), ("!=", true)] {
            if self.takes(&[sign]) {
                return if self.takes(&["nil"]) {
                    leaf(path, Is::Present, !negated)
                } else {
                    leaf(path, Is::Any(vec![self.text()?]), negated)
                };
            }
        }
        let negated = self.takes(&["not"]);
        if self.takes(&["in"]) {
            return leaf(path, Is::Any(self.list()?), negated);
        }
        for operator in ["contains", "startsWith", "endsWith", "matches"] {
            if self.takes(&[operator]) {
                return leaf(path, Is::Like(operator, self.text()?), negated);
            }
        }
        Err(UNKNOWN)
    }

    fn text(&mut self) -> Result<String, &'static str> {
        let Some(Token::Text(text)) = self.tokens.get(self.at) else { return Err(UNKNOWN) };
        self.at += 1;
        Ok(text.clone())
    }

    fn list(&mut self) -> Result<Vec<String>, &'static str> {
        if !self.takes(&["["]) {
            return Err(UNKNOWN);
        }
        let mut all = vec![self.text()?];
        while self.takes(&[","]) {
            all.push(self.text()?);
        }
        if self.takes(&["]"]) { Ok(all) } else { Err("a bracket is not closed") }
    }
}

/// Returns the alternatives of a tree.
fn alternatives(tree: &Tree, negated: bool) -> Result<Vec<Vec<Test>>, &'static str> {
    let all = |trees: &[Tree]| trees.iter().map(|tree| alternatives(tree, negated)).collect::<Result<Vec<_>, _>>();
    match (tree, negated) {
        (Tree::Test(test), _) => Ok(vec![vec![Test { negated: test.negated != negated, ..test.clone() }]]),
        (Tree::Not(inner), _) => alternatives(inner, !negated),
        (Tree::Or(trees), false) | (Tree::And(trees), true) => Ok(all(trees)?.into_iter().flatten().collect()),
        (Tree::And(trees), false) | (Tree::Or(trees), true) => {
            let mut products: Vec<Vec<Test>> = vec![Vec::new()];
            for choices in all(trees)? {
                products = products
                    .iter()
                    .flat_map(|one| choices.iter().map(|choice| one.iter().chain(choice).cloned().collect()))
                    .collect();
                if products.len() > MOST || products.iter().any(|one: &Vec<Test>| one.len() > MOST) {
                    return Err("the expression has too many alternatives");
                }
            }
            Ok(products)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let one = |test: &Test| {
            let is = match &test.is {
                Is::Present => "exists".to_owned(),
                Is::Any(all) => all.join("|"),
                Is::Like(operator, text) => format!("{operator} {text}"),
                Is::Called(text) => format!("called {text}"),
                Is::Always => "always".to_owned(),
            };
            format!("{}{} {is}", if test.negated { "!" } else { "" }, test.path.join("/"))
        };
        match parse(text) {
            Ok(all) => {
                all.iter().map(|all| all.iter().map(one).collect::<Vec<_>>().join(" & ")).collect::<Vec<_>>().join(" OR ")
            }
            Err(why) => format!("error: {why}"),
        }
    }

    #[test]
    fn comparisons_are_understood_and_all_else_is_not() {
        for (text, expected) in [
            ("true", " always"),
            ("a.b == 'x'", "a/b x"),
            ("a?.b != \"x\"", "!a/b x"),
            ("a != nil and a.b in ['x',\n 'y']", "a exists & a/b x|y"),
            ("a == nil", "!a exists"),
            ("a.b[\"c.d/e\"] == 'x' || not (a == 'y')", "a/b/c.d/e x OR !a y"),
            ("!(a == 'x' && b == 'y')", "!a x OR !b y"),
            ("a == 'x' and (b == 'y' or c == 'z')", "a x & b y OR a x & c z"),
            ("a not in ['x']", "!a x"),
            ("not a == 'x'", "error: `not` negates the field"),
            ("!a.b in ['x']", "error: `not` negates the field"),
            ("not (not (a == 'x'))", "a x"),
            ("a contains 'x' and a startsWith 'y' and a matches '^z'", "a contains x & a startsWith y & a matches ^z"),
            ("!time.Parse(a.b).Before(time.Parse( c?.d ))", "! called time.Parse(a.b).Before(time.Parse(c.d))"),
            ("a == b", "error: only comparisons"),
            ("a > 5", "error: only comparisons"),
            ("a", "error: only comparisons"),
            ("a ==", "error: only comparisons"),
            ("(a == 'x'", "error: a bracket is not closed"),
            ("a == 'x", "error: a text is not closed"),
            ("a == 'x' b", "error: only comparisons"),
            ("", "error: the expression is not complete"),
            ("f(a", "error: a bracket is not closed"),
        ] {
            let shown = shown(text);
            assert!(shown == expected || (expected.starts_with("error") && shown.starts_with(expected)), "{text}: {shown}");
        }
        let wide = vec!["(a == 'x' or b == 'y')"; 20].join(" and ");
        assert!(parse(&wide).is_err() && parse(&"(".repeat(4_000)).is_err() && parse(&"!".repeat(4_000)).is_err());
    }

    #[test]
    fn random_expressions_are_read_or_refused() {
        const PARTS: [&str; 16] =
            ["app", ".", "?.", "a['b']", "[\"", "==", "!=", "in ", "['x']", "'", "(", ")", " and ", " or ", "not ", "é"];
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let text: String = (0..random.usize(0..14)).map(|_| PARTS[random.usize(0..PARTS.len())]).collect();
            let _ = parse(&text);
        }
    }
}
