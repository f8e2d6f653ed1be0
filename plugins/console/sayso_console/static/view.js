// Where the page stands.

import { look } from "./still.js";
import { byId } from "./text.js";

let due = false;
let follow = false;

// Looks at most once a frame: each look makes the browser lay out the whole reply.
export function scroll(always = false) {
  follow ||= always || (!due && atEnd());
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    if (follow) {
      window.scrollTo({ top: document.documentElement.scrollHeight });
      look(true);
    }
    due = follow = false;
  });
}

function atEnd() {
  const page = document.documentElement;
  return page.scrollHeight - page.scrollTop - page.clientHeight < 160;
}

// A call is read from its top: the first card stays in sight when all of them do not fit.
export function lookAt(card) {
  if (!card) return;
  requestAnimationFrame(() => requestAnimationFrame(() => {
    const top = document.querySelector("header").getBoundingClientRect().bottom;
    if (card.getBoundingClientRect().top >= top) return;
    card.scrollIntoView({ block: "start" });
    look(true);
  }));
}

export function grow() {
  const field = byId("text");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}
