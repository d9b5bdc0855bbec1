"use strict";
/* Charts of the figures whose table stands below them: hover for values, drag to zoom, double click to see all. By the
   keyboard: arrows, Home and End for values, plus and minus to zoom, Escape to see all. */
(() => {
  const { absolute } = window.kafkalike;
  const drawn = new Map();
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const SHORT = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

  function short(value, unit) {
    if (value === null || value === undefined) return "–";
    const bytes = unit.startsWith("B");
    const [size, prefix] = SHORT.find(([least]) => Math.abs(value) >= least) ?? [1, ""];
    const digits = value / size;
    const number = Number.isInteger(digits) ? String(digits) : digits.toPrecision(3).replace(/\.?0+$/, "");
    return bytes ? `${number} ${prefix}${unit}` : prefix ? `${number} ${prefix}` : number;
  }

  function figures(figure) {
    const table = figure.querySelector("details table");
    const times = [], names = [...table.tHead.rows[0].cells].slice(1).map((cell) => cell.textContent), lines = names.map(() => []);
    for (const row of table.tBodies[0].rows) {
      times.push(Date.parse(row.cells[0].querySelector("time").dateTime) / 1000);
      lines.forEach((line, at) => {
        const value = row.cells[at + 1].dataset.v;
        line.push(value === "" ? null : Number(value));
      });
    }
    return { names, data: [times, ...lines] };
  }

  function options(figure, names, width) {
    const unit = figure.dataset.unit, bars = figure.dataset.kind === "bars", step = Number(figure.dataset.step);
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const local = window.kafkalike.kept("zone") === "local";
    return {
      width, height: 208, padding: [10, 22, 0, 0],
      tzDate: (ts) => local ? new Date(ts * 1000) : uPlot.tzDate(new Date(ts * 1000), "Etc/UTC"),
      cursor: { drag: { x: true, y: false }, points: { size: 6 } },
      scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1] } },
      axes: [
        { ...axis, values: [[86400, "{MM}-{DD}", null, null, null, null, null, null, 1], [3600, "{HH}:{mm}", "\n{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1], [60, "{HH}:{mm}", "\n{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1], [1, "{HH}:{mm}:{ss}", "\n{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1]] },
        { ...axis, size: 64, label: unit, labelSize: 18, labelFont: "12px system-ui, sans-serif", values: (_, marks) => marks.map((mark) => short(mark, unit)) },
      ],
      series: [
        { label: "Time", value: (_, ts) => ts === null || ts === undefined ? "–" : absolute(new Date(ts * 1000)).slice(0, 19) },
        ...names.map((name, at) => {
          const stroke = color(`--series-${at % 6 + 1}`);
          return {
            label: name, stroke, width: 2, points: { show: false }, spanGaps: false,
            fill: bars ? `color-mix(in srgb, ${stroke} 45%, transparent)` : undefined,
            paths: bars ? uPlot.paths.bars({ size: [0.9, 24], align: 1 }) : undefined,
            value: (_, value) => value === null || value === undefined ? "–" : `${value.toLocaleString("en", { maximumFractionDigits: 2 })} ${unit}`,
          };
        }),
      ],
    };
  }

  /* A slider over the times, so that a screen reader says what the legend shows. */
  function prepare(place, figure) {
    place.removeAttribute("aria-hidden");
    place.firstChild.setAttribute("aria-hidden", "true");
    place.tabIndex = 0;
    place.setAttribute("role", "slider");
    place.setAttribute("aria-label", `${figure.querySelector("caption").textContent}: a chart`);
  }

  function point(place, plot, wanted) {
    const [first, last] = plot.series[0].idxs, at = Math.max(first, Math.min(last, wanted)), ts = plot.data[0][at];
    plot.setCursor({ left: plot.valToPos(ts, "x"), top: 10 });
    const said = plot.series.map((one, line) => one.value(plot, plot.data[line][at], line, at));
    place.setAttribute("aria-valuemin", first);
    place.setAttribute("aria-valuemax", last);
    place.setAttribute("aria-valuenow", at);
    place.setAttribute("aria-valuetext", [said[0], ...said.slice(1).map((value, line) => `${plot.series[line + 1].label} ${value}`)].join(", "));
  }

  function zoom(plot, at, factor) {
    const times = plot.data[0], last = times[times.length - 1], { min, max } = plot.scales.x;
    const width = Math.min(last - times[0], (max - min) * factor);
    // Two steps at least.
    if (times.length < 3 || width < 2 * (times[1] - times[0])) return;
    const from = Math.max(times[0], Math.min(last - width, times[at] - width / 2));
    plot.setScale("x", { min: from, max: from + width });
  }

  document.addEventListener("keydown", (event) => {
    const place = event.target.closest?.(".plot"), known = place && drawn.get(place.closest("figure").id);
    if (!known || event.ctrlKey || event.metaKey || event.altKey) return;
    const { plot } = known, times = plot.data[0], [first, last] = plot.series[0].idxs, at = plot.cursor.idx ?? last;
    const moves = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, Home: first, End: last };
    if (event.key in moves) point(place, plot, moves[event.key]);
    else if (event.key === "+" || event.key === "=") zoom(plot, at, 0.5);
    else if (event.key === "-") zoom(plot, at, 2);
    else if (event.key === "Escape") plot.setScale("x", { min: times[0], max: times[times.length - 1] });
    else return;
    event.preventDefault();
  });

  function draw(figure, again) {
    const place = figure.querySelector(".plot"), { names, data } = figures(figure);
    const known = drawn.get(figure.id), key = names.join("\u0000");
    if (known && known.place === place && known.key === key && !again) {
      const { min, max } = known.plot.scales.x, old = known.plot.data[0];
      const zoomed = min > old[0] || max < old[old.length - 1];
      known.plot.setData(data, !zoomed);
      if (zoomed) known.plot.redraw();
      return;
    }
    known?.plot.destroy();
    place.replaceChildren();
    const plot = new uPlot(options(figure, names, place.clientWidth), data, place);
    drawn.set(figure.id, { plot, place, key });
    prepare(place, figure);
    point(place, plot, data[0].length - 1);
    plot.setCursor({ left: -10, top: -10 });
  }

  function all(again) {
    for (const figure of document.querySelectorAll("figure.chart")) draw(figure, again);
  }

  addEventListener("resize", () => {
    for (const { plot, place } of drawn.values()) if (place.isConnected) plot.setSize({ width: place.clientWidth, height: 208 });
  });
  document.addEventListener("kafkalike:theme", () => all(true));
  document.addEventListener("kafkalike:changed", () => all(false));
  all(false);
})();
