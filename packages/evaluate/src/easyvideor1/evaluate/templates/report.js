"use strict";
// The questions of the page: a list that grows as it is scrolled, and one question in full. Texts of
// the model are only ever set as text.
const questions = JSON.parse(document.getElementById("questions").textContent);
const list = document.getElementById("list");
const detail = document.getElementById("detail");
const count = document.getElementById("count");
const search = document.getElementById("search");
const choices = ["benchmark", "status", "category"].map((name) => document.getElementById(name));
const [byBenchmark, byStatus, byCategory] = choices;
const verdictButtons = [...document.querySelectorAll("button[data-verdict]")];
const CHUNK = 100;
const searched = [];
let verdict = "all";
let found = [];
let chosen = -1;

function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// --- filters ---

function statuses(question) {
  const named = [question.status];
  for (const [reading, score] of [["official", question.official], ["strict", question.strict]])
    if (score && score.status !== "ok") named.push(`${reading}: ${score.status}`);
  const { official, strict } = question;
  if (official && strict && official.accuracy !== strict.accuracy) named.push("readings differ");
  return named;
}

function categories(question) {
  return Object.entries(question.fields).flatMap(([name, values]) =>
    values.map((value) => `${name}: ${value}`));
}

function textOf(index) {
  const question = questions[index];
  searched[index] ??= [question.id, question.prompt, question.text, question.gold].join("\n").toLowerCase();
  return searched[index];
}

function fill(select, all, values) {
  const kept = select.value;
  const sorted = [...new Set(values)].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  select.replaceChildren(element("option", { value: "" }, all));
  for (const value of sorted) select.append(element("option", { value }, value));
  select.value = sorted.includes(kept) ? kept : "";
}

function fillChoices() {
  const within = questions.filter((q) => !byBenchmark.value || q.benchmark === byBenchmark.value);
  fill(byStatus, "every status", within.flatMap(statuses));
  fill(byCategory, "every category", within.flatMap(categories));
}

function matches(index, words) {
  const question = questions[index];
  return (!byBenchmark.value || question.benchmark === byBenchmark.value)
    && (!byStatus.value || statuses(question).includes(byStatus.value))
    && (!byCategory.value || categories(question).includes(byCategory.value))
    && words.every((word) => textOf(index).includes(word));
}

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fitting = [...questions.keys()].filter((index) => matches(index, words));
  for (const button of verdictButtons) {
    const name = button.dataset.verdict;
    const number = fitting.filter((i) => name === "all" || questions[i].verdict === name).length;
    button.textContent = `${name} ${number}`;
    button.setAttribute("aria-pressed", String(name === verdict));
  }
  found = fitting.filter((index) => verdict === "all" || questions[index].verdict === verdict);
  count.textContent = `${found.length} of ${questions.length}`;
  list.replaceChildren();
  list.scrollTop = 0;
  chosen = -1;
  grow();
  choose(0);
}

// --- list ---

function grow() {
  const end = Math.min(found.length, list.children.length + CHUNK);
  for (let place = list.children.length; place < end; place += 1) {
    const question = questions[found[place]];
    const repeat = question.repeat ? ` · repeat ${question.repeat}` : "";
    const row = element("li", { class: question.verdict, role: "option", "aria-selected": "false" },
      element("span", { class: "line" }, question.prompt.split("\n").find(Boolean) ?? ""),
      element("span", { class: "line muted small" }, question.id + repeat));
    row.addEventListener("click", () => choose(place));
    list.append(row);
  }
}

function choose(place) {
  if (!found.length) {
    detail.replaceChildren(element("p", { class: "muted" }, "No question fits."));
    return;
  }
  const wanted = Math.max(0, Math.min(found.length - 1, place));
  while (list.children.length <= wanted) grow();
  list.children[chosen]?.setAttribute("aria-selected", "false");
  chosen = wanted;
  const row = list.children[chosen];
  row.setAttribute("aria-selected", "true");
  row.scrollIntoView({ block: "nearest" });
  show(questions[found[chosen]]);
}

list.addEventListener("scroll", () => {
  if (list.scrollTop + list.clientHeight > list.scrollHeight - 400) grow();
});

// --- one question ---

function framesOf(question) {
  if (question.frames === null) return [element("p", { class: "muted small" }, "No frames on this page.")];
  const media = JSON.parse(document.getElementById(`frames-${question.frames}`).textContent);
  return media.map((medium) => {
    const figures = medium.frames.map((frame) => {
      const time = `${frame.time_s.toFixed(2)} s`;
      const exact = frame.uri.startsWith("data:image/png") ? "exact" : "";
      return element("figure", {},
        element("img", { src: frame.uri, alt: `frame at ${time}`, class: exact }),
        element("figcaption", {}, time));
    });
    return element("div", {}, element("div", { class: "frames" }, ...figures),
      element("div", { class: "muted small" }, medium.caption));
  });
}

function reading(score) {
  if (!score) return [element("span", { class: "muted" }, "not scored")];
  const note = [score.status, score.detail].filter(Boolean).join(": ");
  return [score.extracted, element("span", { class: "muted small" }, ` scores ${score.accuracy.toFixed(3)}, ${note}`)];
}

function show(question) {
  const rows = [
    ["asked", [element("pre", {}, question.prompt)]],
    ["gold", [question.gold]],
    ["answered", [element("pre", {}, question.text)]],
    ["official", reading(question.official)],
    ["strict", reading(question.strict)],
    ["status", [[question.status, question.error].filter(Boolean).join(": ")]],
    ["category", [categories(question).join(", ")]],
    ["tokens", [`${question.prompt_tokens} in, ${question.answer_tokens} out`]],
  ];
  const repeat = question.repeat ? `, repeat ${question.repeat}` : "";
  detail.replaceChildren(
    element("div", {},
      element("span", { class: `verdict ${question.verdict}` }, question.verdict), " ",
      element("span", { class: "muted small" }, `${question.benchmark} · ${question.id}${repeat}`)),
    ...framesOf(question),
    element("dl", {}, ...rows.flatMap(([name, content]) =>
      [element("dt", {}, name), element("dd", {}, ...content)])));
  detail.scrollTop = 0;
}

// --- events ---

function toggleTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
}

function setVerdict(name) {
  verdict = name;
  filter();
}

function clear() {
  search.value = "";
  for (const select of choices) select.value = "";
  fillChoices();
  setVerdict("all");
}

const VERDICTS = { a: "all", r: "right", p: "partly", w: "wrong", f: "failed" };
const KEYS = {
  j: () => choose(chosen + 1),
  ArrowDown: () => choose(chosen + 1),
  k: () => choose(chosen - 1),
  ArrowUp: () => choose(chosen - 1),
  g: () => choose(0),
  G: () => choose(found.length - 1),
  "/": () => search.focus(),
  c: clear,
  t: toggleTheme,
  "?": () => { const help = document.getElementById("help"); help.open = !help.open; },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (typing) {
    if (event.key === "Escape" || (event.key === "Enter" && event.target === search)) event.target.blur();
    return;
  }
  const act = event.key in VERDICTS ? () => setVerdict(VERDICTS[event.key]) : KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
for (const button of verdictButtons) button.addEventListener("click", () => setVerdict(button.dataset.verdict));
document.getElementById("theme").addEventListener("click", toggleTheme);
search.addEventListener("input", filter);
byBenchmark.addEventListener("change", () => { fillChoices(); filter(); });
byStatus.addEventListener("change", filter);
byCategory.addEventListener("change", filter);

fill(byBenchmark, "every benchmark", questions.map((question) => question.benchmark));
byBenchmark.hidden = byBenchmark.options.length < 3;
fillChoices();
filter();
