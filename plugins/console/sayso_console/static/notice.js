// How many calls wait, where people see it without this tab: its title, its icon, the desktop.

import { byId } from "./text.js";

let shown = 0;

export function badge(count, more = false) {
  const name = byId("agent").textContent;
  const number = count ? `(${count}${more ? "+" : ""}) ` : "";
  document.title = `${number}${name === "Sayso" ? name : `${name} \u2013 Sayso`}`;
  if (count !== shown) byId("icon").href = iconWith(count);
  if (count > shown && document.hidden) notify(count);
  shown = count;
  byId("notify").hidden = !("Notification" in window) || Notification.permission !== "default";
}

function iconWith(count) {
  const dot = count ? "<circle cx='24' cy='8' r='8' fill='#c0392b'/>" : "";
  const image = `<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'><rect width='32' height='32' rx='8' fill='#0b6e5a'/><path d='M9 17l5 5 10-12' fill='none' stroke='white' stroke-width='3.5' stroke-linecap='round' stroke-linejoin='round'/>${dot}</svg>`;
  return `data:image/svg+xml,${encodeURIComponent(image)}`;
}

// No input and no name of a call: a notice stays on the desktop, and others may see it.
function notify(count) {
  if (!("Notification" in window) || Notification.permission !== "granted") return;
  const text = count === 1 ? "1 call waits for your decision" : `${count} calls wait for your decision`;
  const notice = new Notification(byId("agent").textContent, { body: text, tag: "sayso" });
  notice.onclick = () => {
    window.focus();
    location.hash = "inbox";
  };
}

byId("notify").addEventListener("click", async () => {
  await Notification.requestPermission();
  byId("notify").hidden = Notification.permission !== "default";
});
