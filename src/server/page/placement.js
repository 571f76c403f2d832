// The live picture: where every tile lives, what is free, the requests that pass through, and buttons to switch.

import { of_model, request } from "./api.js";
import { button, by_id, el, format_bytes, format_ms, poll } from "./dom.js";

const kModes = ["none", "layer", "tensor"];
const kUses = [["weights", "weights_bytes"], ["KV cache", "kv_bytes"], ["state", "state_bytes"], ["scratch", "scratch_bytes"]];
const kCellsMax = 4000;  // above: one cell for the tiles of one layer and kind

let shown = null;      // the placement that stands on the page
let homes = new Map();  // tile → device, of the placement before
let is_switching = false;
let parts = {};

const is_open = () => !by_id("side").hidden && !by_id("panel-placement").hidden;

// Each kind has a colour of the style sheet; others than these follow as they come.
const kind_classes = new Map(["attn", "ffn", "kv", "state", "expert", "head", "replica", "token_embd"].map((kind, i) => [kind, `kind-${i}`]));
function kind_class(kind) {
  if (!kind_classes.has(kind)) kind_classes.set(kind, `kind-${kind_classes.size % 10}`);
  return kind_classes.get(kind);
}

const tile_id = (tile) => `${tile.name}/${tile.cut ?? ""}`;
const home_of = (tile) => tile.device ?? "nowhere";

// "attn" and "ffn" of a layer's weights stand in their names.
function kind_of(tile) {
  const part = /^(?:blk\.\d+\.)?([a-z_]+)\./.exec(tile.name)?.[1];
  return tile.kind === "weight" && part ? part : tile.kind;
}

// largest: bytes of the fullest device, the measure of bars of devices without a limit.
function bar(device, largest) {
  const capacity = Math.max(device.capacity_bytes ?? largest, device.used_bytes, 1);
  const uses = kUses.map(([name, field]) => [name, device[field] ?? 0]);
  const label = uses.filter(([, n]) => n > 0).map(([name, n]) => `${name} ${format_bytes(n)}`).join(", ");
  const segments = uses.map(([name, n], i) => {
    const segment = el("span", { class: `use-${i}`, title: `${name}: ${format_bytes(n)}` });
    segment.style.width = `${(100 * n) / capacity}%`;
    return segment;
  });
  return el("div", { class: "bar", role: "img", ariaLabel: label, title: label }, segments);
}

// Cells of one device, by layer: [{name, kind, bytes, n, moved}].
function cells_of(tiles, merges) {
  const layers = new Map();
  for (const tile of tiles) {
    const layer = tile.layer ?? -1;
    if (!layers.has(layer)) layers.set(layer, new Map());
    const cells = layers.get(layer);
    const kind = kind_of(tile);
    const name = merges ? kind : tile.name;
    const key = merges ? kind : tile_id(tile);
    const moved = homes.has(tile_id(tile)) && homes.get(tile_id(tile)) !== tile.device;
    const cell = cells.get(key) ?? { name, kind, bytes: 0, n: 0, moved: false };
    cells.set(key, { ...cell, bytes: cell.bytes + tile.bytes, n: cell.n + 1, moved: cell.moved || moved });
  }
  return [...layers].sort((a, b) => a[0] - b[0]);
}


function memory_text(device) {
  const used = format_bytes(device.used_bytes);
  if (device.is_file) return `${used}, read when needed`;
  if (!device.capacity_bytes) return `${used} used, no limit set`;
  return `${used} used, ${format_bytes(Math.max(device.capacity_bytes - device.used_bytes, 0))} free`;
}

// What of a column changes without a switch.
function use(device, largest) {
  const text = el("p", { class: "quiet" }, memory_text(device));
  return el("div", { class: "use" }, device.is_file ? null : bar(device, largest), text);
}

function cell_element(cell, layer) {
  const what = `${cell.n > 1 ? `${cell.n} tiles of ` : ""}${cell.name}`;
  const where = layer < 0 ? cell.kind : `${cell.kind}, layer ${layer}`;
  const title = `${what} (${where}): ${format_bytes(cell.bytes)}`;
  return el("i", { class: `${kind_class(cell.kind)}${cell.moved ? " moved" : ""}`, title });
}

function column(device, tiles, merges, largest) {
  const n_tiles = el("span", { class: "quiet" }, ` ${tiles.length} ${tiles.length === 1 ? "tile" : "tiles"}`);
  const layers = cells_of(tiles, merges).map(([layer, cells]) => el("div", { class: "layer" },
    el("span", { class: "number" }, layer < 0 ? "–" : String(layer)),
    el("span", { class: "cells" }, [...cells.values()].map((cell) => cell_element(cell, layer)))));
  return el("div", { class: device.is_file ? "device file" : "device" },
    el("h3", {}, device.name, n_tiles), use(device, largest), el("div", { class: "layers" }, layers));
}

function last_switch(switches) {
  const last = switches?.last;
  const failed = switches?.failed ? `, ${switches.failed} failed` : "";
  if (!last) return "No switch yet.";
  const count = `${switches.count} ${switches.count === 1 ? "switch" : "switches"}${failed}. Last: ${last.from} → ${last.to}`;
  if (last.error) return `${count} failed: ${last.error}`;
  const waited = `it waited ${format_ms(last.waited_ms)} for its turn`;
  return `${count} in ${format_ms(last.ms)}; ${waited} and moved ${format_bytes(last.moved_bytes)}.`;
}

// The devices, and what holds tiles beside them: the file.
function columns_of(placement) {
  const known = new Set(placement.devices.map((device) => device.name));
  const others = new Map();
  for (const tile of placement.tiles) {
    const home = home_of(tile);
    if (!known.has(home)) others.set(home, (others.get(home) ?? 0) + tile.bytes);
  }
  return [...placement.devices, ...[...others].map(([name, bytes]) => ({ name, used_bytes: bytes, is_file: true }))];
}

function summary(placement) {
  const asked = placement.tensor_split?.length ? `, shares ${placement.tensor_split.join(" : ")}` : "";
  const shares = placement.shares_note ? `${asked} ${placement.shares_note}` : asked;
  const why = placement.policy?.why ? ` · ${placement.policy.why}` : "";
  return `${placement.model}: ${placement.split_mode}${shares}, version ${placement.version}${why}`;
}

function draw(placement) {
  parts.error.hidden = true;
  parts.body.hidden = parts.map.hidden = false;
  parts.summary.textContent = summary(placement);
  const pressed = placement.policy?.mode === "auto" ? "auto" : placement.split_mode;
  for (const [mode, element] of Object.entries(parts.modes)) element.ariaPressed = String(mode === pressed);
  parts.shares.placeholder = placement.devices.map(() => "1").join(",");
  parts.last.textContent = last_switch(placement.switches);
  const state_of = (p) => [p?.model, p?.version, p?.tiles.length].join("/");
  const is_new = state_of(shown) !== state_of(placement);
  const columns = columns_of(placement);
  const largest = Math.max(...columns.map((device) => device.used_bytes));
  if (is_new) {
    const merges = placement.tiles.length > kCellsMax;
    const kinds = [...new Set(placement.tiles.map(kind_of))];
    parts.legend.replaceChildren(...kinds.map((kind) => el("span", {}, el("i", { class: kind_class(kind) }), kind)));
    const tiles_of = (device) => placement.tiles.filter((tile) => home_of(tile) === device.name);
    parts.devices.replaceChildren(...columns.map((device) => column(device, tiles_of(device), merges, largest)));
    homes = new Map(placement.tiles.map((tile) => [tile_id(tile), tile.device]));
  } else {
    columns.forEach((device, i) => parts.devices.children[i].querySelector(".use").replaceWith(use(device, largest)));
  }
  shown = placement;
}

function fail(error) {
  parts.error.textContent = error.status === 404 || error.status === 501
    ? "This server does not show its placement." : `The placement cannot be shown: ${error.message}.`;
  parts.error.hidden = false;
  parts.body.hidden = parts.map.hidden = true;
}

async function switch_to(mode) {
  if (is_switching) return;
  const shares = parts.shares.value.split(/[,:/\s]+/).filter(Boolean).map(Number);
  if (shares.some((share) => !(share >= 0))) {
    parts.last.textContent = "Shares are numbers, one for each device, such as 3,1.";
    return;
  }
  is_switching = true;
  parts.last.textContent = "Switching …";
  try {
    const asked = mode === "auto" ? { policy: "auto" } : { split_mode: mode, ...(shares.length ? { tensor_split: shares } : {}) };
    if (mode !== "auto" && shown?.policy?.mode === "auto") asked.policy = "off";
    const placement = await request("POST", of_model("/placement"), asked);
    if (placement.tiles) draw(placement);
    else await refresh_placement();
  } catch (error) {
    parts.last.textContent = `Not switched: ${error.message}.`;
    parts.last_error = true;
  } finally {
    is_switching = false;
  }
}

async function refresh_placement() {
  try {
    const placement = await request("GET", of_model("/placement"));
    if (is_switching) return;
    // The reason why a switch was refused stays until the next one.
    const refusal = parts.last_error && shown?.version === placement.version ? parts.last.textContent : "";
    draw(placement);
    if (refusal) parts.last.textContent = refusal;
    else parts.last_error = false;
  } catch (error) {
    fail(error);
  }
}

function slot_row(slot) {
  const decoded = slot.next_token?.n_decoded ?? 0;
  const fill = el("span", { class: "use-0" });
  fill.style.width = `${Math.min(100, (100 * slot.n_held) / Math.max(slot.n_ctx, 1))}%`;
  const state = decoded > 0 ? `answers, ${decoded} tokens` : `reads ${slot.n_prompt_tokens} tokens`;
  const context = el("div", { class: "bar", title: `${slot.n_held} of ${slot.n_ctx} tokens` }, fill);
  return el("tr", {}, [`Slot ${slot.id}`, state, context, String(slot.n_held)].map((cell) => el("td", {}, cell)));
}

async function refresh_slots() {
  try {
    const slots = await request("GET", of_model("/slots"));
    const idle = slots.filter((slot) => !slot.is_processing);
    const n_held = idle.reduce((sum, slot) => sum + slot.n_held, 0);
    const busy = slots.filter((slot) => slot.is_processing);
    const kept = n_held ? ` and keep ${n_held} tokens` : "";
    parts.slots.replaceChildren(el("table", {}, el("tbody", {}, busy.map(slot_row))),
      el("p", { class: "quiet" }, `${idle.length} of ${slots.length} slots are idle${kept}.`));
  } catch (error) {
    parts.slots.replaceChildren(el("p", { class: "quiet" }, `The requests cannot be shown: ${error.message}.`));
  }
}

export function begin_placement() {
  const modes = {};
  for (const mode of [...kModes, "auto"]) modes[mode] = button(mode, () => switch_to(mode), { ariaPressed: "false" });
  modes.auto.title = "The server chooses by what it measured";
  parts = {
    modes,
    shares: el("input", { id: "shares", type: "text", inputMode: "decimal" }),
    summary: el("p"),
    last: el("p", { class: "quiet", role: "status" }),
    slots: el("div", { class: "slots" }),
    devices: el("div", { class: "devices" }),
    legend: el("div", { class: "legend" }),
    error: el("p", { class: "notice", role: "alert", hidden: true }),
    body: el("div", { hidden: true }),
    map: el("div", { hidden: true }),
  };
  const choice = el("div", { class: "segmented", role: "group", ariaLabel: "Switch to" }, Object.values(modes));
  const uses = kUses.map(([name], i) => el("span", {}, el("i", { class: `use-${i}` }), name));
  const row = el("div", { class: "row" }, choice, el("label", { for: "shares" }, "Shares"), parts.shares);
  parts.body.append(parts.summary, row, parts.last);
  parts.map.append(el("div", { class: "legend" }, uses), parts.devices, parts.legend);
  by_id("panel-placement").append(el("h2", {}, "Placement"), parts.error, parts.body,
    el("h3", {}, "Requests that pass through"), parts.slots, parts.map);
}

let polls = false;

/** Keeps the panel current while it is open. */
export function show_placement() {
  if (polls) return;
  polls = true;
  poll(() => (polls = is_open()), async () => {
    if (document.hidden) return;
    await Promise.all([is_switching ? null : refresh_placement(), refresh_slots()]);
  });
}
