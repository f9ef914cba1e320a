
// --- branches: texts that begin alike ---

const BRANCHES_MAX = 100;
const ALTERNATIVES = 12;
const branches = [];
let current = null;
let chosen = -1;  // a token of the current branch

// `tokens` are shared with the branch that it came of, up to `from`.
function branch(request, parent = null, tokens = [], from = 0) {
  if (branches.length >= BRANCHES_MAX) {
    say(`There are ${BRANCHES_MAX} branches, which is the most: Clear removes them.`);
    return null;
  }
  const made = { name: branches.length + 1, request, parent, tokens, from, stream: null,
    finish: "", isLive: false, why: "" };
  branches.push(made);
  return made;
}

// Asks for what follows the tokens that it has: at first, after an edit, and where the connection
// was lost, which is the same to the server.
function run(which) {
  which.isLive = true;
  which.isWaiting = false;
  which.stream = null;
  which.finish = "";
  which.why = link.isOpen ? "" : "waits for the server";
  if (!link.isOpen) return redraw();  // resume() asks for it
  const num = which.tokens.length;
  const { prompt, messages, ...fields } = which.request;
  const ids = which.tokens.map((token) => token.id);
  const what = { ...fields };
  if (messages) what.messages = messages;
  if (num === 0 && !messages) what.prompt = prompt;
  if (num > 0) {
    what.prompt = messages ? ids : [prompt, ids];
    what.resumed = num;
  }
  what.max_tokens = Math.max(1, fields.max_tokens - num);
  which.stream = link.next++;
  which.numerics ??= link.numerics.get(which.request.model ?? "");
  listen(which);
  send("GENERATE", { stream_id: which.stream, ...what });
  redraw();
}

function listen(which) {
  const take = (entry, kind) => takeEntry(which, entry, kind);
  take.lost = () => {
    which.stream = null;
    which.why = "waits for the server";
    takeEdit(which);
    redraw();
  };
  link.streams.set(which.stream, take);
}

function takeEntry(which, entry, kind) {
  if (entry.status) which.why = entry.status === "accepted" ? "" : describe(entry);
  if (entry.error && kind === "MSG") return refuse(which, entry.error);
  if (entry.error) {
    return end(which, entry.error, entry.retryable && (entry.retry_after_ms ?? 500));
  }
  if (!("logprob" in entry)) return redraw();
  if (entry.backtrack) which.tokens = which.tokens.slice(0, -entry.backtrack);
  if (entry.fork_of !== undefined) adopt(which, entry.fork_at);
  if (entry.token !== null) which.tokens.push(tokenOf(entry));
  which.retries = 0;
  if (entry.backtrack !== undefined && which.edit) checkEdit(which);
  if (entry.finish_reason) end(which, entry.finish_reason);
  redraw();
}

// A FORK or BACKTRACK that was wrong, or came too late; the stream goes on.
function refuse(which, error) {
  say(error);
  which.edit = null;
  for (const other of branches) {
    if (other.parent === which && other.isWaiting) end(other, error);
  }
}

function describe(entry) {
  if (entry.status === "loading") return `the model is loaded: ${entry.progress} %`;
  if (entry.status === "queued") return `waits, place ${entry.position}`;
  return entry.status;
}

const tokenOf = (entry) => ({ id: entry.token, text: entry.text ?? "", lp: entry.logprob,
  top: entry.top_logprobs, reasoning: entry.reasoning, calls: entry.calls,
  put: entry.appended || entry.forced });

// What a fork has of its stream, which may have gone on since.
function adopt(which, at) {
  which.tokens = which.parent.tokens.slice(0, at);
  which.from = at;
  which.isWaiting = false;
}

// An edit that the server has not answered, done here.
function takeEdit(which) {
  if (!which.edit) return false;
  which.tokens = [...which.edit.before, ...which.edit.put];
  which.edit = null;
  return true;
}

// Until `retryMs` are over, where it may be asked for again.
function end(which, finish, retryMs = 0) {
  link.streams.delete(which.stream);
  which.stream = null;
  which.isWaiting = false;
  if (finish !== "stopped" && takeEdit(which)) return run(which);  // it came to its end first
  if (retryMs && (which.retries = (which.retries ?? 0) + 1) < 5) {
    which.why = "waits: " + finish;
    setTimeout(() => link.isOpen && which.isLive && !which.stream && run(which), retryMs);
    return redraw();
  }
  which.isLive = false;
  which.finish = finish;
  redraw();
}

// Once there is a connection again: with the same bits, or not at all.
async function resume() {
  for (const which of [...branches]) {
    if (!which.isLive || which.stream) continue;
    const model = which.request.model ?? "";
    if (!link.numerics.has(model)) await infoOf(model);
    if (!which.isLive || which.stream) continue;
    const numerics = link.numerics.get(model);
    if (which.numerics && numerics && which.numerics !== numerics) {
      end(which, "not continued: the server computes other bits now (numerics). Again asks anew");
    } else if (which.tokens.length >= which.request.max_tokens) {
      end(which, "length");
    } else {
      run(which);
    }
  }
}

function giveUp(why) {
  for (const which of branches) if (which.isLive) end(which, "lost: " + why);
}

function stop() {
  for (const which of branches) {
    if (!which.isLive) continue;
    if (which.stream) send("CANCEL", { stream_id: which.stream });
    end(which, "stopped");
  }
}

// Another seed from here on, while it runs: the server has all of it already.
function forkNow() {
  if (!link.isOpen) return say("There is no connection to the server yet.");
  const made = branch({ ...current.request, seed: freshSeed() }, current,
    current.tokens.slice(), current.tokens.length);
  if (!made) return;
  made.isLive = made.isWaiting = true;
  made.stream = link.next++;
  listen(made);
  send("FORK", { stream_id: current.stream, streams: [made.stream],
    params: { seed: made.request.seed } });
  choose(made);
}

// The tokens before `at`, then `put`, and on from there. The beginning has the same bits.
function forkAt(at, put) {
  const request = { ...current.request };
  if (put.length === 0) request.seed = freshSeed();
  const tokens = [...current.tokens.slice(0, at), ...put];
  if (request.max_tokens <= tokens.length) {
    request.max_tokens = tokens.length + value("max_tokens");
  }
  const made = branch(request, current, tokens, at);
  if (!made) return;
  run(made);
  choose(made);
}

// In a stream that runs, what stands there is taken back. The server may have been further than
// the page: then the place is another one, and a stream of its own begins at the right one.
function editLive(at, put) {
  const which = current;
  which.edit = { at, put, before: which.tokens.slice(0, at) };
  send("BACKTRACK", { stream_id: which.stream, drop: which.tokens.length - at,
    append: put.map((token) => token.id) });
  forget();
}

function checkEdit(which) {
  const { at, put, before } = which.edit;
  which.edit = null;
  if (which.tokens.length === at + 1) return;
  send("CANCEL", { stream_id: which.stream });
  link.streams.delete(which.stream);
  which.tokens = [...before, ...put];
  run(which);
}

// The calls in it, as far as they came.
function callsOf(which) {
  const calls = [];
  for (const token of which.tokens) {
    for (const piece of token.calls ?? []) {
      const call = calls[piece.index] ??= { name: "", text: "" };
      call.name += piece.name ?? "";
      call.text += piece.arguments ?? "";
    }
  }
  return calls.filter(Boolean);
}

const freshSeed = () => crypto.getRandomValues(new Uint32Array(1))[0];
// The log probability of what the model wrote, and of how many tokens that is: others were put.
const written = (which) => which.tokens.filter((token) => token.lp !== undefined);
const score = (tokens) => tokens.reduce((sum, token) => sum + token.lp, 0);
