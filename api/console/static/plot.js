// A curve of uPlot, whose values a pointer and the keys read: arrows, Page Up and Down, Home and End.

const HEIGHT = 220;
const PAGE = 10;

const plots = new Set();

/** A colour of the style as it is now, for a canvas. */
function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/**
 * Draw `data`, [places, values], into `place`. `label` names the values; `across` and `up` write a place and a
 * value, `name` names the places, and `steps` are those of the axis of values. Returns how to take it away.
 */
export function plotted(place, data, options) {
  const { label, name, time = false, across, up, steps, zero = true, height = HEIGHT } = options;
  const axis = { font: "12px system-ui, sans-serif" };
  const paint = () => {
    const [line, faint, accent] = ["--line", "--faint", "--accent"].map(colour);
    const looks = { ...axis, stroke: faint, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    return new uPlot(
      {
        width: widthOf(place),
        height,
        cursor: { drag: { x: true, y: false }, points: { size: 8 } },
        scales: { x: { time }, ...(zero ? { y: { range: (_, __, most) => [0, most || 1] } } : {}) },
        axes: [
          { ...looks, space: 90, values: (_, marks) => marks.map(across) },
          { ...looks, size: 70, ...(steps ? { incrs: steps } : {}), values: (_, marks) => marks.map(up) },
        ],
        series: [
          { label: name, value: (_, value) => (value == null ? "–" : across(value)) },
          {
            label,
            stroke: accent,
            width: 1.5,
            points: { show: data[0].length < 100 },
            value: (_, value) => (value == null ? "–" : up(value)),
          },
        ],
        hooks: { setCursor: [tell] },
      },
      data,
      place,
    );
  };

  let at = -1;
  let plot = null;

  function tell({ cursor }) {
    if (cursor.idx == null) return;
    at = cursor.idx;
    place.setAttribute("aria-valuenow", String(at));
    place.setAttribute("aria-valuetext", `${across(data[0][at])}: ${data[1][at] == null ? "–" : up(data[1][at])}`);
  }

  function move(index) {
    const { min, max } = plot.scales.x;
    const first = data[0].findIndex((x) => x >= min);
    const last = data[0].findLastIndex((x) => x <= max);
    at = Math.max(first, Math.min(last, index));
    plot.setCursor({ left: plot.valToPos(data[0][at], "x"), top: plot.valToPos(data[1][at] ?? 0, "y") });
    tell({ cursor: { idx: at } });
  }

  function onKey(event) {
    const here = at < 0 ? data[0].length - 1 : at;
    const moved = {
      ArrowLeft: here - 1,
      ArrowRight: here + 1,
      PageUp: here + PAGE,
      PageDown: here - PAGE,
      Home: 0,
      End: data[0].length - 1,
    }[event.key];
    if (moved === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move(moved);
  }

  const entered = () => move(at < 0 ? data[0].length - 1 : at);
  const left = () => plot.setCursor({ left: -10, top: -10 });
  const shrunk = new ResizeObserver(() => plot.setSize({ width: widthOf(place), height }));

  place.classList.add("plot");
  place.tabIndex = 0;
  place.dataset.hold = "";
  const last = data[0].length - 1;
  for (const [key, value] of Object.entries({
    role: "slider",
    "aria-label": label,
    "aria-valuemin": "0",
    "aria-valuemax": String(last),
    "aria-valuenow": String(last),
    "aria-valuetext": `${across(data[0][last])}: ${data[1][last] == null ? "–" : up(data[1][last])}`,
  }))
    place.setAttribute(key, value);
  place.addEventListener("keydown", onKey);
  place.addEventListener("focus", entered);
  place.addEventListener("blur", left);
  const own = {
    place,
    draw() {
      plot?.destroy();
      plot = paint();
    },
    end() {
      plots.delete(own);
      shrunk.disconnect();
      place.removeEventListener("keydown", onKey);
      place.removeEventListener("focus", entered);
      place.removeEventListener("blur", left);
      plot.destroy();
    },
  };
  own.draw();
  shrunk.observe(place);
  for (const each of plots) if (!each.place.isConnected) each.end();
  plots.add(own);
  return own.end;
}

function widthOf(place) {
  return Math.max(200, place.clientWidth);
}

function drawAgain() {
  for (const each of plots) each.draw();
}

addEventListener("themed", drawAgain);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAgain);
