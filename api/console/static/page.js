// What every page does with scripts: send a change, copy a text, refresh a part, find the search by a key.

import { send } from "./request.js";

function enableChanges(root) {
  for (const button of root.querySelectorAll("button[data-send]")) {
    button.hidden = false;
    button.addEventListener("click", () => makeChange(button));
  }
}

async function makeChange(button) {
  const said = document.getElementById("said");
  const { method, url, body, type, next } = button.dataset;
  button.disabled = true;
  said.hidden = true;
  try {
    const answer = await send(method, url, { body, type });
    const failed = await failureIn(answer);
    if (failed) throw new Error(failed);
    location.assign(next);
  } catch (error) {
    said.textContent = error.message;
    said.hidden = false;
    button.disabled = false;
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

/** Make the buttons of a part of the page work. */
export function enable(root) {
  enableChanges(root);
  enableCopies(root);
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
refresh();
