//! Finds the names in a `PromQL` query: metrics with their label matchers, and the labels that the query groups or joins by.
//!
//! This is not a parser: it splits the query into tokens and looks only at names, so it does not need to know any function. promtool checks
//! the syntax.

use std::collections::BTreeSet;

/// Prefix of all metrics of Relaybook.
const OURS: &str = "relaybook_";
/// Keywords that are followed by labels in parentheses.
const BEFORE_LABELS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Keywords that are neither functions nor labels.
const KEYWORDS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `=` or `!=`.
    Is,
    /// `=~` or `!~`.
    Matches,
}

/// A metric with its label matchers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    pub name: String,
    pub matchers: Vec<(String, Op, String)>,
}

/// The names in a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pub selectors: Vec<Selector>,
    /// Labels that the query groups by, joins on, or requests the values of, and all words that are nothing else.
    pub labels: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Sign(char),
}

fn tokens(query: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = query.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' => {
                let mut text = String::new();
                while let Some(c) = rest.next().filter(|c| *c != '"') {
                    text.push(if c == '\\' { rest.next().unwrap_or(c) } else { c });
                }
                tokens.push(Token::Text(text));
            }
            // A time range. There are no subqueries with names in them.
            '[' => while rest.next().is_some_and(|c| c != ']') {},
            // A variable of the dashboard, or a number with its unit.
            '$' | '0'..='9' => while rest.next_if(|c| c.is_alphanumeric() || "_.".contains(*c)).is_some() {},
            c if c.is_alphabetic() || c == '_' => {
                let mut word = String::from(c);
                while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || "_:".contains(*c)) {
                    word.push(c);
                }
                tokens.push(Token::Word(word));
            }
            c if c.is_whitespace() => {}
            c => tokens.push(Token::Sign(c)),
        }
    }
    tokens
}

type Tokens = std::iter::Peekable<std::vec::IntoIter<Token>>;

impl Query {
    /// Finds the names in a query, which can contain variables of a dashboard.
    pub fn parse(query: &str) -> Self {
        let mut found = Self::default();
        let mut rest: Tokens = tokens(query).into_iter().peekable();
        while let Some(token) = rest.next() {
            let Token::Word(word) = token else {
                assert_ne!(token, Token::Sign('{'), "a selector has a name: {query}");
                continue;
            };
            if word.starts_with(OURS) {
                let braced = rest.next_if_eq(&Token::Sign('{')).is_some();
                let inner = |rest: &mut Tokens| rest.by_ref().take_while(|token| *token != Token::Sign('}')).collect();
                let matchers = if braced { matchers(inner(&mut rest)) } else { Vec::new() };
                found.selectors.push(Selector { name: word, matchers });
            } else if BEFORE_LABELS.contains(&word.as_str()) {
                let inner = rest.by_ref().take_while(|token| *token != Token::Sign(')'));
                found
                    .labels
                    .extend(inner.filter_map(|token| if let Token::Word(label) = token { Some(label) } else { None }));
            } else if rest.peek() != Some(&Token::Sign('(')) && !is_function(rest.peek(), &word) {
                found.labels.insert(word);
            }
        }
        found
    }
}

/// Whether the word is a keyword, or an aggregation such as `sum by (…)`, which has its labels before its parenthesis.
fn is_function(next: Option<&Token>, word: &str) -> bool {
    let labels = matches!(next, Some(Token::Word(next)) if BEFORE_LABELS.contains(&next.as_str()));
    labels || KEYWORDS.contains(&word)
}

fn matchers(tokens: Vec<Token>) -> Vec<(String, Op, String)> {
    let one = |tokens: &[Token]| match tokens {
        [Token::Word(label), signs @ .., Token::Text(value)] => {
            let op = if signs.contains(&Token::Sign('~')) { Op::Matches } else { Op::Is };
            (label.clone(), op, value.clone())
        }
        other => panic!("LABEL OPERATOR \"VALUE\": {other:?}"),
    };
    tokens.split(|token| *token == Token::Sign(',')).filter(|part| !part.is_empty()).map(one).collect()
}

#[test]
fn names_are_found_at_every_place_of_a_query() {
    let query = r#"histogram_quantile(0.99, sum by (le) (rate(relaybook_a_bucket{namespace="$ns", x=~"a|b"}[$__rate_interval])))
        unless on (namespace) max(relaybook_b offset 15m) > 1e3 and relaybook_c{y!="}"} == bool 0"#;
    let found = Query::parse(query);
    let matchers = |all: &[(&str, Op, &str)]| all.iter().map(|(l, o, v)| ((*l).to_owned(), *o, (*v).to_owned())).collect();
    let selector = |name: &str, all: &[_]| Selector { name: name.to_owned(), matchers: matchers(all) };
    let a = selector("relaybook_a_bucket", &[("namespace", Op::Is, "$ns"), ("x", Op::Matches, "a|b")]);
    assert_eq!(found.selectors, [a, selector("relaybook_b", &[]), selector("relaybook_c", &[("y", Op::Is, "}")])]);
    assert_eq!(found.labels, ["le", "namespace"].map(str::to_owned).into());
    let asked = Query::parse("label_values(relaybook_build_info, namespace)");
    assert_eq!((asked.selectors.len(), asked.labels), (1, ["namespace".to_owned()].into()));
    assert_eq!(Query::parse("sum(penant_x)").labels, ["penant_x".to_owned()].into(), "a wrong name is an unknown label");
}
