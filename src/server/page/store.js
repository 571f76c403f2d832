// What this browser keeps: settings and conversations, in localStorage.

const kSettings = "tessera.settings";
const kChats = "tessera.conversations";

function load(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** {key, model, system, tools, extra: texts; sampling: {name: number or text}}. */
export const settings = { key: "", model: "", system: "", tools: "", extra: "", sampling: {}, ...load(kSettings, {}) };

const load_conversations = () => [load(kChats, [])].flat().filter(is_conversation);

export function save_settings() {
  localStorage.setItem(kSettings, JSON.stringify(settings));
}

/** Newest first: {id, title, messages: [{role, content, reasoning_content?, tool_calls?, tool_call_id?, note?, error?}]}. */
export let conversations = load_conversations();

function is_call(call) {
  return typeof call?.function?.name === "string" && typeof call.function.arguments === "string";
}

function is_message(m) {
  const has_text = (t) => t === undefined || typeof t === "string";
  return ["user", "assistant", "tool"].includes(m?.role) && typeof m.content === "string" && has_text(m.reasoning_content) &&
    (m.tool_calls === undefined || (Array.isArray(m.tool_calls) && m.tool_calls.every(is_call)));
}

function is_conversation(c) {
  return typeof c?.title === "string" && Array.isArray(c.messages) && c.messages.every(is_message);
}

/** Result: an error as a sentence, or "". */
export function save_conversations() {
  try {
    localStorage.setItem(kChats, JSON.stringify(conversations.filter((c) => c.messages.length > 0)));
    return "";
  } catch {
    return "This browser's storage is full: export and delete conversations, or new messages are lost with the page.";
  }
}

/** Another tab saved: its conversations are taken over, but for this tab's own. */
export function adopt_conversations(own) {
  const stored = load_conversations();
  for (const conversation of new Set(own)) {
    const place = stored.findIndex((c) => c.id === conversation.id);
    if (place >= 0) stored[place] = conversation;
    else stored.unshift(conversation);
  }
  conversations = stored;
}

export const is_conversations_key = (key) => key === kChats;

// crypto.randomUUID() exists with TLS or on localhost only.
const new_id = () => `${Date.now().toString(36)}${Math.random().toString(36).slice(2)}`;

export function new_conversation() {
  const conversation = { id: new_id(), title: "New chat", messages: [] };
  conversations.unshift(conversation);
  return conversation;
}

export function delete_conversation(conversation) {
  conversations = conversations.filter((c) => c !== conversation);
  return save_conversations();
}

/** Takes over what an export holds. Result: an error as a sentence, or "". */
export function import_conversations(text) {
  let found;
  try {
    found = [JSON.parse(text)].flat().filter(is_conversation);
  } catch {
    return "This file is no JSON.";
  }
  if (found.length === 0) return "This file holds no conversations.";
  conversations = [...found.map((c) => ({ ...c, id: new_id() })), ...conversations];
  return save_conversations();
}
