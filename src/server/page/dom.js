// Making elements. Text goes in as text nodes only: nothing on this page is ever parsed as HTML.

/** el("p", {class: "x", onclick: fn}, "text", otherElement): what an element has as a property is set as one, the rest as
 *  attributes. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const by_id = (id) => document.getElementById(id);

export function button(text, onclick, attributes = {}) {
  return el("button", { type: "button", onclick, ...attributes }, text);
}

/** A button that puts text() into the clipboard; also where pages without TLS have no clipboard of their own. */
export function copy_button(text) {
  const copy = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      const area = el("textarea", { value: text() });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1200);
  }, { class: "quiet" });
  return copy;
}

/** Gives the browser a file to save. */
export function download(name, json) {
  const blob = new Blob([JSON.stringify(json, null, 1)], { type: "application/json" });
  const link = el("a", { download: name, href: URL.createObjectURL(blob) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export function format_bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; ++unit; }
  return `${n >= 100 || unit === 0 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
}

export const format_ms = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

/** Calls fn each second while it `is_wanted()`, one call at a time; the next only after the last. */
export function poll(is_wanted, fn) {
  (async () => {
    while (is_wanted()) {
      await fn();
      await new Promise((done) => setTimeout(done, 1000));
    }
  })();
}
