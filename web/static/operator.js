// The operator's requests: with the token, which lives in this tab and nowhere else.

import { clock } from "./words.js";

const PLACE = "convertq admin token";

export class Away extends Error {}
export class NotAllowed extends Error {}

export const token = {
  get: () => sessionStorage.getItem(PLACE),
  set: (text) => sessionStorage.setItem(PLACE, text),
  forget: () => sessionStorage.removeItem(PLACE),
};

/** The answer as an object. Throws Away, NotAllowed, or an Error with the server's words. */
export async function ask(path, { method = "GET", body } = {}) {
  const headers = { Authorization: `Bearer ${token.get()}` };
  if (body) headers["Content-Type"] = "application/json";
  let response;
  let answer;
  try {
    response = await fetch(`/api/admin/${path}`, {
      method,
      headers,
      cache: "no-store",
      body: body && JSON.stringify(body),
    });
    answer = await response.json();
  } catch {
    throw new Away(); // also when the answer breaks off
  }
  if (response.status === 401 || response.status === 403) throw new NotAllowed();
  if (response.status >= 500) throw new Away();
  clock.heard(response);
  if (!response.ok) throw new Error(answer.error.message);
  return answer;
}
