//! The expressions in tags of Go's templates. Pure. `parse` has the grammar.

use std::collections::VecDeque;

use super::parse::{DEEPEST, Expr, Refusal, Tag};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Value(Expr),
    Name(String),
    Open,
    Close,
    Bar,
}

/// Parses what is in a tag.
pub(super) fn expression(text: &str, tag: &Tag) -> Result<Expr, Refusal> {
    let all = tokens(text).map_err(|why| tag.refuse(why))?;
    let mut reader = Reader { tokens: all.into() };
    let value = reader.pipeline(0).map_err(|why| tag.refuse(why))?;
    if reader.tokens.is_empty() { Ok(value) } else { Err(tag.refuse("a bracket has no beginning")) }
}

fn tokens(text: &str) -> Result<Vec<Token>, &'static str> {
    let mut all = Vec::new();
    let mut rest = text.trim_start();
    while let Some(c) = rest.chars().next() {
        let name_end = |from: usize, more: &str| {
            let part = |c: char| !c.is_ascii_alphanumeric() && c != '_' && !more.contains(c);
            rest[from..].find(part).map_or(rest.len(), |found| from + found)
        };
        let (token, length) = match c {
            '(' => (Token::Open, 1),
            ')' if rest[1..].starts_with('.') => return Err("a field of a result has no counterpart"),
            ')' => (Token::Close, 1),
            '|' => (Token::Bar, 1),
            '"' => {
                let (text, length) = unquoted(rest)?;
                (Token::Value(Expr::Text(text)), length)
            }
            '`' => {
                let end = rest[1..].find('`').ok_or("a text is not closed")?;
                (Token::Value(Expr::Text(rest[1..=end].to_owned())), end + 2)
            }
            '.' => {
                let end = name_end(1, ".");
                (Token::Value(field(&rest[1..end])?), end)
            }
            '$' if rest[1..].starts_with('.') => {
                let end = name_end(2, ".");
                (Token::Value(field(&rest[2..end])?), end)
            }
            '$' => return Err("a variable has no counterpart"),
            _ if c.is_ascii_digit() || (c == '-' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) => {
                let end = name_end(1, ".");
                (Token::Value(Expr::Number(rest[..end].to_owned())), end)
            }
            _ if c.is_ascii_alphabetic() || c == '_' => {
                let end = name_end(0, "");
                let token = match &rest[..end] {
                    "true" => Token::Value(Expr::Bool(true)),
                    "false" => Token::Value(Expr::Bool(false)),
                    "nil" => Token::Value(Expr::Nil),
                    name => Token::Name(name.to_owned()),
                };
                (token, end)
            }
            _ => return Err("it is not understood"),
        };
        all.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(all)
}

fn field(path: &str) -> Result<Expr, &'static str> {
    let names: Vec<String> = path.split('.').map(str::to_owned).collect();
    if names.iter().any(String::is_empty) {
        return Err("the dot alone has no counterpart");
    }
    Ok(Expr::Field(names))
}

/// Returns a text of Go without its quotation marks, and its length with them.
fn unquoted(rest: &str) -> Result<(String, usize), &'static str> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((text, at + 1)),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some(c @ ('"' | '\\')) => text.push(c),
                _ => return Err("an escape in a text has no counterpart"),
            },
            c => text.push(c),
        }
    }
    Err("a text is not closed")
}

struct Reader {
    tokens: VecDeque<Token>,
}

impl Reader {
    fn pipeline(&mut self, depth: usize) -> Result<Expr, &'static str> {
        if depth > DEEPEST {
            return Err("brackets are nested too deeply");
        }
        let mut value = self.command(None, depth)?;
        while self.tokens.front() == Some(&Token::Bar) {
            self.tokens.pop_front();
            value = self.command(Some(value), depth)?;
        }
        Ok(value)
    }

    /// `last`: what is before the bar.
    fn command(&mut self, last: Option<Expr>, depth: usize) -> Result<Expr, &'static str> {
        let name = match self.tokens.front() {
            Some(Token::Name(name)) => Some(name.clone()),
            _ => None,
        };
        if name.is_some() {
            self.tokens.pop_front();
        }
        let mut operands = Vec::new();
        while let Some(operand) = self.operand(depth)? {
            operands.push(operand);
        }
        match (name, last) {
            (Some(name), last) => {
                operands.extend(last);
                Ok(Expr::Call(name, operands))
            }
            (None, None) if operands.len() == 1 => operands.pop().ok_or("it is empty"),
            (None, None) if operands.is_empty() => Err("it is empty"),
            (None, _) => Err("a method has no counterpart"),
        }
    }

    fn operand(&mut self, depth: usize) -> Result<Option<Expr>, &'static str> {
        match self.tokens.front() {
            None | Some(Token::Bar | Token::Close) => return Ok(None),
            Some(_) => {}
        }
        match self.tokens.pop_front() {
            Some(Token::Value(value)) => Ok(Some(value)),
            Some(Token::Name(name)) => Ok(Some(Expr::Call(name, Vec::new()))),
            Some(Token::Open) => {
                let value = self.pipeline(depth + 1)?;
                match self.tokens.pop_front() {
                    Some(Token::Close) => Ok(Some(value)),
                    _ => Err("a bracket is not closed"),
                }
            }
            Some(Token::Close | Token::Bar) | None => Ok(None),
        }
    }
}
