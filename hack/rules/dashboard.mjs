// Prints a promtool test of the dashboard. Each query is evaluated with metrics that were recorded in a real run, and must have
// a result. So the test finds invalid queries, and queries that join or compare series whose labels do not match.
//
//   node hack/rules/dashboard.mjs DASHBOARD RECORDED
import { readFileSync } from 'node:fs';

const [dashboardFile, recordedFile] = process.argv.slice(2);
if (!recordedFile) {
  console.error('usage: node dashboard.mjs DASHBOARD RECORDED');
  process.exit(2);
}

// The labels that a scrape adds, and the variables that users choose above the panels.
const target = { namespace: 'relaybook-system', job: 'relaybook', pod: 'relaybook-0', instance: '10.0.0.1:8080' };
const variables = { namespace: target.namespace, job: '.*', pod: '.*', __rate_interval: '1m', __range: '1h' };
const interval = 15;

const added = Object.entries(target).map(([label, value]) => `${label}="${value}"`).join(',');
const lines = readFileSync(recordedFile, 'utf8').trim().split('\n');
const series = lines.map((line) => {
  const at = line.lastIndexOf('} ');
  const [, name, labels] = /^(\w+)\{(.*)$/.exec(line.slice(0, at));
  return { series: `${name}{${[labels, added].filter(Boolean).join(',')}}`, values: line.slice(at + 2) };
});
const scrapes = Math.max(...series.map(({ values }) => values.split(' ').length));

const fill = (query) =>
  query.replace(/\$\{?(\w+)\}?/g, (whole, name) => {
    if (name in variables) return variables[name];
    console.error(`dashboard: unknown variable ${whole} in ${query}`);
    process.exit(1);
  });

const panels = JSON.parse(readFileSync(dashboardFile, 'utf8')).panels;
const queries = panels.flatMap((panel) => panel.targets ?? []);
if (queries.length === 0) {
  console.error(`dashboard: ${dashboardFile} has no queries`);
  process.exit(1);
}

// The result must have the labels that the legend shows. If a query does not group by a label, its place in the legend is empty.
const shown = ({ legendFormat = '' }) => [...legendFormat.matchAll(/\{\{\s*(\w+)\s*\}\}/g)].map(([, label]) => label);
const holds = (expr) => ({ expr: `count(${expr}) > bool 0`, eval_time: `${(scrapes - 1) * interval}s`, exp_samples: [{ labels: '{}', value: 1 }] });
const tests = queries.flatMap((query) => {
  const expr = fill(query.expr);
  // A quantile of no samples is NaN, which `< +Inf` drops. `unless … vector(0)` drops series without the label.
  const labelled = shown(query).map((label) => holds(`group by (${label}) (${expr}) unless on (${label}) vector(0)`));
  return [holds(`(${expr}) < +Inf`), ...labelled];
});

const test = { rule_files: [], evaluation_interval: `${interval}s`, tests: [{ name: 'dashboard', interval: `${interval}s`, input_series: series, promql_expr_test: tests }] };
console.log(JSON.stringify(test, null, 1));
