// Calls one tool with the official TypeScript SDK of 1.x, for the tests of the server; says what
// came as JSON.
//
// node old_client.mjs URL TOOL ARGUMENTS TIMEOUT PATIENCE
//
// Its person says yes to each form after PATIENCE milliseconds; the call has TIMEOUT milliseconds
// from each sign of life. With a PATIENCE of "none" the client declares no elicitation.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const [url, name, given, timeout, patience] = process.argv.slice(2);
const asks = patience === "none" ? {} : { elicitation: {} };
const client = new Client({ name: "old", version: "1" }, { capabilities: asks });
if (patience !== "none") {
  client.setRequestHandler(ElicitRequestSchema, async () => {
    await new Promise((done) => setTimeout(done, Number(patience)));
    return { action: "accept", content: { approve: true } };
  });
}
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const progress = [];
const options = {
  timeout: Number(timeout),
  resetTimeoutOnProgress: true,
  onprogress: (each) => progress.push(each.progress),
};
let told;
try {
  told = await client.callTool({ name, arguments: JSON.parse(given) }, undefined, options);
  for (const link of told.content.filter((each) => each.type === "resource_link")) {
    const read = await client.readResource({ uri: link.uri });
    link.read = read.contents.map((each) => JSON.stringify(each).length);
  }
} catch (error) {
  told = { raised: String(error) };
}
console.log(JSON.stringify({ ...told, progress: progress.length }));
await client.close();
