// A page that comes back to a session, with the published clients: `node page.mjs CLIENT BASE TOKEN SESSION MESSAGES`.
//
// CLIENT is "ai" (6), "ai-7" or "ag-ui"; MESSAGES is what the page has from before, as JSON. It prints a line once the
// stream is open, and one at its end: what the page shows then, how the client says it ended, and what went wrong.
const [client, base, token, session, before] = process.argv.slice(2);
const headers = { authorization: `Bearer ${token}` };
const messages = JSON.parse(before);
const tell = (value) => process.stdout.write(JSON.stringify(value) + "\n");
console.error = console.warn = (...words) => tell({ complaint: words.map(String).join(" ").slice(0, 500) });
// A client that leaves a promise alone when its stream is cut: it is told of by others as well.
process.on("unhandledRejection", (error) => tell({ complaint: String(error).slice(0, 500) }));

const connecting = async (...request) => {
  const answer = await fetch(...request);
  tell({ connected: answer.status, version: answer.headers.get("x-vercel-ai-ui-message-stream") });
  return answer;
};

class PageState {
  constructor(messages) {
    this.status = "ready";
    this.error = undefined;
    this.messages = messages;
  }
  pushMessage = (message) => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => { this.messages = this.messages.with(index, structuredClone(message)); };
  snapshot = (value) => structuredClone(value);
}

const aiSdkPage = ({ AbstractChat, DefaultChatTransport }) => class Page extends AbstractChat {
  constructor(messages) {
    const transport = new DefaultChatTransport({ api: `${base}/v1/ai-sdk`, headers, fetch: connecting });
    super({
      id: session,
      state: new PageState(messages),
      transport,
      onFinish: ({ isAbort, isError, isDisconnect, finishReason }) =>
        { this.ending = { isAbort, isError, isDisconnect, finishReason }; },
      onError: (error) => { this.problem = String(error.message); },
    });
  }
};

if (client !== "ag-ui") {
  const page = new (aiSdkPage(await import(client)))(messages);
  await page.resumeStream();
  tell({ messages: page.messages, status: page.status, problem: page.problem ?? null, ending: page.ending ?? null });
} else {
  const { HttpAgent } = await import("@ag-ui/client");
  const agent = new HttpAgent({ url: `${base}/v1/ag-ui/${session}`, headers, threadId: session, initialMessages: messages, fetch: connecting });
  const seen = [];
  let problem = null;
  try {
    await agent.runAgent({}, { onEvent: ({ event }) => { seen.push(event); }, onRunErrorEvent: ({ event }) => { problem = event.message; } });
  } catch (error) {
    problem = String(error.message);
  }
  tell({ messages: agent.messages, problem, events: seen });
}
