// The conversation on screen: messages, the answer as it streams in, tool calls, editing.

import { ApiError, stream } from "./api.js";
import { button, by_id, copy_button, el, format_ms } from "./dom.js";
import { markdown } from "./markdown.js";
import { request_settings } from "./settings.js";
import { save_conversations, settings } from "./store.js";

const kTitleChars = 48;

let conversation = null;
let running = null;  // {abort, conversation, message} of the answer that streams
let on_change = () => {};

// ---- what a message looks like

function timing_note(timings, usage) {
  if (!timings) return "";
  const cached = timings.cache_n ?? usage?.prompt_tokens_details?.cached_tokens ?? 0;
  const n_prompt = usage?.prompt_tokens ?? cached + timings.prompt_n;
  const speed = timings.predicted_per_second ? `, ${timings.predicted_per_second.toFixed(1)} tokens/s` : "";
  const read = `prompt ${n_prompt} tokens, ${cached} of them cached, read in ${format_ms(timings.prompt_ms)}`;
  return `${timings.predicted_n} tokens${speed} · ${read}`;
}

const reasoning_open = new WeakMap();  // message → whether its reader wants to see the reasoning

function reasoning_panel(message) {
  const head = el("summary", { onclick: () => reasoning_open.set(message, !panel.open) }, "Reasoning");
  const panel = el("details", { class: "reasoning" }, head, el("div"));
  return panel;
}

const shown_texts = new WeakMap();  // element → the text that it shows

function set_markdown(element, text) {
  if (shown_texts.get(element) === text) return;
  shown_texts.set(element, text);
  element.replaceChildren(...markdown(text));
}

function pretty_arguments(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// The calls of a message; where they wait for results, with room to type them.
function tool_panel(message, waits) {
  const answers = message.tool_calls.map(() => el("textarea", { rows: "2", spellcheck: false }));
  const calls = message.tool_calls.map((call, i) => el("div", { class: "call" },
    el("div", { class: "head" }, "Calls ", el("code", {}, call.function.name)),
    el("pre", {}, pretty_arguments(call.function.arguments)),
    waits ? el("label", {}, `Result of ${call.function.name}`, answers[i]) : null));
  const go_on = () => {
    if (running) return;
    message.tool_calls.forEach((call, i) => {
      conversation.messages.push({ role: "tool", tool_call_id: call.id, name: call.function.name, content: answers[i].value });
    });
    answer();
  };
  const send = button(calls.length > 1 ? "Send results" : "Send result", go_on, { class: "primary" });
  return el("div", { class: "tools" }, calls, waits ? send : null);
}

function edit(index, article) {
  const message = conversation.messages[index];
  const n_rows = Math.min(12, message.content.split("\n").length + 1);
  const area = el("textarea", { rows: n_rows, value: message.content, ariaLabel: "Message" });
  const resend = () => {
    if (running || !area.value.trim()) return;
    conversation.messages.length = index;
    ask(area.value);
  };
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.stopPropagation(); show(); }
    if (sends(event)) { event.preventDefault(); resend(); }
  });
  const buttons = [button("Send again", resend, { class: "primary" }), button("Cancel", show)];
  article.replaceChildren(area, el("div", { class: "actions shown" }, buttons));
  area.focus();
}

function actions(index) {
  const message = conversation.messages[index];
  const regenerate = () => {
    if (running) return;
    conversation.messages.length = index;
    answer();
  };
  return el("div", { class: "actions" }, message.content ? copy_button(() => message.content) : null,
    message.role === "user" ? button("Edit", (event) => edit(index, event.target.closest("article")), { class: "quiet" }) : null,
    message.role === "assistant" ? button("Regenerate", regenerate, { class: "quiet" }) : null);
}

const as_sentence = (text) => (/[.!?…]$/.test(text) ? text : `${text}.`);

// Elements stay the same while the answer grows, so that a click on them is not lost.
function fill_answer(article, message, index, is_running) {
  if (!article.hasChildNodes()) article.append(reasoning_panel(message), el("div", { class: "text" }), el("div"));
  const [reasoning, text, rest] = article.children;
  reasoning.hidden = !message.reasoning_content;
  reasoning.open = reasoning_open.get(message) ?? (is_running && !message.content);
  set_markdown(reasoning.lastElementChild, message.reasoning_content ?? "");
  set_markdown(text, message.content);
  const is_last = index === conversation.messages.length - 1;
  rest.replaceChildren(...[
    message.tool_calls?.length ? tool_panel(message, is_last && !is_running) : null,
    message.error ? el("p", { class: "notice", role: "alert" }, as_sentence(message.error)) : null,
    message.note ? el("p", { class: "note" }, message.note) : null,
    is_running ? null : actions(index),
  ].filter(Boolean));
}

function article_of(message, index, is_running) {
  const article = el("article", { class: message.role });
  if (message.role === "assistant") {
    fill_answer(article, message, index, is_running);
  } else if (message.role === "user") {
    article.append(el("div", { class: "text plain" }, message.content), actions(index));
  } else {
    const head = el("summary", {}, `Result of ${message.name ?? "the tool"}`);
    article.append(el("details", {}, head, el("pre", {}, message.content)));
  }
  return article;
}

function show_buttons() {
  by_id("send").hidden = running !== null;
  by_id("stop").hidden = running === null;
}

/** Draws the conversation anew. */
export function show() {
  const list = by_id("messages");
  const is_running = running?.conversation === conversation;
  list.ariaBusy = String(is_running);  // screen readers wait for the whole answer
  const last = conversation.messages.length - 1;
  list.replaceChildren(...conversation.messages.map((message, i) => article_of(message, i, is_running && i === last)));
  if (last < 0) {
    const help = "Enter sends, Shift+Enter begins a new line, Esc stops an answer. Conversations stay in this browser.";
    list.append(el("div", { class: "empty" }, el("h1", {}, "What shall we talk about?"), el("p", { class: "quiet" }, help)));
  }
  show_buttons();
  list.scrollTop = list.scrollHeight;
}

// ---- asking

/** Whether a key press sends: Enter, but for the one that ends the choice of a character. */
export const sends = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing;

function wire_message(message) {
  const { role, content, reasoning_content, tool_calls, tool_call_id, name } = message;
  return { role, content, reasoning_content, tool_calls, tool_call_id, name };
}

function request_body() {
  const system = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
  const messages = conversation.messages.filter((m) => m.role !== "assistant" || m.content || m.tool_calls?.length);
  return {
    model: settings.model || undefined,
    messages: [...system, ...messages.map(wire_message)],
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
    ...request_settings(),
  };
}

function add_call(message, delta) {
  message.tool_calls ??= [];
  const empty = { id: delta.id, type: "function", function: { name: "", arguments: "" } };
  const call = (message.tool_calls[delta.index ?? message.tool_calls.length] ??= empty);
  call.function.name += delta.function?.name ?? "";
  call.function.arguments += delta.function?.arguments ?? "";
}

const kEnds = { length: "stopped at the limit of tokens", content_filter: "held back" };

function take(message, event) {
  if (event.prompt_progress) {
    const { processed, total } = event.prompt_progress;
    const percent = Math.round((100 * processed) / Math.max(total, 1));
    message.note = `Reading the prompt: ${processed} of ${total} tokens (${percent} %)`;
  }
  const choice = event.choices?.[0];
  const delta = choice?.delta ?? {};
  if (delta.content || delta.reasoning_content || delta.tool_calls) message.note = "";
  message.content += delta.content ?? "";
  if (delta.reasoning_content) message.reasoning_content = (message.reasoning_content ?? "") + delta.reasoning_content;
  for (const call of delta.tool_calls ?? []) add_call(message, call);
  if (choice?.finish_reason) message.end = kEnds[choice.finish_reason] ?? "";
  if (event.timings) message.note = [timing_note(event.timings, event.usage), message.end].filter(Boolean).join(" · ");
}

/** Lets the model answer what the conversation holds. */
async function answer() {
  if (running) return;
  const body = request_body();
  const message = { role: "assistant", content: "" };
  const asked = conversation;
  asked.messages.push(message);
  running = { abort: new AbortController(), conversation: asked, message };
  save_conversations();
  show();
  on_change();
  let is_due = false;
  let pause_ms = 0;  // long answers take long to draw: most of the time is the browser's for other things
  const draw = () => {
    if (is_due) return;
    is_due = true;
    setTimeout(() => requestAnimationFrame(() => {
      is_due = false;
      const list = by_id("messages");
      if (conversation !== asked || running?.message !== message) return;
      const began = performance.now();
      const follows = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
      fill_answer(list.lastElementChild, message, asked.messages.length - 1, true);
      if (follows) list.scrollTop = list.scrollHeight;
      pause_ms = 4 * (performance.now() - began);
    }), pause_ms);
  };
  try {
    await stream("/v1/chat/completions", body, running.abort.signal, (event) => { take(message, event); draw(); });
  } catch (error) {
    if (error.name === "AbortError") {
      message.note = "Stopped";
    } else {
      message.note = "";
      message.error = error instanceof ApiError ? error.message : `This page failed: ${error.message}`;
    }
  }
  delete message.end;
  running = null;
  const lost = save_conversations();
  if (lost) message.error = lost.slice(0, -1);
  if (conversation === asked) show();
  show_buttons();
  on_change();
}

/** Sends a text as the person's next message. Result: whether it was sent. */
export function ask(text) {
  if (running || !text.trim()) return false;
  if (conversation.messages.length === 0) conversation.title = text.trim().split("\n")[0].slice(0, kTitleChars);
  conversation.messages.push({ role: "user", content: text });
  answer();
  return true;
}

export function stop() {
  running?.abort.abort();
}

export function open_conversation(next) {
  conversation = next;
  show();
}

export const current_conversation = () => conversation;

/** Those that this tab works on: the one on screen, and the one whose answer streams. */
export const own_conversations = () => [conversation, running?.conversation ?? conversation];

/** fn is called when the list of conversations may look different. */
export function begin_chat(fn) {
  on_change = fn;
}
