// A page of CopilotKit: its chat, with an agent of AG-UI that needs no runtime between.
import { HttpAgent } from "@ag-ui/client";
import { CopilotChat, CopilotKitProvider, useInterrupt } from "@copilotkit/react-core/v2";
import { createRoot } from "react-dom/client";

const agents = { desk: new HttpAgent({ url: "/agui" }) };

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
