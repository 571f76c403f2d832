// A small part of Markdown, as elements: code, headings, lists, quotes, tables, rules, bold, italic, links. What a model or a
// person wrote becomes text nodes only; a link leads to http or https.

import { copy_button, el } from "./dom.js";

const kInline = new RegExp([
  /(`+)([\s\S]+?)\1(?!`)/,                                    // `code`
  /\*\*(?=\S)([\s\S]+?)\*\*(?!\*)/,                           // **bold**
  /\*(?=[^\s*])([^*]+?)\*/,                                   // *italic*
  /~~(?=\S)([^~]+?)~~/,                                       // ~~struck~~
  /\[([^\]]+)\]\(\s*([^)\s]+)\s*\)/,                          // [label](address)
  /(https?:\/\/[^\s<>()"']+[^\s<>()"'.,;:!?])/,               // an address alone
].map((part) => part.source).join("|"));

function link(text, address) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  const is_web = url.protocol === "http:" || url.protocol === "https:";
  return is_web ? el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer" }, text) : null;
}

/** Nodes of a line of text. */
function inline(text, depth = 0) {
  const nodes = [];
  while (text) {
    const found = depth < 6 ? kInline.exec(text) : null;
    if (!found) {
      nodes.push(text);
      break;
    }
    const [all, , code, bold, italic, struck, label, address, bare] = found;
    nodes.push(text.slice(0, found.index));
    if (code !== undefined) nodes.push(el("code", {}, code));
    else if (bold !== undefined) nodes.push(el("strong", {}, inline(bold, depth + 1)));
    else if (italic !== undefined) nodes.push(el("em", {}, inline(italic, depth + 1)));
    else if (struck !== undefined) nodes.push(el("s", {}, inline(struck, depth + 1)));
    else if (bare !== undefined) nodes.push(link(bare, bare) ?? bare);
    else nodes.push(link(label, address) ?? all);
    text = text.slice(found.index + all.length);
  }
  return nodes.filter((node) => node !== "");
}

const kFence = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/;
const kItem = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const kTableRule = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const kHeading = /^(#{1,6})\s+(.*)$/;
const kRule = /^\s*([-*_])(\s*\1){2,}\s*$/;

function code_block(language, text) {
  const caption = el("figcaption", {}, language || "text", copy_button(() => text));
  return el("figure", { class: "code" }, caption, el("pre", {}, el("code", {}, text)));
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

function table(lines) {
  const row = (line, tag) => el("tr", {}, cells(line).map((cell) => el(tag, {}, inline(cell))));
  const head = el("thead", {}, row(lines[0], "th"));
  const body = el("tbody", {}, lines.slice(2).map((line) => row(line, "td")));
  return el("div", { class: "scroll" }, el("table", {}, head, body));
}

// An item's own lines are those indented deeper than its mark.
function list(lines, depth) {
  const [, { length: indent }, mark] = kItem.exec(lines[0]);
  const root = is_ordered(lines[0]) ? el("ol", { start: parseInt(mark, 10) }) : el("ul");
  for (let i = 0; i < lines.length;) {
    const own = [kItem.exec(lines[i])[3]];
    for (++i; i < lines.length; ++i) {
      const item = kItem.exec(lines[i]);
      if (item && item[1].length <= indent) break;
      own.push(lines[i].slice(Math.min(indent + 2, /^\s*/.exec(lines[i])[0].length)));
    }
    const body = blocks(own, depth + 1);
    root.append(el("li", {}, body.length === 1 && body[0].tagName === "P" ? [...body[0].childNodes] : body));
  }
  return root;
}

const is_ordered = (line) => /^\s*\d/.test(line);

// A further item, of the same kind where it is no deeper.
function continues_list(first, line) {
  const item = kItem.exec(line);
  return item !== null && (item[1].length > kItem.exec(first)[1].length || is_ordered(line) === is_ordered(first));
}

function blocks(lines, depth = 0) {
  const result = [];
  const take = (i, wanted) => {
    let end = i;
    while (end < lines.length && wanted(lines[end], end)) ++end;
    return end;
  };
  const begins_block = (line) => line.startsWith(">") || [kFence, kHeading, kItem, kRule].some((form) => form.test(line));
  for (let i = 0; i < lines.length;) {
    const line = lines[i];
    const fence = kFence.exec(line);
    const heading = kHeading.exec(line);
    let end = i + 1;
    if (!line.trim()) {
      // between blocks
    } else if (fence) {
      end = take(i + 1, (l) => !(l.trim().startsWith(fence[1]) && !l.trim().replaceAll(fence[1][0], "")));
      result.push(code_block(fence[2], lines.slice(i + 1, end).join("\n")));
      ++end;
    } else if (heading) {
      result.push(el(`h${Math.min(heading[1].length + 2, 6)}`, {}, inline(heading[2])));
    } else if (kRule.test(line)) {
      result.push(el("hr"));
    } else if (line.startsWith(">") && depth < 6) {
      end = take(i, (l) => l.startsWith(">"));
      result.push(el("blockquote", {}, blocks(lines.slice(i, end).map((l) => l.replace(/^> ?/, "")), depth + 1)));
    } else if (kItem.test(line) && depth < 6) {
      const belongs = (l = "") => continues_list(line, l) || /^\s+\S/.test(l);
      end = take(i, (l, at) => belongs(l) || (!l.trim() && belongs(lines[at + 1])));
      result.push(list(lines.slice(i, end), depth));
    } else if (line.includes("|") && kTableRule.test(lines[i + 1] ?? "")) {
      end = take(i, (l) => l.includes("|"));
      result.push(table(lines.slice(i, end)));
    } else {
      end = take(i + 1, (l) => l.trim() && !begins_block(l));
      const paragraph = el("p");
      lines.slice(i, end).forEach((l, at) => paragraph.append(...(at ? [el("br")] : []), ...inline(l)));
      result.push(paragraph);
    }
    i = end;
  }
  return result;
}

/** Elements for a text. */
export function markdown(text) {
  return blocks(text.replaceAll("\r\n", "\n").split("\n"));
}
