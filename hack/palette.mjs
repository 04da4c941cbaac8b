// Makes PNG files smaller: each keeps its 256 most frequent colours, and every other colour becomes the nearest of them. Screenshots of text
// need no more, and become a fourth of their size.
//
//   node hack/palette.mjs FILE.png...
import { readFileSync, writeFileSync } from 'node:fs';
import { crc32, deflateSync, inflateSync } from 'node:zlib';

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

/** Yields the type and the data of each chunk (https://www.w3.org/TR/png-3/#5Chunk-layout). */
function* chunks(file) {
  for (let at = SIGNATURE.length; at < file.length;) {
    const length = file.readUInt32BE(at);
    yield [file.toString('latin1', at + 4, at + 8), file.subarray(at + 8, at + 8 + length)];
    at += length + 12;
  }
}

/** Returns the chunk of a type with its length and its checksum. */
function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  sum.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, sum]);
}

/** Returns the sample that a filter predicts from those to the left, above, and above to the left. */
function predicted(filter, left, above, corner) {
  if (filter === 1) return left;
  if (filter === 2) return above;
  if (filter === 3) return (left + above) >> 1;
  if (filter !== 4) return 0;
  const estimate = left + above - corner;
  const [toLeft, toAbove, toCorner] = [left, above, corner].map((sample) => Math.abs(estimate - sample));
  if (toLeft <= toAbove && toLeft <= toCorner) return left;
  return toAbove <= toCorner ? above : corner;
}

/** Returns the width, the height and the colours of an image of 8 bits a sample, row by row. */
function decode(file) {
  const parts = [...chunks(file)];
  const header = parts.find(([type]) => type === 'IHDR')[1];
  const [width, height, depth, kind] = [header.readUInt32BE(0), header.readUInt32BE(4), header[8], header[9]];
  if (depth !== 8 || (kind !== 2 && kind !== 6)) return null;
  const size = kind === 2 ? 3 : 4;
  const raw = inflateSync(Buffer.concat(parts.filter(([type]) => type === 'IDAT').map(([, data]) => data)));
  const colours = new Uint32Array(width * height);
  let before = new Uint8Array(width * size);
  for (let y = 0; y < height; y += 1) {
    const start = y * (width * size + 1);
    const row = new Uint8Array(width * size);
    for (let x = 0; x < row.length; x += 1) {
      const left = x < size ? 0 : row[x - size];
      const corner = x < size ? 0 : before[x - size];
      row[x] = raw[start + 1 + x] + predicted(raw[start], left, before[x], corner);
    }
    for (let x = 0; x < width; x += 1) {
      const at = x * size;
      colours[y * width + x] = (row[at] << 16) | (row[at + 1] << 8) | row[at + 2];
    }
    before = row;
  }
  return { width, height, colours };
}

/** Returns the palette, and the index in it of each colour. */
function palette(colours) {
  const counts = new Map();
  for (const colour of colours) counts.set(colour, (counts.get(colour) ?? 0) + 1);
  const all = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([colour]) => colour);
  const kept = all.slice(0, 256);
  const distance = (a, b) => [16, 8, 0].reduce((sum, bits) => sum + (((a >> bits) & 255) - ((b >> bits) & 255)) ** 2, 0);
  const nearest = (colour) => kept.reduce((best, other, index) => (distance(colour, other) < distance(colour, kept[best]) ? index : best), 0);
  return { kept, index: new Map(all.map((colour, index) => [colour, index < 256 ? index : nearest(colour)])) };
}

function encode({ width, height, colours }) {
  const { kept, index } = palette(colours);
  const rows = Buffer.alloc(height * (width + 1));
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) rows[y * (width + 1) + 1 + x] = index.get(colours[y * width + x]);
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 3, 0, 0, 0], 8);
  const colour = Buffer.from(kept.flatMap((value) => [(value >> 16) & 255, (value >> 8) & 255, value & 255]));
  const image = deflateSync(rows, { level: 9 });
  return Buffer.concat([SIGNATURE, chunk('IHDR', header), chunk('PLTE', colour), chunk('IDAT', image), chunk('IEND', Buffer.alloc(0))]);
}

for (const path of process.argv.slice(2)) {
  const file = readFileSync(path);
  const image = decode(file);
  // A file that has a palette already stays as it is.
  if (image) writeFileSync(path, encode(image));
}
