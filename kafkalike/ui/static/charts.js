"use strict";
/* Charts of the figures whose table stands below them: hover for values, drag to zoom, double click to see all. */
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
