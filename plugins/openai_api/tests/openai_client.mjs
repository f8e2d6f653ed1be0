// OpenAI's client in Node against a service: a stream of text, then a call that a person approves.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI();
const stream = await client.chat.completions.create({
  model: "desk",
  messages: [{ role: "user", content: "hello" }],
  stream: true,
});
let text = "";
for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
assert.equal(text, "Hello.");

const first = await client.responses.create({ model: "desk", input: "delete a" });
const request = first.output.find((item) => item.type === "mcp_approval_request");
const second = await client.responses.create({
  model: "desk",
  previous_response_id: first.id,
  input: [{ type: "mcp_approval_response", approval_request_id: request.id, approve: true }],
});
assert.equal(second.output_text, "It is gone.");
console.log("ok");
