// What the service gets of a conversation: replies that count, and between them one user message
// each.

export function outgoing(entries) {
  const messages = [];
  let said = null;
  for (const entry of entries.filter((e) => !e.refused)) {
    if (entry.role === "user") {
      said = said ? joined(said, entry.message) : entry.message;
    } else if (entry.counts && said) {
      // `approvals` states the same calls once more.
      const { approvals, ...data } = entry.data;
      messages.push(said, { role: "assistant", content: entry.content, data });
      said = null;
    }
  }
  return said ? [...messages, said] : messages;
}

function joined(first, second) {
  const content = [first.content, second.content].filter(Boolean).join("\n\n");
  const data = {};
  for (const name of ["tool_calls", "cmds"]) {
    const later = second.data?.[name] ?? [];
    const named = new Set(later.map((item) => item.id ?? item.command));
    const kept = (first.data?.[name] ?? []).filter((item) => !named.has(item.id ?? item.command));
    if (kept.length + later.length) data[name] = [...kept, ...later];
  }
  return { role: "user", content, ...(Object.keys(data).length ? { data } : {}) };
}
