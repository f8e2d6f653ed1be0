// A press counts only for what the person had before them when they pressed. Calls come and go by
// themselves, and the next one's Approve may stand where the last one's stood: a button that has
// just appeared, moved or become enabled takes no press for a moment, neither by pointer nor by key.

const SETTLE = 500; // as browsers have it for their own questions: longer than a double click
const BUTTONS = "#inbox button, #conversation button, footer button";
const CAUSES = ["class", "disabled", "hidden", "open", "style"];
const spots = new WeakMap(); // button -> where it stands, and since when
let due = false;
let next = 0;
let early = null; // the button that the pointer went down on before it stood still

// See what has moved; a person's own scrolling moves nothing, the page's does (`scrolled`).
export function look(scrolled = false) {
  const now = performance.now();
  const buttons = [...document.querySelectorAll(BUTTONS)];
  for (const button of buttons) {
    const { x, y, width } = button.getBoundingClientRect();
    const spot = { x, y, inPage: y + scrollY, usable: width > 0 && !button.disabled, since: now };
    const old = spots.get(button);
    if (old && isSame(old, spot, scrolled)) spot.since = old.since;
    spots.set(button, spot);
  }
  // Attributes after all measures: in between, each would have the page laid out again.
  for (const button of buttons) {
    if (isEarly(button, now)) button.setAttribute("aria-disabled", "true");
    else button.removeAttribute("aria-disabled");
  }
  const waits = buttons.filter((button) => isEarly(button, now)).map((button) => spots.get(button).since);
  clearTimeout(next);
  if (waits.length) next = setTimeout(look, Math.min(...waits) + SETTLE - now + 1);
}

function isSame(old, spot, scrolled) {
  const near = (one, other) => Math.abs(one - other) < 2;
  const stays = near(old.y, spot.y) || (!scrolled && near(old.inPage, spot.inPage));
  return old.usable === spot.usable && near(old.x, spot.x) && stays;
}

function isEarly(button, now = performance.now()) {
  const spot = spots.get(button);
  return spot !== undefined && spot.usable && now - spot.since < SETTLE;
}

// What has changed is not on the screen yet: it is looked at before it is.
function soon() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    look();
  });
}

export function watch() {
  const changes = { childList: true, characterData: true, subtree: true, attributeFilter: CAUSES };
  new MutationObserver(soon).observe(document.body, changes);
  window.addEventListener("resize", soon);
  document.addEventListener("input", soon); // a field grows with its text
  document.addEventListener("pointerdown", (event) => {
    look();
    const button = event.target.closest(BUTTONS);
    early = isEarly(button) ? button : null;
  }, true);
  document.addEventListener("click", (event) => {
    look();
    const button = event.target.closest(BUTTONS);
    // Enter in a field presses its form's button; the person looks at the field.
    const fromField = document.activeElement?.localName === "input" && !event.detail;
    if (button && !fromField && (button === early || isEarly(button))) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
    early = null;
  }, true);
  // A key that is held presses one button, not also the one that has the focus then.
  document.addEventListener("keydown", (event) => {
    if (event.repeat && event.key === "Enter" && event.target.localName !== "textarea") event.preventDefault();
  }, true);
  look();
}
