// Requests to this gateway, with the session of the browser.

const token = document.querySelector('meta[name="csrf-token"]')?.content;

/** Send a request; returns its answer. Throws an Error with the message of the gateway. */
export async function send(method, url, { body, type = "application/json", signal, accept } = {}) {
  const headers = {};
  if (token) headers["X-CSRF-Token"] = token;
  if (body !== undefined || method === "POST") headers["Content-Type"] = type;
  if (accept) headers["Accept"] = accept;
  let answer;
  try {
    answer = await fetch(url, { method, headers, body, signal, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the gateway does not answer; try again");
  }
  if (!answer.ok) throw new Error(await messageOf(answer));
  return answer;
}

async function messageOf(answer) {
  if (answer.status === 401) return "the session is over; log in again";
  try {
    return (await answer.json()).message;
  } catch {
    return `the gateway answered ${answer.status}`;
  }
}
