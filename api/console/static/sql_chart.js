// A chart of an answer: a curve over numbers or times, bars for anything else.

import { grouped, rounded } from "./digits.js";
import { plotted } from "./plot.js";

const BARS_MAX = 40;
const HEIGHT = 260;
const SVG = "http://www.w3.org/2000/svg";

const panel = document.getElementById("chart");
const across = document.getElementById("chart-x");
const up = document.getElementById("chart-y");
const drawing = document.getElementById("drawing");

let shown = { columns: [], rows: [] };
let endPlot = null;

/** Let the reader choose columns of `answer`; without a number in it there is nothing to draw. */
export function offerChart(answer) {
  shown = answer;
  clear();
  const columns = answer.columns.map((column, index) => ({ ...column, index }));
  const heights = columns.filter((column) => column.kind === "number");
  const can = answer.rows.length > 1 && heights.length > 0;
  panel.hidden = !can;
  if (!can) return;
  across.replaceChildren(...columns.map(option));
  up.replaceChildren(...heights.map(option));
  const time = columns.find((column) => column.kind === "time");
  across.value = (time ?? columns[0]).index;
  up.value = (heights.find((column) => column.index !== Number(across.value)) ?? heights[0]).index;
  draw();
}

function option(column) {
  return new Option(column.name, column.index);
}

function clear() {
  endPlot?.();
  endPlot = null;
  drawing.replaceChildren();
}

function draw() {
  clear();
  const x = Number(across.value);
  const y = Number(up.value);
  if (shown.columns[x].kind === "text") drawBars(x, y);
  else drawCurve(x, y);
}

function text(value) {
  return value === null ? "null" : (value.text ?? value);
}

/** Seconds since 1970. A time without a zone is in UTC, where a browser would take it for its own. */
function secondsOf(time) {
  return Date.parse(/T[^Z+-]*$/.test(time) ? `${time}Z` : time) / 1000;
}

/** Times in UTC as ISO 8601, as exactly as they differ over `span` seconds. */
function clock(span) {
  const [from, to] = span > 86400 * 3 ? [0, 10] : span > 86400 ? [5, 16] : span > 10 ? [11, 19] : [11, 23];
  return (seconds) => new Date(seconds * 1000).toISOString().slice(from, to).replace("T", " ");
}

function drawCurve(x, y) {
  const time = shown.columns[x].kind === "time";
  const points = shown.rows
    .filter((row) => row[x] !== null)
    .map((row) => [time ? secondsOf(row[x]) : Number(row[x]), row[y] === null ? null : Number(row[y])])
    .filter(([at]) => Number.isFinite(at))
    .sort((a, b) => a[0] - b[0]);
  if (points.length < 2) return;
  const shownAs = time ? clock(points.at(-1)[0] - points[0][0]) : number;
  const place = document.createElement("div");
  drawing.append(place);
  endPlot = plotted(place, [points.map(([at]) => at), points.map(([, value]) => value)], {
    label: shown.columns[y].name,
    name: shown.columns[x].name,
    time,
    across: shownAs,
    up: number,
    zero: false,
    height: HEIGHT,
  });
}

function number(value) {
  return value.toLocaleString("en", { maximumFractionDigits: 6 });
}

function drawBars(x, y) {
  const rows = shown.rows.slice(0, BARS_MAX);
  const values = rows.map((row) => Number(row[y] ?? 0));
  const most = Math.max(...values.map(Math.abs).filter(Number.isFinite), 0) || 1;
  const list = document.createElement("ol");
  list.className = "bars";
  rows.forEach((row, index) => {
    const item = document.createElement("li");
    const name = document.createElement("bdi");
    name.textContent = text(row[x]);
    const bar = document.createElementNS(SVG, "svg");
    bar.setAttribute("viewBox", "0 0 100 10");
    bar.setAttribute("preserveAspectRatio", "none");
    bar.setAttribute("aria-hidden", "true");
    const filled = document.createElementNS(SVG, "rect");
    filled.setAttribute("height", "10");
    filled.setAttribute("width", String(Math.min(100, (Math.abs(values[index]) / most) * 100) || 0));
    filled.setAttribute("class", values[index] < 0 ? "below" : "above");
    bar.append(filled);
    const number = document.createElement("span");
    number.className = "num";
    number.append(grouped(rounded(text(row[y]))));
    item.append(name, bar, number);
    list.append(item);
  });
  drawing.append(list);
  if (shown.rows.length > BARS_MAX) {
    const rest = document.createElement("p");
    rest.className = "faint";
    rest.textContent = `The first ${BARS_MAX} of ${shown.rows.length} rows.`;
    drawing.append(rest);
  }
}

for (const select of [across, up]) select.addEventListener("change", draw);
