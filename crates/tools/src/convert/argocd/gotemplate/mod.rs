//! Templates of Go as templates of Relaybook. Pure.
//!
//! In: a source, and what is constant where it is used ([`Scene`]). Out: a template with the same text, what it needs of the Application, and what
//! differs ([`Made`]); or a [`Refusal`]. `parse` has the grammar, `fields` what Relaybook knows about an Application.
//!
//! Conditions that are known are decided here, so only the branch that is used has to have a counterpart.

mod expression;
mod fields;
mod forms;
mod parse;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use fields::{ABSENT, Known, REPOSITORY, known};
use forms::{Form, changed, equal, helper, joined, negated};
pub(super) use parse::Refusal;
use parse::{Expr, Node, Tag, parse};
use relaybook_core::observe::is_public_annotation;
use text::{BACKSLASH, annotation, has_lines_of_blocks, join};
pub(super) use text::{literal, recipient};

/// What is constant where a template is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'a> {
    /// The name of the service.
    pub(super) service: &'a str,
    /// The recipient.
    pub(super) recipient: &'a Recipient,
    /// The key `context` of the configuration.
    pub(super) context: &'a BTreeMap<String, String>,
    /// Whether all Applications are in the namespace of the pipelines, so that each annotation can be recorded.
    pub(super) is_local: bool,
}

/// Who gets a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Recipient {
    Constant(String),
    /// The value of an annotation.
    Annotation(String),
}

/// Where the text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// In plain text, such as a parameter.
    Plain,
    /// Within a text of JSON.
    Quoted,
    /// The source is JSON.
    Json,
}

/// What a template needs of the Application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) labels: BTreeSet<String>,
    pub(super) annotations: BTreeSet<String>,
    pub(super) fields: BTreeSet<String>,
}

impl Needs {
    pub(super) fn add(&mut self, other: &Self) {
        self.labels.extend(other.labels.iter().cloned());
        self.annotations.extend(other.annotations.iter().cloned());
        self.fields.extend(other.fields.iter().cloned());
    }

    pub(super) fn len(&self) -> usize {
        self.labels.len() + self.annotations.len() + self.fields.len()
    }
}

/// A template of Relaybook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) text: String,
    pub(super) needs: Needs,
    /// What differs, with the number of lines before it.
    pub(super) differs: Vec<(usize, String)>,
}

impl Made {
    /// Returns what differs as one text, with the number of lines before the first difference.
    pub(super) fn difference(&self) -> Option<(usize, String)> {
        let mut texts: Vec<&str> = Vec::new();
        for (_, text) in &self.differs {
            if !texts.contains(&text.as_str()) {
                texts.push(text);
            }
        }
        let (line, _) = self.differs.first()?;
        Some((*line, texts.join("; ")))
    }
}

/// Converts a source.
pub(super) fn convert(source: &str, scene: Scene<'_>, spot: Spot) -> Result<Made, Refusal> {
    let nodes = parse(source)?;
    let mut writer = Writer { scene, spot, made: Made::default() };
    writer.nodes(&nodes)?;
    if spot == Spot::Plain && has_lines_of_blocks(&writer.made.text) {
        let text = "a line that has only `if`, `else` or `end` leaves no empty line";
        writer.made.differs.push((0, text.to_owned()));
    }
    Ok(writer.made)
}

struct Writer<'a> {
    scene: Scene<'a>,
    spot: Spot,
    made: Made,
}

impl Writer<'_> {
    fn nodes(&mut self, nodes: &[Node]) -> Result<(), Refusal> {
        for node in nodes {
            match node {
                Node::Text(text) => {
                    let here = Tag { line: 0, text: text.clone() };
                    let text = self.literal(text, &here)?;
                    self.push(&text, &here)?;
                }
                Node::Value { value, tag } => {
                    let form = self.form(value, tag)?;
                    let part = self.shown(&form, tag)?;
                    self.push(&part, tag)?;
                }
                Node::If { arms, otherwise, tag } => self.choice(arms, otherwise, tag)?,
                Node::Range { tag } => self.made.differs.push((tag.line, tag.refuse("the loop is left out").why)),
            }
        }
        Ok(())
    }

    /// Appends a tag, or constant text.
    fn push(&mut self, part: &str, tag: &Tag) -> Result<(), Refusal> {
        let before = std::mem::take(&mut self.made.text);
        self.made.text = join(before, part, self.spot).map_err(|why| tag.refuse(why))?;
        Ok(())
    }

    /// Returns a template whose result is this text.
    fn literal(&self, text: &str, tag: &Tag) -> Result<String, Refusal> {
        if text.contains("\\{{") { Err(tag.refuse(BACKSLASH)) } else { Ok(literal(text, self.spot)) }
    }

    /// Joins parts of a template.
    fn joined(&self, parts: &[&str], tag: &Tag) -> Result<String, Refusal> {
        let all = parts.iter().try_fold(String::new(), |text, part| join(text, part, self.spot));
        all.map_err(|why| tag.refuse(why))
    }

    fn choice(&mut self, arms: &[(Expr, Vec<Node>)], otherwise: &[Node], tag: &Tag) -> Result<(), Refusal> {
        let mut is_open = false;
        for (condition, nodes) in arms {
            let form = self.form(condition, tag)?;
            match form.test(tag)? {
                Ok(false) => {}
                Ok(true) => {
                    if is_open {
                        self.push("{{else}}", tag)?;
                    }
                    self.nodes(nodes)?;
                    return if is_open { self.push("{{/if}}", tag) } else { Ok(()) };
                }
                Err(condition) => {
                    let word = if is_open { "else if" } else { "#if" };
                    self.push(&format!("{{{{{word} {condition}}}}}"), tag)?;
                    self.nodes(nodes)?;
                    is_open = true;
                }
            }
        }
        if !is_open {
            return self.nodes(otherwise);
        }
        if !otherwise.is_empty() {
            self.push("{{else}}", tag)?;
            self.nodes(otherwise)?;
        }
        self.push("{{/if}}", tag)
    }

    /// Returns a form as a part of the template.
    fn shown(&self, form: &Form, tag: &Tag) -> Result<String, Refusal> {
        match form {
            Form::Text(text) => self.literal(text, tag),
            Form::Number(number) => Ok(number.clone()),
            Form::Path(of) | Form::Call(of) => Ok(format!("{{{{{of}}}}}")),
            Form::Part(part) => Ok(part.clone()),
            Form::Words(words) => Ok(words.shown()),
            Form::Bool(_) | Form::Test(_) => Err(tag.refuse("a condition cannot be a value")),
        }
    }

    fn form(&mut self, expr: &Expr, tag: &Tag) -> Result<Form, Refusal> {
        match expr {
            Expr::Text(text) => Ok(Form::Text(text.clone())),
            Expr::Number(number) => {
                let is_whole = number.parse::<i64>().is_ok_and(|whole| whole.to_string() == *number);
                if is_whole {
                    Ok(Form::Number(number.clone()))
                } else {
                    Err(tag.refuse("only whole numbers have a counterpart"))
                }
            }
            Expr::Bool(is) => Ok(Form::Bool(*is)),
            Expr::Nil => Err(tag.refuse("nil has no counterpart")),
            Expr::Field(path) => self.field(path, tag),
            Expr::Call(name, operands) => self.call(name, operands, tag),
        }
    }

    fn field(&mut self, path: &[String], tag: &Tag) -> Result<Form, Refusal> {
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        match names.as_slice() {
            ["serviceType"] => Ok(Form::Text(self.scene.service.to_owned())),
            ["recipient"] => Ok(match self.scene.recipient {
                Recipient::Constant(text) => Form::Text(text.clone()),
                Recipient::Annotation(name) => Form::Call(annotation(name)),
            }),
            ["context", name] => match self.scene.context.get(*name) {
                Some(value) => Ok(Form::Text(value.clone())),
                None => Err(tag.refuse("the key `context` has no such value")),
            },
            ["secrets", ..] => Err(tag.refuse("a credential in a message could not be masked")),
            ["app", "metadata", "labels", name] => self.label(name, tag),
            ["app", "metadata", "annotations", name] => self.annotation(name, tag),
            ["app", rest @ ..] => {
                let path = rest.join(".");
                let Some(known) = known(&path) else { return Err(tag.refuse("a change has no such field")) };
                if let Some(text) = known.differs() {
                    self.differs(tag, text);
                }
                Ok(match known {
                    Known::Path(path, _) => Form::Path((*path).to_owned()),
                    Known::Call(call, _) => Form::Call((*call).to_owned()),
                    Known::Words(words) => Form::Words(words),
                    Known::Is(is, _) => Form::Bool(*is),
                    Known::Recorded(_) => {
                        let field = format!(".{path}");
                        let call = format!("default target.app.fields.[{field}] \"\"");
                        self.made.needs.fields.insert(field);
                        Form::Call(call)
                    }
                })
            }
            _ => Err(tag.refuse("there is no such field")),
        }
    }

    /// Mentions a difference of a tag.
    fn differs(&mut self, tag: &Tag, text: &str) {
        self.made.differs.push((tag.line, tag.refuse(text).why));
    }

    fn label(&mut self, name: &str, tag: &Tag) -> Result<Form, Refusal> {
        if !is_key(name) {
            return Err(tag.refuse("it is no name of a label"));
        }
        self.made.needs.labels.insert(name.to_owned());
        self.differs(tag, ABSENT);
        Ok(Form::Call(format!("default target.app.labels.[{name}] \"\"")))
    }

    fn annotation(&mut self, name: &str, tag: &Tag) -> Result<Form, Refusal> {
        if !is_key(name) {
            return Err(tag.refuse("it is no name of an annotation"));
        }
        if !self.scene.is_local && !is_public_annotation(name) {
            return Err(tag.refuse("an annotation of another namespace is recorded only if it is public (docs/app-data.md)"));
        }
        self.made.needs.annotations.insert(name.to_owned());
        self.differs(tag, ABSENT);
        Ok(Form::Call(annotation(name)))
    }

    fn call(&mut self, name: &str, operands: &[Expr], tag: &Tag) -> Result<Form, Refusal> {
        match (name, operands) {
            ("index", [Expr::Field(path), Expr::Text(key)]) => {
                let path: Vec<String> = path.iter().cloned().chain([key.clone()]).collect();
                return self.field(&path, tag);
            }
            ("call", [Expr::Field(path), arguments @ ..]) => {
                return self.of_repository(path, arguments, tag);
            }
            _ => {}
        }
        let forms: Vec<Form> = operands.iter().map(|operand| self.form(operand, tag)).collect::<Result<_, _>>()?;
        if let Some(text) = changed(name, self.spot, &forms) {
            self.differs(tag, text);
        }
        match (name, forms.as_slice()) {
            ("eq", [first, others @ ..]) if !others.is_empty() => {
                let tests = others.iter().map(|other| equal(first, other, tag)).collect::<Result<_, _>>()?;
                Ok(joined(tests, "or", false))
            }
            ("ne", [first, other]) => Ok(negated(equal(first, other, tag)?)),
            ("not", [one]) => Ok(negated(one.clone().test(tag)?)),
            ("and" | "or", [_, _, ..]) => {
                let tests = forms.iter().map(|form| form.clone().test(tag)).collect::<Result<_, _>>()?;
                Ok(joined(tests, name, name == "and"))
            }
            ("ternary", [yes, no, condition]) if is_condition(&operands[2]) => {
                let (yes, no) = (self.shown(yes, tag)?, self.shown(no, tag)?);
                Ok(Form::Part(match condition.clone().test(tag)? {
                    Ok(true) => yes,
                    Ok(false) => no,
                    Err(condition) => {
                        self.joined(&[&format!("{{{{#if {condition}}}}}"), &yes, "{{else}}", &no, "{{/if}}"], tag)?
                    }
                }))
            }
            ("printf", [Form::Text(format), values @ ..]) => self.printf(format, values, tag).map(Form::Part),
            ("quote", [one]) => {
                let shown = self.shown(one, tag)?;
                match (self.spot, one) {
                    (Spot::Json, one) => Ok(Form::Call(format!("json {}", one.argument(tag)?))),
                    (Spot::Quoted, _) => self.joined(&["\\\"", &shown, "\\\""], tag).map(Form::Part),
                    (Spot::Plain, _) => self.joined(&["\"", &shown, "\""], tag).map(Form::Part),
                }
            }
            ("toString", [one]) => Ok(one.clone()),
            (name, [Form::Words(words)]) if ["upper", "lower"].contains(&name) && self.spot != Spot::Json => {
                Ok(Form::Part(words.cased(name == "upper")))
            }
            (name, forms) => helper(name, forms, tag),
        }
    }

    /// Converts the functions for the address of the repository.
    fn of_repository(&mut self, path: &[String], arguments: &[Expr], tag: &Tag) -> Result<Form, Refusal> {
        let is = |path: &[String], of: &str| path.join(".") == of;
        let is_source = matches!(arguments, [Expr::Field(path)] if is(path, "app.spec.source.repoURL"));
        let form = if is_source && is(path, "repo.FullNameByRepoURL") {
            Form::Part("{{target.source.owner}}/{{target.source.project}}".to_owned())
        } else if is_source && is(path, "repo.RepoURLToHTTPS") {
            Form::Path("target.source.repository".to_owned())
        } else {
            return Err(tag.refuse("the function has no counterpart"));
        };
        self.differs(tag, REPOSITORY);
        Ok(form)
    }

    /// Joins texts and values. Only `%s` and `%v` have a counterpart.
    fn printf(&self, format: &str, values: &[Form], tag: &Tag) -> Result<String, Refusal> {
        let mut parts = format.replace("%v", "%s");
        if parts.contains("%%") {
            return Err(tag.refuse("`%%` has no counterpart"));
        }
        let mut values = values.iter();
        let mut all = Vec::new();
        while let Some((before, after)) = parts.split_once("%s") {
            let Some(value) = values.next() else { return Err(tag.refuse("a value is missing")) };
            if matches!(value, Form::Number(_)) {
                return Err(tag.refuse("only texts have a counterpart"));
            }
            all.push(self.literal(before, tag)?);
            all.push(self.shown(value, tag)?);
            parts = after.to_owned();
        }
        if parts.contains('%') || values.next().is_some() {
            return Err(tag.refuse("only %s and %v have a counterpart, one for each value"));
        }
        all.push(self.literal(&parts, tag)?);
        self.joined(&all.iter().map(String::as_str).collect::<Vec<_>>(), tag)
    }
}

/// Whether the answer of an expression is true or false in Go.
fn is_condition(expr: &Expr) -> bool {
    const ALL: [&str; 6] = ["eq", "ne", "not", "contains", "hasPrefix", "hasSuffix"];
    match expr {
        Expr::Bool(_) => true,
        Expr::Call(name, _) => ALL.contains(&name.as_str()),
        Expr::Text(_) | Expr::Number(_) | Expr::Nil | Expr::Field(_) => false,
    }
}

/// Whether a text can be the name of a label or an annotation.
fn is_key(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    !name.is_empty() && name.chars().all(is_part)
}

#[cfg(test)]
mod compared;
#[cfg(test)]
mod tests;
