// Checks the prose of the repository: links, words per sentence, terms, spelling.
//
// In: the files that Git lists. Out: one line for each problem, with file and line; exit code 1 if there is a problem. The rules are in
// `words-per-sentence.js` and `terms.json`, the vocabulary in `vocabulary.txt`. `--figures` prints how long sentences are. The packages are
// installed outside of the repository, once for each state of package-lock.json. Requires Node 20 with npm, and Git.
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { homedir, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { extract, messages } from "./extract.mjs";
import { brokenLinks } from "./links.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "..", "..");

/** Files to check: documents, comments and messages of the program, texts of the chart, scripts. Tests are not checked. */
const CHECKED = /(\.md|^(src|crates)\/.*\.rs|NOTES\.txt|values\.yaml|files\/rules\.yaml|Makefile|hack\/[\w-]+\.sh)$/;
/** Generated from descriptions that are checked in `crates/api/src`. */
const NOT_CHECKED = /^docs\/reference\//;
/** Texts of test code are data, not messages. */
const MESSAGES = /^(src|crates)\/(?!.*\btests?(\.rs|\/)).*\.rs$/;

const work = mkdtempSync(join(tmpdir(), "prose-"));
try {
  const packages = installed();
  const names = write();
  if (process.argv.includes("--figures")) await figures(packages, names);
  else process.exitCode = [links(), textlint(packages), cspell(packages)].every(Boolean) ? 0 : 1;
} finally {
  rmSync(work, { recursive: true, force: true });
}

/** Returns the folder of the packages. Installs them if the folder does not exist. */
function installed() {
  const lock = readFileSync(join(here, "package-lock.json"));
  const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "relaybook", "prose");
  const folder = join(cache, createHash("sha256").update(lock).digest("hex").slice(0, 16));
  if (existsSync(folder)) return folder;
  console.error(`prose: installing textlint and cspell into ${folder}, once`);
  mkdirSync(cache, { recursive: true });
  const making = mkdtempSync(join(cache, "making-"));
  for (const file of ["package.json", "package-lock.json"]) cpSync(join(here, file), join(making, file));
  execFileSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: making, stdio: ["ignore", "ignore", "inherit"] });
  renameSync(making, folder);
  return folder;
}

/** Returns the files that Git tracks, or would add. */
function listed() {
  const names = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], { cwd: root, encoding: "utf8" });
  return names.split("\n").filter((name) => name && existsSync(join(root, name)));
}

/** Writes the prose of each file below the work folder, under the same name with `.md`. */
function write() {
  return listed().filter((name) => CHECKED.test(name) && !NOT_CHECKED.test(name)).flatMap((name) => {
    const text = readFileSync(join(root, name), "utf8");
    const parts = [[name.replace(/\.md$/, ""), extract(name, text)]];
    if (MESSAGES.test(name)) parts.push([`${name}.messages`, messages(text)]);
    return parts.map(([as, prose]) => {
      mkdirSync(dirname(join(work, "text", as)), { recursive: true });
      writeFileSync(join(work, "text", `${as}.md`), prose);
      return `${as}.md`;
    });
  });
}

/** Copies our rule to the folder where textlint looks for rules and where imports find the packages. Returns the file. */
function rule(packages) {
  const folder = join(packages, "node_modules", "textlint-rule-words-per-sentence");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), JSON.stringify({ name: "textlint-rule-words-per-sentence", type: "module", exports: "./index.js" }));
  cpSync(join(here, "words-per-sentence.js"), join(folder, "index.js"));
  return join(folder, "index.js");
}

/** Replaces the name of an extracted file in a problem by the name of the file that it was extracted from. */
function original(line) {
  const named = line.replace(join(work, "text") + "/", "").replace(/(\.rs)\.messages\.md:/, "$1:").replace(/\.(rs|txt|yaml|sh)\.md:/, ".$1:");
  return named.replace(/^Makefile\.md:/, "Makefile:");
}

function links() {
  const broken = brokenLinks(root, listed().filter((name) => name.endsWith(".md") && !NOT_CHECKED.test(name)));
  for (const line of broken) console.log(line);
  return broken.length === 0;
}

function textlint(packages) {
  rule(packages);
  const terms = JSON.parse(readFileSync(join(here, "terms.json"), "utf8"));
  const config = { rules: { "words-per-sentence": { max: 30 }, terminology: { defaultTerms: false, terms } } };
  writeFileSync(join(work, "textlintrc.json"), JSON.stringify(config));
  const program = join(packages, "node_modules", "textlint", "bin", "textlint.js");
  const options = ["--config", join(work, "textlintrc.json"), "--format", "unix"];
  return report(spawnSync(process.execPath, [program, ...options, join(work, "text/**/*.md")], { cwd: packages, encoding: "utf8", maxBuffer: 1 << 28 }));
}

function cspell(packages) {
  const config = {
    version: "0.2", language: "en,en-GB", minWordLength: 4,
    dictionaryDefinitions: [{ name: "vocabulary", path: join(here, "vocabulary.txt") }],
    dictionaries: ["vocabulary", "softwareTerms", "k8s", "rust", "golang", "bash", "node", "html", "filetypes", "companies"],
    // Code, links, hashes and identifiers.
    ignoreRegExpList: ["/^```[\\s\\S]*?^```/gm", "/`[^`\\n]*`/g", "/\\]\\([^)]*\\)/g", "/https?:\\S+/g", "/\\b[0-9a-f]{7,}\\b/g", "/\\b\\w*[_A-Z0-9]\\w*[A-Z]\\w*\\b/g"],
  };
  writeFileSync(join(work, "cspell.json"), JSON.stringify(config));
  const program = join(packages, "node_modules", "cspell", "bin.mjs");
  const options = ["lint", "--config", join(work, "cspell.json"), "--root", join(work, "text"), "--no-progress", "--no-summary", "--no-color", "--quiet", "**/*.md"];
  return report(spawnSync(process.execPath, [program, ...options], { cwd: join(work, "text"), encoding: "utf8", maxBuffer: 1 << 28 }));
}

function report({ status, stdout, stderr }) {
  const lines = stdout.split("\n").filter((line) => line.includes(":"));
  for (const line of lines) console.log(original(line));
  if (status !== 0 && lines.length === 0) console.error(stderr);
  return status === 0;
}

/** Prints how long sentences are: in documents, and in comments and messages. */
async function figures(packages, names) {
  const { parse } = createRequire(join(packages, "package.json"))("@textlint/markdown-to-ast");
  const { sentences } = await import(rule(packages));
  const count = (all) => {
    const lengths = all.flatMap((name) => {
      const found = [];
      const visit = (node) => {
        if (node.type === "Paragraph" || node.type === "TableCell") found.push(...sentences(node).map((one) => one.words).filter((n) => n > 2));
        else (node.children ?? []).forEach(visit);
      };
      visit(parse(readFileSync(join(work, "text", name), "utf8")));
      return found;
    }).sort((one, other) => one - other);
    const long = lengths.filter((n) => n > 30).length;
    return `${lengths.length} sentences, median ${lengths[lengths.length >> 1]} words, longest ${lengths.at(-1)}, ${long} over 30`;
  };
  const page = (name) => !/\.(rs|txt|yaml|sh)(\.messages)?\.md$|^Makefile/.test(name);
  console.log(`documents: ${count(names.filter(page))}`);
  console.log(`comments and messages: ${count(names.filter((name) => !page(name)))}`);
}
