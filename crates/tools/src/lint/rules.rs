//! The rules of a schema (`x-kubernetes-validations`), evaluated on an object as the API server evaluates them
//! (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules>).
//!
//! kube-cel has an engine for whole schemas, but it does not parse optional syntax (`self.?max`), which our rules use. So this module
//! walks the schema itself, and uses only the Kubernetes functions of kube-cel.

use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::Expr;
use kube_cel::cel::common::ast::operators::{OPT_INDEX, OPT_SELECT};
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::parser::{Expression, Parser};
use kube_cel::cel::{Context, Value as CelValue, to_value};
use serde_json::Value;

use relaybook_settings::manifests::field::{below, entry};

/// The result of a rule for a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The rule is satisfied.
    Holds,
    /// The rule is violated. The text is the message of the rule.
    Broken(String),
    /// The rule cannot be evaluated on this value. The value has another type than the schema requires, or the rule is invalid.
    Unclear(String),
}

/// Evaluates every rule that applies to the object. Returns each result with the field that the rule is about.
pub(super) fn check(schema: &Value, object: &Value) -> Vec<(String, Verdict)> {
    let mut results = Vec::new();
    visit(schema, object, "", &mut |field, rule, value| {
        // A rule that forbids a change cannot be evaluated on an object that does not exist yet, unless its old value is optional.
        if is_old_optional(rule) || !text(rule, "rule").contains("oldSelf") {
            results.push((field.to_owned(), verdict(rule, value, None)));
        }
    });
    results
}

/// Calls `show` for each rule, with the field and the value that the rule applies to.
pub(super) fn visit(schema: &Value, value: &Value, path: &str, show: &mut impl FnMut(&str, &Value, &Value)) {
    for rule in schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten() {
        show(path, rule, value);
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let known = schema.get("properties").and_then(|p| p.get(name));
                if let Some(schema) = known.or_else(|| schema.get("additionalProperties")) {
                    visit(schema, value, &below(path, name), show);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                visit(schema.get("items").unwrap_or(&Value::Null), item, &entry(path, index), show);
            }
        }
        _ => {}
    }
}

/// Evaluates one rule on one value. `old` is the stored value, if the object exists.
pub(super) fn verdict(rule: &Value, value: &Value, old: Option<&Value>) -> Verdict {
    match evaluate(rule, value, old) {
        Ok(true) => Verdict::Holds,
        Ok(false) => Verdict::Broken(text(rule, "message").to_owned()),
        Err(why) => Verdict::Unclear(why),
    }
}

fn evaluate(rule: &Value, value: &Value, old: Option<&Value>) -> Result<bool, String> {
    let parser = Parser::default().enable_optional_syntax(true);
    let mut parsed = parser.parse(text(rule, "rule")).map_err(|e| e.to_string())?;
    select_by_index(&mut parsed);
    let cel = |value: &Value| to_value(value).map_err(|e| e.to_string());
    let old = old.map(cel).transpose()?;
    let mut context = Context::default().with_all();
    context.add_variable_from_value("self", cel(value)?);
    if is_old_optional(rule) {
        let old = old.map_or_else(OptionalValue::none, OptionalValue::of);
        context.add_variable_from_value("oldSelf", CelValue::Opaque(Arc::new(old)));
    } else if let Some(old) = old {
        context.add_variable_from_value("oldSelf", old);
    }
    match CelValue::resolve(&parsed, &context) {
        Ok(CelValue::Bool(holds)) => Ok(holds),
        Ok(_) => Err("the rule does not return a boolean".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Replaces `a.?b` with `a[?'b']`, which has the same meaning. In cel 0.13, `a.?b` fails if there is no `b`.
fn select_by_index(expression: &mut Expression) {
    match &mut expression.expr {
        Expr::Call(call) => {
            if call.func_name == OPT_SELECT {
                OPT_INDEX.clone_into(&mut call.func_name);
            }
            call.target.as_deref_mut().into_iter().chain(&mut call.args).for_each(select_by_index);
        }
        Expr::Comprehension(over) => {
            let over = &mut **over;
            [&mut over.iter_range, &mut over.accu_init, &mut over.loop_cond, &mut over.loop_step, &mut over.result]
                .into_iter()
                .for_each(select_by_index);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(select_by_index),
        Expr::Select(select) => select_by_index(&mut select.operand),
        _ => {}
    }
}

/// Whether `oldSelf` is an optional value in the rule. Then the API server also evaluates the rule when an object is created.
fn is_old_optional(rule: &Value) -> bool {
    rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default()
}

fn text<'a>(rule: &'a Value, name: &str) -> &'a str {
    rule.get(name).and_then(Value::as_str).unwrap_or_default()
}
