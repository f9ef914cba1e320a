
// --- Look: the server, while somebody looks ---

const LOOK_MS = 2000;
const KEPT = 150;  // five minutes
const history = new Map();
let lookTimer = 0;

// Name, metric, and whether its growth is meant.
const GAUGES = [
  ["requests that run", "lmtp_num_requests_running"],
  ["requests that wait", "lmtp_num_requests_waiting"],
  ["tokens written, each second", "lmtp_generation_tokens_total", true],
  ["tokens of prompts, each second", "lmtp_prompt_tokens_total", true],
  ["of these, found in the cache", "lmtp_prefix_cache_hits_total", true],
  ["steps, each second", "lmtp_steps_total", true],
];

// name{...} value, with the labels' sums.
function readMetrics(text) {
  const sums = new Map();
  for (const line of text.split("\n")) {
    const found = /^([a-z_]+)(\{[^}]*\})? (\S+)/.exec(line);
    if (!found || !Number.isFinite(Number(found[3]))) continue;
    sums.set(found[1], (sums.get(found[1]) ?? 0) + Number(found[3]));
    if (found[2]) sums.set(found[1] + found[2], Number(found[3]));
  }
  return sums;
}

function looks() { return !$("look").hidden && document.visibilityState === "visible"; }

async function look() {
  clearTimeout(lookTimer);
  if (!looks()) return;
  try {
    const health = JSON.parse(await http("health"));
    $("health").textContent = `The server is ${health.status}.`;
    const { data } = JSON.parse(await http("v1/models"));
    $("models").replaceChildren(...data.map((model) => element("li", {}, model.id)));
    if (link.isOpen) {
      const model = $("model").value || undefined;
      const { model_info: info } = await ask("MODEL_INFO", { model });
      note("blocks of the cache in use", info.stats?.num_blocks_pinned);
      note("blocks kept for prompts that come again", info.stats?.num_blocks_evictable);
      note("blocks that are empty", info.stats?.num_blocks_free);
    }
    const sums = readMetrics(await http("metrics"));
    for (const [name, metric, grows] of GAUGES) note(name, sums.get(metric), grows);
    drawGauges();
  } catch (error) {
    drawGauges();
    $("health").textContent = error.status === 403
      ? "Rates and requests are for keys with the right admin." : String(error.message);
  }
  lookTimer = setTimeout(look, LOOK_MS);
}

function note(name, number, grows = false) {
  if (number === undefined) return;
  if (!history.has(name)) history.set(name, { values: [] });
  const row = history.get(name);
  const now = performance.now();
  let shown = number;
  if (grows) {
    shown = row.last === undefined ? 0 : Math.max(0, (number - row.last) / (now - row.at) * 1000);
    row.last = number;
    row.at = now;
  }
  row.values.push(shown);
  if (row.values.length > KEPT) row.values.shift();
}

function drawGauges() {
  const box = $("gauges");
  for (const [name, { values }] of history) {
    let made = [...box.children].find((child) => child.name === name);
    if (!made) {
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      svg.setAttribute("viewBox", `0 0 ${KEPT} 20`);
      svg.setAttribute("preserveAspectRatio", "none");
      svg.setAttribute("aria-hidden", "true");
      svg.append(document.createElementNS("http://www.w3.org/2000/svg", "polyline"));
      made = element("div", { class: "gauge" }, name + " ", element("b", {}), svg);
      made.name = name;
      box.append(made);
    }
    const top = Math.max(...values, 1e-9);
    const now = values.at(-1);
    made.querySelector("b").textContent = Number.isInteger(now) ? now : now.toFixed(1);
    made.querySelector("polyline").setAttribute("points", values.map((value, i) =>
      `${KEPT - values.length + i},${(19 - 18 * value / top).toFixed(1)}`).join(" "));
  }
}
