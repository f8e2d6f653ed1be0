// A page of assistant-ui over the AI SDK, with its own parts of a thread.
import {
  AssistantRuntimeProvider,
  ComposerPrimitive,
  MessagePrimitive,
  ThreadPrimitive,
} from "@assistant-ui/react";
import { AssistantChatTransport, useChatRuntime } from "@assistant-ui/react-ai-sdk";
import { lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { createRoot } from "react-dom/client";

function Tool({ toolName, args, result, approval, respondToApproval }) {
  const waits = approval && approval.approved === undefined;
  return (
    <section aria-label={toolName}>
      <code>{JSON.stringify(args)}</code> <i>{JSON.stringify(result)}</i>
      {waits && (
        <>
          <button onClick={() => respondToApproval({ approved: true })}>Approve</button>
          <button onClick={() => respondToApproval({ approved: false, reason: "no" })}>Reject</button>
        </>
      )}
    </section>
  );
}

const parts = { Text: ({ text }) => <p>{text}</p>, tools: { Fallback: Tool } };
const message = (role) => () => (
  <MessagePrimitive.Root aria-label={role}>
    <MessagePrimitive.Parts components={parts} />
  </MessagePrimitive.Root>
);
const components = { UserMessage: message("user"), AssistantMessage: message("assistant") };

// The page keeps its messages in the browser's storage, as that of useChat does.
const kept = JSON.parse(localStorage.getItem("messages") ?? "[]");

function Page() {
  const runtime = useChatRuntime({
    messages: kept,
    onFinish: ({ messages }) => localStorage.setItem("messages", JSON.stringify(messages)),
    transport: new AssistantChatTransport({ api: "/ai/chat" }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <ThreadPrimitive.Root>
        <ThreadPrimitive.Messages components={components} />
        <ComposerPrimitive.Root>
          <ComposerPrimitive.Input aria-label="Message" />
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
