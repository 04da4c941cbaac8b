//! Compiles a parsed template to a [`Program`]: resolves names to fields and helpers, and selects the escaping of each value.
//!
//! Every branch is walked, so errors in unused branches are found too. The walk continues after a problem, so that all problems are
//! reported at once. Two rules are stricter than Handlebars: a label or annotation requires `default`, and an object requires `json`.
//! Unsupported features of Handlebars are rejected with an alternative: `with` and `each` work only on fields, and do not support block
//! parameters.

use std::collections::HashMap;

use handlebars::template::{HelperTemplate, Parameter, TemplateElement};
use handlebars::{Path, Template};
use serde_json::Value;

use super::condensed::Condensed;
use super::eval::{Arm, Expr, Node, Program};
use super::fields::parameter;
use super::go::recognise;
use super::limits::{Outline, scan};
use super::scope::{Kind, Scopes, Unresolved};
use crate::render::data::parameters::Parameters;
use crate::render::data::schema::{DataSchema, ROOT};
use crate::render::error::{Position, RenderError, for_message};
use crate::render::escape::context::EscapeContext;
use crate::render::helpers::Function;
use relaybook_api::values::nearest::instead;

/// Maximum number of reported problems of one template.
const MOST_PROBLEMS: usize = 50;

/// Compiles a source whose output starts in the given context.
pub(crate) fn compile(source: &str, context: EscapeContext, parameters: &Parameters) -> Result<Program, RenderError> {
    compile_for(&ROOT, source, context, parameters)
}

/// Compiles a source whose data has this schema. For a template of Go, it returns one error that shows the form
/// of Handlebars, instead of an error for each tag.
pub(crate) fn compile_for(
    schema: &'static DataSchema,
    source: &str,
    context: EscapeContext,
    parameters: &Parameters,
) -> Result<Program, RenderError> {
    compiled(schema, source, context, parameters).map_err(|error| match error {
        RenderError::TooLong(_) | RenderError::TooManyTags => error,
        error => recognise(source).unwrap_or(error),
    })
}

fn compiled(
    schema: &'static DataSchema,
    source: &str,
    context: EscapeContext,
    parameters: &Parameters,
) -> Result<Program, RenderError> {
    let outline = scan(source)?;
    let condensed = Condensed::new(source, &outline.texts);
    let template = Template::compile(&condensed.source).map_err(|e| {
        let at = e.pos().map_or(Position::START, |(line, column)| condensed.position(line, column));
        RenderError::Syntax {
            at,
            problem: "this is not a valid Handlebars tag; check names, quotes and parentheses".to_owned(),
        }
    })?;
    let mut compiler = Compiler {
        outline: &outline,
        condensed: &condensed,
        blocks: 0,
        scopes: Scopes::new(schema, parameters),
        context,
        context_unknown: false,
        problems: Vec::new(),
    };
    let nodes = compiler.nodes(&template, Position::START);
    if let Err(problem) = compiler.context.end() {
        compiler.misplaced(Position::of(source, source.len()), problem, true);
    }
    match RenderError::all(compiler.problems) {
        Some(problems) => Err(problems),
        None => Ok(Program { nodes }),
    }
}

struct Compiler<'a> {
    outline: &'a Outline,
    condensed: &'a Condensed<'a>,
    /// Number of blocks so far, which is the index of the next block in the outline.
    blocks: usize,
    scopes: Scopes<'a>,
    context: EscapeContext,
    /// Whether the context is unknown because of an earlier problem. Later problems with the context are not reported, because they may be
    /// false.
    context_unknown: bool,
    /// The problems, in the order of the source.
    problems: Vec<RenderError>,
}

/// A problem was recorded, or is caused by a recorded problem.
#[derive(Debug)]
struct Recorded;

impl Compiler<'_> {
    /// Records a problem.
    fn record(&mut self, problem: RenderError) -> Recorded {
        // The same problem can occur twice in one tag, and is recorded once.
        if self.problems.len() < MOST_PROBLEMS && !self.problems.iter().any(|known| known.to_string() == problem.to_string())
        {
            self.problems.push(problem);
        }
        Recorded
    }

    /// Records a problem with the context. `makes_unknown`: the context of what follows is unknown.
    fn misplaced(&mut self, at: Position, problem: &str, makes_unknown: bool) {
        if !self.context_unknown {
            self.record(RenderError::EscapeContext { at, problem: problem.to_owned() });
        }
        self.context_unknown |= makes_unknown;
    }

    fn nodes(&mut self, template: &Template, outer: Position) -> Vec<Node> {
        let mut nodes = Vec::with_capacity(template.elements.len());
        for (index, element) in template.elements.iter().enumerate() {
            let at = template.mapping.get(index).map_or(outer, |m| self.condensed.position(m.0, m.1));
            match element {
                TemplateElement::RawString(text) => {
                    let text = self.condensed.whole(text);
                    if let Err(problem) = self.context.text(&text) {
                        self.misplaced(at, problem, true);
                    }
                    nodes.push(Node::Text(text));
                }
                TemplateElement::Expression(tag) => nodes.extend(self.tag(tag, at)),
                TemplateElement::HelperBlock(block) => self.block(block, at, &mut nodes),
                TemplateElement::Comment(_) => {}
                // `scan` has already rejected these.
                _ => drop(self.record(syntax(at, "tags of this kind are not supported"))),
            }
        }
        nodes
    }

    /// Compiles `{{field}}` or `{{helper …}}`.
    fn tag(&mut self, tag: &HelperTemplate, at: Position) -> Option<Node> {
        let (expr, kind) = self.call(tag, at).ok()?;
        let expr = self.textual(expr, kind, at).ok()?;
        match self.context.value(matches!(expr, Expr::Call(Function::Json, _))) {
            Ok(escape) => Some(Node::Value { expr, escape, at }),
            Err(problem) => {
                self.misplaced(at, problem, false);
                None
            }
        }
    }

    fn block(&mut self, block: &HelperTemplate, at: Position, nodes: &mut Vec<Node>) {
        let number = self.blocks;
        self.blocks += 1;
        match block.name.as_name() {
            Some("if" | "unless") => nodes.push(self.choice(block, number, at)),
            Some("each") => nodes.extend(self.each(block, at)),
            Some("with") => nodes.extend(self.with(block, at)),
            name => {
                let name = for_message(name.unwrap_or_default());
                let known = "the blocks are if, unless, each, with".to_owned();
                self.record(RenderError::UnknownHelper { at, name, known });
                self.scopes.enter_unknown();
                self.inner(block.template.as_ref(), at);
                self.scopes.leave();
                self.inner(block.inverse.as_ref(), at);
            }
        }
    }

    /// Compiles the contents of a block, if there are any.
    fn inner(&mut self, template: Option<&Template>, at: Position) -> Vec<Node> {
        template.map_or_else(Vec::new, |template| self.nodes(template, at))
    }

    fn choice(&mut self, block: &HelperTemplate, number: usize, at: Position) -> Node {
        let chain = self.outline.chains.get(number).map_or(&[][..], Vec::as_slice);
        let start = self.context;
        let mut end = None;
        let mut arms = Vec::with_capacity(chain.len() + 1);
        let (mut link, mut link_at, mut following) = (block, at, chain.iter());
        loop {
            arms.extend(self.arm(link, link_at));
            self.join(start, &mut end, link_at);
            let Some(next_at) = following.next() else { break };
            let Some(TemplateElement::HelperBlock(next)) = link.inverse.as_ref().and_then(|t| t.elements.first()) else {
                break;
            };
            (link, link_at) = (next, *next_at);
        }
        let otherwise = self.inner(link.inverse.as_ref(), link_at);
        self.join(start, &mut end, link_at);
        self.context = end.unwrap_or(start);
        Node::Choice { arms, otherwise }
    }

    fn arm(&mut self, link: &HelperTemplate, at: Position) -> Option<Arm> {
        let condition = match link.name.as_name() {
            Some("if") => self.condition("if", link, at).map(|condition| (condition, true)),
            Some("unless") => self.condition("unless", link, at).map(|condition| (condition, false)),
            _ => Err(self.record(syntax(at, "only `if` and `unless` may follow `else`"))),
        };
        let body = self.inner(link.template.as_ref(), at);
        condition.ok().map(|(condition, runs_if)| Arm { condition, runs_if, body, at })
    }

    fn condition(&mut self, name: &'static str, link: &HelperTemplate, at: Position) -> Result<Expr, Recorded> {
        let (condition, kind) = self.subject(name, link, at)?;
        if kind == Kind::MayBeMissing {
            return Err(self.record(RenderError::MayBeMissing { at, field: for_message(&condition.to_string()) }));
        }
        Ok(condition)
    }

    /// Ends a branch. All branches of a block must end in the same context. The next branch starts in the context of the block.
    fn join(&mut self, start: EscapeContext, end: &mut Option<EscapeContext>, at: Position) {
        let here = std::mem::replace(&mut self.context, start);
        if let Some(other) = end.replace(here).filter(|other| *other != here) {
            let problem = format!(
                "one branch of this block ends {} and another {}; close each string or URL part in the branch that opens it",
                other.name(),
                here.name()
            );
            self.misplaced(at, &problem, true);
        }
    }

    fn each(&mut self, block: &HelperTemplate, at: Position) -> Option<Node> {
        let map = self.subject("each", block, at).and_then(|(map, kind)| match kind {
            Kind::Map => Ok(map),
            Kind::Text if matches!(&map, Expr::Path(path) if parameter(path).is_some()) => Ok(map),
            _ => Err(self.record(helper(
                at,
                "each",
                "iterates only over labels or annotations, or over the lines of a parameter, as in {{#each pipeline.labels}}",
            ))),
        });
        let start = self.context;
        let mut end = None;
        if map.is_ok() {
            self.scopes.enter_loop();
        } else {
            self.scopes.enter_unknown();
        }
        let body = self.inner(block.template.as_ref(), at);
        self.scopes.leave();
        self.join(start, &mut end, at);
        // A loop can run any number of times, so it must end in the context in which it started.
        self.join(start, &mut end, at);
        let otherwise = self.inner(block.inverse.as_ref(), at);
        self.join(start, &mut end, at);
        map.ok().map(|map| Node::Each { map, body, otherwise, at })
    }

    /// Compiles `with`, which only shortens paths. The paths are resolved here, so the program has no node for it.
    fn with(&mut self, block: &HelperTemplate, at: Position) -> Vec<Node> {
        match self.subject("with", block, at) {
            Ok((Expr::Path(path), Kind::Object | Kind::Map)) => self.scopes.enter(path),
            other => {
                if other.is_ok() {
                    self.record(helper(at, "with", "requires an object, as in {{#with target.app}}"));
                }
                self.scopes.enter_unknown();
            }
        }
        let nodes = self.inner(block.template.as_ref(), at);
        self.scopes.leave();
        if block.inverse.is_some() {
            self.record(helper(at, "with", "has no else, because its object always exists"));
            let end = self.context;
            self.inner(block.inverse.as_ref(), at);
            self.context = end;
        }
        nodes
    }

    /// Compiles the only argument of a block.
    fn subject(&mut self, name: &'static str, block: &HelperTemplate, at: Position) -> Result<(Expr, Kind), Recorded> {
        self.no_named(name, &block.hash, at)?;
        if block.block_param.is_some() {
            return Err(self.record(helper(
                at,
                name,
                "does not support names with `as`; use this, @key, @index, or a path",
            )));
        }
        match block.params.as_slice() {
            [only] => self.parameter(only, at),
            _ => Err(self.record(helper(at, name, "requires one argument; put parentheses around a helper with arguments"))),
        }
    }

    /// Compiles a tag or a subexpression: a helper with its arguments, or a field.
    fn call(&mut self, tag: &HelperTemplate, at: Position) -> Result<(Expr, Kind), Recorded> {
        let name = tag.name.as_name().unwrap_or_default();
        if let Some(function) = Function::named(name) {
            self.no_named(function.name(), &tag.hash, at)?;
            return self.function(function, &tag.params, at);
        }
        if tag.params.is_empty() && tag.hash.is_empty() {
            return self.parameter(&tag.name, at);
        }
        let known = match name {
            "if" | "unless" | "each" | "with" => format!("use it as a block: {{{{#{name} …}}}}…{{{{/{name}}}}}"),
            _ => instead(name, Function::names(), ""),
        };
        let recorded = self.record(RenderError::UnknownHelper { at, name: for_message(name), known });
        for param in &tag.params {
            // This records the problems of the argument.
            let _ = self.parameter(param, at);
        }
        Err(recorded)
    }

    fn function(&mut self, function: Function, params: &[Parameter], at: Position) -> Result<(Expr, Kind), Recorded> {
        let arity = function.arity();
        if !arity.contains(&params.len()) {
            let (least, most) = arity.into_inner();
            let count = if least == most { least.to_string() } else { format!("{least} to {most}") };
            let problem = format!("requires {count} argument(s), not {}", params.len());
            return Err(self.record(helper(at, function.name(), &problem)));
        }
        // All arguments are compiled before an error is returned.
        let args: Vec<_> =
            params.iter().enumerate().map(|(index, param)| self.argument(function, index, param, at)).collect();
        let args = args.into_iter().collect::<Result<_, _>>()?;
        let kind = if function == Function::Lookup { Kind::MayBeMissing } else { Kind::Text };
        Ok((Expr::Call(function, args), kind))
    }

    fn argument(&mut self, of: Function, index: usize, param: &Parameter, at: Position) -> Result<Expr, Recorded> {
        let (expr, kind) = self.parameter(param, at)?;
        let takes_objects = matches!(of, Function::Json | Function::And | Function::Or | Function::Not);
        match (of, index, kind) {
            (Function::Lookup, 0, Kind::Map) | (Function::Default, 0, Kind::MayBeMissing) => Ok(expr),
            (Function::Lookup, 0, _) => Err(self.record(helper(at, "lookup", "works only on labels or annotations"))),
            (_, _, Kind::Map | Kind::Object) if takes_objects => Ok(expr),
            _ => self.textual(expr, kind, at),
        }
    }

    fn parameter(&mut self, parameter: &Parameter, at: Position) -> Result<(Expr, Kind), Recorded> {
        match parameter {
            Parameter::Path(Path::Relative((_, raw)) | Path::Local((_, _, raw))) | Parameter::Name(raw) => {
                self.scopes.resolve(raw).map_err(|unresolved| match unresolved {
                    Unresolved::Unknown(known) => {
                        self.record(RenderError::UnknownField { at, field: for_message(raw), known })
                    }
                    Unresolved::Unset(name) => self.record(RenderError::ParameterMissing { at, name }),
                    Unresolved::Hidden { name, owner } => self.record(RenderError::ParameterHidden { at, name, owner }),
                    Unresolved::EnclosingBlockInvalid => Recorded,
                })
            }
            Parameter::Literal(value @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) => {
                Ok((Expr::Literal(value.clone()), Kind::Text))
            }
            Parameter::Subexpression(sub) => match sub.as_element() {
                TemplateElement::Expression(tag) => self.call(tag, at),
                _ => Err(self.record(syntax(at, "tags of this kind are not supported"))),
            },
            _ => Err(self.record(syntax(at, "a literal in a tag must be a string, a number, true or false"))),
        }
    }

    /// Returns the expression if its value is a text.
    fn textual(&mut self, expr: Expr, kind: Kind, at: Position) -> Result<Expr, Recorded> {
        match kind {
            Kind::Text => Ok(expr),
            Kind::MayBeMissing => Err(self.record(RenderError::MayBeMissing { at, field: for_message(&expr.to_string()) })),
            Kind::Map | Kind::Object => Err(self.record(RenderError::NotText { at, field: for_message(&expr.to_string()) })),
        }
    }

    fn no_named(&mut self, name: &'static str, hash: &HashMap<String, Parameter>, at: Position) -> Result<(), Recorded> {
        if hash.is_empty() {
            return Ok(());
        }
        Err(self.record(helper(at, name, "does not support named arguments; write the values in order")))
    }
}

fn helper(at: Position, helper: &'static str, problem: &str) -> RenderError {
    RenderError::Helper { at, helper, problem: problem.to_owned() }
}

fn syntax(at: Position, problem: &str) -> RenderError {
    RenderError::Syntax { at, problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::render::data::parameters::Visibility;
    use crate::render::{Data, MAX_BODY, Values};
    use relaybook_api::TransitionType;

    fn data() -> Data {
        let mut data = Data::sample(TransitionType::Failed);
        let labels = [("app.kubernetes.io/name", "pod<info>"), ("team", "a")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        data.pipeline.labels = Arc::new(labels.into());
        data
    }

    fn plain(source: &str) -> Result<String, RenderError> {
        let parameters = Parameters::compile([("channel", Some("#{{upper environment}}"))]).unwrap();
        let values = Values::new(&data(), &parameters).unwrap();
        compile(source, EscapeContext::Plain, &parameters)?.run(&values, Visibility::All, MAX_BODY).map(|output| output.text)
    }

    #[test]
    fn each_template_renders_to_its_expected_text() {
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
    fn a_problem_is_reported_with_its_position_in_every_branch() {
        for (source, position, word) in [
            ("a\n {{typo}}", "line 2, column 2", "`typo`"),
            ("{{pipeline.nam}}", "line 1, column 1", "did you mean `pipeline.name`?"),
            ("{{pipeline.x}}", "line 1, column 1", "known names: name, namespace, uid"),
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
            ("{{#upper status}}{{/upper}}", "line 1, column 1", "the blocks are if"),
            ("{{if status}}", "line 1, column 1", "{{#if …}}"),
            ("{{json (uper status)}}", "line 1, column 1", "`uper`"),
            ("{{upper}}", "line 1, column 1", "requires 1 argument(s), not 0"),
            ("{{truncate status}}", "line 1, column 1", "requires 2 to 3 argument(s), not 1"),
            ("{{truncate status length=3}}", "line 1, column 1", "named"),
            ("{{#if status includeZero=true}}{{/if}}", "line 1, column 1", "named"),
            ("{{#if eq status \"a\"}}{{/if}}", "line 1, column 1", "parentheses"),
            ("{{#each pipeline.labels as |v k|}}{{/each}}", "line 1, column 1", "@key"),
            ("{{#each target}}{{/each}}", "line 1, column 1", "labels or annotations"),
            ("{{#with status}}{{/with}}", "line 1, column 1", "object"),
            ("{{#with target}}{{else}}{{/with}}", "line 1, column 1", "always exists"),
            ("{{#if status}}{{else with target}}{{/if}}", "line 1, column 15", "`unless`"),
            ("{{json null}}", "line 1, column 1", "a number"),
            ("{{@index}}", "line 1, column 1", "`each`"),
            ("{{comit revision}}", "line 1, column 1", "did you mean `commit`?"),
            ("{{pipline.name}}", "line 1, column 1", "`pipline.name`; did you mean `pipeline.name`?"),
            ("{{pipline.nam}}", "line 1, column 1", "`pipline.nam`; did you mean `pipeline`?"),
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

    /// Returns each problem of a JSON body.
    fn problems(source: &str) -> Vec<String> {
        let context = EscapeContext::of_content_type("application/json").unwrap();
        let error = compile(source, context, &Parameters::default()).unwrap_err();
        error.each().map(ToString::to_string).collect()
    }

    #[test]
    fn all_problems_of_a_template_are_reported_once() {
        for (source, expected) in [
            (
                "\"{{pipline.name}} {{revison}}\"",
                &[
                    "line 1, column 2: there is no field `pipline.name`; did you mean `pipeline.name`?",
                    "line 1, column 19: there is no field `revison`; did you mean `revision`?",
                ][..],
            ),
            (
                "\"{{eq revison (uper staus)}}{{eq revison revison}}\"",
                &["column 2: there is no field `revison`", "`uper`", "`staus`; did", "column 29"],
            ),
            (
                "\"{{#if drifed}}{{revison}}{{else if staus}}{{typ}}{{else}}{{tim}}{{/if}}\"",
                &["drifed", "revison", "staus", "typ", "tim"],
            ),
            (
                "\"{{#each pipline.labels}}{{@key}}{{this}}{{name}}{{uper this}}{{../revison}}{{/each}}{{revison}}\"",
                &["pipline.labels", "`uper`", "column 63", "column 86"],
            ),
            ("\"{{#each target}}{{#if status}}{{else if typo}}{{/if}}{{/each}}{{revison}}\"", &["each", "revison"]),
            (
                "\"{{#with taget}}{{name}}{{@root.revison}}{{else}}{{staus}}{{/with}}{{#if status}}{{else if typo}}{{/if}}\"",
                &["taget", "@root.revison", "no else", "staus", "line 1, column"],
            ),
            ("\"{{#list x}}{{name}}{{../revison}}{{else}}{{staus}}{{/list}}\"", &["`list`", "../revison", "staus"]),
            (
                "{\"a\": {{revision}}, \"b\": {{json revison}}, \"c\": {{staus}} }",
                &["the helper `json`", "revison", "staus"],
            ),
            // The consequences of a branch that ends in another context are not reported.
            ("{\"a\": {{#if drifted}}\"{{else}}1{{/if}} , {{revison}}", &["one branch", "revison"]),
        ] {
            let found = problems(source);
            let is = |(found, expected): (&String, &&str)| found.contains(expected);
            assert!(found.len() == expected.len() && found.iter().zip(expected).all(is), "{source}: {found:#?}");
        }
        let many: Vec<_> = (0..MOST_PROBLEMS + 10).map(|n| format!("{{{{typo{n}}}}}")).collect();
        let error = plain(&many.concat()).unwrap_err();
        assert!(error.each().count() == MOST_PROBLEMS && error.to_string().chars().count() < 1000, "{error}");
        assert!(error.to_string().ends_with("; and 45 more"), "{error}");
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
                let contexts = [
                    EscapeContext::Plain,
                    EscapeContext::Header,
                    EscapeContext::of_content_type("application/json").unwrap(),
                ];
                for context in contexts {
                    let program = compile(&source, context, &parameters);
                    let error = program.and_then(|program| program.run(&values, Visibility::All, 1024)).err();
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
    fn an_error_that_depends_on_labels_is_not_final() {
        let commit = "`commit` found no";
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
            let error =
                compile(source, EscapeContext::Plain, &parameters).unwrap().run(&values(), Visibility::All, 99).unwrap_err();
            assert_eq!(error.is_final(), is_final, "{source}: {error}");
        }
        let long = |source: &str| {
            compile(source, EscapeContext::Plain, &parameters).unwrap().run(&values(), Visibility::All, 3).unwrap_err()
        };
        assert!(long("{{environment}}").is_final());
        assert!(long("{{environment}}{{default pipeline.labels.team \"\"}}").is_final());
        assert!(!long("{{default pipeline.labels.team \"\"}}{{environment}}").is_final());
    }

    #[test]
    fn all_branches_of_a_block_must_end_in_the_same_context() {
        let json = |source: &str| {
            compile(source, EscapeContext::of_content_type("application/json").unwrap(), &Parameters::default())
        };
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
