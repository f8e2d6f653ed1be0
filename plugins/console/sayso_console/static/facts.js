// Who asks for a call, where it acts, what its rule demands, and how long it waits.

import { agent, isDefault, toolOf } from "./agent.js";
import { now } from "./service.js";
import { el, visible } from "./text.js";
import { clock, PROTOCOLS, plain } from "./words.js";

const CONTEXT = { k8s_namespace: "Namespace", tenant_name: "Tenant", platform_base_url: "Platform", kubeconfig: "Cluster", aws_credentials: "AWS" };
const MINUTE = 60_000;

// The name of a tool in words, and the object of the call: the first short value that somebody chose.
export function headingOf({ type, name, input }) {
  if (type === "command") return [el("span", {}, "Terminal command")];
  const title = toolOf(name).title || wordsOf(name);
  const object = objectIn(name, input);
  return [visible(title, "line"), ...(object === undefined ? [] : [" ", el("span", { class: "object", dir: "ltr" }, visible(object, "exact"))])];
}

function wordsOf(name) {
  const words = name.replaceAll(/[_-]+/g, " ").replaceAll(/([a-z])([A-Z])/g, "$1 $2").trim();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

export function objectIn(tool, input) {
  if (typeof input !== "object" || input === null) return undefined;
  const short = (value) => typeof value === "string" && value.trim() && value.length <= 60 && !value.includes("\n");
  return Object.entries(input).find(([name, value]) => short(value) && !isDefault(tool, name, value))?.[1];
}

export function marksOf({ type, name }) {
  const { destructive, read_only: reads } = type === "command" ? {} : toolOf(name);
  if (destructive) return el("span", { class: "badge bad" }, "Destructive");
  return reads ? el("span", { class: "badge" }, "Reads only") : undefined;
}

// Pairs of a word and nodes; what is not known is left out.
export function factsOf(proposal) {
  const { bound = {}, principal, person, user, protocol, client, address, created, expires, votes, rule } = proposal;
  const who = person ?? principal ?? (user ? `${user} (claimed)` : undefined);
  const from = protocol && [`${PROTOCOLS[protocol] ?? protocol}`, client, address].filter(Boolean).join(" \u00b7 ");
  const { context, ...rest } = bound;
  return [
    ["Asked by", who], ["From", from],
    ["Agent", rest.agent && rest.agent !== agent.name ? rest.agent : undefined], ["Tool from", rest.tool],
    ...Object.entries(context ?? {}).map(([name, value]) => [CONTEXT[name] ?? name, plain(value)]),
    ["Asked", created && clock.format(new Date(created))],
    ["Approvals", votesOf(votes, rule)],
    ["Rule", rule && demandsOf(rule)],
    ["Waits until", expires && timeOf(expires)],
  ].filter(([, value]) => value);
}

function votesOf(votes, rule) {
  if (!votes || !votes.needed || (votes.needed === 1 && !rule)) return undefined;
  return `${votes.given ?? 0} of ${votes.needed}`;
}

function demandsOf({ approvers, not_requester: apart, reason }) {
  const said = [
    approvers?.length ? `approved by ${approvers.join(" or ")}` : undefined,
    apart ? "not by who asks" : undefined, reason ? "with a reason" : undefined,
  ];
  return said.filter(Boolean).join(", ") || undefined;
}

function timeOf(expires) {
  return el("time", { datetime: expires, title: clock.format(new Date(expires)) }, leftOf(expires));
}

function leftOf(expires) {
  const left = new Date(expires) - now();
  const at = clock.format(new Date(expires));
  if (left <= 0) return `${at}, it has expired`;
  const minutes = Math.ceil(left / MINUTE);
  if (minutes < 90) return `${at}, ${minutes} min left`;
  const hours = Math.round(minutes / 60);
  return hours < 72 ? `${at}, ${hours} h left` : at;
}

// The remaining time goes on; nothing announces it.
setInterval(() => {
  for (const time of document.querySelectorAll(".facts time")) time.textContent = leftOf(time.dateTime);
}, MINUTE / 2);

export function factsList(proposal) {
  const facts = factsOf(proposal);
  if (!facts.length) return undefined;
  return el("dl", { class: "facts" }, ...facts.map(([word, value]) => el("div", {}, el("dt", {}, `${word}: `),
    el("dd", { dir: "auto" }, typeof value === "string" ? visible(value, "line") : value))));
}

export const commentsOf = ({ comments }) => (Array.isArray(comments) ? comments : []).map(({ who, claimed, text }) => el("p", { class: "note", dir: "auto" },
  visible(`${who ?? "Somebody"}${claimed ? " (claimed)" : ""}: ${text}`)));
