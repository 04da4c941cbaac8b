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

use std::collections::{BTreeMap, BTreeSet};

use fields::{Known, known};
use forms::{Form, equal, helper, joined, negated};
pub(super) use parse::Refusal;
use parse::{Expr, Node, Tag, parse};
use relaybook_core::observe::is_public_annotation;

/// What is constant where a template is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'a> {
    /// The type of the service.
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

/// Converts a source.
pub(super) fn convert(source: &str, scene: Scene<'_>, spot: Spot) -> Result<Made, Refusal> {
    let nodes = parse(source)?;
    let mut writer = Writer { scene, spot, made: Made::default(), is_after_tag: false, line: 0 };
    writer.nodes(&nodes)?;
    Ok(writer.made)
}

/// Returns a template whose result is this text.
pub(super) fn literal(text: &str, spot: Spot) -> String {
    let text = if spot == Spot::Quoted { json_text(text) } else { text.to_owned() };
    text.replace("{{", "\\{{")
}

/// Returns the recipient as a template.
pub(super) fn recipient(of: &Recipient, spot: Spot) -> String {
    match of {
        Recipient::Constant(text) => literal(text, spot),
        Recipient::Annotation(name) => format!("{{{{{}}}}}", annotation(name)),
    }
}

/// Returns the call that reads an annotation.
fn annotation(name: &str) -> String {
    format!("default target.app.annotations.[{name}] \"\"")
}

/// Returns a text as it is written within a text of JSON.
fn json_text(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default().to_owned()
}

struct Writer<'a> {
    scene: Scene<'a>,
    spot: Spot,
    made: Made,
    is_after_tag: bool,
    /// The line of the last tag.
    line: usize,
}

impl Writer<'_> {
    fn nodes(&mut self, nodes: &[Node]) -> Result<(), Refusal> {
        for node in nodes {
            match node {
                Node::Text(text) => {
                    let text = literal(text, self.spot);
                    self.text(&text)?;
                }
                Node::Value { value, tag } => {
                    let form = self.form(value, tag)?;
                    let part = self.shown(&form, tag)?;
                    self.part(&part, tag)?;
                }
                Node::If { arms, otherwise, tag } => self.choice(arms, otherwise, tag)?,
                Node::Range { tag } => self.made.differs.push((tag.line, tag.refuse("the loop is left out").why)),
            }
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), Refusal> {
        if self.is_after_tag && text.starts_with('}') {
            self.space("a brace follows a tag")?;
        }
        self.made.text.push_str(text);
        self.is_after_tag &= text.is_empty();
        Ok(())
    }

    /// Separates a brace of the text from a tag. Only between the parts of JSON, a space changes nothing.
    fn space(&mut self, why: &str) -> Result<(), Refusal> {
        if self.spot != Spot::Json {
            return Err(Refusal { line: self.line, why: format!("{why}, which a template of Relaybook cannot have") });
        }
        self.made.text.push(' ');
        Ok(())
    }

    /// Appends tags, or constant text.
    fn part(&mut self, part: &str, tag: &Tag) -> Result<(), Refusal> {
        self.line = tag.line;
        if !part.starts_with("{{") {
            self.text(part)?;
            self.is_after_tag = part.ends_with("}}");
            return Ok(());
        }
        if self.made.text.ends_with('\\') {
            return Err(tag.refuse("a backslash is before it, which a template of Relaybook cannot have"));
        }
        if self.made.text.ends_with('{') {
            self.space("a brace is before a tag")?;
        }
        self.made.text.push_str(part);
        self.is_after_tag = part.ends_with("}}");
        Ok(())
    }

    fn choice(&mut self, arms: &[(Expr, Vec<Node>)], otherwise: &[Node], tag: &Tag) -> Result<(), Refusal> {
        let mut is_open = false;
        for (condition, nodes) in arms {
            let form = self.form(condition, tag)?;
            match form.test(tag)? {
                Ok(false) => {}
                Ok(true) => {
                    if is_open {
                        self.part("{{else}}", tag)?;
                    }
                    self.nodes(nodes)?;
                    return if is_open { self.part("{{/if}}", tag) } else { Ok(()) };
                }
                Err(condition) => {
                    let word = if is_open { "else if" } else { "#if" };
                    self.part(&format!("{{{{{word} {condition}}}}}"), tag)?;
                    self.nodes(nodes)?;
                    is_open = true;
                }
            }
        }
        if !is_open {
            return self.nodes(otherwise);
        }
        if !otherwise.is_empty() {
            self.part("{{else}}", tag)?;
            self.nodes(otherwise)?;
        }
        self.part("{{/if}}", tag)
    }

    /// Returns a form as a part of the template.
    fn shown(&self, form: &Form, tag: &Tag) -> Result<String, Refusal> {
        match form {
            Form::Text(text) => Ok(literal(text, self.spot)),
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
            Expr::Number(number) => Ok(Form::Number(number.clone())),
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
                    self.made.differs.push((tag.line, tag.refuse(text).why));
                }
                Ok(match known {
                    Known::Path(path, _) => Form::Path((*path).to_owned()),
                    Known::Call(call, _) => Form::Call((*call).to_owned()),
                    Known::Words(words) => Form::Words(words),
                    Known::Is(is, _) => Form::Bool(*is),
                    Known::Recorded => {
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

    fn label(&mut self, name: &str, tag: &Tag) -> Result<Form, Refusal> {
        if !is_key(name) {
            return Err(tag.refuse("it is no name of a label"));
        }
        self.made.needs.labels.insert(name.to_owned());
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
        Ok(Form::Call(annotation(name)))
    }

    fn call(&mut self, name: &str, operands: &[Expr], tag: &Tag) -> Result<Form, Refusal> {
        match (name, operands) {
            ("index", [Expr::Field(path), Expr::Text(key)]) => {
                let path: Vec<String> = path.iter().cloned().chain([key.clone()]).collect();
                return self.field(&path, tag);
            }
            ("call", [Expr::Field(path), arguments @ ..]) => {
                return match (path.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), arguments) {
                    (["repo", "FullNameByRepoURL"], [_]) => {
                        Ok(Form::Part("{{target.source.owner}}/{{target.source.project}}".to_owned()))
                    }
                    (["repo", "RepoURLToHTTPS"], [_]) => Ok(Form::Path("target.source.repository".to_owned())),
                    _ => Err(tag.refuse("the function has no counterpart")),
                };
            }
            _ => {}
        }
        let forms: Vec<Form> = operands.iter().map(|operand| self.form(operand, tag)).collect::<Result<_, _>>()?;
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
            ("ternary", [yes, no, condition]) => {
                let (yes, no) = (self.shown(yes, tag)?, self.shown(no, tag)?);
                Ok(Form::Part(match condition.clone().test(tag)? {
                    Ok(true) => yes,
                    Ok(false) => no,
                    Err(condition) => format!("{{{{#if {condition}}}}}{yes}{{{{else}}}}{no}{{{{/if}}}}"),
                }))
            }
            ("printf", [Form::Text(format), values @ ..]) => self.printf(format, values, tag).map(Form::Part),
            ("quote", [one]) => {
                let shown = self.shown(one, tag)?;
                match (self.spot, one) {
                    (Spot::Json, one) => Ok(Form::Call(format!("json {}", one.argument(tag)?))),
                    (Spot::Quoted, _) => Ok(Form::Part(format!("\\\"{shown}\\\""))),
                    (Spot::Plain, _) => Ok(Form::Part(format!("\"{shown}\""))),
                }
            }
            ("toString", [one]) => Ok(one.clone()),
            (name, [Form::Words(words)]) if ["upper", "lower"].contains(&name) && self.spot != Spot::Json => {
                Ok(Form::Part(words.cased(name == "upper")))
            }
            (name, forms) => helper(name, forms, tag),
        }
    }

    /// Joins texts and values. Only `%s` and `%v` have a counterpart.
    fn printf(&self, format: &str, values: &[Form], tag: &Tag) -> Result<String, Refusal> {
        let mut parts = format.replace("%v", "%s");
        if parts.contains("%%") {
            return Err(tag.refuse("`%%` has no counterpart"));
        }
        let mut values = values.iter();
        let mut text = String::new();
        while let Some((before, after)) = parts.split_once("%s") {
            let Some(value) = values.next() else { return Err(tag.refuse("a value is missing")) };
            text.push_str(&literal(before, self.spot));
            text.push_str(&self.shown(value, tag)?);
            parts = after.to_owned();
        }
        if parts.contains('%') || values.next().is_some() {
            return Err(tag.refuse("only %s and %v have a counterpart, one for each value"));
        }
        Ok(text + &literal(&parts, self.spot))
    }
}

/// Whether a text can be the name of a label or an annotation.
fn is_key(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    !name.is_empty() && name.chars().all(is_part)
}

#[cfg(test)]
mod tests;
