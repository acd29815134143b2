// Makes one write through Holdfast, at most once. Nothing but fetch. Node 24 runs it as it
// is; for older ones compile it first (scripts/examples.sh shows how).
//
//   GATEWAY_URL=http://localhost:8080 GATEWAY_KEY=hf_... \
//     node do.ts CONNECTION ACTION BODY [IDEMPOTENCY-KEY]
//
// Ends with 0: done; 1: not done; 2: wrong usage; 3: it may have been done, so do not
// send it again in other words or under another key; 4: GATEWAY_PATIENCE (120 seconds)
// is over, so run the very same command again.

declare const process: { argv: string[]; env: Record<string, string | undefined>; exitCode?: number };

/** The write was not done, and will not be unless something changes. */
export class NotDone extends Error {}
/** The write may have been done. Sending it in other words could do it twice. */
export class Unknown extends Error {}
/** Patience is over. The very same call, later, finds out. */
export class StillOpen extends Error {}

export interface Gateway {
  url: string;
  key: string;
  /** In seconds. */
  patience: number;
}

type Answer = Record<string, unknown>;

interface Attempt {
  status: number; // 0: no answer
  answer: Answer;
  text: string;
  retryAfter?: number; // in seconds
}

const pause = (seconds: number) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

/**
 * Returns the answer of a write that was done, as text. body is JSON text and is sent as
 * it is, and the answer is not taken apart either: JSON.parse would round large numbers.
 */
export async function doWrite(gateway: Gateway, connection: string, action: string, body: string, ownKey?: string): Promise<string> {
  const headers: Record<string, string> = { Authorization: `Bearer ${gateway.key}`, "Content-Type": "application/json" };
  if (ownKey !== undefined) headers["Idempotency-Key"] = ownKey;
  // Made once: every attempt sends it, so that all of them are one write.
  const names = `"connection":${JSON.stringify(connection)},"action":${JSON.stringify(action)}`;
  const request = { method: "POST", headers, body: `{${names},"body":${body}}`, redirect: "manual" as const };
  const over = Date.now() + gateway.patience * 1000;
  for (let wait = 1; ; wait = Math.min(wait * 2, 30)) {
    const { status, answer, text, retryAfter } = await attempt(gateway.url, request);
    if (status === 200 && answer.state === "succeeded") return text;
    // Without "next" it is not the gateway that speaks, and says nothing.
    const next = status === 200 ? undefined : answer.next;
    if (next !== undefined && next !== "wait_and_repeat" && next !== "get_action") {
      throw status === 423 || status === 500 ? new Unknown(text) : new NotDone(text);
    }
    const seconds = retryAfter ?? wait;
    if (Date.now() + seconds * 1000 > over) {
      throw new StillOpen(`no end in sight (${status}): make the very same call again`);
    }
    await pause(seconds);
  }
}

async function attempt(url: string, request: RequestInit): Promise<Attempt> {
  try {
    const response = await fetch(`${url}/v1/do`, { ...request, signal: AbortSignal.timeout(60_000) });
    const asked = response.headers.get("Retry-After") ?? "";
    const text = await response.text();
    return { status: response.status, answer: parse(text), text, retryAfter: /^\d+$/.test(asked) ? Number(asked) : undefined };
  } catch {
    return { status: 0, answer: {}, text: "" }; // no answer, or half of one
  }
}

function parse(text: string): Answer {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Answer) : {};
  } catch {
    return {};
  }
}

async function main(): Promise<number> {
  const [connection, action, body, ownKey, ...rest] = process.argv.slice(2);
  const { GATEWAY_URL: url, GATEWAY_KEY: key, GATEWAY_PATIENCE: patience } = process.env;
  if (!url || !key || connection === undefined || action === undefined || body === undefined || rest.length > 0) {
    console.error("usage: GATEWAY_URL=... GATEWAY_KEY=... node do.js CONNECTION ACTION BODY [IDEMPOTENCY-KEY]");
    return 2;
  }
  try {
    console.log(await doWrite({ url, key, patience: Number(patience ?? 120) }, connection, action, body, ownKey));
    return 0;
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    return error instanceof Unknown ? 3 : error instanceof StillOpen ? 4 : 1;
  }
}

main().then((code) => {
  process.exitCode = code;
});
