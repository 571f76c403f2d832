// Puts the page together: conversations, model, panels, keys.

import { of_model, request } from "./api.js";
import { ask, begin_chat, current_conversation, open_conversation, own_conversations, sends, stop } from "./chat.js";
import { button, by_id, download, el } from "./dom.js";
import { begin_inspector, show_inspector } from "./inspector.js";
import { begin_placement, show_placement } from "./placement.js";
import { show_settings } from "./settings.js";
import {
  adopt_conversations, conversations, delete_conversation, import_conversations, is_conversations_key, new_conversation,
  save_settings, settings,
} from "./store.js";

const kPanels = ["placement", "inspector", "settings"];

function say(text) {
  by_id("status").textContent = text;
}

// ---- conversations

function open(conversation) {
  open_conversation(conversation);
  list_conversations();
  if (matchMedia("(hover: hover)").matches) by_id("prompt").focus();  // a phone's keyboard comes when one asks for it
}

function open_new() {
  const empty = conversations.find((c) => c.messages.length === 0);
  open(empty ?? new_conversation());
  close_sidebar();
}

function remove(conversation) {
  if (!confirm(`Delete "${conversation.title}"?`)) return;
  if (conversation === current_conversation()) stop();
  delete_conversation(conversation);
  if (conversation === current_conversation()) open_new();
  list_conversations();
}

function list_conversations() {
  by_id("conversations").replaceChildren(...conversations.map((conversation) => {
    const is_current = conversation === current_conversation();
    const choose = () => {
      open(conversation);
      close_sidebar();
    };
    return el("li", { class: is_current ? "current" : "" },
      button(conversation.title, choose, { class: "title", ariaCurrent: is_current ? "true" : null }),
      button("×", () => remove(conversation), { class: "icon", ariaLabel: `Delete ${conversation.title}`, title: "Delete" }));
  }));
}

async function import_file(event) {
  const file = event.target.files[0];
  event.target.value = "";
  if (!file) return;
  const error = import_conversations(await file.text());
  say(error);
  if (!error) open(conversations[0]);
}

function close_sidebar() {
  document.body.classList.remove("with-sidebar");
  by_id("toggle-sidebar").setAttribute("aria-expanded", "false");
}

// ---- panels

function toggle_panel(name) {
  const was_open = !by_id("side").hidden && !by_id(`panel-${name}`).hidden;
  by_id("side").hidden = was_open;
  for (const other of kPanels) {
    const is_shown = other === name && !was_open;
    by_id(`panel-${other}`).hidden = !is_shown;
    by_id(`tab-${other}`).setAttribute("aria-selected", String(is_shown));
  }
  if (!was_open && name === "placement") show_placement();
  if (!was_open && name === "inspector") show_inspector();
}

// ---- the server

let n_connects = 0;

/** Asks the server for its models and defaults until it has them. */
async function connect() {
  const turn = ++n_connects;
  const is_late = () => turn !== n_connects;  // another key or model was chosen since, and has its own
  while (!is_late()) {
    try {
      const models = (await request("GET", "/v1/models")).data;
      if (is_late()) return;
      const select = by_id("model");
      select.replaceChildren(...models.map((model) => el("option", { value: model.id }, model.id)));
      if (!models.some((model) => model.id === settings.model)) settings.model = models[0]?.id ?? "";
      select.value = settings.model;
      const props = await request("GET", of_model("/props"));
      if (is_late()) return;
      show_settings(props, connect);
      say("");
      return;
    } catch (error) {
      if (is_late()) return;
      say(error.status === 503 ? "The model is loading …" : `${error.message}.`);
      if (!by_id("panel-settings").hasChildNodes()) show_settings(null, connect);
      if (error.status !== 503 && error.status !== 0) return;
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
}

// ---- keys and buttons

function begin_composer() {
  const prompt = by_id("prompt");
  const fit = () => {
    prompt.style.height = "auto";
    prompt.style.height = `${Math.min(prompt.scrollHeight + 2, innerHeight / 3)}px`;
  };
  const submit = () => {
    if (ask(prompt.value)) prompt.value = "";
    fit();
  };
  prompt.addEventListener("input", fit);
  prompt.addEventListener("keydown", (event) => {
    if (!sends(event)) return;
    event.preventDefault();
    submit();
  });
  by_id("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  by_id("stop").addEventListener("click", stop);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    stop();
    close_sidebar();
  });
}

begin_composer();
begin_inspector();
begin_placement();
begin_chat(list_conversations);
for (const name of kPanels) by_id(`tab-${name}`).addEventListener("click", () => toggle_panel(name));
by_id("new-chat").addEventListener("click", open_new);
by_id("export-all").addEventListener("click", () => {
  download("tessera-conversations.json", conversations.filter((c) => c.messages.length > 0));
});
by_id("import").addEventListener("click", () => by_id("import-file").click());
by_id("import-file").addEventListener("change", import_file);
by_id("toggle-sidebar").addEventListener("click", (event) => {
  const is_open = document.body.classList.toggle("with-sidebar");
  event.currentTarget.setAttribute("aria-expanded", String(is_open));
});
by_id("model").addEventListener("change", (event) => {
  settings.model = event.target.value;
  save_settings();
  connect();
});
window.addEventListener("storage", (event) => {
  if (!is_conversations_key(event.key)) return;
  adopt_conversations(own_conversations());
  list_conversations();
});
open_new();
connect();
