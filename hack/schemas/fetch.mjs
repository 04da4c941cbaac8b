// Fetches the schemas that receivers publish, for the contract tests of the built-in templates.
//
// In: `sources.json` (packages by version and checksum), `package-lock.json` (the same, for what is published as code). Out:
// one JSON file a source in a folder outside of the repository, whose name is printed; it is made once for each state of
// this folder. OpenAPI documents are cut down to the operations that the templates use. About 130 MB are downloaded for
// that, which end up as 750 KB. Needs Node 20 with npm, Go and tar.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "pennant", "schemas");

/** The folder of schemas; made if it is not there yet. */
function schemas() {
  const folder = join(cache, fingerprint());
  if (existsSync(folder)) return folder;
  say(`fetching what receivers publish into ${folder}, once: about 130 MB`);
  mkdirSync(cache, { recursive: true });
  const work = mkdtempSync(join(cache, "making-"));
  try {
    const out = join(work, "out");
    mkdirSync(out);
    generated(work, out);
    for (const [name, source] of Object.entries(JSON.parse(readFileSync(join(here, "sources.json"), "utf8")))) {
      say(`${name}: ${source.npm ?? source.go}`);
      writeFileSync(join(out, `${name}.json`), JSON.stringify(cut(document(source, work), source), null, 1));
    }
    publish(out, folder);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return folder;
}

/** Changes with every file here. */
function fingerprint() {
  const hash = createHash("sha256");
  const files = readdirSync(here, { withFileTypes: true }).filter((entry) => entry.isFile());
  for (const name of files.map((entry) => entry.name).sort()) {
    hash.update(name).update("\0").update(readFileSync(join(here, name)));
  }
  return hash.digest("hex").slice(0, 16);
}

/** Whoever comes first; another who made the same at the same time has made the same. */
function publish(out, folder) {
  try {
    renameSync(out, folder);
  } catch (error) {
    if (!existsSync(folder)) throw error;
  }
}

/** Schemas of what is published as code. */
function generated(work, out) {
  say("packages of package-lock.json");
  for (const file of ["package.json", "package-lock.json", "generate.mjs", "types.ts"]) {
    copyFileSync(join(here, file), join(work, file));
  }
  run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], work);
  run("node", ["generate.mjs", out], work);
}

/** The document of a source, parsed. */
function document(source, work) {
  const read = readFileSync(source.npm ? fromNpm(source, work) : fromGo(source, work), "utf8");
  // Gitea's is a template of Go: it fills in its version, and the path that it is served below.
  const text = source.file.endsWith(".tmpl") ? read.replaceAll(/\{\{[^{}]*\}\}/g, "") : read;
  if (source.between) {
    const [before, after] = source.between;
    return JSON.parse(text.split(before)[1].split(after)[0]);
  }
  if (!source.file.endsWith(".yaml")) return JSON.parse(text);
  const yaml = createRequire(join(work, "package.json"))("yaml");
  return yaml.parse(text, { maxAliasCount: -1 });
}

/** A file of a package, whose archive has the hash that is written down. */
function fromNpm({ npm, integrity, file }, work) {
  const folder = join(work, createHash("sha256").update(npm).digest("hex"));
  const archive = `${folder}.tgz`;
  if (!existsSync(archive)) {
    const name = run("npm", ["pack", "--silent", "--ignore-scripts", npm], work).trim();
    renameSync(join(work, name), archive);
  }
  const found = `sha512-${createHash("sha512").update(readFileSync(archive)).digest("base64")}`;
  if (found !== integrity) throw new Error(`${npm} is not what sources.json says: ${found}`);
  mkdirSync(folder, { recursive: true });
  run("tar", ["-xzf", archive, "-C", folder, `package/${file}`], work);
  return join(folder, "package", file);
}

/** A file of a Go module, whose content has the hash that is written down; so no database of hashes is asked. */
function fromGo({ go, sum, file }, work) {
  const module = JSON.parse(run("go", ["mod", "download", "-json", go], work, { GOFLAGS: "-mod=mod", GOWORK: "off", GOSUMDB: "off" }));
  if (module.Sum !== sum) throw new Error(`${go} is not what sources.json says: ${module.Sum}`);
  return join(module.Dir, file);
}

/** Of an OpenAPI document what some operations need; another document is left as it is. */
function cut(document, { operations }) {
  if (!operations) return document;
  const { openapi, swagger, basePath, consumes, servers, paths } = document;
  const kept = { openapi, swagger, basePath, consumes, servers, paths: {} };
  for (const operation of operations) {
    const [method, path] = operation.split(" ");
    const { responses: _, ...wanted } = paths[path]?.[method] ?? {};
    if (!wanted.operationId && !wanted.requestBody && !wanted.parameters) throw new Error(`there is no ${operation}`);
    kept.paths[path] = { parameters: paths[path].parameters, [method]: wanted };
  }
  keepReferenced(kept.paths, document, kept);
  return kept;
}

/** Copies what a part names by `$ref`, and what that names in turn. */
function keepReferenced(part, document, kept) {
  if (part === null || typeof part !== "object") return;
  if (typeof part.$ref === "string" && copy(part.$ref, document, kept)) {
    keepReferenced(at(part.$ref, document), document, kept);
  }
  for (const value of Object.values(part)) keepReferenced(value, document, kept);
}

/** Copies what a JSON Pointer points to; false if it was there. */
function copy(pointer, document, kept) {
  const steps = pointer.replace("#/", "").split("/");
  const last = steps.pop();
  const place = steps.reduce((object, step) => (object[step] ??= {}), kept);
  if (last in place) return false;
  place[last] = at(pointer, document);
  return true;
}

function at(pointer, document) {
  const steps = pointer.replace("#/", "").split("/");
  const name = (step) => decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~");
  return steps.reduce((object, step) => object[name(step)], document);
}

function run(command, args, cwd, env = {}) {
  try {
    const options = { cwd, env: { ...process.env, ...env }, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] };
    return execFileSync(command, args, { ...options, maxBuffer: 1 << 26 });
  } catch (error) {
    throw new Error(`${command} ${args.join(" ")}: ${error.stderr || error.stdout || error.message}`);
  }
}

function say(words) {
  process.stderr.write(`schemas: ${words}\n`);
}

try {
  process.stdout.write(`${schemas()}\n`);
} catch (error) {
  say(error.message);
  process.exitCode = 1;
}
