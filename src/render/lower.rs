//! From what the parser gives to a [`Program`]: names become fields and helpers, and each value gets its escaping.
//!
//! Every branch is walked, so what is wrong in one that is never taken is found too. What is here and not in Handlebars: a
//! label or annotation must stand in `default`, and an object in `json`. What is in Handlebars and not here is refused with
//! a word on what to write instead: `with` and `each` go over fields only, and have no names for what they go over.

use std::collections::HashMap;

use handlebars::template::{HelperTemplate, Parameter, TemplateElement};
use handlebars::{Path, Template};
use serde_json::Value;

use super::condensed::Condensed;
use super::error::{Position, RenderError, shown};
use super::eval::{Arm, Expr, Node, Program};
use super::functions::Function;
use super::parameters::Parameters;
use super::place::Place;
use super::scan::{Outline, scan};
use super::scope::{Kind, Scopes, Unresolved};
use crate::api::nearest::instead;

/// Compiles a source whose output begins at `place`.
pub(super) fn compile(source: &str, place: Place, parameters: &Parameters) -> Result<Program, RenderError> {
    let outline = scan(source)?;
    let condensed = Condensed::new(source, &outline.texts);
    let template = Template::compile(&condensed.source).map_err(|e| {
        let at = e.pos().map_or(Position::START, |(line, column)| condensed.position(line, column));
        RenderError::Syntax {
            at,
            problem: "this is not a tag of Handlebars; check names, quotes and parentheses".to_owned(),
        }
    })?;
    let mut lowering =
        Lowering { outline: &outline, condensed: &condensed, blocks: 0, scopes: Scopes::new(parameters), place };
    let nodes = lowering.nodes(&template, Position::START)?;
    let at = Position::of(source, source.len());
    lowering.place.end().map_err(|problem| RenderError::Place { at, problem: problem.to_owned() })?;
    Ok(Program { nodes })
}

struct Lowering<'a> {
    outline: &'a Outline,
    condensed: &'a Condensed<'a>,
    /// Blocks that were begun; the number of the next one in the outline.
    blocks: usize,
    scopes: Scopes<'a>,
    place: Place,
}

impl Lowering<'_> {
    fn nodes(&mut self, template: &Template, outer: Position) -> Result<Vec<Node>, RenderError> {
        let mut nodes = Vec::with_capacity(template.elements.len());
        for (index, element) in template.elements.iter().enumerate() {
            let at = template.mapping.get(index).map_or(outer, |m| self.condensed.position(m.0, m.1));
            match element {
                TemplateElement::RawString(text) => {
                    let text = self.condensed.whole(text);
                    self.place.text(&text).map_err(|problem| RenderError::Place { at, problem: problem.to_owned() })?;
                    nodes.push(Node::Text(text));
                }
                TemplateElement::Expression(tag) => nodes.push(self.tag(tag, at)?),
                TemplateElement::HelperBlock(block) => self.block(block, at, &mut nodes)?,
                TemplateElement::Comment(_) => {}
                // The scan has refused these.
                _ => return syntax(at, "this kind of tag is not supported"),
            }
        }
        Ok(nodes)
    }

    /// `{{field}}` or `{{helper …}}`.
    fn tag(&mut self, tag: &HelperTemplate, at: Position) -> Result<Node, RenderError> {
        let (expr, kind) = self.call(tag, at)?;
        let expr = textual(expr, kind, at)?;
        let is_json = matches!(expr, Expr::Call(Function::Json, _));
        let escape = self.place.value(is_json).map_err(|problem| RenderError::Place { at, problem: problem.to_owned() })?;
        Ok(Node::Value { expr, escape, at })
    }

    fn block(&mut self, block: &HelperTemplate, at: Position, nodes: &mut Vec<Node>) -> Result<(), RenderError> {
        let number = self.blocks;
        self.blocks += 1;
        match block.name.as_name() {
            Some("if" | "unless") => nodes.push(self.choice(block, number, at)?),
            Some("each") => nodes.push(self.each(block, at)?),
            Some("with") => nodes.extend(self.with(block, at)?),
            name => {
                let name = shown(name.unwrap_or_default());
                let known = "there are if, unless, each, with as blocks".to_owned();
                return Err(RenderError::UnknownHelper { at, name, known });
            }
        }
        Ok(())
    }

    fn choice(&mut self, block: &HelperTemplate, number: usize, at: Position) -> Result<Node, RenderError> {
        let chain = self.outline.chains.get(number).map_or(&[][..], Vec::as_slice);
        let start = self.place;
        let mut end = None;
        let mut arms = Vec::with_capacity(chain.len() + 1);
        let (mut link, mut link_at) = (block, at);
        loop {
            arms.push(self.arm(link, link_at)?);
            self.join(start, &mut end, link_at)?;
            let Some(next_at) = chain.get(arms.len() - 1) else { break };
            let Some(TemplateElement::HelperBlock(next)) = link.inverse.as_ref().and_then(|t| t.elements.first()) else {
                break;
            };
            (link, link_at) = (next, *next_at);
        }
        let otherwise = link.inverse.as_ref().map_or(Ok(Vec::new()), |t| self.nodes(t, link_at))?;
        self.join(start, &mut end, link_at)?;
        self.place = end.unwrap_or(start);
        Ok(Node::Choice { arms, otherwise })
    }

    fn arm(&mut self, link: &HelperTemplate, at: Position) -> Result<Arm, RenderError> {
        let (name, wanted) = match link.name.as_name() {
            Some("if") => ("if", true),
            Some("unless") => ("unless", false),
            _ => return syntax(at, "only `if` and `unless` may follow `else`"),
        };
        let (condition, kind) = self.subject(name, link, at)?;
        if kind == Kind::MayBeMissing {
            return Err(RenderError::MayBeMissing { at, field: shown(&condition.to_string()) });
        }
        let body = link.template.as_ref().map_or(Ok(Vec::new()), |t| self.nodes(t, at))?;
        Ok(Arm { condition, wanted, body, at })
    }

    /// Ends a branch: all of a block must end at the same place. The next one begins where the block began.
    fn join(&mut self, start: Place, end: &mut Option<Place>, at: Position) -> Result<(), RenderError> {
        let here = std::mem::replace(&mut self.place, start);
        match end.replace(here) {
            Some(other) if other != here => Err(RenderError::Place {
                at,
                problem: format!(
                    "one branch of this block ends {} and another {}; close what a branch opens within it",
                    other.name(),
                    here.name()
                ),
            }),
            _ => Ok(()),
        }
    }

    fn each(&mut self, block: &HelperTemplate, at: Position) -> Result<Node, RenderError> {
        let (map, kind) = self.subject("each", block, at)?;
        if kind != Kind::Map {
            return helper(at, "each", "goes over labels or annotations only, as in {{#each pipeline.labels}}");
        }
        let start = self.place;
        let mut end = None;
        self.scopes.enter_loop();
        let body = block.template.as_ref().map_or(Ok(Vec::new()), |t| self.nodes(t, at))?;
        self.scopes.leave();
        self.join(start, &mut end, at)?;
        // A loop may run any number of times, so it ends where it began.
        self.join(start, &mut end, at)?;
        let otherwise = block.inverse.as_ref().map_or(Ok(Vec::new()), |t| self.nodes(t, at))?;
        self.join(start, &mut end, at)?;
        Ok(Node::Each { map, body, otherwise, at })
    }

    /// `with` only shortens paths, and they are resolved here; so nothing is left of it.
    fn with(&mut self, block: &HelperTemplate, at: Position) -> Result<Vec<Node>, RenderError> {
        let (subject, kind) = self.subject("with", block, at)?;
        let (Expr::Path(path), Kind::Object | Kind::Map) = (subject, kind) else {
            return helper(at, "with", "goes into an object, as in {{#with target.app}}");
        };
        if block.inverse.is_some() {
            return helper(at, "with", "has no else, for what it goes into is always there");
        }
        self.scopes.enter(path);
        let nodes = block.template.as_ref().map_or(Ok(Vec::new()), |t| self.nodes(t, at))?;
        self.scopes.leave();
        Ok(nodes)
    }

    /// The one argument of a block.
    fn subject(&self, name: &'static str, block: &HelperTemplate, at: Position) -> Result<(Expr, Kind), RenderError> {
        no_named(name, &block.hash, at)?;
        if block.block_param.is_some() {
            return helper(at, name, "gives no names with `as`; write this, @key, @index, or a path");
        }
        match block.params.as_slice() {
            [only] => self.parameter(only, at),
            _ => helper(at, name, "takes one argument; put parentheses around a helper with its own"),
        }
    }

    /// A tag or subexpression: a helper with its arguments, or a field.
    fn call(&self, tag: &HelperTemplate, at: Position) -> Result<(Expr, Kind), RenderError> {
        let name = tag.name.as_name().unwrap_or_default();
        if let Some(function) = Function::named(name) {
            no_named(function.name(), &tag.hash, at)?;
            return self.function(function, &tag.params, at);
        }
        if tag.params.is_empty() && tag.hash.is_empty() {
            return self.parameter(&tag.name, at);
        }
        let known = match name {
            "if" | "unless" | "each" | "with" => format!("there is {{{{#{name} …}}}}…{{{{/{name}}}}} as a block"),
            _ => instead(name, Function::names(), ""),
        };
        Err(RenderError::UnknownHelper { at, name: shown(name), known })
    }

    fn function(&self, function: Function, params: &[Parameter], at: Position) -> Result<(Expr, Kind), RenderError> {
        let arity = function.arity();
        if !arity.contains(&params.len()) {
            let (least, most) = arity.into_inner();
            let count = if least == most { least.to_string() } else { format!("{least} to {most}") };
            return helper(at, function.name(), &format!("takes {count} argument(s), not {}", params.len()));
        }
        let mut args = Vec::with_capacity(params.len());
        for (index, param) in params.iter().enumerate() {
            let (expr, kind) = self.parameter(param, at)?;
            let takes_objects = matches!(function, Function::Json | Function::And | Function::Or | Function::Not);
            args.push(match (function, index, kind) {
                (Function::Lookup, 0, Kind::Map) | (Function::Default, 0, Kind::MayBeMissing) => expr,
                (Function::Lookup, 0, _) => return helper(at, "lookup", "looks into labels or annotations only"),
                (_, _, Kind::Map | Kind::Object) if takes_objects => expr,
                _ => textual(expr, kind, at)?,
            });
        }
        let kind = if function == Function::Lookup { Kind::MayBeMissing } else { Kind::Text };
        Ok((Expr::Call(function, args), kind))
    }

    fn parameter(&self, parameter: &Parameter, at: Position) -> Result<(Expr, Kind), RenderError> {
        match parameter {
            Parameter::Path(Path::Relative((_, raw)) | Path::Local((_, _, raw))) | Parameter::Name(raw) => {
                self.scopes.resolve(raw).map_err(|unresolved| match unresolved {
                    Unresolved::Unknown(known) => RenderError::UnknownField { at, field: shown(raw), known },
                    Unresolved::Unset(name) => RenderError::ParameterMissing { at, name },
                    Unresolved::Hidden { name, owner } => RenderError::ParameterHidden { at, name, owner },
                })
            }
            Parameter::Literal(value @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) => {
                Ok((Expr::Literal(value.clone()), Kind::Text))
            }
            Parameter::Subexpression(sub) => match sub.as_element() {
                TemplateElement::Expression(tag) => self.call(tag, at),
                _ => syntax(at, "this kind of tag is not supported"),
            },
            _ => syntax(at, "only texts, numbers, true and false may be written in a tag"),
        }
    }
}

/// An expression that can be written, or worked on as text.
fn textual(expr: Expr, kind: Kind, at: Position) -> Result<Expr, RenderError> {
    match kind {
        Kind::Text => Ok(expr),
        Kind::MayBeMissing => Err(RenderError::MayBeMissing { at, field: shown(&expr.to_string()) }),
        Kind::Map | Kind::Object => Err(RenderError::NotText { at, field: shown(&expr.to_string()) }),
    }
}

fn no_named(name: &'static str, hash: &HashMap<String, Parameter>, at: Position) -> Result<(), RenderError> {
    if hash.is_empty() { Ok(()) } else { helper(at, name, "takes no arguments with names; write the values in order") }
}

fn helper<T>(at: Position, helper: &'static str, problem: &str) -> Result<T, RenderError> {
    Err(RenderError::Helper { at, helper, problem: problem.to_owned() })
}

fn syntax<T>(at: Position, problem: &str) -> Result<T, RenderError> {
    Err(RenderError::Syntax { at, problem: problem.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::TransitionType;
    use crate::render::parameters::Sight;
    use crate::render::{Data, MAX_BODY, Values};

    fn data() -> Data {
        let mut data = Data::sample(TransitionType::Failed);
        let labels = [("app.kubernetes.io/name", "pod<info>"), ("team", "a")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        data.pipeline.labels = Arc::new(labels.into());
        data
    }

    fn plain(source: &str) -> Result<String, RenderError> {
        let parameters = Parameters::compile([("channel", Some("#{{upper environment}}"))]).unwrap();
        let values = Values::new(&data(), &parameters).unwrap();
        compile(source, Place::Plain, &parameters)?.run(&values, Sight::All, MAX_BODY).map(|output| output.text)
    }

    #[test]
    fn templates_render() {
        for (source, expected) in [
            ("", ""),
            ("{{status}} {{serial}} {{drifted}}", "Failed 1763711234567 false"),
            ("{{#if drifted}}a{{/if}}b", "b"),
            ("{{#if drifted}}a{{else}}b{{/if}}", "b"),
            ("{{#unless drifted}}a{{else}}b{{/unless}}", "a"),
            ("{{#if drifted}}a{{else if coalesced}}b{{else if (eq type \"Failed\")}}c{{else}}d{{/if}}", "c"),
            ("{{#if drifted}}a{{else if coalesced}}b{{else unless drifted}}c{{/if}}", "c"),
            ("{{#if drifted}}a{{else}}{{#if coalesced}}b{{else if status}}c{{else}}d{{/if}}{{/if}}", "c"),
            ("{{#if drifted}}a{{^}}{{#unless coalesced}}b{{/unless}}c{{/if}}", "bc"),
            (
                "{{#with target}}{{#with app}}{{kind}}/{{name}} {{../namespace}} {{@root.status}}{{/with}}{{/with}}",
                "Kustomization/podinfo podinfo Failed",
            ),
            ("{{#with pipeline.labels}}{{default team \"-\"}}{{../status}}{{default commit \"no\"}}{{/with}}", "aFailedno"),
            (
                "{{#each pipeline.labels}}{{@index}}{{@key}}={{this}}{{#unless @last}},{{/unless}}{{/each}}",
                "0app.kubernetes.io/name=pod<info>,1team=a",
            ),
            ("{{#each pipeline.annotations}}x{{else}}none{{/each}}", "none"),
            (
                "{{#each pipeline.labels}}{{#each ../pipeline.labels}}{{../this}}{{this}}{{#if @first}};{{/if}}{{/each}} {{/each}}",
                "pod<info>pod<info>;pod<info>a apod<info>;aa ",
            ),
            (
                "{{#each pipeline.labels}}{{#with ../target.app}}{{kind}}{{@key}}{{../this}} {{/with}}{{/each}}",
                "Kustomizationapp.kubernetes.io/namepod<info> Kustomizationteama ",
            ),
            ("{{default pipeline.labels.team \"x\"}}{{default pipeline.labels.nope \"x\"}}", "ax"),
            ("{{default pipeline.labels.[app.kubernetes.io/name] \"\"}}", "pod<info>"),
            ("{{default (lookup pipeline.labels (lower \"TEAM\")) \"x\"}}", "a"),
            ("{{default pipeline.annotations.a (default pipeline.labels.team \"x\")}}", "a"),
            ("{{default environment \"x\"}}{{default target.cluster.kind \"x\"}}", "prodx"),
            ("{{#if pipeline.annotations}}a{{/if}}{{#if pipeline.labels}}b{{/if}}", "b"),
            ("{{#if (and status (or drifted reason) (not coalesced))}}a{{/if}}", "a"),
            ("{{and drifted (commit environment)}}{{or status (commit environment)}}", "falsetrue"),
            (
                "{{json target.app}}",
                r#"{"apiVersion":"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization","name":"podinfo"}"#,
            ),
            ("{{parameters.channel}} {{json parameters}}", r##"#PROD {"channel":"#PROD"}"##),
            ("{{#each parameters}}{{@key}}{{/each}}{{default (lookup parameters \"x\") \"-\"}}", "channel-"),
            ("{{(upper status)}} {{upper (truncate (lower status) 3 '')}}", "FAILED FAI"),
            ("{{eq drifted false}}{{eq serial 1}}", "truefalse"),
            ("a {{~status~}} b\n  {{! gone }}\n{{#if status}}\nc\n{{/if}}\n", "aFailedb\nc\n"),
            (r"\{{status}} \\{{status}}", r"{{status}} \Failed"),
        ] {
            assert_eq!(plain(source).unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_in_every_branch() {
        for (source, position, word) in [
            ("a\n {{typo}}", "line 2, column 2", "`typo`"),
            ("{{pipeline.nam}}", "line 1, column 1", "did you mean `pipeline.name`?"),
            ("{{pipeline.x}}", "line 1, column 1", "there are name, namespace, uid"),
            ("{{#if typo}}{{/if}}", "line 1, column 1", "`typo`"),
            ("{{#if (and status typo)}}{{/if}}", "line 1, column 1", "`typo`"),
            ("{{#if (not typo)}}{{/if}}", "line 1, column 1", "`typo`"),
            ("{{eq typo typo}}", "line 1, column 1", "`typo`"),
            ("{{default typo \"\"}}", "line 1, column 1", "`typo`"),
            ("{{#if coalesced}}\n{{#unless status}}\n {{typo}}{{/unless}}{{/if}}", "line 3, column 2", "`typo`"),
            ("{{#if status}}\n{{else if drifted}}\n{{else if typo}}{{/if}}", "line 3, column 1", "`typo`"),
            ("{{#if status}}{{#if drifted}}{{/if}}\n{{else if typo}}{{/if}}", "line 2, column 1", "`typo`"),
            ("{{#each pipeline.labels}}{{typo}}{{/each}}", "line 1, column 26", "../"),
            ("{{#each typo}}{{else}}{{/each}}", "line 1, column 1", "`typo`"),
            ("{{#with typo}}{{/with}}", "line 1, column 1", "`typo`"),
            ("{{parameters.chanel}}", "line 1, column 1", "`parameters.chanel`; did you mean `parameters.channel`?"),
            ("{{parameters}}", "line 1, column 1", "`json`"),
            ("{{pipeline}}", "line 1, column 1", "name one of its fields"),
            ("{{pipeline.labels}}", "line 1, column 1", "`json`"),
            ("{{pipeline.labels.team}}", "line 1, column 1", "(default pipeline.labels.team \"...\")"),
            (
                "{{pipeline.labels.[app.kubernetes.io/name]}}",
                "line 1, column 1",
                "(default pipeline.labels.[app.kubernetes.io/name] \"...\")",
            ),
            ("{{#if pipeline.labels.team}}{{/if}}", "line 1, column 1", "default"),
            ("{{#if (eq pipeline.labels.team \"a\")}}{{/if}}", "line 1, column 1", "default"),
            ("{{default \"a\" pipeline.labels.team}}", "line 1, column 1", "default"),
            ("{{lookup pipeline.labels \"a\"}}", "line 1, column 1", "default"),
            ("{{default (lookup target \"a\") \"\"}}", "line 1, column 1", "labels or annotations"),
            ("{{#with pipeline.labels}}{{app.kubernetes.io/name}}{{/with}}", "line 1, column 26", "brackets"),
            ("{{uper status}}", "line 1, column 1", "upper"),
            ("{{log status}}", "line 1, column 1", "`log`"),
            ("{{len status}}", "line 1, column 1", "`len`"),
            ("{{#list status}}{{/list}}", "line 1, column 1", "`list`"),
            ("{{#upper status}}{{/upper}}", "line 1, column 1", "as blocks"),
            ("{{if status}}", "line 1, column 1", "{{#if …}}"),
            ("{{json (uper status)}}", "line 1, column 1", "`uper`"),
            ("{{upper}}", "line 1, column 1", "takes 1 argument(s), not 0"),
            ("{{truncate status}}", "line 1, column 1", "takes 2 to 3 argument(s), not 1"),
            ("{{truncate status length=3}}", "line 1, column 1", "names"),
            ("{{#if status includeZero=true}}{{/if}}", "line 1, column 1", "names"),
            ("{{#if eq status \"a\"}}{{/if}}", "line 1, column 1", "parentheses"),
            ("{{#each pipeline.labels as |v k|}}{{/each}}", "line 1, column 1", "@key"),
            ("{{#each target}}{{/each}}", "line 1, column 1", "labels or annotations"),
            ("{{#with status}}{{/with}}", "line 1, column 1", "object"),
            ("{{#with target}}{{else}}{{/with}}", "line 1, column 1", "always there"),
            ("{{#if status}}{{else with target}}{{/if}}", "line 1, column 15", "`unless`"),
            ("{{json null}}", "line 1, column 1", "numbers"),
            ("{{@index}}", "line 1, column 1", "`each`"),
            ("{{comit revision}}", "line 1, column 1", "did you mean `commit`?"),
            ("{{pipline.name}}", "line 1, column 1", "did you mean `pipeline`?"),
            ("{{truncate message 0}}", "line 1, column 1", "`truncate`"),
            ("{{status status status", "line 1, column 1", "}}"),
            ("a {{sta tus!}}", "line 1, column", "Handlebars"),
            ("{{else}}", "line 1, column", "Handlebars"),
        ] {
            let error = plain(source).unwrap_err();
            let message = error.to_string();
            assert!(message.starts_with(position) && message.contains(word), "{source}: {message}");
            let fails = matches!(error, RenderError::HelperFailed { .. });
            assert!(!message.contains('\n') && error.is_final() == fails, "{source}: {message}");
        }
    }

    #[test]
    fn no_error_quotes_a_value() {
        let secret = "s3cr3t";
        let labels = [("team".to_owned(), format!("{secret}\nü"))];
        let data = Data {
            message: format!("{secret}\nü"),
            revision: format!("{secret}/../"),
            pipeline: crate::render::PipelineData { labels: Arc::new(labels.into()), ..data().pipeline },
            ..data()
        };
        let literal = format!("{secret}\nü");
        let parameters = Parameters::compile([("own", Some(literal.as_str()))]).unwrap();
        let values = Values::new(&data, &parameters).unwrap();
        let sources = ["message", "revision", "parameters.own", "(default pipeline.labels.team \"\")", "\"s3cr3t\nü\""];
        let mut failed = std::collections::BTreeSet::new();
        for value in sources {
            for tag in [
                "{{VALUE}}",
                "{{commit VALUE}}",
                "{{date VALUE}}",
                "{{date time VALUE}}",
                "{{unix VALUE}}",
                "{{unixMilli VALUE}}",
                "{{truncate VALUE VALUE}}",
                "{{truncate message 1 VALUE}}",
                "{{replace VALUE \"\" VALUE}}",
                "{{mrkdwn VALUE VALUE}}",
                "{{markdown VALUE VALUE}}",
                "{{html VALUE VALUE}}",
                "{{default (lookup pipeline.labels VALUE) (commit VALUE)}}",
                "{{#if (eq (commit VALUE) \"x\")}}x{{/if}}",
                "{{lookup pipeline.labels VALUE}}",
                "{{json (unix VALUE)}}",
            ] {
                let source = tag.replace("VALUE", value);
                let places = [Place::Plain, Place::Header, Place::of_content_type("application/json").unwrap()];
                for place in places {
                    let error = compile(&source, place, &parameters).and_then(|p| p.run(&values, Sight::All, 1024)).err();
                    let Some(error) = error else { continue };
                    let said = format!("{error} {error:?}");
                    assert!(!said.contains(secret), "{source}: {said}");
                    failed.insert(format!("{error:?}").split(' ').next().unwrap_or_default().to_owned());
                }
            }
        }
        assert!(failed.len() >= 4, "{failed:?}");
    }

    #[test]
    fn what_labels_have_a_part_in_is_not_final() {
        let commit = "`commit` finds";
        for (source, is_final) in [
            ("{{commit environment}}", true),
            ("{{commit (default pipeline.labels.none environment)}}", false),
            ("{{#if (eq (default pipeline.labels.team \"\") \"a\")}}{{commit environment}}{{/if}}", false),
            ("{{#if (default pipeline.labels.team \"\")}}x{{/if}}{{commit environment}}", true),
            ("{{default pipeline.labels.team \"\"}}{{commit environment}}", true),
            ("{{#each pipeline.labels}}{{commit this}}{{/each}}", false),
            ("{{commit (json @root)}}", false),
            ("{{commit (json pipeline)}}", false),
            ("{{commit pipeline.name}}", true),
            ("{{commit parameters.channel}}", true),
        ] {
            let error = plain(source).unwrap_err();
            assert!(error.to_string().contains(commit), "{source}: {error}");
            assert_eq!(error.is_final(), is_final, "{source}");
        }
        let parameters = Parameters::compile([
            ("team", Some("{{default pipeline.labels.team \"\"}}")),
            ("sha", Some("{{commit environment}}")),
            ("label", Some("{{commit (default pipeline.labels.none \"-\")}}")),
        ])
        .unwrap();
        let values = || Values::new(&data(), &parameters).unwrap();
        for (source, is_final) in [
            ("{{commit parameters.team}}", false),
            ("{{#if parameters.team}}{{/if}}{{#if parameters.team}}{{parameters.sha}}{{/if}}", false),
            ("{{parameters.sha}}", true),
            ("{{parameters.label}}", false),
        ] {
            let error = compile(source, Place::Plain, &parameters).unwrap().run(&values(), Sight::All, 99).unwrap_err();
            assert_eq!(error.is_final(), is_final, "{source}: {error}");
        }
        let long =
            |source: &str| compile(source, Place::Plain, &parameters).unwrap().run(&values(), Sight::All, 3).unwrap_err();
        assert!(long("{{environment}}").is_final());
        assert!(long("{{environment}}{{default pipeline.labels.team \"\"}}").is_final());
        assert!(!long("{{default pipeline.labels.team \"\"}}{{environment}}").is_final());
    }

    #[test]
    fn branches_end_where_they_began_or_all_elsewhere() {
        let json =
            |source: &str| compile(source, Place::of_content_type("application/json").unwrap(), &Parameters::default());
        for source in [
            r#"{"a":{{#if drifted}}"b{{else}}"c{{/if}}{{id}}"}"#,
            r#"{"a":"{{#if drifted}}b{{/if}}"}"#,
            r#"{"a":{{#if drifted}}"{{id}}"{{else if coalesced}}1{{else}}{{json id}}{{/if}}}"#,
            r#"{{{#each pipeline.labels}}{{json @key}}:"{{this}}"{{#unless @last}},{{/unless}}{{/each}}}"#,
        ] {
            let source = source.replacen("{{{", "{ {{", 1);
            assert!(json(&source).is_ok(), "{source}: {:?}", json(&source).err());
        }
        for source in [
            r#"{"a":{{#if drifted}}"b{{/if}}"}"#,
            r#"{"a":{{#if drifted}}"b{{else}}1{{/if}}"}"#,
            r#"{"a":"{{#each pipeline.labels}}"{{/each}}"}"#,
            r#"{"a":"{{#each pipeline.labels}}{{else}}"{{/each}}"}"#,
            r#"{"a":"{{#if drifted}}\\{{else}}{{/if}}"}"#,
            r#"{"a":"b{{id}}}"#,
        ] {
            let message = json(source).unwrap_err().to_string();
            assert!(message.starts_with("line 1") && message.contains("JSON string"), "{source}: {message}");
        }
    }
}
