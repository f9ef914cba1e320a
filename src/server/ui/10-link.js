// The page at /ui. One module, in parts; nothing in it comes from elsewhere. What models, names and
// logs say enters the document by textContent alone.

const $ = (id) => document.getElementById(id);
const PREFIX = location.pathname.replace(/\/+$/, "").replace(/[^/]*$/, "");
const address = (path) => new URL(PREFIX + path, location.href);

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made[name] = value;
    else if (value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children);  // texts become text nodes
  return made;
}

function say(message) {
  $("error").textContent = message || "";
  $("error").hidden = !message;
}

// --- the key, which stays in this tab ---

const memory = new Map();
function keep(name, value) {
  memory.set(name, value);
  try { sessionStorage.setItem(name, value); } catch { /* shut off: it lasts as the page does */ }
}
function kept(name) {
  try { return sessionStorage.getItem(name) ?? memory.get(name) ?? ""; } catch {
    return memory.get(name) ?? "";
  }
}

class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

async function http(path, method = "GET") {
  const key = kept("lmtp-key");
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const answer = await fetch(address(path), { method, headers, credentials: "omit" });
  const text = await answer.text();
  if (!answer.ok) throw new Refused(answer.status, reason(text));
  return text;
}

function reason(text) {
  try {
    const { error } = JSON.parse(text);
    return error.message ?? error;
  } catch { return text.trim().slice(0, 300); }
}

// --- LMTP over one WebSocket ---

const link = { socket: null, next: 1, streams: new Map(), info: null, isOpen: false, tries: 0,
  turn: 0, numerics: new Map() };

// `take` gets each entry of the stream; `take.lost`, if any, is called where the connection is.
function stream(verb, fields, take, id = link.next++) {
  link.streams.set(id, take);
  send(verb, { stream_id: id, ...fields });
  return id;
}

function send(verb, fields) {
  if (link.isOpen) link.socket.send(`${verb} ${JSON.stringify(fields)}`);
}

// One answer.
function ask(verb, fields) {
  return new Promise((done, failed) => {
    if (!link.isOpen) return failed(new Error("there is no connection"));
    const take = (entry) => {
      if (entry.status) return;
      link.streams.delete(entry.stream_id);
      entry.error ? failed(new Error(entry.error)) : done(entry);
    };
    take.lost = () => failed(new Error("the connection was lost"));
    stream(verb, fields, take);
  });
}

function receive(text) {
  const space = text.indexOf(" ");
  for (const entry of JSON.parse(text.slice(space + 1))) {
    const take = link.streams.get(entry.stream_id);
    if (take) take(entry, text.slice(0, space));
    else if (entry.error) say(entry.error);
  }
}

async function connect() {
  if (link.isOpen) return;
  clearTimeout(link.timer);
  const turn = ++link.turn;  // a later call takes its place
  show("connecting");
  try {
    await loadModels();
    let query = "";
    if (kept("lmtp-key")) query = "?ticket=" + JSON.parse(await http("ui/ticket", "POST")).ticket;
    if (turn !== link.turn) return;
    $("gate").hidden = true;
    open(query);
  } catch (error) {
    if (turn !== link.turn) return;
    if (error.status === 401 || (error.status === 403 && kept("lmtp-key"))) {
      if (kept("lmtp-key")) say(error.message);
      show("needs a key");
      giveUp("the key is not accepted");
      $("gate").hidden = false;
      $("key").focus();
    } else {
      again(error.message);
    }
  }
}

function open(query) {
  const url = address("");
  url.protocol = url.protocol.replace("http", "ws");
  url.search = query;
  const socket = link.socket = new WebSocket(url);
  socket.onopen = async () => {
    if (link.socket !== socket) return socket.close();
    link.isOpen = true;
    setTimeout(() => { if (link.socket === socket && link.isOpen) link.tries = 0; }, 10000);
    show("connected");
    say("");
    link.numerics.clear();
    try {
      await learn();
      await resume();
    } catch (error) {
      if (link.isOpen) giveUp(error.message);
      say(error.message);
    }
  };
  socket.onmessage = (event) => { if (link.socket === socket) receive(event.data); };
  socket.onclose = () => {
    if (link.socket !== socket) return;
    const lost = [...link.streams.values()];
    link.isOpen = false;
    link.streams.clear();
    for (const take of lost) take.lost?.();
    again();
  };
}

// Waits longer each time, up to 5 s.
function again(why = "") {
  show("connection lost; trying again" + (why && ": " + why));
  link.tries += 1;
  clearTimeout(link.timer);
  link.timer = setTimeout(connect, Math.min(5000, 200 * 2 ** Math.min(link.tries, 5)));
}

function show(state) { if ($("link").textContent !== state) $("link").textContent = state; }

async function loadModels() {
  const { data } = JSON.parse(await http("v1/models"));
  const chosen = $("model").value;
  $("model").replaceChildren(...data.map(({ id, parent }) =>
    element("option", { value: id }, parent ? `${id} (adapter)` : id)));
  if (data.some(({ id }) => id === chosen)) $("model").value = chosen;
}

// What the model can. Equal numerics have equal bits: else a lost stream is not continued.
async function infoOf(model) {
  const { model_info: info } = await ask("MODEL_INFO", { model: model || undefined });
  link.numerics.set(model, info.numerics);
  return info;
}

async function learn() {
  const info = link.info = await infoOf($("model").value);
  const hasChat = Boolean(info.tool_call_format?.source);
  const [text, chat] = document.querySelectorAll("[name=mode]");
  chat.disabled = !hasChat;
  chat.parentElement.title = hasChat ? "" : "This model has no chat template.";
  if (!hasChat && chat.checked) text.checked = true;
  changeMode();
}
