// Prints the values of a chart as a table in Markdown. The texts are the comments in values.yaml that begin with two dashes.
// Fails if values.yaml and values.schema.json do not list the same values, or if a value has no comment.
//
//   node hack/chart-values.mjs CHART
//
// It reads only the subset of YAML that values.yaml uses, with two spaces of indentation a level. The lines below a key that
// has a comment are the default value of that key.
import { readFileSync } from "node:fs";
import { join } from "node:path";

const chart = process.argv[2];
if (!chart) {
  console.error("usage: node hack/chart-values.mjs CHART");
  process.exit(2);
}

/** The rows: the path of each key, its default value, and the text of its comment. */
function rows(text) {
  const found = [];
  let path = [];
  let comment = null;
  let open = null; // the row whose default value continues on the next lines, and the column of its key
  for (const line of text.split("\n")) {
    const indent = line.search(/\S/);
    if (open && indent > open.indent) {
      open.row.lines.push(line.slice(open.indent));
      continue;
    }
    open = null;
    const said = line.match(/^\s*# (-- )?(.*)$/);
    if (said) {
      if (said[1]) comment = said[2];
      else if (comment !== null) comment += ` ${said[2]}`;
      continue;
    }
    const key = line.match(/^(\s*)([A-Za-z]+):(?: (.*))?$/);
    if (!key) {
      if (indent >= 0) throw new Error(`values.yaml: unsupported YAML: ${line}`);
      comment = null;
      continue;
    }
    path = [...path.slice(0, key[1].length / 2), key[2]];
    if (comment === null) {
      if (key[3] !== undefined) throw new Error(`values.yaml: ${path.join(".")} has a value, but no comment`);
      continue;
    }
    const row = { key: path.join("."), comment, value: key[3] ?? "", lines: [] };
    found.push(row);
    open = { row, indent: key[1].length };
    comment = null;
  }
  return found;
}

/** The paths of the schema's leaves. A leaf is a schema without `properties`. */
function leaves(schema, path = []) {
  if (!schema.properties) return [path.join(".")];
  return Object.entries(schema.properties).flatMap(([key, below]) => leaves(below, [...path, key]));
}

/** A YAML block as one line, such as `{type: RollingUpdate, rollingUpdate: {…}}`. */
function flow(lines) {
  const parts = [];
  for (let i = 0; i < lines.length; i += 1) {
    const [, indent, key, value] = lines[i].match(/^(\s*)([A-Za-z]+):(?: (.*))?$/) ?? [];
    if (!key) throw new Error(`values.yaml: cannot be shown in a table: ${lines[i]}`);
    const below = [];
    while (value === undefined && i + 1 < lines.length && lines[i + 1].search(/\S/) > indent.length) below.push(lines[(i += 1)]);
    parts.push(`${key}: ${value ?? flow(below)}`);
  }
  return `{${parts.join(", ")}}`;
}

const documented = rows(readFileSync(join(chart, "values.yaml"), "utf8"));
const schema = JSON.parse(readFileSync(join(chart, "values.schema.json"), "utf8"));
const ruled = new Set(leaves(schema));
const keys = new Set(documented.map((row) => row.key));
const missing = [...ruled].filter((path) => !keys.has(path)).map((path) => `${path} is in values.schema.json, but not in values.yaml`);
const loose = [...keys].filter((path) => !ruled.has(path)).map((path) => `${path} is in values.yaml, but not in values.schema.json`);
if (missing.length + loose.length > 0) {
  console.error([...missing, ...loose].map((why) => `chart-values: ${why}`).join("\n"));
  process.exit(1);
}

console.log("| value | default | |\n|---|---|---|");
for (const row of documented) {
  const value = row.lines.length > 0 ? flow(row.lines) : row.value;
  console.log(`| \`${row.key}\` | \`${value.replaceAll("|", "\\|")}\` | ${row.comment.replaceAll("|", "\\|")} |`);
}
