// AG-UI's own client against a service: a run, an interrupt, and the runs that answer it.
import assert from "node:assert/strict";

const { HttpAgent } = await import(process.env.CLIENT);

async function run(agent, given = {}) {
  const seen = {};
  const failed = (error) => {
    seen.error = error;
  };
  const result = await agent.runAgent(given, {
    onRunFinishedEvent: ({ event }) => {
      seen.finished = event;
    },
    onRunErrorEvent: ({ event }) => failed(event.message),
    onRunFailed: ({ error }) => failed(error),
  });
  assert.equal(seen.error, undefined);
  return { ...seen, result };
}

function talk(agent, text) {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
}

for (const approved of [true, false]) {
  const agent = new HttpAgent({ url: process.env.URL_OF_AGENT, threadId: crypto.randomUUID() });
  talk(agent, "delete a");
  const first = await run(agent);
  const [interrupt] = first.finished.outcome.interrupts;
  assert.equal(interrupt.toolCallId, interrupt.id);
  const payload = approved ? { approved } : { approved, reason: "too early" };
  const second = await run(agent, {
    resume: [{ interruptId: interrupt.id, status: "resolved", payload }],
  });
  assert.equal(second.finished.outcome.type, "success");
  const result = agent.messages.find((one) => one.role === "tool");
  assert.equal(result.toolCallId, interrupt.id);
  assert.equal(result.content, approved ? "deleted a" : "Rejected: too early");
  assert.equal(agent.messages.at(-1).content, approved ? "It is gone." : "Then not.");
  const calls = agent.messages.flatMap((one) => one.toolCalls ?? []);
  assert.deepEqual(calls.map((one) => one.function.arguments), ['{"name":"a"}']);
  talk(agent, "thanks");
  await run(agent);
  assert.equal(agent.messages.at(-1).content, "Welcome.");
}
console.log("ok");
