// The token that a service with authentication asks for; it stays in this tab.

import { again, isRunning } from "./conversation.js";
import { TOKEN } from "./service.js";
import { byId } from "./text.js";

let resume = false; // whether a turn waits for the token

// Ask; with `thenAnswer` the turn that was refused is sent again.
export function askToken(thenAnswer) {
  resume ||= thenAnswer;
  const form = byId("sign-in");
  const refusedToken = sessionStorage.getItem(TOKEN) !== null;
  sessionStorage.removeItem(TOKEN);
  byId("forget").hidden = true;
  if (refusedToken) byId("token-note").textContent = "That token was not accepted.";
  if (form.hidden) {
    form.hidden = false;
    byId("token").focus();
  }
}

export function signedIn() {
  byId("sign-in").hidden = true;
  byId("forget").hidden = sessionStorage.getItem(TOKEN) === null;
  if (resume && !isRunning()) {
    resume = false;
    again();
  }
}

export function forget() {
  sessionStorage.removeItem(TOKEN);
  byId("token-note").textContent = "It stays in this tab and is forgotten with it.";
}
