// The server's doors. In: a command and what is asked. Out: {command, exit_code, answer}, or Refused.

import { mark } from "./words.js";

/** An answer that is a sentence: bad input, an unknown name, work that took too long. */
export class Refused extends Error {
  constructor({ error, code }) {
    super(error);
    this.code = code;
  }
}

let running = null; // the question that is being answered; a newer one takes its place

/** Ask once; an older question that is still on its way is dropped. */
export async function ask(command, asked) {
  cancel();
  const control = new AbortController();
  running = () => control.abort();
  const answered = await post(`/api/${command}`, asked, control.signal);
  running = null;
  return answered;
}

/** Ask without dropping anything: for pinned scenarios. */
export async function post(address, asked, signal = undefined) {
  return read(
    await reach(address, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(asked),
      signal,
    }),
  );
}

/** A search: `onProgress` hears how far it is; Promise of the answer. */
export function search(command, asked, onProgress) {
  cancel();
  const question = encodeURIComponent(JSON.stringify({ command, ...asked }));
  return new Promise((resolve, reject) => {
    const source = new EventSource(`/api/search?question=${question}`);
    const end = (settle) => {
      source.close();
      running = null;
      settle();
    };
    running = () => end(() => reject(new DOMException("cancelled", "AbortError")));
    source.addEventListener("progress", (event) => onProgress(JSON.parse(event.data)));
    source.addEventListener("answer", (event) => end(() => resolve(JSON.parse(event.data))));
    source.addEventListener("error", (event) => end(() => reject(refusal(event.data))));
  });
}

/** Stop what is on its way. */
export function cancel() {
  const stop = running;
  running = null;
  if (stop) stop();
}

/** A file of the reader's, recognised by the server; `on` is the chip of a trace that names none. */
export async function drop(file, on = "") {
  const given = new URLSearchParams({ name: file.name, ...(on ? { on } : {}) });
  const reply = await reach(`/api/drop?${given}`, {
    method: "POST",
    headers: { "Content-Type": "application/octet-stream" },
    body: file,
  });
  return read(reply);
}

/** A file that the server makes of a question: a Blob. */
export async function exported(kind, command, asked) {
  const reply = await reach(`/api/export/${kind}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ command, ...asked }),
  });
  return reply.ok ? reply.blob() : read(reply);
}

/** What forms are made of. */
export async function options() {
  return read(await reach("/api/options"));
}

// A server that is gone is a refusal like any other; that we dropped a question ourselves is not.
async function reach(address, request) {
  try {
    return await fetch(address, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw refusal(null);
  }
}

async function read(reply) {
  const said = await reply.json().catch(() => ({ error: `${reply.status} ${reply.statusText}` }));
  if (!reply.ok) throw new Refused(said);
  return said;
}

function refusal(data) {
  // Without data the connection itself broke: the server is gone, or has closed it.
  return new Refused(data ? JSON.parse(data) : { error: mark("The server does not answer."), code: "GONE" });
}
