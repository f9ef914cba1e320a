
// --- Score: how likely a text is ---

const scored = { tokens: null, begin: 0, end: 0 };
let scoredAt = -1;

function scoreText() {
  const text = $("score-text").value;
  if (!text) return say("Paste a text first.");
  say("");
  const tokens = [];
  scored.tokens = null;
  scoredAt = -1;
  $("score-sum").textContent = "scoring";
  const take = (entry, kind) => {
    if (entry.error) {
      link.streams.delete(entry.stream_id);
      $("score-sum").textContent = "";
      return say(entry.error);
    }
    if (kind !== "TOKEN") return;
    // Nothing precedes the first one, of which nothing is told.
    tokens.push({ text: entry.text ?? "", rank: entry.rank,
      lp: tokens.length > 0 ? entry.logprob : undefined });
    if (!entry.finish_reason) return;
    link.streams.delete(entry.stream_id);
    requestAnimationFrame(() => drawScore(tokens));
  };
  take.lost = () => { $("score-sum").textContent = "The connection was lost: Score asks again."; };
  stream("SCORE", { prompt: "", scored: text, rank: true, text: true,
    model: $("model").value || undefined }, take);
}

function drawScore(tokens) {
  drawTokens($("scored"), scored, tokens);
  const sum = tokens.reduce((total, token) => total + (token.lp ?? 0), 0);
  const each = sum / (tokens.length - 1);
  $("score-sum").textContent = `${tokens.length} tokens, log p ${sum.toFixed(2)}, perplexity ${
    tokens.length > 1 ? Math.exp(-each).toFixed(2) : "-"}; the last ${
    Math.min(tokens.length, SHOWN_MAX)} are shown`;
}

function tellScored(at) {
  const token = scored.tokens?.[at];
  if (!token) return;
  scoredAt = at;
  $("scored").querySelector(".on")?.classList.remove("on");
  $("scored").children[at - scored.begin]?.classList.add("on");
  const rank = token.rank ? `, rank ${token.rank}` : "";
  const told = token.lp === undefined ? "the beginning" : percent(token.lp) + rank;
  $("score-token").textContent = `${JSON.stringify(token.text)}: ${told}`;
}

function onScoreKey(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step || !scored.tokens) return;
  event.preventDefault();
  tellScored(Math.min(Math.max(scoredAt + step, scored.begin), scored.tokens.length - 1));
}

// --- Decide ---

async function decide() {
  say("");
  const options = lines("options");
  const question = { type: options.length > 0 ? "choice" : "noul" };
  if ($("question").value) question.instructions = $("question").value;
  // JavaScript puts names that are numbers before all others.
  if (new Set(options).size < options.length || options.some((name) => /^\d+$/.test(name))) {
    return say("Answers have to differ, and a number needs a word beside it.");
  }
  if (options.length > 0) {
    question.criteria = Object.fromEntries(options.map((name) => [name, null]));
  }
  try {
    const answer = await ask("DECIDE", { state: $("state").value, questions: { q: question },
      model: $("model").value || undefined });
    const { q } = answer.answers;
    const rows = q.type === "noul" ? [["yes", q.noul], ["no", 1 - q.noul]]
      : Object.entries(q.probabilities).sort((a, b) => b[1] - a[1]);
    const mass = answer.diagnostics?.q?.label_mass;
    $("bars").replaceChildren(...rows.map(([name, share]) =>
      element("div", { class: "bar" }, ...barOf(name, share, (100 * share).toFixed(1) + " %"))));
    if (mass !== undefined) {
      $("bars").append(element("p", { class: "hint" },
        `The model gave the answers ${(100 * mass).toFixed(1)} % of its probability.`));
    }
  } catch (error) { say(error.message); }
}

// --- Export ---

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

function drawExport() {
  let request;
  try { request = current?.request ?? requestOf(); } catch (error) {
    $("exported").textContent = "not JSON: " + error.message;
    return;
  }
  const { prompt, messages, text, notices, top_logprobs: top, parsed, grammar, ...rest } = request;
  const origin = address("").href.replace(/\/$/, "");
  const path = messages ? "/v1/chat/completions" : "/v1/completions";
  const body = { ...rest, ...(messages ? { messages } : { prompt }) };
  body.model ??= link.info?.model;
  if (grammar) body.structured_outputs = {
    [{ lark: "grammar", gbnf: "grammar" }[grammar.type] ?? grammar.type]: grammar.value };
  const json = JSON.stringify(body);
  const as = $("export-as").value;
  const arguments_ = Object.entries(rest).filter(([, each]) => typeof each === "number")
    .map(([name, each]) => `${name}=${each}`).join(", ");
  const forms = {
    curl: () => `curl ${quoted(origin + path)} -H 'Content-Type: application/json' \\\n` +
      `  ${kept("lmtp-key") ? `-H "Authorization: Bearer $LMTP_KEY" ` : ""}-d ${quoted(json)}`,
    Python: () => `import json, os, urllib.request\n\nbody = ${JSON.stringify(json)}\n` +
      `request = urllib.request.Request(${JSON.stringify(origin + path)}, body.encode(), {\n` +
      `    "Content-Type": "application/json",\n` +
      `    "Authorization": "Bearer " + os.environ.get("LMTP_KEY", "none")})\n` +
      "print(json.load(urllib.request.urlopen(request)))",
    LMQL: () => messages ? "LMQL's generate() continues texts: choose Text." :
      `import lmql\n\nmodel = lmql.model(${JSON.stringify(body.model)}, ` +
      `endpoint=${JSON.stringify(location.host)},\n    tokenizer=${
        JSON.stringify(link.info?.tokenizer)})\n` +
      `print(model.generate_sync(${JSON.stringify(prompt)}, ${arguments_}))`,
    LMTP: () => `GENERATE ${JSON.stringify({ stream_id: 1, ...request })}` + (
      current?.from ? `\n# the branch begins with these tokens after the prompt, "resumed": ${
        current.from}\n# ${JSON.stringify(current.tokens.slice(0, current.from).map((t) => t.id))}`
        : ""),
  };
  const isWhole = as === "LMTP" || !current?.from;
  const note = "# From the prompt alone, without what was put there.\n";
  const made = (isWhole ? "" : note) + forms[as]();
  if ($("exported").textContent !== made) $("exported").textContent = made;
}

async function copy(text) {
  try { await navigator.clipboard.writeText(text); } catch {
    say("The browser lets no page without https copy: mark the text and copy it.");
  }
}
