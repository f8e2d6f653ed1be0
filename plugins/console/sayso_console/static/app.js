// The page: what its buttons and keys do.

import { agent, forgetAgent, on as onAgent } from "./agent.js";
import {
  decideAll, isRunning, on, pendingHere, refreshCards, reread, restore, sendDecisions, showDeveloper, stop, turnTo,
} from "./conversation.js";
import { unfollow } from "./follow.js";
import { refreshDecided } from "./decided.js";
import { lookFrozen } from "./grants.js";
import { clearInbox, on as onInbox, poll } from "./inbox.js";
import { watch } from "./still.js";
import * as talks from "./talks.js";
import { button, byId, visible } from "./text.js";
import { askToken, begun, forget, on as onToken, take, takeOfAddress } from "./token.js";
import { grow } from "./view.js";
import { go } from "./views.js";

let person; // who it is to the service, as soon as that is known

on.begun = begun;
on.ended = poll;
on.tokenNeeded = () => askToken(true);
onToken.changed = () => {
  forgetAgent();
  unfollow();
};
onAgent.known = () => {
  const { you, examples, developer } = agent;
  const name = you?.name ?? "";
  const isAnother = person !== undefined && person !== name;
  person = name;
  if (isAnother) clearInbox();
  if (!talks.belongTo(name) || isAnother) startClean();
  byId("developer-link").hidden = !developer;
  byId("examples").replaceChildren(...examples.map((text) => button("", () => {
    byId("text").value = text;
    typed();
    byId("text").focus();
  }, "example")));
  [...byId("examples").children].forEach((example, n) => example.append(visible(examples[n])));
  refreshCards();
  showDeveloper();
  go();
};
onInbox.looked = () => {
  refreshDecided();
  lookFrozen();
};
talks.on.open = (id) => {
  byId("talks").open = false;
  turnTo(id);
  location.hash = "chat";
};
talks.on.gone = () => turnTo();
talks.on.changed = reread;

// The next one to sign in does not find, and does not send, what the one before has said or typed.
function startClean() {
  turnTo();
  byId("text").value = "";
  typed();
}

function typed() {
  grow();
  talks.keepDraft(byId("text").value);
}

function submit() {
  const field = byId("text");
  const content = field.value.trim();
  if (isRunning() || byId("send").disabled || !content) return;
  field.value = "";
  typed();
  sendDecisions(content);
}

function startAnew() {
  location.hash = "chat";
  const count = pendingHere();
  if (!count) return turnTo();
  byId("leave-text").textContent = count === 1 ? "1 call waits in this conversation." : `${count} calls wait in this conversation.`;
  byId("leave").showModal();
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
byId("text").addEventListener("input", typed);
byId("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
byId("stop").addEventListener("click", stop);
byId("new").addEventListener("click", startAnew);
byId("leave-yes").addEventListener("click", () => {
  byId("leave").close();
  turnTo();
});
byId("leave-no").addEventListener("click", () => byId("leave").close());
byId("forget").addEventListener("click", async () => {
  const to = await forget();
  if (to === undefined) return poll();
  clearInbox();
  startClean();
  if (to) location.assign(to);
});
byId("approve-all").addEventListener("click", () => decideAll({ execute: true }));
byId("reject-all").addEventListener("click", () => decideAll({ rejection_reason: "all calls were rejected" }));
byId("send-decisions").addEventListener("click", () => sendDecisions());
byId("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = byId("token").value.trim();
  byId("token").value = "";
  if (take(token)) poll();
});
document.addEventListener("visibilitychange", poll);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && byId("talks").open) byId("talks").open = false;
});
window.addEventListener("online", poll);

window.addEventListener("hashchange", () => {
  if (takeOfAddress()) poll();
});
takeOfAddress();
restore();
byId("text").value = talks.draft();
grow();
talks.draw();
go();
watch();
poll();
if (!byId("talk").hidden) byId("text").focus({ preventScroll: true });
