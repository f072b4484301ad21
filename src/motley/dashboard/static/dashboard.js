// What the pages cannot do by themselves: stay new, read charts out, filter tables.
// Everything works without this script; it only adds. Nothing is kept but what is on the page.
//
//   <main data-refresh="5">            fetched again every 5 s while somebody may be looking
//   <figure class="chart" data-chart>  cross-hair by pointer, touch and arrow keys
//   <input data-filter="table">        hides rows of those tables as one types
//   <select data-submit>               sends its form when something else is chosen

const REFRESH_LIMIT_S = 300;
const TYPING_MS = 2000;
const SVG = "http://www.w3.org/2000/svg";
const all = (selector) => [...document.querySelectorAll(selector)];

let failures = 0;
let refreshed = new Date();
let typed = -TYPING_MS;
let timer;

function plan() {
  clearTimeout(timer);
  const every = Number(document.querySelector("main")?.dataset.refresh);
  if (!every) return;
  const wait = Math.min(every * 2 ** failures, Math.max(every, REFRESH_LIMIT_S));
  timer = setTimeout(refresh, wait * 1000 * (0.9 + 0.2 * Math.random()));
}

function isBusy() {
  const at = document.activeElement;
  const writes = at?.matches("input, textarea, select") && !at.matches("[data-filter]");
  const selects = !document.getSelection().isCollapsed;
  return document.hidden || writes || selects || performance.now() - typed < TYPING_MS;
}

async function refresh() {
  if (isBusy()) return plan();
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(30000) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (page.querySelector(".login")) return location.reload(); // it takes us there
    const fresh = page.querySelector("main");
    if (answer.status >= 500 || !fresh) throw new Error(page.querySelector(".note")?.textContent);
    failures = 0;
    if (!isBusy()) {
      refreshed = new Date();
      document.title = page.title;
      replace(document.adoptNode(fresh));
    }
  } catch (error) {
    failures += 1;
    const note = document.querySelector("main > .stale") ?? document.createElement("p");
    note.className = "note warn stale";
    note.setAttribute("role", "status");
    note.textContent = `Not refreshed since ${refreshed.toLocaleTimeString()}: ${error.message || "no answer"}`;
    if (!note.isConnected) document.querySelector("main").prepend(note);
  }
  plan();
}

const SCROLLING = "pre.log, .scroll";
const FOCUSABLE = "main :is(a, button, input, summary, [tabindex])";
const isAtEnd = (box) => box.matches("pre.log") && box.scrollHeight - box.scrollTop - box.clientHeight < 8;

function replace(fresh) {
  const scrolls = all(SCROLLING).map((box) => [box.scrollLeft, isAtEnd(box) ? null : box.scrollTop]);
  const filters = all("input[data-filter]").map((input) => input.value);
  const opened = all("main details").map((details) => details.open);
  const focused = all(FOCUSABLE).indexOf(document.activeElement);
  const caret = document.activeElement?.selectionStart;
  const [figure, index] = reading;
  const read = all(".chart").indexOf(figure);

  document.querySelector("main").replaceWith(fresh);

  all("main details").forEach((details, i) => (details.open = opened[i] ?? details.open));
  all("input[data-filter]").forEach((input, i) => {
    input.value = filters[i] ?? "";
    filter(input);
  });
  all(SCROLLING).forEach((box, i) => {
    const [left, top] = scrolls[i] ?? [0, 0];
    box.scrollTo(left, top ?? box.scrollHeight);
  });
  const again = all(FOCUSABLE)[focused];
  again?.focus({ preventScroll: true });
  if (again?.matches("[data-filter]")) again.setSelectionRange(caret, caret);
  prepare();
  const same = all(".chart")[read];
  if (same?.dataset.chart) show(same, index);
  else hide();
}

let reading = [null, 0]; // which chart, and which of its points

const plain = (x, digits) => String(Number(x.toFixed(digits)));

function written(x, unit) {
  if (unit === "cores") {
    if (x < 0.9995) return x <= 0 ? "0" : `${plain(x * 1000, x < 0.00995 ? 1 : 0)}m`;
    return plain(x, x < 99.995 ? 2 : 0);
  }
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  for (; x >= 1023.5 && units.length > 1; x /= 1024) units.shift();
  return `${plain(x, units[0] !== "B" && x < 99.95 ? 1 : 0)} ${units[0]}`;
}

function drawn(parent, name, attributes) {
  const element = parent.appendChild(document.createElementNS(SVG, name));
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

const told = (parent, name, className, textContent = "") =>
  parent.appendChild(Object.assign(document.createElement(name), { className, textContent }));

function show(figure, index) {
  hide();
  const chart = JSON.parse(figure.dataset.chart);
  const [left, right, top, bottom] = chart.box;
  const last = chart.count - 1;
  index = Math.max(0, Math.min(last, index));
  reading = [figure, index];
  const svg = figure.querySelector("svg");
  const x = last ? left + ((right - left) * index) / last : (left + right) / 2;
  const hair = drawn(svg, "g", { class: "hair" });
  drawn(hair, "line", { x1: x, x2: x, y1: top, y2: bottom });
  const tip = told(figure, "div", "tip");
  tip.setAttribute("role", "status");
  const when = new Date((chart.start + chart.step * index) * 1000).toISOString();
  told(tip, "time", "", `${when.slice(0, 10)} ${when.slice(11, 19)}`);
  chart.lines.forEach(([name, values], nth) => {
    const value = values[index] ?? null;
    const row = told(tip, "div", `s${nth % 8}`);
    told(row, "span", "name", name);
    told(row, "b", "", value === null ? "–" : written(value, chart.unit));
    const y = bottom - (bottom - top) * Math.min(Math.max(value / chart.top, 0), 1);
    if (value !== null) drawn(hair, "circle", { cx: x, cy: y, r: 3.5, class: `s${nth % 8}` });
  });
  const [inner, outer] = [svg, figure].map((element) => element.getBoundingClientRect());
  const at = inner.left - outer.left + (x * inner.width) / svg.viewBox.baseVal.width;
  const fits = at + 12 + tip.offsetWidth <= outer.width;
  tip.style.left = `${Math.max(0, fits ? at + 12 : at - 12 - tip.offsetWidth)}px`;
  tip.style.top = `${inner.top - outer.top + top}px`;
}

function hide() {
  reading[0]?.querySelectorAll(".hair, .tip").forEach((element) => element.remove());
  reading = [null, 0];
}

const chartOf = (element) => element.closest?.("svg")?.closest(".chart[data-chart]");

function point(event) {
  const figure = chartOf(event.target);
  if (!figure) return hide();
  const chart = JSON.parse(figure.dataset.chart);
  const at = new DOMPoint(event.clientX, event.clientY);
  const x = at.matrixTransform(figure.querySelector("svg").getScreenCTM().inverse()).x;
  show(figure, Math.round(((x - chart.box[0]) / (chart.box[1] - chart.box[0])) * (chart.count - 1)));
}

function step(event) {
  const figure = chartOf(event.target);
  if (!figure) return;
  const last = JSON.parse(figure.dataset.chart).count - 1;
  const now = reading[0] === figure ? reading[1] : last + 1;
  const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
  if (event.key === "Escape") hide();
  if (to === undefined) return;
  event.preventDefault();
  show(figure, to);
}

function filter(input) {
  const words = input.value.toLowerCase().split(/\s+/);
  for (const row of all(`main ${input.dataset.filter} > tbody > tr`)) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
}

// Labels say what titles do, and titles would show as a second tip.
const prepare = () => all(".chart svg > title").forEach((title) => title.remove());

document.addEventListener("input", (event) => {
  typed = performance.now();
  if (event.target.matches("[data-filter]")) filter(event.target);
});
document.addEventListener("change", ({ target }) => target.matches("[data-submit]") && target.form.requestSubmit());
for (const name of ["pointermove", "pointerdown"]) document.addEventListener(name, point);
document.addEventListener("keydown", step);
document.addEventListener("focusout", hide);
document.addEventListener("visibilitychange", () => document.hidden || !timer || refresh());
prepare();
all("input[data-filter]").forEach(filter);
all("pre.log").forEach((box) => (box.scrollTop = box.scrollHeight));
plan();
