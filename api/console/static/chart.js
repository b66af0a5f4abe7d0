// Curves that zoom and tell their values, in the place of those that the server has drawn. Drag to zoom in,
// double-click to zoom out.

import { plotted } from "./plot.js";
import { send } from "./request.js";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);
const HEIGHT = 150;

function size(value) {
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toLocaleString("en", { maximumFractionDigits: unit && value < 100 ? 1 : 0 })} ${UNITS[unit]}`;
}

function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toLocaleString("en", { maximumFractionDigits: 1 })} s`;
  const [large, small, units] = seconds < 3600 ? [60, 1, ["min", "s"]] : seconds < 86400 ? [3600, 60, ["h", "min"]] : [86400, 3600, ["d", "h"]];
  return `${Math.floor(seconds / large)} ${units[0]} ${Math.floor((seconds % large) / small)} ${units[1]}`;
}

const SHOWN = {
  number: (value) => value.toLocaleString("en", { maximumFractionDigits: 1 }),
  size,
  duration,
};
const OF_GROUP = [
  ["records", "Lag in records", "number"],
  ["seconds", "Lag in time", "duration"],
  ["size_bytes", "Lag in bytes", "size"],
];

/** The time of day in UTC, as everywhere in the console. */
function clock(seconds) {
  return new Date(seconds * 1000).toISOString().slice(11, 19);
}

function draw(place, times, values, label, shown, height) {
  const steps = shown === "size" ? POWERS : undefined;
  plotted(place, [times, values], { label, name: "UTC", across: clock, up: SHOWN[shown], steps, height });
}

/** Curves whose points are in the page. */
function enhance(root) {
  for (const curve of root.querySelectorAll("[data-points]")) {
    const points = JSON.parse(curve.dataset.points);
    const place = document.createElement("div");
    curve.querySelector("svg").replaceWith(place);
    curve.querySelector("[data-ends]").remove();
    const [times, values] = [0, 1].map((index) => points.map((point) => point[index]));
    draw(place, times.map((ms) => ms / 1000), values, curve.dataset.label, curve.dataset.shown, HEIGHT);
  }
}

/** Curves of a group, whose coordinator has more points of them. */
async function replace(figures) {
  const answer = await send("GET", figures.dataset.chart, { accept: "application/json" });
  const found = await answer.json();
  if (found.at_ms.length < 2) return;
  const times = found.at_ms.map((ms) => ms / 1000);
  const made = OF_GROUP.map(([name, label, shown]) => {
    const figure = document.createElement("figure");
    figure.className = "panel";
    const caption = document.createElement("figcaption");
    caption.textContent = label;
    const place = document.createElement("div");
    figure.append(caption, place);
    return { figure, place, values: found[name], label, shown };
  });
  figures.replaceChildren(...made.map(({ figure }) => figure));
  for (const { place, values, label, shown } of made) draw(place, times, values, label, shown);
}

addEventListener("DOMContentLoaded", () => {
  for (const figures of document.querySelectorAll("[data-chart]")) {
    replace(figures).catch(() => enhance(figures)); // what the server has drawn has fewer points
  }
  for (const curve of document.querySelectorAll(".curves:not([data-chart])")) enhance(curve);
});
addEventListener("refreshed", (event) => enhance(event.target));
