// What every page does with scripts: send a change, copy a text, refresh a part, find the search by a key.

import { send } from "./request.js";

const THEME = "lakelog.theme";

function enableChanges(root) {
  for (const button of root.querySelectorAll("button[data-send]")) {
    button.hidden = false;
    button.addEventListener("click", () => makeChange(button));
  }
}

async function makeChange(button) {
  const said = document.getElementById("said");
  const buttons = document.querySelectorAll("button[data-send]");
  const { method, url, body, type, next } = button.dataset;
  for (const each of buttons) each.disabled = true;
  said.hidden = true;
  try {
    const answer = await send(method, url, { body, type });
    const failed = await failureIn(answer);
    if (failed) throw new Error(failed);
    location.assign(next);
  } catch (error) {
    said.textContent = error.message;
    said.hidden = false;
    for (const each of buttons) each.disabled = false;
  }
}

/** A produce request is answered with 200 when single records of it have failed. */
async function failureIn(answer) {
  if (answer.status === 204) return null;
  const said = await answer.json().catch(() => ({}));
  return said.offsets?.find((each) => each.error)?.error ?? null;
}

function enableCopies(root) {
  for (const button of root.querySelectorAll("button[data-copy]")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
      button.textContent = "Copied";
    });
  }
}

/** Load this page again every few seconds, and put in the parts that are marked; not while they are used. */
function refresh() {
  const parts = [...document.querySelectorAll("[data-refresh]")];
  if (!parts.length) return;
  const seconds = Math.min(...parts.map((part) => Number(part.dataset.refresh)));
  setTimeout(async () => {
    if (document.visibilityState === "visible" && !parts.some(isUsed)) {
      try {
        const answer = await send("GET", location.href, { accept: "text/html" });
        if (!answer.redirected) putIn(parts, await answer.text());
      } catch {
        // The next look may succeed; until then the page shows what was there.
      }
    }
    refresh();
  }, seconds * 1000);
}

function isUsed(part) {
  if (part.querySelector("[data-hold]:hover")) return true;
  return part.contains(document.activeElement) || (!getSelection().isCollapsed && part.contains(getSelection().anchorNode));
}

function putIn(parts, text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  for (const part of parts) {
    const made = page.getElementById(part.id);
    if (!made || isUsed(part)) continue;
    part.replaceChildren(...made.childNodes);
    enable(part);
    part.dispatchEvent(new CustomEvent("refreshed", { bubbles: true }));
  }
}

const ROLES = { TABLE: "table", TBODY: "rowgroup", THEAD: "rowgroup", TR: "row", TD: "cell" };

/** Tables whose rows a narrow window shows as cards: each cell knows its column, and what it is. */
function labelTables(root) {
  for (const table of root.querySelectorAll(".scroll > table:not(.rows, .facts)")) {
    const heads = [...(table.tHead?.rows[0]?.cells ?? [])].map((cell) => cell.textContent.trim());
    for (const part of [table, ...table.querySelectorAll("thead, tbody, tr, td, th")]) {
      part.setAttribute("role", ROLES[part.tagName] ?? (part.scope === "row" ? "rowheader" : "columnheader"));
    }
    if (table.matches(".messages")) continue; // it has a form of its own
    for (const row of table.tBodies[0]?.rows ?? []) {
      for (const cell of row.cells) {
        if (cell.colSpan === 1 && cell.tagName === "TD") cell.dataset.label = heads[cell.cellIndex] ?? "";
      }
    }
    table.classList.add("cards");
  }
}

/** Make the buttons and tables of a part of the page work. */
export function enable(root) {
  enableChanges(root);
  enableCopies(root);
  labelTables(root);
}

/** A button that changes between light and dark, and remembers what differs from the system. */
function enableTheme() {
  const button = document.querySelector("[data-theme-switch]");
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const name = () => root.dataset.theme ?? (system.matches ? "dark" : "light");
  const other = () => (name() === "dark" ? "light" : "dark");
  const say = () => (button.textContent = other() === "dark" ? "Dark" : "Light");
  button.hidden = false;
  say();
  system.addEventListener("change", say);
  button.addEventListener("click", () => {
    const chosen = other();
    if (chosen === (system.matches ? "dark" : "light")) delete root.dataset.theme;
    else root.dataset.theme = chosen;
    try {
      if (root.dataset.theme) localStorage.setItem(THEME, chosen);
      else localStorage.removeItem(THEME);
    } catch {
      // A browser without storage forgets it.
    }
    say();
    dispatchEvent(new Event("themed"));
  });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const found = document.querySelector(`[data-focus="${CSS.escape(event.key)}"]`);
  if (found) {
    event.preventDefault();
    found.focus();
  }
});

enable(document);
enableTheme();
refresh();
