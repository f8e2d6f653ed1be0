// The page: what its buttons and keys do.

import {
  decideAll, isRunning, on, restore, sendDecisions, startAnew, stop,
} from "./conversation.js";
import { clearElsewhere, poll } from "./elsewhere.js";
import { watch } from "./still.js";
import { byId } from "./text.js";
import { askToken, begun, forget, take, takeOfAddress } from "./token.js";
import { grow } from "./view.js";

on.begun = begun;
on.ended = poll;
on.tokenNeeded = () => askToken(true);

function submit() {
  const field = byId("text");
  const content = field.value.trim();
  if (isRunning() || byId("send").disabled || !content) return;
  field.value = "";
  grow();
  sendDecisions(content);
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
byId("text").addEventListener("input", grow);
byId("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
byId("stop").addEventListener("click", stop);
byId("new").addEventListener("click", startAnew);
byId("forget").addEventListener("click", () => {
  forget();
  clearElsewhere();
  poll();
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

takeOfAddress();
restore();
watch();
poll();
byId("text").focus({ preventScroll: true });
