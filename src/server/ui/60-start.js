
// --- what the page's parts do ---

function showView(name) {
  for (const view of document.querySelectorAll(".view")) view.hidden = view.id !== name;
  for (const button of $("views").children) {
    if (button.dataset.view === name) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  look();
}

function clear() {
  stop();
  branches.length = 0;
  turns.length = 0;
  $("turns").replaceChildren();
  choose(null);
  changeMode();
}

const CLICKS = {
  go: write, stop, retry, clear, "fork-now": forkNow, next: nextTurn, earlier: showEarlier, edit,
  copy: () => copy(textOf(current)), fork: () => forkAt(chosen, []), "token-close": forget,
  "score-go": scoreText, "decide-go": decide, "export-copy": () => copy($("exported").textContent),
};
for (const [id, act] of Object.entries(CLICKS)) $(id).onclick = () => act();
for (const button of $("views").children) button.onclick = () => showView(button.dataset.view);
for (const choice of document.querySelectorAll("[name=mode]")) choice.onchange = changeMode;
$("text").onclick = ({ target }) => target.at !== undefined && openToken(target.at);
$("text").onkeydown = onTextKey;
$("text").onscroll = () => view.isHeld && redraw();
$("scored").onclick = ({ target }) => target.at !== undefined && tellScored(target.at);
$("scored").onkeydown = onScoreKey;
$("export").ontoggle = $("export-as").onchange = drawExport;
$("model").onchange = () => learn().catch((error) => say(error.message));
$("gate").onsubmit = (event) => {
  event.preventDefault();
  const key = $("key").value.trim();
  if (!/^[\x21-\x7e]*$/.test(key)) return say("A key has letters, digits and signs of ASCII.");
  keep("lmtp-key", key);
  $("key").value = "";
  connect();
};
$("prompt").onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) write();
};
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") $("token").hidden ? stop() : forget();
});
document.addEventListener("visibilitychange", look);
makeParameters();
redraw();
connect();
