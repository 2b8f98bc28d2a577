// Requests to the server, with one error for everything that means that it cannot be reached.

import { clock } from "./formatting.js";

/** The network, the server or its database is down, or the answer was cut off. */
export class Unreachable extends Error {}

/** The response. Throws Unreachable. */
export async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options });
  } catch {
    throw new Unreachable();
  }
  if (response.status >= 500) throw new Unreachable();
  clock.synchronise(response);
  return response;
}

/** The JSON of a response. Throws Unreachable when it is incomplete. */
export async function readJson(response) {
  try {
    return await response.json();
  } catch {
    throw new Unreachable();
  }
}
