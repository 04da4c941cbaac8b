// Removes everything from a bill of materials that differs between machines, and checks it. It must list exactly the packages
// that are compiled into the program, each with its checksum in Cargo.lock.
//
//   node hack/sbom.mjs MADE OUT TREE PROGRAM
//
// MADE is the file that cargo-cyclonedx wrote, OUT is the result. TREE has a line "NAME vVERSION" for each package. PROGRAM has
// a line "NAME-VERSION" for each package whose path is in the program.
import { readFileSync, writeFileSync } from 'node:fs';
import process from 'node:process';

const [made, out, tree, program] = process.argv.slice(2);
const lines = (file) => readFileSync(file, 'utf8').split('\n').filter(Boolean);

// The path of this clone is private. It and the random serial number would also make each file different.
const text = readFileSync(made, 'utf8').replaceAll(`file://${process.cwd()}`, 'file:///relaybook');
const bill = JSON.parse(text);
delete bill.serialNumber;
bill.metadata.timestamp = new Date(Number(process.env.SOURCE_DATE_EPOCH) * 1000).toISOString().replace('.000', '');

const problems = [];
if (bill.bomFormat !== 'CycloneDX' || !bill.specVersion) problems.push('the file is not a CycloneDX document');

// Checksums by "NAME VERSION". Our own packages have none.
const locked = new Map();
for (const entry of readFileSync('Cargo.lock', 'utf8').split('[[package]]\n').slice(1)) {
  const field = (name) => new RegExp(`^${name} = "(.*)"$`, 'm').exec(entry)?.[1];
  locked.set(`${field('name')} ${field('version')}`, field('checksum'));
}

const key = (part) => `${part.name} ${part.version}`;
const compiled = new Set(lines(tree).map((line) => line.replace(' v', ' ')));

// Cargo's metadata also has dependencies for no platform, `cfg(any())`. Crates use them to keep two versions in step.
const unused = new Set(bill.components.filter((part) => !compiled.has(key(part))).map((part) => part['bom-ref']));
bill.components = bill.components.filter((part) => !unused.has(part['bom-ref']));
bill.dependencies = bill.dependencies.filter(({ ref }) => !unused.has(ref));
for (const entry of bill.dependencies) {
  if (entry.dependsOn) entry.dependsOn = entry.dependsOn.filter((ref) => !unused.has(ref));
}

const own = bill.metadata.component;
const listed = new Map([own, ...bill.components].map((part) => [key(part), part]));
for (const name of compiled) {
  if (!listed.has(name)) problems.push(`${name} is in the program, but not listed`);
}
for (const [name, part] of listed) {
  if (!locked.has(name)) problems.push(`${name} is listed, but not in Cargo.lock`);
  if (part !== own && !part.licenses?.length) problems.push(`${name} has no licence`);
  if (locked.has(name) && !locked.get(name)) continue;
  const hash = part.hashes?.find(({ alg }) => alg === 'SHA-256')?.content;
  if (!hash || hash !== locked.get(name)) problems.push(`${name} does not have the checksum of Cargo.lock`);
}
const named = lines(program);
const known = new Set([...listed.keys()].map((name) => name.replace(' ', '-')));
for (const crate of named) {
  if (!known.has(crate)) problems.push(`the program contains a path of ${crate}, which is not listed`);
}
if (JSON.stringify(bill).includes(process.cwd())) problems.push('the file contains a path of this machine');

if (problems.length > 0) {
  console.error(problems.map((problem) => `sbom: ${problem}`).join('\n'));
  process.exit(1);
}
writeFileSync(out, `${JSON.stringify(bill, null, 2)}\n`);
const words = named.length > 0 ? `; ${named.length} of them have paths in the program` : '';
console.log(`sbom: ${out} lists the ${listed.size} packages of the program${words}`);
