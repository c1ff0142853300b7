// The calculator's page: reads the fields and the address bar, writes the tables and the plot. sizing.js has the formulas.
"use strict";

(() => {
  const NAMES = ["n", "p", "k", "m"];
  const START = { n: "1000000", p: "0.001", k: "", m: "" };
  const LOADS = [["half", 0.5], ["full", 1], ["double", 2]];
  const HIGH = 300, LEFT = 56, RIGHT = 12, TOP = 12, BOTTOM = 40, MOST_LOAD = 2.5;
  const field = (name) => document.getElementById(`calc-${name}`);
  const integer = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

  // The number in a field: null if the field is empty, NaN if it has no number. Blanks, commas and underscores may separate thousands.
  function parse(name) {
    const text = field(name).value.trim().replace(name === "p" ? /[\s_]/g : /[\s_,]/g, "");
    if (!text) return null;
    const [, number, percent] = /^([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(%?)$/i.exec(text) || [];
    return number === undefined ? NaN : Number(number) / (percent ? 100 : 1);
  }

  function rate(value) {
    if (value === null) return "–";
    if (value === 0) return "0";
    const short = Number(value.toPrecision(5));
    return value < 1e-4 ? value.toExponential(4) : short === 1 && value < 1 ? "> 0.9999" : String(short);
  }

  const counted = (number, noun) => `${integer.format(number)} ${noun}${number === 1 ? "" : "s"}`;

  function bytes(bits) {
    let size = Math.ceil(bits / 8), unit = 0;
    const units = ["byte", "kB", "MB", "GB", "TB", "PB"];
    while (size >= 1000 && unit < units.length - 1) { size /= 1000; unit++; }
    return unit ? `${size.toFixed(1)} ${units[unit]}` : counted(size, units[unit]);
  }

  function fill(id, rows) {
    const body = document.getElementById(id);
    body.replaceChildren(...rows.map((cells) => {
      const row = document.createElement("tr");
      cells.forEach((cell, at) => {
        const made = document.createElement(at ? "td" : "th");
        if (!at) made.scope = "row";
        made.textContent = cell;
        row.append(made);
      });
      return row;
    }));
  }

  function sizes({ n, p, k, m }) {
    const target = p ?? sizing.approximateRate(m, k, n);
    const rows = [["this one", k, m]];
    if (target > 0 && target < 1) {
      const taylor = sizing.bitsForTaylor(n, target, k), best = sizing.optimal(n, target);
      if (taylor !== null) rows.push(["by Taylor", k, taylor]);
      if (best !== null) rows.push(["with best k", best[1], best[0]]);
    }
    return rows.map(([name, functions, bits]) => [
      name, String(functions), integer.format(bits), (bits / n).toFixed(3), bytes(bits),
      rate(sizing.approximateRate(bits, functions, n)), rate(sizing.exactRate(bits, functions, n)),
    ]);
  }

  function element(name, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function plot({ n, p, k, m }) {
    const WIDE = Math.max(300, Math.round(field("plot").clientWidth) || 640); // one unit is one pixel, so that letters keep their size
    field("plot").setAttribute("viewBox", `0 0 ${WIDE} ${HIGH}`);
    const full = sizing.approximateRate(m, k, n);
    const floor = Math.max(Math.min(full, p ?? 1) / 1e3, 1e-300), lowest = Math.floor(Math.log10(floor));
    const x = (load) => LEFT + ((WIDE - LEFT - RIGHT) * load) / MOST_LOAD;
    const y = (value) => TOP + ((HIGH - TOP - BOTTOM) * Math.log10(Math.max(value, 10 ** lowest))) / lowest;
    const drawn = [];
    const step = Math.max(1, Math.ceil(-lowest / 6));
    for (let power = 0; power >= lowest; power -= step) {
      drawn.push(element("line", { x1: LEFT, x2: WIDE - RIGHT, y1: y(10 ** power), y2: y(10 ** power), class: "grid" }));
      drawn.push(element("text", { x: LEFT - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, power ? `1e${power}` : "1"));
    }
    for (let load = 0; load <= MOST_LOAD; load += 0.5) drawn.push(element("text", { x: x(load), y: HIGH - BOTTOM + 18, "text-anchor": "middle" }, String(load)));
    drawn.push(element("text", { x: (LEFT + WIDE - RIGHT) / 2, y: HIGH - 4, "text-anchor": "middle" }, "load: keys held / n"));
    drawn.push(element("line", { x1: x(1), x2: x(1), y1: TOP, y2: HIGH - BOTTOM, class: "full" }));
    if (p !== null) drawn.push(element("line", { x1: LEFT, x2: WIDE - RIGHT, y1: y(p), y2: y(p), class: "asked" }));
    const points = [];
    for (let at = 1; at <= 200; at++) {
      const load = (MOST_LOAD * at) / 200, value = sizing.approximateRate(m, k, load * n);
      if (value >= 10 ** lowest) points.push(`${x(load).toFixed(1)},${y(value).toFixed(1)}`);
    }
    drawn.push(element("polyline", { points: points.join(" "), class: "rate" }));
    field("plot").replaceChildren(...drawn);
    const asked = p === null ? "" : `; dotted: the rate asked for, ${rate(p)}`;
    field("caption").textContent = `False-positive rate against load, logarithmic: ${rate(full)} when full${asked}.`;
  }

  function bip37({ n, p, k, m }) {
    const asked = p ?? sizing.approximateRate(m, k, n);
    if (!(asked > 0 && asked < 1) || n > 2 ** 32 - 1) return "BIP-37 has no filter for these numbers.";
    const made = sizing.bip37(n, asked);
    const told = `Bitcoin Core's formula gives ${counted(made.size, "byte")} and ${counted(made.hashFuncs, "function")} (at most 36,000 and 50; k by integer division)`;
    if (made.matchesAll) return `${told}: to peers such a filter matches everything. ${made.capped ? "36,000 bytes hold 144,000 elements at most." : "Take a lower rate."}`;
    const full = sizing.approximateRate(made.size * 8, made.hashFuncs, n);
    return `${told}: with ${n === 1 ? "its" : "all"} ${counted(n, "element")} a rate of ${rate(full)}${made.capped ? ", since it is as large as BIP-37 allows" : ""}.`;
  }

  function update() {
    const asked = Object.fromEntries(NAMES.map((name) => [name, parse(name)]));
    const wrong = NAMES.filter((name) => Number.isNaN(asked[name]));
    const found = wrong.length ? { error: `${wrong.join(" and ")}: not a number; write 1000000, 1e6, 0.01 or 1%` } : sizing.solve(asked);
    for (const name of NAMES) field(name).setAttribute("aria-invalid", String(wrong.includes(name)));
    const typed = new URLSearchParams(NAMES.filter((name) => field(name).value.trim()).map((name) => [name, field(name).value.trim()]));
    history.replaceState(null, "", `#${typed}`);
    document.getElementById("calc-results").hidden = Boolean(found.error);
    if (found.error) {
      field("said").textContent = found.error;
      return;
    }
    field("said").textContent =
      `${counted(found.n, "key")}, k = ${found.k}, ${counted(found.m, "bit")} (${bytes(found.m)})${found.note ? `: ${found.note}` : ""}`;
    fill("calc-sizes", sizes(found));
    fill("calc-loads", LOADS.map(([name, of]) => {
      const keys = Math.ceil(found.n * of);
      const full = -Math.expm1((-found.k * keys) / found.m);
      return [name, integer.format(keys), `${(100 * full).toFixed(2)} %`, rate(sizing.approximateRate(found.m, found.k, keys)),
        rate(sizing.exactRate(found.m, found.k, keys))];
    }));
    plot(found);
    field("bip37").textContent = bip37(found);
  }

  function restore() {
    const held = new URLSearchParams(location.hash.slice(1));
    const known = NAMES.some((name) => held.has(name));
    for (const name of NAMES) field(name).value = (known ? held.get(name) : START[name]) ?? "";
    update();
  }

  document.getElementById("calculator").addEventListener("input", update);
  document.getElementById("calculator").addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", restore);
  window.addEventListener("resize", update);
  restore();
})();
