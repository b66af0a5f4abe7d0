// Curves that zoom, in the place of those that the server has drawn. Drag to zoom in, double-click to zoom out.

import { send } from "./request.js";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

function bytes(value) {
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(unit ? 1 : 0)} ${UNITS[unit]}`;
}

/** The time of day in UTC, as everywhere in the console. */
function clock(seconds) {
  return new Date(seconds * 1000).toISOString().slice(11, 19);
}

const SHOWN = [
  ["records", "Lag in records", (value) => value.toLocaleString("en")],
  ["seconds", "Lag in time", (value) => `${value.toLocaleString("en", { maximumFractionDigits: 1 })} s`],
  ["size_bytes", "Lag in bytes", bytes],
];

function draw(place, times, values, label, shown) {
  const style = getComputedStyle(document.documentElement);
  const [accent, faint, line] = ["--accent", "--faint", "--line"].map((name) => style.getPropertyValue(name));
  const axis = { stroke: faint, grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
  const width = () => Math.max(200, place.clientWidth - 40);
  const plot = new uPlot(
    {
      width: width(),
      height: 220,
      cursor: { drag: { x: true, y: false } },
      scales: { y: { range: (_, __, most) => [0, most || 1] } },
      axes: [{ ...axis, values: (_, marks) => marks.map(clock), space: 80 }, { ...axis, size: 80, values: (_, marks) => marks.map(shown) }],
      series: [{ label: "UTC", value: (_, seconds) => (seconds == null ? "–" : clock(seconds)) }, { label, stroke: accent, width: 1.5, value: (_, value) => (value == null ? "–" : shown(value)) }],
    },
    [times, values],
    place,
  );
  new ResizeObserver(() => plot.setSize({ width: width(), height: 220 })).observe(place);
}

async function replace(figures) {
  const answer = await send("GET", figures.dataset.chart, { accept: "application/json" });
  const found = await answer.json();
  if (found.at_ms.length < 2) return;
  const times = found.at_ms.map((ms) => ms / 1000);
  const made = SHOWN.map(([name, label, shown]) => {
    const figure = document.createElement("figure");
    figure.className = "panel chart";
    const caption = document.createElement("figcaption");
    caption.textContent = label;
    figure.append(caption);
    return [figure, found[name], label, shown];
  });
  figures.replaceChildren(...made.map(([figure]) => figure));
  for (const [figure, values, label, shown] of made) draw(figure, times, values, label, shown);
}

addEventListener("DOMContentLoaded", () => {
  for (const figures of document.querySelectorAll("[data-chart]")) {
    replace(figures).catch(() => {}); // what the server has drawn stays
  }
});
