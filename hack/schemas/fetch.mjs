// Fetches the schemas that receivers publish, for the contract tests of the built-in templates.
//
// In: `sources.json` (packages with version and checksum), and `package-lock.json` (packages with code that defines requests).
// Out: a folder outside of the repository, with a JSON file for each source. Its name is printed. It is created once for each
// state of this folder. OpenAPI documents are reduced to the operations that the templates use: a download of about 130 MB
// becomes 750 KB. Requires Node 20 with npm, Go and tar.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "relaybook", "schemas");

/** Returns the folder of schemas. Creates it if it does not exist. */
function schemas() {
  const folder = join(cache, fingerprint());
  if (existsSync(folder)) return folder;
  say(`downloading the schemas of receivers (about 130 MB) into ${folder}; this happens once`);
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

/** Returns a hash of all files in this folder. */
function fingerprint() {
  const hash = createHash("sha256");
  const files = readdirSync(here, { withFileTypes: true }).filter((entry) => entry.isFile());
  for (const name of files.map((entry) => entry.name).sort()) {
    hash.update(name).update("\0").update(readFileSync(join(here, name)));
  }
  return hash.digest("hex").slice(0, 16);
}

/** Renames the result to its final path. If another process was first, its result is the same and stays. */
function publish(out, folder) {
  try {
    renameSync(out, folder);
  } catch (error) {
    if (!existsSync(folder)) throw error;
  }
}

/** Generates the schemas of requests that are published as code. */
function generated(work, out) {
  say("packages of package-lock.json");
  for (const file of ["package.json", "package-lock.json", "generate.mjs", "types.ts"]) {
    copyFileSync(join(here, file), join(work, file));
  }
  run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], work);
  run("node", ["generate.mjs", out], work);
}

/** Returns the parsed document of a source. */
function document(source, work) {
  const read = readFileSync(source.npm ? fromNpm(source, work) : fromGo(source, work), "utf8");
  // The document of Gitea is a Go template with tags for the version and the path of the server.
  const text = source.file.endsWith(".tmpl") ? read.replaceAll(/\{\{[^{}]*\}\}/g, "") : read;
  if (source.between) {
    const [before, after] = source.between;
    return JSON.parse(text.split(before)[1].split(after)[0]);
  }
  if (!source.file.endsWith(".yaml")) return JSON.parse(text);
  const yaml = createRequire(join(work, "package.json"))("yaml");
  return yaml.parse(text, { maxAliasCount: -1 });
}

/** Returns a file of an npm package. The hash of the package must be that in sources.json. */
function fromNpm({ npm, integrity, file }, work) {
  const folder = join(work, createHash("sha256").update(npm).digest("hex"));
  const archive = `${folder}.tgz`;
  if (!existsSync(archive)) {
    const name = run("npm", ["pack", "--silent", "--ignore-scripts", npm], work).trim();
    renameSync(join(work, name), archive);
  }
  const found = `sha512-${createHash("sha512").update(readFileSync(archive)).digest("base64")}`;
  if (found !== integrity) throw new Error(`${npm} has the hash ${found}, which is not the one in sources.json`);
  mkdirSync(folder, { recursive: true });
  run("tar", ["-xzf", archive, "-C", folder, `package/${file}`], work);
  return join(folder, "package", file);
}

/** Returns a file of a Go module. The hash of the module must be that in sources.json, so the checksum database is not used. */
function fromGo({ go, sum, file }, work) {
  const module = JSON.parse(run("go", ["mod", "download", "-json", go], work, { GOFLAGS: "-mod=mod", GOWORK: "off", GOSUMDB: "off" }));
  if (module.Sum !== sum) throw new Error(`${go} has the hash ${module.Sum}, which is not the one in sources.json`);
  return join(module.Dir, file);
}

/** Returns the parts of an OpenAPI document that some operations need. Without operations, returns the whole document. */
function cut(document, { operations }) {
  if (!operations) return document;
  const { openapi, swagger, basePath, consumes, servers, paths } = document;
  const kept = { openapi, swagger, basePath, consumes, servers, paths: {} };
  for (const operation of operations) {
    const [method, path] = operation.split(" ");
    const { responses: _, ...wanted } = paths[path]?.[method] ?? {};
    if (!wanted.operationId && !wanted.requestBody && !wanted.parameters) throw new Error(`the document has no operation ${operation}`);
    kept.paths[path] = { parameters: paths[path].parameters, [method]: wanted };
  }
  keepReferenced(kept.paths, document, kept);
  return kept;
}

/** Copies everything that a part refers to by `$ref`, directly or through other parts. */
function keepReferenced(part, document, kept) {
  if (part === null || typeof part !== "object") return;
  if (typeof part.$ref === "string" && copy(part.$ref, document, kept)) {
    keepReferenced(at(part.$ref, document), document, kept);
  }
  for (const value of Object.values(part)) keepReferenced(value, document, kept);
}

/** Copies the value that a JSON Pointer refers to. Returns false if it was already copied. */
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
