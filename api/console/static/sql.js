// The SQL page: rows as they come, a query that can be cancelled, a history in this browser, a chart.

import { complete, quoted } from "./complete.js";
import { grouped, rounded } from "./digits.js";
import { send } from "./request.js";
import { offerChart } from "./sql_chart.js";

const HISTORY = "lakelog.sql.history";
const HISTORY_MAX = 50;
const URL_MAX_CHARS = 2000;

const form = document.getElementById("sql");
const query = document.getElementById("query");
const run = document.getElementById("run");
const cancel = document.getElementById("cancel");
const state = document.getElementById("state");
const failed = document.getElementById("failed");
const result = document.getElementById("result");
const table = result.querySelector("table");
const numbers = new Intl.NumberFormat("en-US");

let running = null;

async function start() {
  const sql = query.value;
  if (running || !sql.trim()) return;
  running = new AbortController();
  begin(sql);
  const begun = performance.now();
  const seconds = () => `${((performance.now() - begun) / 1000).toFixed(1)} s`;
  const answer = { columns: [], rows: [] };
  const ticking = setInterval(() => say(`${count(answer.rows)} so far, ${seconds()}`), 200);
  try {
    const done = await receive(sql, answer);
    say(`${count(answer.rows)}${more(done.cut)} in ${seconds()}`);
    const read = done.scans.map((each) => `${each.topic} ${numbers.format(each.read)} of ${numbers.format(each.files)}`);
    show("scans", read.length ? `Files read: ${read.join(", ")}` : "");
  } catch (error) {
    const stopped = error.name === "AbortError";
    say(stopped ? `Cancelled after ${seconds()}, with ${count(answer.rows)}` : "");
    failed.hidden = stopped;
    failed.firstElementChild.textContent = stopped ? "" : error.message;
    offerMeant(stopped ? "" : error.message);
  } finally {
    clearInterval(ticking);
    running = null;
    run.disabled = false;
    cancel.hidden = true;
  }
  offerChart(answer);
}

function begin(sql) {
  remember(sql);
  document.querySelector("#download [name=query]").value = sql;
  if (sql.length < URL_MAX_CHARS) history.replaceState(null, "", `?query=${encodeURIComponent(sql)}`);
  document.querySelector("#command pre").textContent = `lakelog sql '${sql.replaceAll("'", "'\\''")}'`;
  failed.hidden = true;
  result.hidden = true;
  show("scans", "");
  offerChart({ columns: [], rows: [] });
  run.disabled = true;
  cancel.hidden = false;
  say("Running …");
}

/** A button that puts the name which an error suggests in the place of the wrong one. */
function offerMeant(message) {
  failed.querySelector("button")?.remove();
  const right = /did you mean '?([^'?]+)'?\?/i.exec(message)?.[1];
  const wrong = /(?:no topic|is named|[Ii]nvalid function) '([^']+)'|No field named "?(?:[^\s"]+\.)?([^\s".]+)"?\./.exec(message);
  if (!right || !wrong) return;
  const [from, name] = [wrong[1] ?? wrong[2], tables.has(right) || !right.includes(".") ? quoted(right) : right];
  const place = new RegExp(`"${escaped(from)}"|(?<![\\w$])${escaped(from)}(?![\\w$])`, "g");
  if (!place.test(query.value)) return;
  const button = part("button", `Use ${right}`, "quiet");
  button.type = "button";
  button.addEventListener("click", () => {
    query.value = query.value.replace(place, () => name);
    query.focus();
    start();
  });
  failed.append(" ", button);
}

function escaped(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

/** Read an answer into `answer`, and into the table. Returns what its last line says. */
async function receive(sql, answer) {
  const body = JSON.stringify({ sql, rows: Number(form.dataset.rows) });
  const response = await send("POST", form.action.split("?")[0], { body, signal: running.signal });
  const lines = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await lines.read().catch((error) => {
      if (error.name === "AbortError") throw error;
      throw new Error("the gateway has ended the answer; run the query again");
    });
    if (done) throw new Error("the gateway has ended the answer; run the query again");
    text += value;
    const parts = text.split("\n");
    text = parts.pop();
    for (const part of parts) {
      const line = JSON.parse(part);
      if (line.error) throw new Error(line.error.message);
      if (line.done) return line.done;
      if (line.columns) showColumns((answer.columns = line.columns));
      if (line.rows) {
        answer.rows.push(...line.rows);
        showRows(answer.columns, line.rows);
      }
    }
  }
}

function showColumns(columns) {
  const row = document.createElement("tr");
  for (const column of columns) {
    const head = element("th", column.name, column.kind);
    head.scope = "col";
    head.title = column.type;
    row.append(head);
  }
  table.tHead.replaceChildren(row);
  table.tBodies[0].replaceChildren();
  result.hidden = false;
}

function showRows(columns, rows) {
  const made = document.createDocumentFragment();
  for (const values of rows) {
    const row = document.createElement("tr");
    values.forEach((value, index) => row.append(element("td", value, columns[index].kind, columns[index].type)));
    made.append(row);
  }
  table.tBodies[0].append(made);
}

/** A cell: null, a text, or a text with a note that says how it differs from the value. */
function element(name, value, kind, type) {
  const made = document.createElement(name);
  if (kind === "number") made.className = "num";
  if (value === null) {
    made.append(part("span", "null", "null"));
    return made;
  }
  if (name === "td" && kind === "number") {
    const shown = ["double", "float"].includes(type) ? rounded(value) : value;
    if (shown !== value) made.title = value;
    made.append(grouped(shown));
    return made;
  }
  made.append(part("bdi", typeof value === "string" ? value : value.text));
  if (value.note) made.append(" ", part("small", value.note, "faint"));
  return made;
}

function part(name, text, kind = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function count(rows) {
  return `${numbers.format(rows.length)} ${rows.length === 1 ? "row" : "rows"}`;
}

function more(cut) {
  return { rows: ", there are more,", bytes: ", there are more (the answer is as large as it may be)," }[cut] ?? "";
}

function say(text) {
  state.textContent = text;
}

function show(id, text) {
  document.getElementById(id).textContent = text;
}

// The history is this browser's alone: a gateway keeps none.

function remembered() {
  try {
    const found = JSON.parse(localStorage.getItem(HISTORY) ?? "[]");
    return Array.isArray(found) ? found.filter((each) => typeof each === "string") : [];
  } catch {
    return [];
  }
}

function keep(queries) {
  try {
    localStorage.setItem(HISTORY, JSON.stringify(queries.slice(0, HISTORY_MAX)));
  } catch {
    // A browser without storage has no history.
  }
  showHistory();
}

function remember(sql) {
  keep([sql, ...remembered().filter((each) => each !== sql)]);
}

function showHistory() {
  const queries = remembered();
  document.getElementById("history").hidden = !queries.length;
  const items = queries.map((sql) => {
    const button = part("button", sql, "quiet mono");
    button.type = "button";
    button.addEventListener("click", () => {
      query.value = sql;
      query.focus();
    });
    const item = document.createElement("li");
    item.append(button);
    return item;
  });
  document.getElementById("history-list").replaceChildren(...items);
}

/** The tables that the page lists, with their columns; those of JSON are asked for when they are named. */
function listedTables() {
  const found = new Map();
  for (const each of document.querySelectorAll(".table-columns")) {
    const [name, ...columns] = [...each.querySelectorAll("[data-insert]")].map((code) => code.textContent);
    found.set(name, columns);
    if ("topic" in each.dataset) found.set(`${name}_json`, null);
  }
  return found;
}

async function described(table) {
  const body = JSON.stringify({ sql: `DESCRIBE ${quoted(table)}` });
  const text = await (await send("POST", form.action.split("?")[0], { body })).text();
  return text.trim().split("\n").flatMap((line) => JSON.parse(line).rows ?? []).map(([name]) => name);
}

/** Names of tables and columns become buttons that write them into the query. */
function enableNames() {
  for (const name of document.querySelectorAll("[data-insert]")) {
    if (name.closest("summary")) continue;
    const button = part("button", name.textContent, "name mono");
    button.type = "button";
    button.title = "Put it into the query";
    button.addEventListener("click", () => insert(name.dataset.insert));
    name.replaceWith(button);
  }
  for (const summary of document.querySelectorAll(".table-columns summary code")) {
    const button = part("button", "Put the name into the query", "name");
    button.type = "button";
    button.addEventListener("click", () => insert(summary.dataset.insert));
    summary.closest("details").append(button);
  }
}

function insert(text) {
  query.setRangeText(text, query.selectionStart, query.selectionEnd, "end");
  query.focus();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
query.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    start();
  }
});
cancel.addEventListener("click", () => running?.abort());
document.getElementById("history-clear").addEventListener("click", () => keep([]));
document.getElementById("keys").hidden = false;
document.getElementById("rows-bound").textContent = numbers.format(form.dataset.rows);
const tables = listedTables();
complete(query, document.getElementById("names"), tables, described);
offerMeant(failed.textContent);
enableNames();
showHistory();
