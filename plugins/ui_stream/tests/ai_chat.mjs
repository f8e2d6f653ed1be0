// A chat of the AI SDK, as useChat has it, against a service: approve, deny, partly, and in between.
import assert from "node:assert/strict";
import {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
} from "ai";

class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage(message) {
    this.messages = [...this.messages, message];
  }
  popMessage() {
    this.messages = this.messages.slice(0, -1);
  }
  replaceMessage(index, message) {
    this.messages = this.messages.map((one, n) => (n === index ? message : one));
  }
  snapshot(value) {
    return structuredClone(value);
  }
}

class Chat extends AbstractChat {
  constructor() {
    const posts = { count: 0 };
    const counted = (...given) => {
      posts.count += 1;
      assert(posts.count < 20, "the client posts without an end");
      return fetch(...given);
    };
    super({
      id: crypto.randomUUID(),
      state: new State(),
      transport: new DefaultChatTransport({ api: process.env.API, fetch: counted }),
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
      onToolCall: () => assert.fail("the page was asked to run a call of the agent's"),
    });
    this.posts = posts;
  }
  get calls() {
    return this.messages.at(-1).parts.filter((part) => part.type === "dynamic-tool");
  }
  get text() {
    return this.messages.at(-1).parts.filter((p) => p.type === "text").map((p) => p.text).join("|");
  }
  async answered(part, approved, reason) {
    await this.addToolApprovalResponse({ id: part.approval.id, approved, reason });
    // What is sent because all are answered is under way by then.
    await new Promise((resolve) => setTimeout(resolve, 20));
    while (this.status !== "ready" && this.status !== "error") {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    assert.equal(this.error, undefined);
  }
}

const approved = new Chat();
await approved.sendMessage({ text: "delete a" });
assert.equal(approved.calls[0].state, "approval-requested");
await approved.answered(approved.calls[0], true);
assert.equal(approved.calls[0].state, "output-available");
assert.equal(approved.calls[0].output, "deleted a");
assert.equal(approved.text, "It is gone.");
assert.equal(approved.messages.length, 2);
assert.equal(approved.posts.count, 2);

const denied = new Chat();
await denied.sendMessage({ text: "delete a" });
await denied.answered(denied.calls[0], false, "too early");
assert.equal(denied.calls[0].state, "output-denied");
assert.equal(denied.text, "Then not.");

const failing = new Chat();
await failing.sendMessage({ text: "delete it" });
await failing.answered(failing.calls[0], true);
assert.equal(failing.calls[0].state, "output-error");
assert.equal(failing.posts.count, 2);

const two = new Chat();
await two.sendMessage({ text: "delete both" });
assert.equal(two.calls.length, 2);
await two.answered(two.calls[0], true);
assert.equal(two.posts.count, 1);
await two.answered(two.calls[1], false);
assert.equal(two.calls.map((c) => c.state).join(), "output-available,output-denied");

const meanwhile = new Chat();
await meanwhile.sendMessage({ text: "delete a" });
await meanwhile.sendMessage({ text: "yes, approve" });
assert.equal(meanwhile.error, undefined);
assert.equal(meanwhile.calls[0].state, "approval-requested");
await meanwhile.answered(meanwhile.calls[0], true);
assert.equal(meanwhile.calls[0].state, "output-available");
assert.equal(meanwhile.posts.count, 3);
console.log("ok");
