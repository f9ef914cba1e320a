
// --- parameters ---

const PARAMETERS = [
  ["max_tokens", 60, 1, 100000, 1, "tokens to write at most"],
  ["temperature", 0.8, 0, 100, 0.1, "0 takes the most probable token; above 1 is wilder"],
  ["top_p", 1, 0.01, 1, 0.01, "among the most probable that together have this probability"],
  ["top_k", 0, 0, 100000, 1, "among so many of the most probable; 0 is off"],
  ["min_p", 0, 0, 1, 0.01, "among those at least this times as probable as the best"],
  ["typical_p", 1, 0.01, 1, 0.01, "among those nearest to the mean surprise"],
  ["repetition_penalty", 1, 0.01, 100, 0.05, "above 1: words that occur become less likely"],
  ["presence_penalty", 0, -100, 100, 0.1, "subtracted once from what occurs"],
  ["frequency_penalty", 0, -100, 100, 0.1, "subtracted for each time that it occurs"],
  ["min_tokens", 0, 0, 100000, 1, "no end before so many"],
  ["seed", "", "", "", 1, "the same seed draws the same text; empty: a new one each time"],
];

function makeParameters() {
  for (const [name, given, min, max, step, doc] of PARAMETERS) {
    const input = element("input", { id: "p-" + name, type: "number", min, max, step, value: given,
      "aria-describedby": "d-" + name });
    $("params").append(element("div", { class: "param" },
      element("label", { for: "p-" + name }, name), input,
      element("span", { id: "d-" + name }, doc)));
  }
  $("params").append(element("label", {}, "stop, a line each ",
    element("textarea", { id: "p-stop", rows: "2" })));
  $("params").append(element("label", {}, "tools of chats, a list of functions as JSON ",
    element("textarea", { id: "p-tools", rows: "3", spellcheck: "false" })));
}

function value(name) {
  const text = $("p-" + name).value.trim();
  return text === "" ? PARAMETERS.find((row) => row[0] === name)[1] : Number(text);
}

const lines = (id) => $(id).value.split("\n").filter((line) => line !== "");
const isChat = () => document.querySelector("[name=mode]:checked").value === "chat";
const turns = [];

function requestOf() {
  const request = {};
  for (const [name, given] of PARAMETERS) {
    const number = value(name);
    if (name === "max_tokens" || (number !== given && number !== "")) request[name] = number;
  }
  request.seed ??= freshSeed();
  request.top_logprobs = ALTERNATIVES;
  request.text = request.notices = true;
  if ($("model").value) request.model = $("model").value;
  if (lines("p-stop").length > 0) request.stop = lines("p-stop");
  const type = $("grammar-type").value;
  const text = $("grammar").value;
  if (type) request.grammar = { type, value: type === "choice" ? lines("grammar") : text };
  if (type === "json") request.grammar.value = JSON.parse(text || "{}");
  if (!isChat()) return { prompt: $("prompt").value, ...request };
  const system = $("system").value;
  request.messages = [...(system ? [{ role: "system", content: system }] : []), ...turns,
    { role: "user", content: $("prompt").value }];
  request.parsed = true;
  if ($("p-tools").value.trim()) request.tools = JSON.parse($("p-tools").value);
  return request;
}

function changeMode() {
  $("system-box").hidden = !isChat();
  $("turns").hidden = !isChat() || turns.length === 0;
  $("prompt-name").textContent = isChat() ? "Message" : "Text to continue";
}

function write() {
  let request;
  try { request = requestOf(); } catch (error) { return say("not JSON: " + error.message); }
  if (!link.isOpen) return say("There is no connection to the server yet.");
  say("");
  const made = branch(request);
  if (!made) return;
  run(made);
  choose(made);
}

// The same again: other bits only where the seed is drawn anew.
function retry() {
  const seed = value("seed") === "" ? freshSeed() : value("seed");
  const made = branch({ ...current.request, seed }, current.parent, [], 0);
  if (!made) return;
  made.parent = null;
  run(made);
  choose(made);
}

// A chat's answer becomes part of it, with the next message.
function nextTurn() {
  if (!current?.request.messages || current.isLive) return;
  const said = current.request.messages.filter(({ role }) => role !== "system");
  turns.length = 0;
  turns.push(...said, { role: "assistant", content: textOf(current) });
  $("turns").replaceChildren(...turns.map(({ role, content }) =>
    element("li", {}, `${role}: ${content}`)));
  $("turns").hidden = false;
  $("prompt").value = "";
  $("prompt").focus();
}

const textOf = (which) => which.tokens.map((token) => token.text).join("");

// --- what is drawn, once a frame at most ---

const SHOWN_MAX = 3000;
const STEP = 1000;
const view = { branch: null, tokens: null, begin: 0, end: 0, isDue: false };

function redraw() {
  if (view.isDue) return;
  view.isDue = true;
  requestAnimationFrame(() => {
    view.isDue = false;
    draw();
  });
}

function heat(lp) {
  const p = Math.exp(lp ?? 0);
  return p > 0.9 ? 0 : p > 0.6 ? 1 : p > 0.3 ? 2 : p > 0.1 ? 3 : p > 0.03 ? 4 : p > 0.005 ? 5 : 6;
}

function spanOf(token, at) {
  const text = token.text || token.reasoning || "";
  const color = token.lp === undefined ? "" : ` p${heat(token.lp)}`;
  const made = element("span", { class: `t${color}${token.put ? " put" : ""}` }, text);
  made.at = at;
  return made;
}

// Spans are added and removed at the ends alone, unless the tokens are others.
function drawTokens(box, state, tokens) {
  if (state.tokens !== tokens || tokens.length < state.end) {
    box.replaceChildren();
    state.tokens = tokens;
    state.isHeld = false;
    state.begin = state.end = Math.max(0, tokens.length - SHOWN_MAX);
  }
  const follows = box.scrollTop + box.clientHeight > box.scrollHeight - 30;
  if (state.isHeld && !follows) return;  // until it is scrolled to its end
  state.isHeld = false;
  const added = document.createDocumentFragment();
  const begin = Math.max(state.end, tokens.length - SHOWN_MAX);
  if (begin > state.end) box.replaceChildren(), state.begin = begin;
  for (let at = begin; at < tokens.length; ++at) added.append(spanOf(tokens[at], at));
  box.append(added);
  state.end = tokens.length;
  while (state.end - state.begin > SHOWN_MAX) {
    for (let i = 0; i < STEP; ++i) box.firstChild.remove();
    state.begin += STEP;
  }
  if (follows) box.scrollTop = box.scrollHeight;
}

function draw() {
  if (!current) {
    $("text").replaceChildren();
    view.tokens = null;
    $("outcome").textContent = "";
    for (const id of ["reasoning", "calls", "earlier"]) $(id).hidden = true;
  } else {
    drawTokens($("text"), view, current.tokens);
    $("earlier").hidden = view.begin === 0;
    const reasoning = current.request.parsed
      ? current.tokens.map((token) => token.reasoning ?? "").join("") : "";
    fill("reasoning", reasoning && "Reasoning: " + reasoning);
    fill("calls", callsOf(current).map(({ name, text }) => `Calls ${name}(${text})`).join("\n"));
    const what = current.isLive ? current.why || "writing" : current.finish;
    const line = `${what}; ${current.tokens.length} tokens, seed ${current.request.seed}`;
    if (!current.isLive || current.why) $("outcome").textContent = line;
    else if ($("outcome").textContent !== "writing") $("outcome").textContent = "writing";
  }
  const isLive = branches.some((which) => which.isLive);
  $("stop").disabled = !isLive;
  $("fork-now").disabled = !current?.stream || current.isWaiting || current.tokens.length === 0;
  $("retry").disabled = $("copy").disabled = !current;
  $("next").hidden = !current?.request.messages;
  $("next").disabled = !current || current.isLive;
  drawTree();
  if ($("export").open) drawExport();
}

function fill(id, text) {
  $(id).hidden = !text;
  if ($(id).textContent !== text) $(id).textContent = text;
}

function showEarlier() {
  view.isHeld = true;
  const begin = Math.max(0, view.begin - STEP);
  const added = document.createDocumentFragment();
  for (let at = begin; at < view.begin; ++at) added.append(spanOf(view.tokens[at], at));
  $("text").prepend(added);
  while (view.end - begin > SHOWN_MAX) {
    $("text").lastChild.remove();
    view.end -= 1;
  }
  view.begin = begin;
  $("earlier").hidden = begin === 0;
  $("text").scrollTop = 0;
}

// A branch a line, under the one that it came of.
function drawTree() {
  const rows = [];
  const add = (parent, depth) => {
    for (const which of branches) {
      if (which.parent !== parent) continue;
      rows.push([which, depth]);
      add(which, depth + 1);
    }
  };
  add(null, 0);
  const tree = $("tree");
  while (tree.childElementCount > rows.length) tree.lastChild.remove();
  while (tree.childElementCount < rows.length) {
    tree.append(element("li", {}, element("button", { onclick: pick })));
  }
  rows.forEach(([which, depth], i) => {
    const button = tree.children[i].firstChild;
    const num = which.tokens.length;
    const own = written(which);
    const mean = own.length > 0 ? (score(own) / own.length).toFixed(2) : "-";
    const tail = which.tokens.slice(which.from, which.from + 12).map((token) => token.text);
    const text = `${which.name}${which.isLive ? "…" : ""} from ${which.from}, ${num} tokens, ` +
      `log p ${score(own).toFixed(1)} (${mean} each): ${tail.join("")}`;
    if (button.textContent !== text) button.textContent = text;
    button.branch = which;
    button.style.marginLeft = `${Math.min(depth, 8)}em`;
    if (which === current) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  });
}

function pick(event) { choose(event.currentTarget.branch); }

function choose(which) {
  current = which;
  view.isHeld = false;
  forget();
  redraw();
}

// --- one token ---

const pieces = new Map();  // id: its text

async function pieceOf(id, model) {
  const key = `${model} ${id}`;
  if (!pieces.has(key)) {
    const answer = await ask("DETOKENIZE", { tokens: [Number(id)], skip_special_tokens: false,
      model });
    pieces.set(key, answer.text);
  }
  return pieces.get(key);
}

function forget() {
  chosen = -1;
  $("token").hidden = true;
  $("text").querySelector(".on")?.classList.remove("on");
}

function mark(at) {
  chosen = at;
  $("text").querySelector(".on")?.classList.remove("on");
  const span = $("text").children[at - view.begin];
  span?.classList.add("on");
  return span;
}

const percent = (lp) => lp === undefined ? "put there" :
  (100 * Math.exp(lp)).toFixed(lp > -4.6 ? 1 : 3) + " %";

async function openToken(at) {
  const token = current?.tokens[at];
  if (!token) return;
  const which = current;
  mark(at);
  $("token").hidden = false;
  const shown = JSON.stringify(token.text);
  $("token-name").textContent = `Token ${at + 1}: ${shown}, ${percent(token.lp)}`;
  const rows = Object.entries(token.top ?? {}).sort((a, b) => b[1] - a[1]);
  try {
    const texts = await Promise.all(rows.map(([id]) => pieceOf(id, which.request.model)));
    if (which !== current || chosen !== at) return;
    $("alternatives").replaceChildren(...rows.map(([id, lp], i) => {
      const made = element("button", {
        "aria-label": `Fork with ${JSON.stringify(texts[i])}, ${percent(lp)}`,
        onclick: () => forkAt(at, [{ id: Number(id), text: texts[i], lp, top: token.top }]),
      });
      made.append(...barOf(JSON.stringify(texts[i]), Math.exp(lp), percent(lp)));
      return made;
    }));
  } catch (error) { say(error.message); }
}

function barOf(name, share, text) {
  return [element("span", {}, name),
    element("meter", { min: 0, max: 1, value: share, "aria-hidden": "true" }),
    element("span", {}, text)];
}

async function edit() {
  const at = chosen;
  const text = $("edit-text").value;
  const which = current;
  if (!text || !which) return say("Write what should stand there into the field before Edit here.");
  try {
    const { tokens } = await ask("TOKENIZE", { text, add_special_tokens: false,
      model: which.request.model });
    const put = await Promise.all(tokens.map(async (id) =>
      ({ id, text: await pieceOf(id, which.request.model), put: true })));
    if (which !== current) return;
    $("edit-text").value = "";
    which.stream && at < which.tokens.length ? editLive(at, put) : forkAt(at, put);
  } catch (error) { say(error.message); }
}

// Arrow keys go from token to token; a screen reader hears which.
function onTextKey(event) {
  const last = current ? current.tokens.length - 1 : -1;
  const to = { ArrowLeft: chosen - 1, ArrowRight: chosen + 1, Home: 0, End: last }[event.key];
  if (to !== undefined && last >= 0) {
    event.preventDefault();
    const at = Math.min(Math.max(to, view.begin), last);
    mark(at)?.scrollIntoView({ block: "nearest" });
    const { text, lp } = current.tokens[at];
    $("outcome").textContent = `${JSON.stringify(text)} ${percent(lp)}`;
  } else if (event.key === "Enter" && chosen >= 0) {
    openToken(chosen).then(() => $("alternatives").firstChild?.focus());
  }
}
