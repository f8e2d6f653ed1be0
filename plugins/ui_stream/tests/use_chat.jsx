// A page of useChat, as an application writes it: it keeps its messages in the browser's storage.
import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

const kept = JSON.parse(localStorage.getItem("messages") ?? "[]");

function Part({ part, answer }) {
  if (part.type === "text") return <p>{part.text}</p>;
  if (part.type !== "dynamic-tool") return null;
  return (
    <section aria-label={part.toolName}>
      <code>{JSON.stringify(part.input)}</code> <b>{part.state}</b> <i>{part.output}</i>
      {part.state === "approval-requested" && (
        <>
          <button onClick={() => answer(part, true)}>Approve</button>
          <button onClick={() => answer(part, false)}>Reject</button>
        </>
      )}
    </section>
  );
}

function Page() {
  const [text, setText] = useState("");
  const { messages, sendMessage, addToolApprovalResponse, status, error } = useChat({
    id: "chat",
    messages: kept,
    transport: new DefaultChatTransport({ api: "/ai/chat" }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  useEffect(() => localStorage.setItem("messages", JSON.stringify(messages)), [messages]);
  const answer = (part, approved) =>
    addToolApprovalResponse({ id: part.approval.id, approved, reason: approved ? undefined : "no" });
  const say = (event) => {
    event.preventDefault();
    sendMessage({ text });
    setText("");
  };
  return (
    <main>
      {messages.map((message) => (
        <article key={message.id} aria-label={message.role}>
          {message.parts.map((part, n) => (
            <Part key={n} part={part} answer={answer} />
          ))}
        </article>
      ))}
      <form onSubmit={say}>
        <input aria-label="Message" value={text} onChange={(e) => setText(e.target.value)} />
      </form>
      <output>{error ? error.message : status}</output>
    </main>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
