// The live tail of a page of messages: EventSource for each partition, and rows that come and go.
//
// What arrives waits in a list of at most ROWS records until the next drawing, so a page takes the same memory
// however fast the topic is. Records that were pushed out before they were drawn are counted, and said.

import { grouped } from "./digits.js";

const ROWS = 200;
const DRAW_MS = 250;
const LINE_CHARS = 160;
const KEY_CHARS = 48;
const SHOWN_CHARS = 4000;

const root = document.getElementById("live");
const rows = document.getElementById("rows");
const template = document.getElementById("row");
const { topic, page, text } = root.dataset;
const keys = root.dataset.keys ? root.dataset.keys.split(",") : [];
const said = root.querySelector("[data-said]");
const button = root.querySelector("[data-live]");
const pause = root.querySelector("[data-pause]");

const positions = new Map(
  root.dataset.followed.split(",").filter(Boolean).map((each) => each.split(":").map(Number)),
);
let sources = [];
let waiting = [];
let arrived = 0;
let hidden = 0;
let drawing = 0;
let isLive = false;

function follow() {
  for (const [partition, offset] of positions) {
    const query = new URLSearchParams({ offset, format: "binary" });
    if (keys.length === 1) query.set("key", keys[0]);
    const source = new EventSource(`/topics/${encodeURIComponent(topic)}/partitions/${partition}/records?${query}`);
    source.addEventListener("message", (event) => take(partition, event));
    source.addEventListener("failure", (event) => end(JSON.parse(event.data).message));
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) end("The gateway has ended the live tail. Load the page again.");
    });
    sources.push(source);
  }
}

function take(partition, event) {
  positions.set(partition, Number(event.lastEventId) + 1);
  arrived += 1;
  if (keys.length > 1 || text) {
    const record = JSON.parse(event.data);
    if (keys.length > 1 && !keys.includes(record.key)) return;
    if (text && !contains(record.key) && !contains(record.value)) return;
  }
  waiting.push(event.data);
  if (waiting.length > ROWS) {
    waiting.shift();
    hidden += 1;
  }
  drawing ||= setTimeout(draw, DRAW_MS);
}

function contains(base64) {
  return base64 !== null && new TextDecoder().decode(bytesOf(base64)).includes(text);
}

function draw() {
  drawing = 0;
  document.getElementById("none")?.remove();
  const made = document.createDocumentFragment();
  for (const data of waiting.reverse()) made.append(rowOf(JSON.parse(data)));
  waiting = [];
  rows.prepend(made);
  while (rows.rows.length > ROWS) rows.lastElementChild.remove();
  say();
}

function say() {
  const left = Number(root.dataset.leftOut);
  const parts = [`${arrived.toLocaleString("en")} arrived`];
  if (hidden) parts.push(`${hidden.toLocaleString("en")} too fast to be shown`);
  if (left) parts.push(`partitions ${[...positions.keys()].join(", ")} only; name another to follow it`);
  said.textContent = parts.join(" · ");
}

function rowOf(record) {
  const row = template.content.firstElementChild.cloneNode(true);
  const [partition, offset, when, key, value, headers] = row.cells;
  partition.textContent = record.partition;
  const link = offset.firstElementChild;
  link.append(grouped(String(record.offset)));
  link.href = `${page}?partition=${record.partition}&offset=${record.offset}`;
  when.textContent = new Date(record.timestamp).toISOString().replace("T", " ");
  key.append(contentOf(record.key, link.href, KEY_CHARS));
  value.append(contentOf(record.value, link.href));
  for (const each of record.headers.slice(0, 20)) {
    const line = made("div", "header", "");
    line.append(visible(each.key.slice(0, 100), "faint"), " ", contentOf(each.value, link.href, KEY_CHARS));
    headers.append(line);
  }
  return row;
}

function contentOf(base64, href, chars = LINE_CHARS) {
  if (base64 === null) return made("span", "tag plain", "null");
  if (base64 === "") return made("span", "tag plain", "empty");
  const cut = base64.length > SHOWN_CHARS;
  const bytes = bytesOf(cut ? base64.slice(0, SHOWN_CHARS) : base64);
  let whole;
  try {
    whole = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes, { stream: cut });
  } catch {
    whole = [...bytes.slice(0, 64)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  }
  const line = whole.slice(0, chars).replace(/\s+/g, " ");
  if (whole === line && !cut) return visible(line, "mono");
  const fold = made("details", "fold", "");
  const summary = document.createElement("summary");
  summary.append(visible(whole.length > chars ? `${line}…` : line, "mono"));
  const block = document.createElement("pre");
  block.tabIndex = 0;
  block.append(visible(pretty(whole), ""));
  fold.append(summary, block);
  if (cut) {
    const all = made("a", "", "All of it");
    all.href = href;
    fold.append(all);
  }
  return fold;
}

function pretty(whole) {
  // A number that JavaScript cannot hold would be shown as another one.
  if (!/^\s*[{[]/.test(whole) || /\d{16}/.test(whole)) return whole;
  try {
    return JSON.stringify(JSON.parse(whole), null, 2);
  } catch {
    return whole;
  }
}

const HIDDEN =
  /[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** Text apart from the text around it, with what cannot be seen escaped. */
function visible(whole, style) {
  const apart = made("bdi", style, "");
  let at = 0;
  for (const found of whole.matchAll(HIDDEN)) {
    apart.append(whole.slice(at, found.index), made("span", "hid", nameOf(found[0].codePointAt(0))));
    at = found.index + found[0].length;
  }
  apart.append(whole.slice(at));
  return apart;
}

function nameOf(code) {
  const [mark, digits] = code < 256 ? ["x", 2] : code < 65536 ? ["u", 4] : ["U", 8];
  return `\\${mark}${code.toString(16).padStart(digits, "0")}`;
}

function made(name, style, content) {
  const element = document.createElement(name);
  if (style) element.className = style;
  if (content) element.textContent = content;
  return element;
}

function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

function stop() {
  for (const source of sources) source.close();
  sources = [];
}

function end(message) {
  stop();
  if (drawing) {
    clearTimeout(drawing);
    draw(); // or it would say something else later
  }
  isLive = false;
  button.setAttribute("aria-pressed", "false");
  pause.hidden = true;
  said.textContent = message;
}

button.addEventListener("click", () => {
  isLive = !isLive;
  button.setAttribute("aria-pressed", String(isLive));
  pause.hidden = !isLive;
  pause.textContent = "Pause";
  if (isLive) {
    follow();
    say();
  } else {
    stop();
  }
});

// A pause asks for nothing, and goes on after the last record that came.
pause.addEventListener("click", () => {
  if (sources.length) {
    stop();
    pause.textContent = "Go on";
  } else {
    follow();
    pause.textContent = "Pause";
  }
});

if (positions.size) root.hidden = false;
