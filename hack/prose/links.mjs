// Checks that the files and headings exist to which links between documents lead. URLs are not fetched.
//
// In: the root of the repository, and the names of its Markdown files. Out: one line for each broken link.
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";

export function brokenLinks(root, names) {
  const known = new Map();
  const anchors = (file) => known.get(file) ?? known.set(file, headings(readFileSync(join(root, file), "utf8"))).get(file);
  return names.flatMap((name) =>
    prose(readFileSync(join(root, name), "utf8")).split("\n").flatMap((line, at) =>
      [...line.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link]) => link).filter((link) => /^[\w./#-]+$/.test(link)).flatMap((link) => {
        const [path, anchor] = link.split("#");
        const file = path ? normalize(join(dirname(name), path)) : name;
        const problem = !existsSync(join(root, file)) ? `${file} does not exist`
          : anchor && file.endsWith(".md") && !anchors(file).has(anchor) ? `${file} has no heading #${anchor}` : "";
        return problem ? [`${name}:${at + 1}: link ${link}: ${problem}`] : [];
      })));
}

/** Returns the anchors that GitHub gives to headings. */
function headings(text) {
  const all = new Set();
  for (const [, heading] of prose(text).matchAll(/^#+ +(.*)$/gm)) {
    const words = heading.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").trim().toLowerCase();
    const anchor = words.replace(/[^\p{L}\p{N}_\- ]/gu, "").replaceAll(" ", "-");
    let unique = anchor;
    for (let n = 1; all.has(unique); n++) unique = `${anchor}-${n}`;
    all.add(unique);
  }
  return all;
}

/** Removes fenced code. Line numbers stay the same. */
function prose(text) {
  return text.replace(/^```[\s\S]*?^```/gm, (code) => code.replace(/[^\n]+/g, ""));
}
