// Updates a page that `muograph report --follow` serves: while the page is visible, requests the runs that have
// changed.

const POLL_MS = 2000;
const TIMEOUT_MS = 60000;

// `changed` is a list of [number, run].
function addChangedRuns(changed) {
  const first = runs.length === 0;
  const all = state.shown.size === runs.length;  // show new runs only if all others are shown
  const newest = first || state.sampleStep === sampleSteps().pop();
  for (const [index, run] of changed) {
    if (index >= runs.length && all) state.shown.add(index);
    runs[index] = withPlace(run, index);
  }
  withSeeds(runs);
  if (first) return addPage();
  if (newest) state.sampleStep = null;
  update();
}

function update() {
  const focused = document.activeElement;
  fillSummary();
  fillRuns();
  fillNotes();
  for (const select of document.querySelectorAll("select.detail")) fill(select, ...runOptions());
  addOptions();
  groups.forEach(fillGroup);
  fillDetails();
  fillSamples();
  if (live.held) live.late = true; else redraw();
  if (document.activeElement !== focused && focused.isConnected) focused.focus({ preventScroll: true });
}

// Defers drawing while a pointer is down, because redrawing a chart would end a drag in it.
function waitForPointer() {
  addEventListener("pointerdown", () => { live.held = true; });
  const release = () => {
    live.held = false;
    if (live.late) setTimeout(redraw, 500);
    live.late = false;
  };
  for (const event of ["pointerup", "pointercancel"]) addEventListener(event, release);
}

function follow() {
  const shown = element("p", { id: "live" });
  // For screen readers: only rare messages.
  const heard = element("p", { class: "heard", role: "status" });
  document.getElementById("summary").after(shown, heard);
  Object.assign(live, { server: null, version: 0, waiting: 0, changed: null, lost: false, held: false, late: false });
  let timer = null, asking = false;

  function showState() {
    const ago = live.changed === null ? "" : `, ${durationText(Math.floor((Date.now() - live.changed) / 1000))} ago`;
    shown.textContent = live.lost ? "no connection" : "live" + ago;
    shown.toggleAttribute("data-lost", live.lost);
  }

  function apply(answer) {
    // Another process may number the runs in another order.
    if (live.server !== null && live.server !== answer.server) return location.reload();
    const count = runs.length;
    const { server, version, waiting, grows } = answer;
    Object.assign(live, { server, version, waiting, grows });
    if (answer.runs.length > 0) {
      addChangedRuns(answer.runs);
      live.changed = Date.now();
    }
    if (runs.length === 0) document.getElementById("summary").textContent = "No run has begun yet";
    if (count > 0 && runs.length > count) heard.textContent = `${counted(runs.length - count, "more run")} followed`;
  }

  async function poll() {
    if (asking || document.hidden) return;
    asking = true;
    clearTimeout(timer);
    const answer = await fetch(`/data?since=${live.version}`, { signal: AbortSignal.timeout(TIMEOUT_MS) })
      .then((response) => (response.ok ? response.json() : null)).catch(() => null);
    if (live.lost !== (answer === null)) heard.textContent = live.lost ? "connected again" : "no connection";
    live.lost = answer === null;
    try {
      if (answer) apply(answer);
    } finally {
      showState();
      asking = false;
      timer = setTimeout(poll, POLL_MS);
    }
  }

  setInterval(() => document.hidden || showState(), 1000);
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : poll()));
  waitForPointer();
  showState();
  poll();
}
