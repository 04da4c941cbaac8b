// A textlint rule: a sentence has at most `max` words. Inline code counts as one word. Block quotes are not checked, because they are quotations.
import { splitAST } from "sentence-splitter";
import { StringSource } from "textlint-util-to-string";

export const sentences = (node) =>
  splitAST(node).children.filter((child) => child.type === "Sentence").map((sentence) => {
    const text = new StringSource(sentence, { replacer: ({ node, maskValue }) => (node.type === "Code" ? maskValue("X") : undefined) });
    return { node: sentence, words: text.toString().match(/[\p{L}\p{N}'’/_.-]*[\p{L}\p{N}][\p{L}\p{N}'’/_.-]*/gu)?.length ?? 0 };
  });

export default function (context, { max = 30 } = {}) {
  const { Syntax, RuleError, report, getSource } = context;
  const check = (node) => {
    for (let at = node.parent; at; at = at.parent) if (at.type === Syntax.BlockQuote) return;
    for (const { node: sentence, words } of sentences(node)) {
      if (words > max) report(sentence, new RuleError(`${words} words; at most ${max}: ${getSource(sentence).slice(0, 60).replace(/\s+/g, " ")}…`));
    }
  };
  return { [Syntax.Paragraph]: check, [Syntax.TableCell]: check };
}
