// Where the page stands.

import { byId } from "./text.js";

let due = false;

export function scroll(always = false) {
  const page = document.documentElement;
  const near = page.scrollHeight - page.scrollTop - page.clientHeight < 160;
  if (due || !(near || always)) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    window.scrollTo({ top: page.scrollHeight });
  });
}

// A call is read from its top: the first card stays in sight when all of them do not fit.
export function lookAt(card) {
  if (!card) return;
  requestAnimationFrame(() => requestAnimationFrame(() => {
    const top = document.querySelector("header").getBoundingClientRect().bottom;
    if (card.getBoundingClientRect().top < top) card.scrollIntoView({ block: "start" });
  }));
}

export function grow() {
  const field = byId("text");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}
