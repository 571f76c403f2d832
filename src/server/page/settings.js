// The settings panel: key, system prompt, tools, sampling. Empty fields are left to the server, whose defaults they show.

import { by_id, el } from "./dom.js";
import { save_settings, settings } from "./store.js";

// Those people reach for, in this order; the rest of /props' numbers follow under "More".
const kFirst = ["max_tokens", "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed"];
const kHidden = ["n_predict", "n_probs", "n_keep", "priority"];

function field(label, input, hint) {
  const id = `setting-${label.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-")}`;
  input.id = id;
  return el("div", { class: "field" }, el("label", { for: id }, label), input, hint ? el("small", {}, hint) : null);
}

function text_input(name, tag, attributes, on_change) {
  return el(tag, { ...attributes, value: settings[name], oninput: (event) => {
    settings[name] = event.target.value;
    save_settings();
    on_change?.(event.target);
  } });
}

/** Fails the field's validity with the reason while its text is no JSON of that kind. */
function check_json(input, is_good, wanted) {
  let message = "";
  if (input.value.trim()) {
    try {
      if (!is_good(JSON.parse(input.value))) message = wanted;
    } catch (error) {
      message = error.message;
    }
  }
  input.setCustomValidity(message);
  input.parentElement?.querySelector("small")?.classList.toggle("wrong", message !== "");
}

// What the server holds as float32 reads as people wrote it.
function default_text(name, value) {
  return name === "seed" && value === 0xffffffff ? "random" : String(Number(value.toPrecision(6)));
}

function sampling_field(name, value) {
  const oninput = ({ target }) => {
    const text = target.value.trim();
    const number = Number(text);
    target.setCustomValidity(text && Number.isNaN(number) ? "This must be a number" : "");
    if (!text || Number.isNaN(number)) delete settings.sampling[name];
    else settings.sampling[name] = number;
    save_settings();
  };
  const texts = { placeholder: default_text(name, value), value: String(settings.sampling[name] ?? "") };
  return field(name, el("input", { type: "text", inputMode: "decimal", ...texts, oninput }));
}

/** What the settings add to a request's body. */
export function request_settings() {
  const parse = (text) => {
    try {
      return text.trim() ? JSON.parse(text) : undefined;
    } catch {
      return undefined;
    }
  };
  const tools = parse(settings.tools);
  const extra = parse(settings.extra);
  return {
    ...settings.sampling,
    ...(Array.isArray(tools) && tools.length ? { tools } : {}),
    ...(extra && !Array.isArray(extra) ? extra : {}),
  };
}

/** props: the reply of /props, or null where there is none. on_key: called after the key changed. */
export function show_settings(props, on_key) {
  const panel = by_id("panel-settings");
  const params = props?.default_generation_settings?.params ?? {};
  const numbers = Object.entries(params).filter(([name, value]) => typeof value === "number" && !kHidden.includes(name));
  const first = kFirst.filter((name) => typeof params[name] === "number");
  const rest = numbers.filter(([name]) => !first.includes(name));
  const is_object = (json) => typeof json === "object" && json !== null && !Array.isArray(json);
  const tools = text_input("tools", "textarea",
    { rows: 4, spellcheck: false, placeholder: '[{"type": "function", "function": {"name": …}}]' },
    (input) => check_json(input, Array.isArray, "This must be an array of tools"));
  const extra = text_input("extra", "textarea",
    { rows: 2, spellcheck: false, placeholder: '{"chat_template_kwargs": {…}}' },
    (input) => check_json(input, is_object, "This must be a JSON object"));
  const onchange = ({ target }) => {
    settings.key = target.value.trim();
    save_settings();
    on_key();
  };
  const key = el("input", { type: "password", autocomplete: "off", value: settings.key, onchange });
  const defaults = props ? "Empty: the server's default, shown in grey." : "The server has not told its defaults yet.";
  const grid = (rows) => el("div", { class: "grid" }, rows.map(([name, value]) => sampling_field(name, value)));
  const more = rest.length ? el("details", {}, el("summary", {}, `More (${rest.length})`), grid(rest)) : null;
  const server = props
    ? `${props.build_info} · ${props.total_slots} slots · ${props.default_generation_settings.n_ctx} tokens of context` : "";
  panel.replaceChildren(
    el("h2", {}, "Settings"),
    field("API key", key, "Kept in this browser and sent to this server alone."),
    field("System prompt", text_input("system", "textarea", { rows: 3 })),
    el("fieldset", {}, el("legend", {}, "Sampling"), el("p", { class: "quiet" }, defaults),
      grid(first.map((name) => [name, params[name]])), more),
    field("Tools", tools, "A JSON array as OpenAI's API has it. When the model calls one, you type its result."),
    field("More fields", extra, "A JSON object that is added to each request."),
    el("p", { class: "quiet" }, server));
  check_json(tools, Array.isArray, "");
  check_json(extra, is_object, "");
}
