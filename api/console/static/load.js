// Links that take long: with scripts their answer is put into this page, and can be cancelled.

import { enable } from "./page.js";
import { send } from "./request.js";

let waiting = null;

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-load]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  load(link);
});

async function load(link) {
  waiting?.abort();
  const mine = (waiting = new AbortController());
  const stop = tell(link, mine);
  try {
    const answer = await send("GET", link.href, { accept: "text/html", signal: mine.signal });
    if (answer.redirected) location.assign(link.href);
    else putIn(link.dataset.load.split(" "), await answer.text(), link.href);
  } catch (error) {
    if (error.name !== "AbortError") location.assign(link.href); // the page itself says what is wrong
  } finally {
    stop();
  }
}

/** Say next to the link that it is worked on, with the time and a way out; returns how to end that. */
function tell(link, mine) {
  const said = link.parentElement.querySelector("[data-loading]");
  const text = document.createElement("span");
  const cancel = document.createElement("button");
  cancel.type = "button";
  cancel.className = "quiet";
  cancel.textContent = "Cancel";
  cancel.addEventListener("click", () => mine.abort());
  said.replaceChildren(text, " ", cancel);
  said.hidden = false;
  const begun = performance.now();
  const tick = () => (text.textContent = `Working, ${Math.round((performance.now() - begun) / 1000)} s`);
  tick();
  const timer = setInterval(tick, 1000);
  return () => {
    clearInterval(timer);
    if (text.isConnected) said.hidden = true; // else another link is worked on by now
  };
}

function putIn(names, text, url) {
  const page = new DOMParser().parseFromString(text, "text/html");
  for (const name of names) {
    const made = page.getElementById(name);
    const old = document.getElementById(name);
    if (!made || !old) continue;
    old.replaceChildren(...made.childNodes);
    enable(old);
  }
  if (!names.includes("main")) {
    history.replaceState(null, "", url);
    return;
  }
  history.pushState(null, "", url);
  document.title = page.title;
  document.getElementById("main").focus();
  addEventListener("popstate", () => location.reload(), { once: true });
}
