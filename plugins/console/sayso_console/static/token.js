// Signing in: by a token, which stays in this tab, or at the identity provider of the service.

import { agent } from "./agent.js";
import { again, isRunning } from "./conversation.js";
import { parse } from "./json.js";
import { request, TOKEN } from "./service.js";
import { ofTab } from "./store.js";
import { byId } from "./text.js";

export const on = { changed() {} };

let resume = false; // whether a turn waits for the token

// Ask; with `thenAnswer` the turn that was refused is sent again.
export function askToken(thenAnswer) {
  resume ||= thenAnswer;
  const form = byId("sign-in");
  const refusedToken = ofTab.get(TOKEN) !== null;
  ofTab.remove(TOKEN);
  byId("forget").hidden = true;
  if (refusedToken) tell("That token was not accepted.");
  if (form.hidden) {
    form.hidden = false;
    byId("token").focus();
    offerProvider();
  }
}

// Where the service has an identity provider, people sign in there, and come back to this view.
async function offerProvider() {
  const response = await request("login/provider").catch(() => undefined);
  if (!response?.ok) return;
  const { name, tokens } = parse(await response.text());
  const go = byId("provider-go");
  go.textContent = `Sign in with ${name}`;
  byId("provider").hidden = false;
  for (const id of ["token-label", "token-row"]) byId(id).hidden = !tokens;
  byId("token-label").textContent = "Or use a token";
  byId("token-use").classList.remove("primary");
  if (agent.you) tell("Your session has ended. What you have written is kept.");
  else if (!tokens) tell("");
  if (!byId("token").value) go.focus();
}

byId("provider-go").addEventListener("click", () => {
  const { pathname, search, hash } = location;
  location.assign(`login?to=${encodeURIComponent(pathname + search + hash)}`);
});

// A turn begins, by hand perhaps: none waits for the token any more.
export function begun() {
  resume = false;
}

function tell(text) {
  byId("token-note").textContent = text;
}

// Whether `token` can be sent at all; the person is told if not.
export function take(token) {
  const sendable = /^[\x20-\x7e]+$/.test(token);
  if (sendable) {
    ofTab.set(TOKEN, token);
    on.changed();
  }
  else tell("That is no token: it holds a character that cannot be sent.");
  return sendable;
}

// The start of a service prints the address with a token in its fragment, which no server is sent.
export function takeOfAddress() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found || !take(found[1])) return false;
  // Neither the history nor a bookmark keeps it.
  history.replaceState(null, "", location.pathname + location.search);
  return true;
}

// The token that was given could not be tried.
export function untried() {
  if (!byId("sign-in").hidden) tell("The service could not be reached.");
}

export function signedIn() {
  const form = byId("sign-in");
  // A form that goes takes the focus with it, and nobody's keys would reach anything.
  if (form.contains(document.activeElement)) byId("text").focus();
  form.hidden = true;
  byId("forget").hidden = ofTab.get(TOKEN) === null && !agent.login;
  if (resume && !isRunning()) {
    resume = false;
    again();
  }
}

// Forget the token, or end the session, also at the identity provider: the address to go to then,
// "" for none; undefined where the service is out of reach and the session goes on.
export async function forget() {
  let to = "";
  if (agent.login && ofTab.get(TOKEN) === null) {
    const response = await request("logout", { method: "POST" }).catch(() => undefined);
    if (!response?.ok) return undefined;
    ({ to } = parse(await response.text()));
  }
  ofTab.remove(TOKEN);
  on.changed();
  byId("token-note").textContent = "It stays in this tab and is forgotten with it.";
  return to;
}
