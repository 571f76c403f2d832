// The request inspector: what the page asked, what came back, how long it took, and the same as a line for a shell.

import { changed, curl_line, entries } from "./api.js";
import { by_id, copy_button, el, format_ms } from "./dom.js";

const kShownChars = 20_000;

function pretty(text) {
  try {
    text = JSON.stringify(JSON.parse(text), null, 2);
  } catch { /* events, or no JSON */ }
  return text.length > kShownChars ? `${text.slice(0, kShownChars)}\n… ${text.length - kShownChars} more characters` : text;
}

function part(title, text, copied = text) {
  return el("div", { class: "part" }, el("h4", {}, title, copy_button(() => copied)), el("pre", { tabIndex: 0 }, text));
}

function details(entry) {
  const time = (ms) => (ms ? format_ms(ms) : "not yet");
  const times = [entry.began.toLocaleTimeString(), `first byte ${time(entry.first_ms)}`, `whole ${time(entry.ms)}`];
  return [
    el("p", { class: "quiet" }, [...times, entry.error].filter(Boolean).join(" · ")),
    part("curl", curl_line(entry)),
    entry.body === undefined ? null : part("Request", pretty(entry.body), entry.body),
    part("Reply", pretty(entry.reply), entry.reply),
  ];
}

const rows = new Map();  // entry → element; they stay open while others come

function row_of(entry) {
  let row = rows.get(entry);
  if (!row) {
    const head = el("summary");
    const body = el("div");
    row = el("details", { class: "entry", ontoggle: () => row.update() }, head, body);
    let is_whole = false;  // what is open shows a whole reply, and is left alone while one reads
    row.update = () => {
      const state = entry.status === 0 ? (entry.error ? "failed" : "…") : String(entry.status);
      const is_bad = entry.status >= 400 || (entry.error && entry.error !== "stopped");
      head.replaceChildren(el("span", { class: is_bad ? "wrong" : "code" }, state), ` ${entry.method} ${entry.path}`,
        entry.n > 1 ? ` × ${entry.n}` : "", el("span", { class: "right" }, entry.ms ? format_ms(entry.ms) : ""));
      if (!row.open) {
        is_whole = false;
      } else if (!is_whole) {
        is_whole = entry.ms > 0;
        body.replaceChildren(...details(entry).filter(Boolean));
      }
    };
    rows.set(entry, row);
  }
  row.update();
  return row;
}

function show() {
  const panel = by_id("panel-inspector");
  if (panel.hidden) return;
  for (const entry of rows.keys()) {
    if (!entries.includes(entry)) rows.delete(entry);
  }
  const list = panel.querySelector(".entries");
  const wanted = entries.map(row_of);
  const is_same = wanted.length === list.children.length && wanted.every((row, i) => list.children[i] === row);
  if (!is_same) list.replaceChildren(...wanted);
}

export function begin_inspector() {
  by_id("panel-inspector").append(el("h2", {}, "Requests"),
    el("p", { class: "quiet" }, "The last 100 of this page. The key never stands in the curl line: it reads $API_KEY."),
    el("div", { class: "entries" }));
  let is_due = false;
  changed.addEventListener("change", () => {
    if (is_due) return;
    is_due = true;
    requestAnimationFrame(() => { is_due = false; show(); });
  });
}

export const show_inspector = show;
