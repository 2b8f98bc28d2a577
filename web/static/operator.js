// Requests with the operator's token, which is kept in this tab only.

import { readJson, request } from "./request.js";

const STORAGE_KEY = "convertq admin token";

export class NotAllowed extends Error {}

export const token = {
  get: () => sessionStorage.getItem(STORAGE_KEY),
  set: (text) => sessionStorage.setItem(STORAGE_KEY, text),
  forget: () => sessionStorage.removeItem(STORAGE_KEY),
};

/** The answer as an object. Throws Unreachable, NotAllowed, or an Error with the server's message. */
export async function requestAsOperator(path, { method = "GET", body } = {}) {
  const headers = { Authorization: `Bearer ${token.get()}` };
  if (body) headers["Content-Type"] = "application/json";
  const response = await request(`/api/admin/${path}`, { method, headers, body: body && JSON.stringify(body) });
  const answer = await readJson(response);
  if (response.status === 401 || response.status === 403) throw new NotAllowed();
  if (!response.ok) throw new Error(answer.error.message);
  return answer;
}
