// Every request that the page makes goes through here, and leaves an entry that the inspector shows.

import { settings } from "./store.js";

const kEntriesMax = 100;
const kReplyCharsMax = 200_000;

/** Newest first: {method, path, body, status, reply, began, first_ms, ms, n, error}. `changed` fires as they grow. */
export const entries = [];
export const changed = new EventTarget();

export class ApiError extends Error {
  constructor(message, status = 0) {
    super(message.replace(/\.$/, ""));
    this.status = status;
  }
}

function new_entry(method, path, body) {
  // What is polled is one entry with a count.
  const before = method === "GET" ? entries.find((e) => e.method === method && e.path === path && !e.error) : undefined;
  const entry = before ?? { method, path, body, n: 0 };
  const times = { began: new Date(), started: performance.now(), first_ms: 0, ms: 0 };
  Object.assign(entry, { status: 0, reply: "", error: "", n: entry.n + 1, ...times });
  if (before) return entry;
  entries.unshift(entry);
  entries.length = Math.min(entries.length, kEntriesMax);
  return entry;
}

function finish(entry, error = "") {
  entry.ms = performance.now() - entry.started;
  entry.error = error;
  changed.dispatchEvent(new Event("change"));
}

function sentence_of(status, text) {
  try {
    const error = JSON.parse(text).error;
    if (error?.message) {
      return status === 401 ? "the API key is missing or wrong; type it into Settings" : error.message;
    }
  } catch { /* no JSON: a proxy's page */ }
  return `The server answered ${status}`;
}

async function send(entry, signal) {
  const headers = {};
  if (entry.body !== undefined) headers["Content-Type"] = "application/json";
  if (settings.key) headers.Authorization = `Bearer ${settings.key}`;
  changed.dispatchEvent(new Event("change"));
  let response;
  try {
    response = await fetch(entry.path, { method: entry.method, headers, body: entry.body, signal });
  } catch (error) {
    throw error.name === "AbortError" ? error : new ApiError("The server cannot be reached; does it still run?");
  }
  entry.status = response.status;
  entry.first_ms = performance.now() - entry.started;
  if (!response.ok) {
    entry.reply = await response.text();
    throw new ApiError(sentence_of(response.status, entry.reply), response.status);
  }
  return response;
}

/** The path, asked about the model that is chosen. */
export const of_model = (path) => (settings.model ? `${path}?model=${encodeURIComponent(settings.model)}` : path);

/** The reply's JSON. Throws ApiError, or AbortError. */
export async function request(method, path, json, signal) {
  const entry = new_entry(method, path, json && JSON.stringify(json));
  try {
    const response = await send(entry, signal);
    entry.reply = await response.text();
    finish(entry);
    return JSON.parse(entry.reply);
  } catch (error) {
    finish(entry, error.message);
    throw error;
  }
}

/** Calls on_event with the JSON of each server-sent event. Throws ApiError, or AbortError. */
export async function stream(path, json, signal, on_event) {
  const entry = new_entry("POST", path, JSON.stringify(json));
  try {
    const response = await send(entry, signal);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let pending = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (entry.reply.length < kReplyCharsMax) entry.reply += value;
      const lines = (pending + value).split("\n");
      pending = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") continue;
        const event = JSON.parse(data);
        if (event.error) throw new ApiError(event.error.message, event.error.code);
        on_event(event);
      }
    }
    finish(entry);
  } catch (error) {
    const known = error.name === "AbortError" || error instanceof ApiError;
    finish(entry, error.name === "AbortError" ? "stopped" : error.message);
    throw known ? error : new ApiError("The connection broke off before the answer was complete");
  }
}

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The request as a line for a shell; the key stays out of it, as $API_KEY. */
export function curl_line(entry) {
  const words = ["curl"];
  if (entry.body?.includes('"stream":true')) words.push("-N");
  if (entry.method !== "GET" && entry.body === undefined) words.push(`-X ${entry.method}`);
  words.push(quote(new URL(entry.path, location.href).href));
  if (settings.key) words.push('-H "Authorization: Bearer $API_KEY"');
  if (entry.body !== undefined) words.push("-H 'Content-Type: application/json'", `-d ${quote(entry.body)}`);
  return words.join(" ");
}
