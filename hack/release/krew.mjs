// Makes the manifest for krew, the plugin manager of kubectl.
//
//   node hack/release/krew.mjs --version 0.2.0 --url https://example.com/releases/v0.2.0 --homepage https://example.com FOLDER
//   node hack/release/krew.mjs --self-test
//
// In: the version, the address below which the archives are published, and a folder with the archives: for each platform one file
// relaybook-VERSION-OS-ARCH.tar.gz with the files `relaybook` and `LICENSE`. Out: the manifest on stdout, with the SHA-256 of each archive.
// Requires Node 20.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";

const PROGRAM = "relaybook";
const FILES = [PROGRAM, "LICENSE"];
const PLATFORMS = ["linux", "darwin"].flatMap((os) => ["amd64", "arm64"].map((arch) => ({ os, arch })));
/** As krew checks it, without the `v`. */
const VERSION = /^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$/;

/** Ends the script with a message about its input. */
class InputError extends Error {}

function check(isValid, message) {
  if (!isValid) throw new InputError(message);
}

const archive = (version, { os, arch }) => `${PROGRAM}-${version}-${os}-${arch}.tar.gz`;

/** Returns an https address without a slash at its end. It contains no character that YAML would need quotes for. */
function address(option, text) {
  check(/^https:\/\/[A-Za-z0-9.-]+(:\d+)?(\/[A-Za-z0-9._~%+/-]*)?$/.test(text ?? ""), `--${option} must be an https address: ${text}`);
  return text.replace(/\/+$/, "");
}

/** Returns the SHA-256 of an archive that has exactly the files that the manifest names. */
function digest(file) {
  let bytes, names;
  try {
    bytes = readFileSync(file);
    names = execFileSync("tar", ["-tzf", file], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim().split("\n");
  } catch {
    throw new InputError(`${file} is missing, or is no archive; build it as docs/releases.md describes`);
  }
  check(names.toSorted().join() === FILES.toSorted().join(), `${file} must contain ${FILES.join(" and ")}, not ${names.join(", ")}`);
  return createHash("sha256").update(bytes).digest("hex");
}

/** Returns the manifest. */
function manifest({ version, url, homepage }, folder) {
  check(VERSION.test(version ?? ""), `--version must be a version such as 0.2.0, without a v: ${version}`);
  const [base, home] = [address("url", url), address("homepage", homepage)];
  const platforms = PLATFORMS.map((platform) => {
    const name = archive(version, platform);
    return `  - selector:
      matchLabels:
        os: ${platform.os}
        arch: ${platform.arch}
    uri: ${base}/${name}
    sha256: ${digest(join(folder, name))}
    bin: ${PROGRAM}
    files:
${FILES.map((file) => `      - from: ${file}\n        to: .\n`).join("")}`;
  });
  return `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: ${PROGRAM}
spec:
  version: v${version}
  homepage: ${home}
  shortDescription: Show and promote what pipelines deploy
  description: |
    Shows what deployment pipelines do, which messages were sent about it, and
    what the receivers answered. Starts and approves promotions, waits for a
    revision, and sends messages again. The cluster must run Relaybook.
  platforms:
${platforms.join("")}`;
}

/** Makes a manifest of small archives, compares its shape, and checks that wrong input is refused. */
function selfTest() {
  const folder = mkdtempSync(join(tmpdir(), "krew-"));
  const pack = (platform, files = FILES) => {
    const content = join(folder, "content");
    mkdirSync(content);
    for (const file of files) writeFileSync(join(content, file), `${file} for ${platform.os} ${platform.arch}\n`);
    execFileSync("tar", ["-czf", join(folder, archive("1.2.3-rc.1", platform)), "-C", content, ...files]);
    rmSync(content, { recursive: true });
  };
  try {
    PLATFORMS.forEach((platform) => pack(platform));
    const input = { version: "1.2.3-rc.1", url: "https://example.com/v1/", homepage: "https://example.com" };
    const text = manifest(input, folder);
    const all = (key) => [...text.matchAll(new RegExp(`^ *(?:- )?${key}: (.*)$`, "gm"))].map((match) => match[1]);
    assert.deepEqual(all("version"), ["v1.2.3-rc.1"]);
    assert.deepEqual(all("uri"), ["linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64"].map((platform) =>
      `https://example.com/v1/${PROGRAM}-1.2.3-rc.1-${platform}.tar.gz`));
    const sums = PLATFORMS.map((platform) => createHash("sha256").update(readFileSync(join(folder, archive(input.version, platform)))).digest("hex"));
    assert.deepEqual(all("sha256"), sums);
    assert.equal(new Set(sums).size, PLATFORMS.length);
    assert.deepEqual(all("bin"), PLATFORMS.map(() => PROGRAM));
    assert.deepEqual(all("from"), PLATFORMS.flatMap(() => FILES));
    // krew accepts at most 50 characters.
    assert.ok(all("shortDescription")[0].length <= 50);
    assert.ok(!/\t| $/m.test(text) && text.endsWith("\n"));

    const refuses = (changed, message) => assert.throws(() => manifest({ ...input, ...changed }, folder), { message });
    refuses({ version: "v1.2.3" }, /--version must be a version such as 0.2.0/);
    refuses({ version: undefined }, /--version must be/);
    refuses({ url: "http://example.com" }, /--url must be an https address/);
    refuses({ homepage: "https://example.com/ #" }, /--homepage must be an https address/);
    refuses({ version: "1.2.4" }, /1.2.4-linux-amd64.tar.gz is missing/);
    pack(PLATFORMS[3], [PROGRAM]);
    refuses({}, /darwin-arm64.tar.gz must contain/);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

try {
  const options = { version: { type: "string" }, url: { type: "string" }, homepage: { type: "string" }, "self-test": { type: "boolean" } };
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  if (values["self-test"]) {
    selfTest();
    console.log("krew: all is well");
  } else {
    check(positionals.length === 1, "one argument is needed: the folder with the archives");
    process.stdout.write(manifest(values, positionals[0]));
  }
} catch (error) {
  if (!(error instanceof InputError) && !error.code?.startsWith("ERR_PARSE_ARGS")) throw error;
  console.error(`krew: ${error.message}`);
  process.exitCode = 2;
}
