// Generates JSON Schemas of requests that receivers publish as code. `fetch.mjs` starts it in a folder with `node_modules`.
//
// In: `types.ts`, and the validators of Discord's requests. Out: JSON files in the folder
// that the first argument names, one for each schema.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { IncomingWebhookRequestPartialSchema } from "discord-api-spec/zod";
import { createGenerator } from "ts-json-schema-generator";
import { toJSONSchema } from "zod/mini";

const out = process.argv[2];
const write = (name, schema) => writeFileSync(join(out, `${name}.json`), JSON.stringify(schema, null, 1));
const kebab = (name) => name.replace(/(?<=[a-z])[A-Z]/g, "-$&").toLowerCase();

const types = "types.ts";
const exported = [...readFileSync(types, "utf8").matchAll(/^export (?:type|interface) (\w+)/gm)].map(([, name]) => name);
const generator = createGenerator({ path: types, skipTypeCheck: true, topRef: false, expose: "all" });
for (const type of exported) write(kebab(type), generator.createSchema(type));

// With `io: "output"`, objects allow no other fields, so a field that Discord does not know is an error.
write("discord", toJSONSchema(IncomingWebhookRequestPartialSchema, { io: "output", unrepresentable: "any" }));
