// A page of CopilotKit: its chat, with an agent of AG-UI that needs no runtime between.
import { HttpAgent } from "@ag-ui/client";
import { CopilotChat, CopilotKitProvider, useInterrupt } from "@copilotkit/react-core/v2";
import { createRoot } from "react-dom/client";

const kept = () => JSON.parse(localStorage.getItem("kept") ?? '{"messages": [], "state": {}}');

// The chat connects its agent when it is shown: the page keeps what was said, the service knows what
// of it is pending.
class Desk extends HttpAgent {
  connectAgent(...given) {
    this.setMessages(kept().messages);
    this.setState(kept().state);
    return super.connectAgent(...given);
  }
  connect(input) {
    return new HttpAgent({ url: `${this.url}/connect`, headers: this.headers }).run(input);
  }
}

const desk = new Desk({ url: "/agui" });
desk.subscribe({
  onRunFinalized: ({ messages, state }) =>
    localStorage.setItem("kept", JSON.stringify({ messages, state })),
});
const agents = { desk };

function Card({ interrupt, resolve }) {
  return (
    <section aria-label="interrupt">
      <p>{interrupt.message}</p>
      <button onClick={() => resolve({ approved: true })}>Approve</button>
      <button onClick={() => resolve({ approved: false, reason: "no" })}>Reject</button>
    </section>
  );
}

function Chat() {
  useInterrupt({ agentId: "desk", render: (given) => <Card {...given} /> });
  return <CopilotChat agentId="desk" threadId="thread" labels={{ chatInputPlaceholder: "Say" }} />;
}

createRoot(document.getElementById("root")).render(
  <CopilotKitProvider selfManagedAgents={agents} enableInspector={false}>
    <Chat />
  </CopilotKitProvider>,
);
